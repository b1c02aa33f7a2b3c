package sim

import (
	"time"

	"subway/core/router"
	"subway/core/wire"
)

// gateway is the router under test. Every call into it is told to the book before, which
// says then what must come of it, and settled with the book afterwards.
type gateway struct {
	w      *world
	router *router.Router
	links  []*link // open
	lent   []byte  // what is borrowed for one call, and is wiped after it
	dead   bool

	next func() (bool, bool) // goes on with the checkpoint that is being made
	stop func()              // nil: none is
}

// newGateway starts a gateway with nothing in it.
func newGateway(w *world) *gateway {
	g := &gateway{w: w}
	cfg := router.Config{
		Limits: w.plan.limits, Callbacks: w.outbox, OrphanResponses: true, HeartbeatMs: 30000,
		EpochFloor: w.book.floor(), Seed: w.plan.seed | 1<<63,
	}
	if w.disk != nil {
		cfg.Journal = w.disk
	}
	g.router = router.New(cfg, w.now)
	if w.disk != nil {
		g.restore()
	}
	return g
}

// crash is a gateway's sudden end and the start of another. That one knows nothing, or what
// of the journal has reached the disk.
func (g *gateway) crash() {
	w := g.w
	w.note("the gateway crashes")
	g.dead = true
	for _, l := range g.links {
		if l.cut {
			continue
		}
		l.cut, l.closing, l.held = true, true, nil
		w.after(w.upTo(2*time.Second), func() {
			if !l.left {
				l.left = true
				l.party.lost(l, 0)
			}
		})
	}
	if w.disk != nil {
		w.book.settle()
		g.dropCheckpoint()
		records := w.disk.crash()
		w.outbox.crash()
		w.gate = newGateway(w)
		w.book.revive(records)
		return
	}
	w.outbox.crash()
	w.book.restart()
	w.gate = newGateway(w)
}

func (g *gateway) open(l *link) {
	l.session = g.router.Open(l, "192.0.2.1:5000", g.w.now)
	g.links = append(g.links, l)
}

// receive takes a message of a party.
func (g *gateway) receive(l *link, raw []byte) {
	if g.dead || l.ended || l.shut {
		return
	}
	m := g.w.reader.read(raw)
	if m == nil {
		m = &message{raw: raw}
	}
	if g.w.book.unsure(m) {
		l.sever(g.w.upTo(time.Second), g.w.upTo(time.Second))
		return
	}
	g.w.history.message(g.w.now, l.name, " -> ", m)
	g.w.book.hears(l, m)
	l.session.Receive(g.lend(raw), g.w.now)
	clear(g.lent)
	g.w.book.settle()
}

// lend returns a copy of a message that is good for one call.
func (g *gateway) lend(raw []byte) []byte {
	g.lent = append(g.lent[:0], raw...)
	return g.lent
}

func (g *gateway) writable(l *link) {
	if g.dead || l.ended {
		return
	}
	g.w.note("%s takes commands again", l.name)
	g.w.book.touch(l.place)
	g.w.book.call.swept = l.place
	l.session.Writable(g.w.now)
	g.w.book.settle()
}

func (g *gateway) closed(l *link, reason string) {
	if g.dead || l.ended {
		return
	}
	g.w.note("%s ends: %s", l.name, reason)
	l.closing, l.ended = true, true
	for i, x := range g.links {
		if x == l {
			g.links = append(g.links[:i], g.links[i+1:]...)
			break
		}
	}
	g.w.book.ends(l)
	l.session.Closed(g.w.now, reason)
	g.w.book.settle()
}

// submit posts a command over HTTP and returns the code of its refusal, "" for none.
func (g *gateway) submit(raw []byte) (code string) {
	m := g.w.reader.read(raw)
	g.w.history.message(g.w.now, "http", " -> ", m)
	want := g.w.book.submits(m)
	lent := g.w.reader.read(g.lend(raw))
	refusal := g.router.Submit(&lent.command, lent.raw, g.w.now)
	clear(g.lent)
	code = codeOf(refusal)
	g.w.note("http <- %s %s", m.ref, code)
	if code != want {
		g.w.book.fault(m.ref, m.target, "posted over HTTP it is answered %q, want %q", code, want)
	}
	refused := g.w.book.trial
	g.w.book.settle()
	switch d := g.w.disk; {
	case d == nil:
	case refusal == nil:
		c := g.w.book.commands[m.ref]
		d.at(d.appended(), func() { g.w.book.told(tells{c: c}) })
	case refused != nil && want != "DUPLICATE_REQUEST":
		d.at(refusal.Mark, func() { g.w.book.told(tells{c: refused, refused: true}) })
	}
	return code
}

// cancel cancels a command over HTTP.
func (g *gateway) cancel(ref string) {
	g.w.note("http -> CANCEL %s", ref)
	want := g.w.book.cancels(ref)
	code := codeOf(g.router.Cancel([]byte(ref), g.w.now))
	if code != want {
		g.w.book.fault(ref, "", "its cancel over HTTP is answered %q, want %q", code, want)
	}
	g.w.book.settle()
	if d := g.w.disk; d != nil && code == "" {
		c := g.w.book.commands[ref]
		d.at(d.appended(), func() { g.w.book.told(tells{c: c, ended: true}) })
	}
}

// codeOf returns the code of a refusal, "" for none.
func codeOf(f *router.Refusal) string {
	if f == nil {
		return ""
	}
	return f.Code.String()
}

func (g *gateway) tick() {
	if g.w.disk != nil {
		g.w.disk.mark()
	}
	g.w.book.ticking = true
	g.router.Tick(g.w.now)
	g.w.book.ticked()
	g.w.book.ticking = false
	g.w.book.settle()
}

func (g *gateway) drain(on bool) {
	g.w.note("draining: %v", on)
	g.w.book.draining = on
	g.router.SetDraining(on)
}

// record returns what GET /api/commands/{ref} answers.
func (g *gateway) record(ref string) *wire.CommandRecord { return g.router.Record([]byte(ref)) }

// knows reports whether the API knows a place that is away.
func (g *gateway) knows(p *place) bool {
	if p.direct {
		d := g.router.Device(p.id)
		return d != nil && d.EdgeID == p.id
	}
	return g.router.Edge(p.id) != nil
}
