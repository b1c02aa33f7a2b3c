package gateway

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pulsed runs a pulse in a synctest bubble: waiting there moves the bubble's clock and
// takes no time.
type pulsed struct {
	*pulse
	ticks    atomic.Int64
	pending  atomic.Int64
	arriving atomic.Bool // a command comes as soon as the pulse has looked for one
}

func startPulse() (p *pulsed, stop func()) {
	p = new(pulsed)
	p.pulse = newPulse(p.look, func() { p.ticks.Add(1) })
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		p.run(end)
		close(ended)
	}()
	return p, func() {
		close(end)
		<-ended
	}
}

func (p *pulsed) look() int64 {
	n := p.pending.Load()
	if p.arriving.CompareAndSwap(true, false) {
		p.pending.Add(1)
		p.stir()
	}
	return n
}

// during returns the ticks of a time.
func (p *pulsed) during(d time.Duration) int64 {
	before := p.ticks.Load()
	<-time.After(d)
	synctest.Wait()
	return p.ticks.Load() - before
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := startPulse()
		defer stop()
		p.during(time.Second) // it comes to rest
		for round := range 20 {
			if n := p.during(10 * time.Second); n != 10 {
				t.Fatalf("round %d: %d ticks in ten seconds without a command", round, n)
			}
			p.during(time.Duration(round) * 17 * time.Millisecond) // somewhere in its rest
			p.pending.Add(1)
			p.stir()
			if n := p.during(busyTick); n != 1 {
				t.Fatalf("round %d: %d ticks in the first %v of a command", round, n, busyTick)
			}
			if n := p.during(time.Second); n != 100 {
				t.Fatalf("round %d: %d ticks in a second with a command in flight", round, n)
			}
			p.pending.Add(-1)
			if n := p.during(calmTicks * busyTick); n != calmTicks {
				t.Fatalf("round %d: %d ticks after the last command", round, n)
			}
		}
	})
}

// A command that comes at the very moment of going to rest is not missed: whatever way
// the two interleave, it is ticked for long before the rest would be over.
func TestPulseMissesNoCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := startPulse()
		defer stop()
		for round := range 2000 {
			p.pending.Add(1)
			p.stir()
			if n := p.during(2 * busyTick); n == 0 {
				t.Fatalf("round %d: no tick for a command", round)
			}
			p.pending.Add(-1)
			// A multiple of busyTick ends as the pulse decides: both run at once then.
			<-time.After(time.Duration(calmTicks-1+round%4) * busyTick)
		}
	})
}

// A command that comes after the pulse has looked for one, and before it says that it rests,
// is seen by its second look: the one that brought it could not know that it must stir.
func TestPulseLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := startPulse()
		defer stop()
		for tick := range 2 * calmTicks {
			p.pending.Add(1)
			p.stir()
			p.during(2 * busyTick)
			p.pending.Add(-1)
			p.during(time.Duration(tick) * busyTick) // so that it comes at each step to its rest
			p.arriving.Store(true)
			p.during(idleTick) // it has come by then, at rest or not
			if n := p.during(2 * busyTick); n == 0 {
				t.Fatalf("after %d ticks: no tick for a command", tick)
			}
			p.pending.Add(-1)
		}
	})
}
