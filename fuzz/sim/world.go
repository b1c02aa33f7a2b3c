package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"subway/core/wire"
)

// start is when every world begins.
const start = wire.Time(1_705_744_800_000_000_000)

// world is all there is: parties, links between them and the gateway, and the time.
type world struct {
	plan    plan
	rng     *rand.Rand
	now     wire.Time
	agenda  agenda
	history history
	reader  reader
	book    *book
	outbox  *outbox
	gate    *gateway
	disk    *disk // nil: the gateway has no journal
	bug     bug

	edges    []*edge
	backends []*backend
	callers  []*caller
	devices  []string
	links    int
	sends    [64]send // lately
	sent     int
	calm     bool // no more trouble
	over     bool // nobody connects any more
}

// Outcome is what became of a world.
type Outcome struct {
	Seed     uint64
	Commands int    // accepted
	Events   uint64 // of the agenda
	Sum      uint32 // over the history
	Faults   []string
	Excerpt  string // of the history, about the first fault
}

// Run plays the world of a seed to its end, or to its first fault.
func Run(seed uint64) Outcome { return run(seed, bug{}) }

func run(seed uint64, with bug) (out Outcome) {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{plan: newPlan(seed, rng), rng: rng, now: start, bug: with}
	w.book, w.outbox = newBook(w), newOutbox(w)
	if w.plan.journal {
		w.disk = newDisk(w)
	}
	defer func() {
		if w.gate != nil {
			w.gate.dropCheckpoint()
		}
		if r := recover(); r != nil {
			w.book.fault("", "", "panic: %v\n%s", r, debug.Stack())
		}
		out = Outcome{Seed: seed, Commands: w.book.accepted, Events: w.agenda.asked, Sum: w.history.sum}
		for _, f := range w.book.faults {
			out.Faults = append(out.Faults, f.what)
		}
		if len(out.Faults) > 0 {
			out.Excerpt = w.history.excerpt(w.book.faults[0].subjects...)
		}
	}()
	w.gate = newGateway(w)
	w.populate()
	w.play()
	return out
}

// populate makes the parties and what they mean to do.
func (w *world) populate() {
	p := &w.plan
	for i := range p.edges {
		id := fmt.Sprintf("edge-%d", i)
		w.edges = append(w.edges, w.newEdge(id, id, false))
	}
	for i := range p.devices {
		d := fmt.Sprintf("td-%d", i)
		e := w.edges[w.rng.IntN(p.edges)]
		e.devices, w.devices = append(e.devices, d), append(w.devices, d)
	}
	for i := range p.directs {
		id := fmt.Sprintf("scr-%d", i)
		w.edges, w.devices = append(w.edges, w.newEdge(id, id, true)), append(w.devices, id)
	}
	for _, e := range w.edges {
		e.reconnect(w.upTo(2 * time.Second))
		e.trouble()
	}
	for i := range p.backends {
		b := &backend{w: w, id: fmt.Sprintf("backend-%d", i)}
		w.backends = append(w.backends, b)
		w.after(w.upTo(time.Second), b.connect)
		b.trouble()
	}
	for i := range p.callers {
		w.callers = append(w.callers, &caller{w: w, id: fmt.Sprintf("http-%d", i)})
	}
	w.schedule()
}

// schedule spreads the commands, and what befalls the gateway, over the span.
func (w *world) schedule() {
	p := &w.plan
	for n := 0; n < p.commands; {
		at := time.Second + w.upTo(p.span)
		together := 1
		if w.chance(0.1) {
			together = p.burst
		}
		for range together {
			n++
			if i := w.rng.IntN(p.backends + p.callers); i < p.backends {
				w.after(at, w.backends[i].command)
			} else {
				w.after(at, w.callers[i-p.backends].command)
			}
		}
	}
	for range p.crashes {
		w.after(w.upTo(p.span), func() { w.gate.crash() })
	}
	for range p.checkpoints {
		w.after(w.upTo(p.span), func() { w.gate.checkpoint() })
	}
	for range p.refusals {
		w.after(w.upTo(p.span), func() { w.disk.refuse(w.upTo(2 * time.Second)) })
	}
	if p.drains {
		w.after(w.upTo(p.span), func() {
			w.gate.drain(true)
			w.after(w.upTo(2*time.Second), func() { w.gate.drain(false) })
		})
	}
	w.after(p.span, func() { w.calm = true })
}

