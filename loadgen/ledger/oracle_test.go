package ledger

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// happening is something that a party told of one command.
type happening struct {
	what    string
	step    int
	end     Outcome
	source  uint16
	session uint16
	owned   bool
	again   bool
	id      string
	confirm bool
}

// history draws what happens to a command: mostly what should, with anything in between.
func history(rng *rand.Rand) (h []happening) {
	what := []string{"arrived", "stepped", "answered", "progress", "final", "called progress", "called"}
	for _, w := range what {
		for rng.IntN(8) > 1 && len(h) < 24 {
			h = append(h, happening{
				what: w, step: rng.IntN(3), end: Outcome(1 + rng.IntN(int(outcomes)-1)), source: uint16(rng.IntN(8) / 7),
				session: uint16(rng.IntN(2)), owned: rng.IntN(8) > 0, again: rng.IntN(2) == 0,
				id: []string{"x", "y"}[rng.IntN(8)/7], confirm: rng.IntN(2) == 0,
			})
			if rng.IntN(3) > 0 {
				break
			}
		}
	}
	for range rng.IntN(3) {
		i, j := rng.IntN(len(h)+1), rng.IntN(len(h)+1)
		if i < len(h) && j < len(h) {
			h[i], h[j] = h[j], h[i]
		}
	}
	return h
}

// play tells the book.
func (h happening) play(b *Book, seq uint64, now int64) {
	switch h.what {
	case "arrived":
		b.Arrived(Arrival{Seq: seq, Target: 5, Owned: h.owned, Dedupe: true, Session: h.session})
	case "stepped":
		b.Stepped(seq, h.step)
	case "answered":
		b.Answered(seq, h.end)
	case "progress":
		b.Progress(seq, h.step)
	case "final":
		b.Final(seq, h.source, h.end, now)
	case "called progress":
		b.CallbackProgress(seq, h.step, h.again)
	case "called":
		b.CallbackFinal(seq, h.end, []byte(h.id), h.confirm, now)
	}
}

// oracle judges histories one after another, with nothing but what it was told: no chunks,
// no locks, no packed marks.
type oracle struct {
	faults map[Fault]uint64
	ends   map[Outcome]uint64
	sums   struct{ delivered, again, sent, told, due, called, repeats uint64 }
}

// judged is what the oracle knows of one command.
type judged struct {
	o                      *oracle
	callback               bool // is due
	delivered, confirmed   bool
	session                uint16
	sent, told, called     int
	answered, final, ended Outcome // the device's word, the channel's, the callback's
	id                     string
}

func (c *judged) fault(f Fault) { c.o.faults[f]++ }

func (c *judged) hear(h happening) {
	switch h.what {
	case "arrived":
		c.arrived(h)
	case "stepped":
		c.o.sums.sent++
		c.sent = max(c.sent, h.step+1)
	case "answered":
		c.answered = h.end
	case "progress":
		c.progress(h.step + 1)
	case "final":
		c.told1(h)
	case "called progress":
		c.calledProgress(h)
	case "called":
		c.called1(h)
	}
}

func (c *judged) arrived(h happening) {
	if !h.owned {
		c.fault(Misrouted)
	}
	if c.final == Refused {
		c.fault(Contradiction)
	}
	if c.delivered {
		c.o.sums.again++
		if h.session == c.session {
			c.fault(DeliveredTwice)
		}
	} else {
		c.o.sums.delivered++
	}
	c.delivered, c.session = true, h.session
}

func (c *judged) progress(at int) {
	c.o.sums.told++
	switch {
	case c.final != Unknown:
		c.fault(AfterFinal)
	case at <= c.told:
		c.fault(Disorder)
	case at > c.sent:
		c.fault(Contradiction)
	default:
		if at > c.told+1 {
			c.fault(ProgressLost)
		}
		c.told = at
	}
}

func (c *judged) compare(end Outcome) {
	if c.answered == Unknown && (end == Completed || end == Failed) {
		c.fault(Contradiction)
	}
	if c.answered != Unknown && c.answered != end && (end == Completed || end == Failed) {
		c.fault(Contradiction)
	}
	for _, other := range []Outcome{c.final, c.ended} {
		if other != Unknown && other != end {
			c.fault(Contradiction)
		}
	}
}

