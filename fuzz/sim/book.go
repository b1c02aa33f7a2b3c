package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"subway/core/router"
	"subway/core/wire"
)

// book is the second book of a world, and its judge.
type book struct {
	w      *world
	limits *router.Limits // all that the book uses are set

	edges, directs map[string]*place
	routes         map[string]*place    // by device
	limbo          *place               // where what waits for no route waits
	went           int                  // places that went so far
	tidyAt         wire.Time            // no place is kept too long before
	strayed        map[string]wire.Time // when the last command for a device without a route ended
	backends       map[string]*link
	epochs         map[string]int64 // the last told, by party
	lastEpoch      int64            // of all

	commands map[string]*command // the last of each ref
	used     map[string]int      // how often each ref was taken, or answered as one that is not known
	open     []*command          // accepted and not known to have ended, by deadline; see ticked
	accepted int
	trials   int // commands, refused ones too
	pending  int64
	nEnded   int
	results  [len(endings)]uint64 // ends by state, since the gateway's start
	late     uint64
	orphans  uint64
	dropped  uint64 // status messages

	journalled
	draining bool
	ticking  bool
	call     call
	faults   []fault
}

// endings are the states that end a command.
var endings = [...]router.State{router.Completed, router.Failed, router.TimedOut, router.Cancelled}

// command is one accepted command.
type command struct {
	ref, target, source string
	callback            bool
	priority            wire.Priority
	timeout             wire.Time
	seq                 int
	created, deadline   wire.Time

	state    router.State
	stage    router.State   // the last before its end
	at       *place         // where it waits, or was handed to
	kept     bool           // by the router, to be handed over again
	handed   map[*link]bool // to these sessions
	executed map[*edge]int
	raw      []byte // as it was handed over first
	progress string // the last
	result   string // of its COMMAND_RESPONSE
	ended    wire.Time
	endsLow  int // ends before its own, at the least,
	endsHigh int // and up to its own, at the most: those of one tick come in any order
	waiter   *router.Waiter

	// With a journal.
	call    int       // that accepted it
	past    []version // by call
	fact    *fact     // of this command, and no other of its ref
	slack   wire.Time // its end may come so much later than its deadline
	left    bool      // for an edge
	told    bool      // that it was accepted
	toldEnd bool
	refused bool // which was told
}

// fault is something that must not be.
type fault struct {
	what     string
	subjects []string
}

// call is what has to come of one call into the gateway.
type call struct {
	wants   []want
	touched []*place
	swept   *place // what waits is handed over to it
	ended   []*command
	unnamed *command // accepted, and its ref is not known yet
}

// want is a message, or a notice for a callback, that must come in this call.
type want struct {
	link   *link // nil: a notice
	kind   wire.Type
	ref    string
	word   string
	raw    []byte // nil, or it must be this, byte for byte
	finish bool   // of a notice: the last
	close  uint16
}

func newBook(w *world) *book {
	b := &book{w: w, limits: &w.plan.limits, epochs: map[string]int64{}}
	b.reset()
	return b
}

// reset makes the book that of a gateway with nothing in it.
func (b *book) reset() {
	b.edges, b.directs, b.routes = map[string]*place{}, map[string]*place{}, map[string]*place{}
	b.backends, b.commands, b.used = map[string]*link{}, map[string]*command{}, map[string]int{}
	b.limbo = &place{id: "nowhere", devices: map[string]bool{}, flight: map[*command]bool{}}
	b.strayed = map[string]wire.Time{}
	b.open, b.pending, b.nEnded, b.results = nil, 0, 0, [len(endings)]uint64{}
	b.late, b.orphans, b.dropped, b.call, b.tidyAt = 0, 0, 0, call{}, never
	b.journalled = journalled{routes: map[string][]routing{}, attempts: map[int]attempt{}}
}

// restart notes that the gateway is a new one, which knows nothing of what was.
func (b *book) restart() {
	b.settle()
	b.draining = false
	b.reset()
}

// floor is below every epoch that a new gateway may give.
func (b *book) floor() int64 { return b.lastEpoch }