// play lets the events come, and time pass, until all commands have ended and what the router
// looks for once a second is done; then it looks at what is left.
func (w *world) play() {
	end := w.now + wire.Time(w.plan.span)
	for quiet := wire.Time(0); !w.wrong() && quiet < wire.Time(2*time.Second); quiet += wire.Time(w.plan.tick) {
		w.until(w.now + wire.Time(w.plan.tick))
		if w.wrong() {
			return
		}
		w.gate.tick()
		if w.now < end || w.gate.router.Pending() > 0 {
			quiet = 0
		}
	}
	w.rest()
}

// until lets come what comes up to an instant.
func (w *world) until(end wire.Time) {
	for len(w.agenda.events) > 0 && w.agenda.events[0].at <= end && !w.wrong() {
		x := w.agenda.next()
		w.now = x.at
		x.do()
	}
	w.now = max(w.now, end)
}

// pass lets so much time pass, with a Tick every second.
func (w *world) pass(d time.Duration) {
	for end := w.now + wire.Time(d); w.now < end && !w.wrong(); {
		w.until(min(w.now+wire.Time(time.Second), end))
		w.gate.tick()
	}
}

func (w *world) wrong() bool { return len(w.book.faults) > 0 }

// rest compares the books while nothing goes on, and again when everybody has left and
// all that is kept should be gone.
func (w *world) rest() {
	if w.wrong() {
		return
	}
	w.book.compare()
	w.over = true
	for _, e := range w.edges {
		e.up, e.link = false, nil
	}
	for _, b := range w.backends {
		b.link = nil
	}
	for _, l := range w.gate.links {
		l.leave()
	}
	w.pass(100 * time.Second) // the gateway notices the last of them
	w.jump(w.plan.limits.Retention + w.plan.limits.PermanentAfter + w.plan.limits.RouteRetention)
	if !w.wrong() {
		w.book.empty()
	}
}

// jump lets so much time pass in which nothing happens, with two Ticks at its end.
func (w *world) jump(d time.Duration) {
	if w.wrong() {
		return
	}
	w.until(w.now + wire.Time(d))
	for range 2 {
		w.now += 2 * wire.Time(time.Second)
		w.gate.tick()
	}
}

func (w *world) at(t wire.Time, do func()) { w.agenda.add(max(t, w.now), do) }

func (w *world) after(d time.Duration, do func()) { w.at(w.now+wire.Time(d), do) }

func (w *world) note(format string, args ...any) { w.history.note(w.now, format, args...) }

// chance is true with probability p.
func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// upTo returns a duration below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d) + 1)) }

// around returns a duration of that mean.
func (w *world) around(d time.Duration) time.Duration {
	return time.Duration(float64(d) * min(w.rng.ExpFloat64(), 10))
}

// device returns some device, now and then one that is not there.
func (w *world) device() string {
	if w.chance(0.01) {
		return "td-x"
	}
	return w.devices[w.rng.IntN(len(w.devices))]
}

// send is a command that somebody sends.
type send struct{ ref, target string }

// remember notes a command that is sent; recent returns one of the last.
func (w *world) remember(ref, target string) {
	w.sends[w.sent%len(w.sends)] = send{ref, target}
	w.sent++
}

func (w *world) recent() send {
	if w.sent == 0 {
		return send{ref: "none"}
	}
	return w.sends[w.rng.IntN(min(w.sent, len(w.sends)))]
}
