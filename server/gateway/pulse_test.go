package gateway

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pulsed runs a pulse in a synctest bubble: time.Sleep there moves the bubble's clock and
// waits for nothing real.
type pulsed struct {
	*pulse
	ticks   atomic.Int64
	pending atomic.Int64
}

func startPulse() (p *pulsed, stop func()) {
	p = new(pulsed)
	p.pulse = newPulse(p.pending.Load, func() { p.ticks.Add(1) })
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

// during returns the ticks of a time.
func (p *pulsed) during(d time.Duration) int64 {
	before := p.ticks.Load()
	time.Sleep(d)
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
			time.Sleep(time.Duration(calmTicks-1+round%4) * busyTick)
		}
	})
}