// fault notes that something is wrong with a command or a party.
func (b *book) fault(subject, other, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if subject != "" {
		what = subject + ": " + what
	}
	b.w.note("WRONG %s", what)
	if len(b.faults) < 10 {
		b.faults = append(b.faults, fault{what, []string{subject, other}})
	}
}

// wants says that a message must come on l, if it takes any.
func (b *book) wants(l *link, kind wire.Type, ref, word string) {
	if l != nil && !l.closing {
		b.call.wants = append(b.call.wants, want{link: l, kind: kind, ref: ref, word: word})
	}
}

// passes says that a message of a party must come on l as it came.
func (b *book) passes(l *link, m *message) {
	if l != nil && !l.closing {
		b.call.wants = append(b.call.wants, want{link: l, kind: m.kind, ref: m.ref, word: wordOf(m), raw: m.raw})
	}
}

func (b *book) wantsClose(l *link, code uint16) {
	if l != nil && !l.closing {
		b.call.wants = append(b.call.wants, want{link: l, close: code})
	}
}

func (b *book) wantsNotice(c *command, word string, finish bool) {
	if c.callback {
		b.call.wants = append(b.call.wants, want{ref: c.ref, word: word, finish: finish})
	}
}

// touch says that something may leave for a place now.
func (b *book) touch(p *place) {
	if p != nil && !slices.Contains(b.call.touched, p) {
		b.call.touched = append(b.call.touched, p)
	}
}

// take takes a want out that fits and reports whether there was one.
func (b *book) take(fits func(*want) bool) bool {
	for i := range b.call.wants {
		if fits(&b.call.wants[i]) {
			b.call.wants = slices.Delete(b.call.wants, i, i+1)
			return true
		}
	}
	return false
}

// settle checks at the end of a call that all came that had to.
func (b *book) settle() {
	for _, x := range b.call.wants {
		switch {
		case x.close != 0:
			b.fault("", x.link.name, "%s is not closed with %d", x.link.name, x.close)
		case x.link == nil:
			b.fault(x.ref, "", "no notice %q for its callback", x.word)
		default:
			b.fault(x.ref, x.link.name, "%s is not told %v %s", x.link.name, x.kind, x.word)
		}
	}
	if b.call.swept != nil {
		b.swept(b.call.swept)
	}
	for _, p := range b.call.touched {
		b.idle(p)
	}
	for _, c := range b.call.ended {
		c.endsHigh = b.nEnded
		b.release(c)
	}
	if n := b.w.gate.router.Pending(); !b.ticking && n != b.pending {
		b.fault("", "", "%d commands are pending, want %d", n, b.pending)
		b.pending = n
	}
	b.call = call{wants: b.call.wants[:0], touched: b.call.touched[:0], ended: b.call.ended[:0]}
	b.endCall()
}

// idle checks that nothing is held back from a place to which the way is clear.
func (b *book) idle(p *place) {
	if p.link == nil || !p.link.clear() {
		return
	}
	if c := p.first(); c != nil {
		b.fault(c.ref, p.id, "waits while the way to %s is clear", p.key())
	}
	for _, c := range p.replay {
		b.fault(c.ref, p.id, "is not handed again to the new session of %s", p.key())
	}
}

// release checks what whoever waited for the end of a command is told.
func (b *book) release(c *command) {
	if c.waiter == nil {
		return
	}
	rec := c.waiter.Record()
	if rec == nil {
		b.fault(c.ref, "", "has ended and who waits for it is not told")
	} else if rec.Status != c.state.String() {
		b.fault(c.ref, "", "who waits for it is told %s, it is %v", rec.Status, c.state)
	} else if d := b.w.disk; d != nil {
		d.at(rec.Mark, func() { b.told(tells{c: c, ended: true}) })
	}
	c.waiter = nil
}