func (c *judged) told1(h happening) {
	switch {
	case h.source != 0:
		c.fault(Foreign)
	case c.final != Unknown:
		c.fault(EndedTwice)
	default:
		c.compare(h.end)
		if h.end == Refused && c.delivered {
			c.fault(Contradiction)
		}
		if h.end == Completed && c.told < c.sent {
			c.fault(ProgressLost)
		}
		if h.end == Refused && c.callback {
			c.o.sums.due--
		}
		c.final = h.end
		c.o.ends[h.end]++
	}
}

func (c *judged) calledProgress(h happening) {
	at := h.step + 1
	switch {
	case c.ended != Unknown:
		c.fault(AfterFinal)
	case at < c.called, at == c.called && !h.again:
		c.fault(Disorder)
	default:
		c.called = at
	}
}

func (c *judged) called1(h happening) {
	switch {
	case !c.callback:
		c.fault(Foreign)
		return
	case c.ended == Unknown:
		c.compare(h.end)
		c.ended, c.id = h.end, h.id
		c.o.sums.called++
	default:
		c.o.sums.repeats++
		switch {
		case h.end != c.ended:
			c.fault(Contradiction)
		case h.id != c.id:
			c.fault(CalledTwice)
		case c.confirmed:
			c.fault(CalledTwice)
		}
	}
	c.confirmed = c.confirmed || h.confirm
}

// close judges what is still open when the gateway, asked, says that it ended so.
func (c *judged) close(end Outcome) {
	told, callback := c.final == Unknown, c.callback && c.ended == Unknown && c.final != Refused
	switch {
	case !told && !callback:
		return
	case told:
		c.fault(Untold)
	default:
		c.fault(Uncalled)
	}
	c.compare(end)
	if c.final == Unknown && c.ended == Unknown {
		c.o.ends[end]++
	}
}

// Many goroutines tell of random histories, each of its own commands; the balance must be
// that of the oracle, which hears the same one command at a time.
func TestOracle(t *testing.T) {
	t.Logf("-seed %d", *seed)
	const players, commands = 8, 4_000
	b := New(Options{MaxOpen: players * commands, Grace: 1e18})
	numbers, plays := make([][]uint64, players), make([][][]happening, players)
	var all sync.WaitGroup
	for p := range players {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(*seed, uint64(p)))
			for i := range commands {
				seq, ok := b.Open(Terms{Target: 5, Priority: Normal, Told: true, Callback: i%2 == 0}, int64(i))
				if !ok {
					t.Error("the book is full")
					return
				}
				h := history(rng)
				for _, x := range h {
					x.play(b, seq, int64(i))
				}
				numbers[p], plays[p] = append(numbers[p], seq), append(plays[p], h)
			}
		})
	}
	all.Wait()
	for _, o := range b.Unsettled(players * commands) {
		b.Asked(o, TimedOut, true, 1)
	}
	o := oracle{faults: map[Fault]uint64{}, ends: map[Outcome]uint64{}}
	for p := range plays {
		for i, h := range plays[p] {
			c := judged{o: &o, callback: i%2 == 0}
			if c.callback {
				o.sums.due++
			}
			for _, x := range h {
				c.hear(x)
			}
			c.close(TimedOut)
		}
	}
	checkOracle(t, b, &o)
	seqs := slices.Concat(numbers...)
	slices.Sort(seqs)
	if n := len(slices.Compact(seqs)); n != players*commands || b.Settled() != uint64(n) {
		t.Errorf("%d different numbers, %d settled", n, b.Settled())
	}
}

func checkOracle(t *testing.T, b *Book, o *oracle) {
	t.Helper()
	for f := range faultKinds {
		if b.Faults(f) != o.faults[f] {
			t.Errorf("%s: %d, the oracle says %d", f, b.Faults(f), o.faults[f])
		}
	}
	for end := Completed; end < outcomes; end++ {
		if b.ends[end].Load() != o.ends[end] {
			t.Errorf("%s: %d, the oracle says %d", end, b.ends[end].Load(), o.ends[end])
		}
	}
	for c, want := range map[counter]uint64{
		deliveredCount: o.sums.delivered, redelivered: o.sums.again, progressSent: o.sums.sent, progressTold: o.sums.told,
		callbacksDue: o.sums.due, callbacksEnded: o.sums.called, callbackRepeats: o.sums.repeats,
	} {
		if got := b.counts[c].Load(); got != want {
			t.Errorf("counter %d: %d, the oracle says %d", c, got, want)
		}
	}
}
