package attack

import (
	"errors"
	"math"
	"sync"
	"time"
)

// maxChanges bounds the rate changes that a pacer has yet to come to. It gets behind
// them only when all workers are busy.
const maxChanges = 1_024

// plan is the schedule of an open loop: the instants at which the integral of the rate
// passes whole numbers, the first one at the beginning. Within a stretch of constant
// rate they are evenly spaced; across a change the part of an interval that has passed
// counts. Times are nanoseconds since the beginning.
type plan struct {
	mu      sync.Mutex
	changes []change // guarded by mu: the stretch in force first
	at      float64  // guarded by mu: up to where the plan was carried out
	need    float64  // guarded by mu: requests' worth of rate until the next instant
	changed chan struct{}
}

// change is a rate, in requests per nanosecond, from an instant on.
type change struct{ from, rate float64 }

func newPlan(perSecond float64) *plan {
	return &plan{changes: []change{{rate: perSecond / 1e9}}, changed: make(chan struct{}, 1)}
}

var errTooManyChanges = errors.New("attack: too many changes of the rate while all workers are busy")

// set changes the rate from now on; what was due before stays due.
func (p *plan) set(now time.Duration, perSecond float64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.changes) >= maxChanges {
		return errTooManyChanges
	}
	p.changes = append(p.changes, change{from: float64(now), rate: perSecond / 1e9})
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return nil
}

// take returns the next instant if it has come, else ok is false and next is when it
// will come as the rate stands, math.MaxInt64 for never.
func (p *plan) take(now time.Duration) (next time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.nextLocked()
	if at > float64(now) {
		if at > math.MaxInt64/2 {
			return math.MaxInt64, false
		}
		return time.Duration(at), false
	}
	p.at, p.need = at, 1
	passed := 0
	for passed+1 < len(p.changes) && p.changes[passed+1].from <= at {
		passed++
	}
	p.changes = append(p.changes[:0], p.changes[passed:]...)
	return time.Duration(at), true
}

func (p *plan) nextLocked() float64 {
	need, at := p.need, p.at
	for i, c := range p.changes {
		at = max(at, c.from)
		until := math.Inf(1)
		if i+1 < len(p.changes) {
			until = p.changes[i+1].from
		}
		if need <= 0 {
			return at
		}
		if c.rate > 0 && at+need/c.rate <= until {
			return at + need/c.rate
		}
		if until > at {
			need -= c.rate * (until - at)
		}
	}
	return math.Inf(1)
}

// due counts the instants up to end that were not taken.
func (p *plan) due(end time.Duration) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, at := -p.need, p.at
	for i, c := range p.changes {
		at = max(at, c.from)
		until := float64(end)
		if i+1 < len(p.changes) {
			until = min(until, p.changes[i+1].from)
		}
		if until > at {
			sum += c.rate * (until - at)
		}
	}
	if sum < 0 || end < 0 {
		return 0
	}
	return uint64(sum) + 1
}

// Go's timers are up to a millisecond late on an idle machine (the poller counts in
// milliseconds), so the last stretch before an instant is slept in the kernel. That costs
// more CPU, but half a millisecond of our own lateness would hide a gateway's latency
// (BenchmarkLate; with a nap by time.Sleep its late-p50-us is three times as high).
const (
	napFrom = 1500 * time.Microsecond
	napMost = time.Millisecond
)

// wait returns after about d at the latest, and early when stop is closed or the rate
// changes (by napMost late for that). The caller looks at the clock again.
func (p *plan) wait(d time.Duration, stop <-chan struct{}, timer *time.Timer) {
	if d <= napFrom {
		nap(min(d, napMost))
		return
	}
	timer.Reset(d - napFrom)
	select {
	case <-timer.C:
	case <-stop:
	case <-p.changed:
	}
	timer.Stop()
}