// ticked checks, after a Tick, the commands whose deadline has come.
func (b *book) ticked() {
	now := b.w.now
	late := b.open[:0:0]
	n := 0
	for n < len(b.open) && b.open[n].deadline <= now {
		c := b.open[n]
		n++
		if c.state.Final() {
			continue
		}
		rec := b.w.gate.record(c.ref)
		switch {
		case rec == nil && !c.callback && b.hearing(c) == nil: // nobody could be told, and its record went at once
			b.end(c, router.TimedOut)
		case rec == nil:
			b.fault(c.ref, c.target, "is not known, and it has not ended")
		case rec.Status == router.TimedOut.String():
			b.untold(c)
		case now > max(c.deadline+c.slack, b.began)+allowance(c.timeout):
			b.fault(c.ref, c.target, "has not ended %v after its deadline: %s", time.Duration(now-c.deadline), rec.Status)
		default:
			late = append(late, c)
		}
	}
	b.open = append(late, b.open[n:]...)
	b.tidy(now)
}

// allowance is how late a timeout may be (PROTOCOL.md section 8).
func allowance(timeout wire.Time) wire.Time {
	return max(wire.Time(100*time.Millisecond), timeout/500)
}

// untold ends a command that timed out without a word: nobody was there to be told.
func (b *book) untold(c *command) {
	if c.callback || b.hearing(c) != nil {
		b.fault(c.ref, c.target, "has timed out and nobody was told")
	}
	b.end(c, router.TimedOut)
}

// hearing returns the link of a command's source, nil where it takes nothing.
func (b *book) hearing(c *command) *link {
	if l := b.backends[c.source]; l != nil && !l.closing {
		return l
	}
	return nil
}

// watch puts a command among those that are open, by their deadlines.
func (b *book) watch(c *command) {
	i, _ := slices.BinarySearchFunc(b.open, c, func(x, y *command) int {
		return cmp.Or(cmp.Compare(x.deadline, y.deadline), cmp.Compare(x.seq, y.seq))
	})
	b.open = slices.Insert(b.open, i, c)
}

func (b *book) unwatch(c *command) {
	i, found := slices.BinarySearchFunc(b.open, c, func(x, y *command) int {
		return cmp.Or(cmp.Compare(x.deadline, y.deadline), cmp.Compare(x.seq, y.seq))
	})
	if found {
		b.open = slices.Delete(b.open, i, i+1)
	}
}

// end ends a command.
func (b *book) end(c *command, state router.State) {
	if c.at != nil {
		if c.state == router.Pending {
			c.at.dequeue(c)
		}
		if c.at == b.limbo {
			b.strayed[c.target] = b.w.now
		}
		delete(c.at.flight, c)
		if i := slices.Index(c.at.replay, c); i >= 0 {
			c.at.replay = slices.Delete(c.at.replay, i, i+1)
		}
	}
	if !b.ticking {
		b.unwatch(c)
	}
	c.state, c.ended, c.endsLow = state, b.w.now, b.nEnded
	b.change(c)
	if n := len(b.call.ended); n > 0 && b.ticking {
		c.endsLow = b.call.ended[0].endsLow
	}
	b.nEnded++
	b.pending--
	b.results[state-router.Completed]++
	b.call.ended = append(b.call.ended, c)
}

// known reports whether a ref is one that the gateway knows, and checks that it knows
// those that it must and no other.
func (b *book) known(ref string) *command {
	c := b.commands[ref]
	if c == nil || !c.state.Final() {
		return c
	}
	now, most := b.w.now, int(b.limits.MaxRecords)
	rec := b.w.gate.record(ref)
	switch {
	case rec == nil && now < c.ended+wire.Time(b.limits.Retention) && b.nEnded-c.endsLow <= most:
		b.fault(ref, c.target, "its record is not kept, %v after its end", time.Duration(now-c.ended))
	case rec != nil && b.nEnded-c.endsHigh >= most:
		b.fault(ref, c.target, "its record is kept, %d commands ended after it", b.nEnded-c.endsHigh)
	case rec != nil && now > c.ended+wire.Time(b.limits.Retention)+wire.Time(time.Second)+2*wire.Time(b.w.plan.tick):
		b.fault(ref, c.target, "its record is kept, %v after its end", time.Duration(now-c.ended))
	case rec != nil && rec.Status != c.state.String():
		b.fault(ref, c.target, "its record says %s, it is %v", rec.Status, c.state)
	}
	if rec == nil {
		delete(b.commands, ref)
		return nil
	}
	return c
}
