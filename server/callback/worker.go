package callback

import (
	"math/rand/v2"
	"sync"
	"time"
)

// verdict is how an attempt ended.
type verdict struct {
	delivered bool
	again     bool          // worth another attempt
	reached   bool          // the receiver answered
	after     time.Duration // its Retry-After; 0: none
	err       string        // for the dead letter
}

// readyLocked queues a lane whose head may be sent.
func (o *Outbox) readyLocked(f *lane) {
	f.state = ready
	f.host.ready.push(f)
	o.dispatchLocked(f.host)
}

// dispatchLocked starts a worker for each ready lane that there is a slot for; a host
// left without queues for one.
func (o *Outbox) dispatchLocked(h *host) {
	for !o.stopped && h.ready.head != nil && h.busy < h.limit && h.breaker.allows(h.busy) {
		if !o.slotFreeLocked(h) {
			o.waitLocked(h)
			return
		}
		f := o.takeLocked(h)
		c := o.popIdleLocked(h)
		o.work.Add(1)
		go o.run(f, c)
	}
	o.unwaitLocked(h)
}

// slotFreeLocked keeps the last quarter of the slots for hosts that have none.
func (o *Outbox) slotFreeLocked(h *host) bool {
	most := o.opt.MaxConns
	if h.busy > 0 {
		most -= most / 4
	}
	return o.busy < most
}

func (o *Outbox) waitLocked(h *host) {
	w := &o.waiting[0]
	if h.busy > 0 {
		w = &o.waiting[1]
	}
	if h.waitsIn != w {
		o.unwaitLocked(h)
		w.push(h)
		h.waitsIn = w
	}
}

func (o *Outbox) unwaitLocked(h *host) {
	if h.waitsIn != nil {
		h.waitsIn.remove(h)
		h.waitsIn = nil
	}
}

// takeLocked gives the host's next ready lane a slot and begins its head's attempt.
func (o *Outbox) takeLocked(h *host) *lane {
	f := h.ready.pop()
	f.state = underWay
	h.busy++
	o.busy++
	n := f.notices.head
	h.spare.remove(n)
	n.attempts++
	n.tell(Pending)
	return f
}

// run is a worker: it makes attempts until no lane is ready that may have its slot.
func (o *Outbox) run(f *lane, c *conn) {
	defer o.work.Done()
	w := workers.Get().(*worker)
	w.conn = c
	for f != nil {
		h, n := f.host, f.notices.head // no one else takes away what is under way
		v := o.attempt(w, h, n)
		f = o.finish(w, f, v)
	}
	workers.Put(w)
}

// finish files the verdict on f's head and returns the lane to go on with, its head's
// attempt begun; nil: the slot is given back.
func (o *Outbox) finish(w *worker, f *lane, v verdict) (next *lane) {
	h, n := f.host, f.notices.head
	o.mu.Lock()
	o.fileLocked(f, n, v)
	h.learn(v.reached, o.opt.PerHostConns)
	o.noteAttemptLocked(h, v.reached)
	h.busy--
	o.busy--
	g := o.nextHostLocked(h)
	if g != nil {
		next = o.takeLocked(g)
	}
	if g != h {
		o.parkLocked(h, w.conn)
		w.conn = nil
	}
	if g != nil && w.conn == nil {
		w.conn = o.popIdleLocked(g)
	}
	if g != nil && g != h {
		o.dispatchLocked(g)
	}
	if h.waitsIn != nil && h.busy == 0 {
		o.unwaitLocked(h) // it may have a slot of the last quarter now
	}
	o.dispatchLocked(h)
	o.settleLocked(h)
	lines := o.quiet.due(n, v, o.opt.Clock)
	if n.lane == nil && n.dead == nil { // it is neither tried again nor kept
		n.free()
	}
	o.mu.Unlock()
	lines.log(o.opt.Logger)
	return next
}

// nextHostLocked picks whose turn it is for a slot that has become free: those that
// have none, those that queue for another, the one that had it.
func (o *Outbox) nextHostLocked(h *host) *host {
	if o.stopped {
		return nil
	}
	for i := range o.waiting {
		g := o.waiting[i].head
		for g != nil && (g.ready.head == nil || g.busy >= g.limit || !g.breaker.allows(g.busy)) { // no longer in want of one
			o.unwaitLocked(g)
			g = o.waiting[i].head
		}
		if g != nil && o.slotFreeLocked(g) {
			o.unwaitLocked(g)
			return g
		}
	}
	if h.ready.head != nil && h.busy < h.limit && h.breaker.allows(h.busy) && o.slotFreeLocked(h) {
		return h
	}
	return nil
}

// fileLocked decides what becomes of a notice after an attempt.
func (o *Outbox) fileLocked(f *lane, n *notice, v verdict) {
	f.state = resting
	switch {
	case v.delivered:
		o.counts[Sent]++
		n.tell(Delivered)
		o.fateLocked(kindDone, n, Delivered, "")
		o.removeLocked(n)
	case o.stopped: // it failed because of the stop, or as good as
		return
	case v.again && n.attempts < o.opt.Attempts && (n.final || n.order.next == nil):
		o.counts[Retried]++
		o.retryLocked(f, n, v.after)
		return
	case n.final:
		o.counts[GivenUp]++
		o.removeLocked(n)
		o.buryLocked(n, v.err)
	case v.again && n.attempts < o.opt.Attempts:
		o.counts[Superseded]++
		o.removeLocked(n)
	default:
		o.counts[Failed]++
		o.removeLocked(n)
	}
	if f.notices.head != nil {
		o.readyLocked(f)
	}
}

// retryLocked lets n wait: FirstDelay, doubled with each attempt, 15 % more or less; or
// what the receiver asked for, if that is longer, and up to 5 % more.
func (o *Outbox) retryLocked(f *lane, n *notice, after time.Duration) {
	delay := o.opt.FirstDelay << min(n.attempts-1, 16)
	delay = time.Duration(float64(delay) * (0.85 + 0.3*rand.Float64()))
	if after > delay {
		delay = time.Duration(float64(after) * (1 + 0.05*rand.Float64()))
	}
	if !n.final {
		f.host.spare.push(n)
	}
	f.state = retrying
	f.round++
	round := f.round
	f.timer = time.AfterFunc(delay, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if f.round == round && f.state == retrying && !o.stopped {
			f.timer = nil
			o.readyLocked(f)
		}
	})
}

// workers keeps what a worker needs besides its goroutine between two of them.
var workers = sync.Pool{New: func() any { return newWorker() }}
