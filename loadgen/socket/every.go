package socket

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lagMax  = 10 * time.Second      // how far a loop may fall behind its ticks
	tickMin = 10 * time.Microsecond // below, the ticks themselves would be the load
	coarse  = 5 * time.Millisecond  // what is left of a wait when Go's own timers are too rough for the rest
)

// Every calls f on every loop for each tick of an absolute schedule, with the engine time
// the tick was intended for and that of the round. The first is due after d (at least
// 10 us). Ticks that could not be run in time are run late, one by one; those more than
// 10 s behind (and the last but one, where d is longer) are merged and counted.
//
// The function returned ends the schedule and waits until f runs no more. It may be
// called twice; on a loop it would wait for itself. Stop ends the schedule as well.
//
// A thread of its own sleeps between the ticks: Go's timers are a millisecond coarse.
func (e *Engine) Every(d time.Duration, f func(l *Loop, intended, now int64)) (stop func()) {
	s := &schedule{engine: e, every: int64(max(d, tickMin)), f: f, quit: make(chan struct{}), ended: make(chan struct{})}
	for _, l := range e.loops {
		b := &beat{schedule: s, loop: l}
		b.wake = b.run
		s.beats = append(s.beats, b)
	}
	s.begun = e.Now()
	if !e.work(s.run) {
		return func() {}
	}
	return sync.OnceFunc(s.stop)
}

// Merged is how many ticks of all schedules were not run because a loop was more than
// 10 s behind.
func (e *Engine) Merged() int64 { return e.merged.Load() }

// schedule is one call of Every.
type schedule struct {
	engine *Engine
	every  int64 // ns
	begun  int64 // engine time
	f      func(l *Loop, intended, now int64)
	beats  []*beat
	quit   chan struct{} // stop was called
	ended  chan struct{} // the thread has ended
	off    atomic.Bool   // f is not to be called again
}

// beat is the schedule of one loop.
type beat struct {
	schedule *schedule
	loop     *Loop
	wake     func()       // run, made once
	due      atomic.Int64 // ticks that are due, in all
	posted   atomic.Bool  // the loop was asked to run them
	ran      int64        // loop only
}

// run tells the loops which ticks are due.
func (s *schedule) run() {
	defer close(s.ended)
	runtime.LockOSThread()                             // for good: the thread ends with this goroutine, and its slack with it
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it a sleep is up to 50 us too long
	for n := int64(1); s.sleep(s.begun + n*s.every); n++ {
		n = max(n, (s.engine.Now()-s.begun)/s.every) // all that are due by now
		for _, b := range s.beats {
			b.due.Store(n)
			// One call waits at most; a loop that takes none more has stopped.
			if !b.posted.Swap(true) && b.loop.post(b.wake, unbounded) != nil {
				return
			}
		}
	}
}

// sleep waits for an engine time; false: the schedule is to end.
func (s *schedule) sleep(until int64) bool {
	if wait := time.Duration(until-s.engine.Now()) - coarse; wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.quit:
		case <-s.engine.ctx.Done():
		}
	}
	for !s.over() {
		wait := until - s.engine.Now()
		if wait <= 0 {
			return true
		}
		precisely(wait)
	}
	return false
}

func (s *schedule) over() bool {
	select {
	case <-s.quit:
		return true
	case <-s.engine.ctx.Done():
		return true
	default:
		return false
	}
}

// precisely sleeps ns on this thread. The end is absolute, so that losing the processor
// before the sleep begins makes it no longer. A signal may end it early.
func precisely(ns int64) {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		end := unix.NsecToTimespec(now.Nano() + ns)
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &end, nil)
	}
}

// stop ends the schedule; when it returns f runs on no loop.
func (s *schedule) stop() {
	s.off.Store(true)
	close(s.quit)
	<-s.ended
	for _, b := range s.beats {
		passed := make(chan struct{})
		if b.loop.post(func() { close(passed) }, unbounded) == nil {
			<-passed
		} else {
			<-s.engine.drained
		}
	}
}

// run runs the ticks that are due. Loop only.
func (b *beat) run() {
	b.posted.Store(false)
	s := b.schedule
	due := b.due.Load()
	if lost := due - b.ran - max(1, int64(lagMax)/s.every); lost > 0 {
		b.ran += lost
		s.engine.merged.Add(lost)
	}
	if s.begun+due*s.every > b.loop.now { // it came due within the round
		b.loop.now = s.engine.Now()
	}
	for b.ran < due && !s.off.Load() {
		b.ran++
		s.f(b.loop, s.begun+b.ran*s.every, b.loop.Now())
	}
}
