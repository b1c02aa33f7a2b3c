package gateway

import (
	"sync/atomic"
	"time"

	"subway/core/router"
	"subway/core/wire"
)

const (
	busyTick  = 10 * time.Millisecond // while commands are in flight
	idleTick  = time.Second           // while there are none: records and routes get old
	calmTicks = 10                    // without a command in flight, before it rests
)

// pulse drives the router's timers: each busyTick while commands are in flight and for
// calmTicks more, each idleTick when it rests. For a wake-up costs as much as the timers
// do: Go's own monitor runs for a millisecond after each.
//
// Whoever may have made a command pending calls stir afterwards, which is one load of an
// atomic while the pulse does not rest. No command is missed: the pulse says that it rests and
// then looks once more whether one is pending, stir looks the other way round.
type pulse struct {
	pending func() int64 // commands in flight
	tick    func()
	resting atomic.Bool
	stirred chan struct{} // holds one; full: run is about to read it
}

func newPulse(pending func() int64, tick func()) *pulse {
	return &pulse{pending: pending, tick: tick, stirred: make(chan struct{}, 1)}
}

// stir ends the rest if a command is pending. Any goroutine; it does not block.
func (p *pulse) stir() {
	if p.resting.Load() && p.pending() > 0 && p.resting.CompareAndSwap(true, false) {
		select {
		case p.stirred <- struct{}{}:
		default:
		}
	}
}

// run ticks until stop is closed.
func (p *pulse) run(stop <-chan struct{}) {
	t := time.NewTimer(busyTick)
	defer t.Stop()
	calm := 0
	for {
		select {
		case <-t.C:
			p.tick()
		case <-p.stirred:
			calm = 0
		case <-stop:
			return
		}
		p.resting.Store(false)
		if calm++; p.pending() > 0 {
			calm = 0
		}
		t.Reset(p.next(calm))
	}
}

// next says when to tick, and rests where all has been calm for long enough.
func (p *pulse) next(calm int) time.Duration {
	if calm < calmTicks {
		return busyTick
	}
	p.resting.Store(true)
	if p.pending() > 0 { // it came before its sender could see that we rest
		p.resting.Store(false)
		return busyTick
	}
	return idleTick
}

// session is a router's session whose commands stir the pulse.
type session struct {
	*router.Session
	pulse *pulse
}

// Receive implements front.Session.
func (s *session) Receive(msg []byte, now wire.Time) {
	s.Session.Receive(msg, now)
	s.pulse.stir()
}
