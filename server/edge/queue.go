package edge

import (
	"subway/core/wire"
)

// device is a device that is connected here, or for which commands wait. Guarded by
// Edge.mu.
type device struct {
	id        string
	sess      *session // nil: away
	info      []byte   // deviceInfo of its REGISTER, nil where there is none or too much is kept
	announced bool     // the Gateway was told of it on this link
	blocked   bool     // its connection took no more
	warned    wire.Time
	queue     [wire.NumPriorities]queue
	waiting   int   // commands queued or being made stable
	bytes     int64 // of these
	commits   int   // being made stable

	status  []byte // the newest that was sent on this link and not confirmed
	barrier int64  // the number of the one that confirms it, 0: the device is not in up.spoken
}

// commitWindow bounds the commands of one device that are made stable ahead of their
// hand-over.
const commitWindow = 16

// queue holds commands of one priority in the order they came.
type queue struct{ head, tail *waiting }

// insert puts w behind those that came before it; nearly always that is one end.
func (q *queue) insert(w *waiting) {
	at := q.tail
	if q.head != nil && w.seq < q.head.seq {
		at = nil
	}
	for at != nil && at.seq > w.seq {
		at = at.prev
	}
	w.prev = at
	if at == nil {
		w.next, q.head = q.head, w
	} else {
		w.next, at.next = at.next, w
	}
	if w.next == nil {
		q.tail = w
	} else {
		w.next.prev = w
	}
}

func (q *queue) remove(w *waiting) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// first returns the command that leaves first, nil for none.
func (d *device) first() *waiting {
	for p := len(d.queue) - 1; p >= 0; p-- {
		if w := d.queue[p].head; w != nil {
			return w
		}
	}
	return nil
}

// share is what a priority may fill of a bound (PROTOCOL.md section 3).
func share(bound int64, p wire.Priority) int64 {
	switch p {
	case wire.PriorityLow:
		return bound / 4 * 3
	case wire.PriorityNormal:
		return bound / 8 * 7
	}
	return bound
}

// room reports whether one more command may wait for d. e.mu is held.
func (e *Edge) room(d *device, p wire.Priority, size int) bool {
	return int64(d.waiting) < share(int64(e.opt.MaxWaiting), p) &&
		d.bytes+int64(size) <= share(e.opt.DeviceBytes, p) &&
		e.queued+int64(size) <= share(e.opt.QueueBytes, p)
}

// enqueue adds a new command. e.mu is held.
func (e *Edge) enqueue(d *device, t *entry, msg []byte, p wire.Priority) {
	e.arrivals++
	t.wait = &waiting{entry: t, dev: d, msg: msg, priority: p, seq: e.arrivals}
	d.waiting++
	d.bytes += int64(len(msg))
	e.queued += int64(len(msg))
	d.queue[p].insert(t.wait)
}

// release ends a command's waiting, whatever became of it. It is in no queue any more.
// e.mu is held.
func (e *Edge) release(t *entry) {
	w := t.wait
	t.wait = nil
	w.dev.waiting--
	w.dev.bytes -= int64(len(w.msg))
	e.queued -= int64(len(w.msg))
}

// dropQueued takes a command that is not wanted any more out of its queue: it never
// leaves. A ref that is on disk stays known. e.mu is held.
func (e *Edge) dropQueued(t *entry) {
	t.dropped = true
	if t.stage != stageQueued {
		return // remembered sees it
	}
	t.wait.dev.queue[t.wait.priority].remove(t.wait)
	e.release(t)
	if t.stable {
		t.stage = stageHanded
	} else {
		e.forget(t)
	}
}

// pump hands over what the device takes: refs that are stable at once, others when they
// are. e.mu is held.
func (e *Edge) pump(d *device, now wire.Time) {
	for d.sess != nil && !d.blocked && d.commits < commitWindow {
		w := d.first()
		if w == nil {
			return
		}
		t := w.entry
		switch {
		case t.deadline <= now:
			e.count.expired++
			e.dropQueued(t)
		case t.stable:
			d.queue[w.priority].remove(w)
			e.hand(t, now)
		default:
			d.queue[w.priority].remove(w)
			t.stage = stageCommitting
			t.stored = t.deadline
			d.commits++
			e.store.Remember(t.record(), func(err error) { e.remembered(t, err) })
		}
	}
}

// remembered goes on with a command whose ref is stable, or could not be made so. It is
// the committer's call.
func (e *Edge) remembered(t *entry, err error) {
	if err == nil {
		e.opt.hook("remembered", t.ref)
	}
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	d := t.wait.dev
	d.commits--
	defer e.tidy(d)
	switch {
	case t.stage == stageAnswered: // by a device that knew it already
		t.stable = t.stable || err == nil
		e.release(t)
	case err != nil:
		e.release(t)
		e.forget(t)
		if !t.dropped {
			e.refuse(t.ref, wire.CodeOverloaded, "The edge cannot store commands now", []byte(`{"retryAfter":5}`), now)
		}
	case t.dropped || t.deadline <= now:
		t.stable, t.stage = true, stageHanded
		e.release(t)
	default:
		t.stable = true
		e.hand(t, now)
	}
	e.pump(d, now)
}

// hand gives a stable command, which is in no queue, to its device, or puts it back.
// e.mu is held.
func (e *Edge) hand(t *entry, now wire.Time) {
	w, d := t.wait, t.wait.dev
	result := wire.Gone
	if d.sess != nil && !d.blocked {
		result = d.sess.conn.Append(wire.ClassCommand, w.msg, nil, nil)
	}
	if result == wire.Accepted {
		t.stage = stageHanded
		e.release(t)
		e.count.handed++
		return
	}
	d.blocked = d.sess != nil
	t.stage = stageQueued
	d.queue[w.priority].insert(w)
}

// tidy forgets a device that is away and for which nothing waits. e.mu is held.
func (e *Edge) tidy(d *device) {
	if d.sess == nil && d.waiting == 0 && e.devices[d.id] == d {
		delete(e.devices, d.id)
	}
}

// sweep drops what timed out while it was queued, so that it fills no bound. e.mu is held.
func (e *Edge) sweep(now wire.Time) {
	for _, d := range e.devices {
		if d.waiting == 0 {
			continue
		}
		for p := range d.queue {
			for w := d.queue[p].head; w != nil; {
				next := w.next
				if w.entry.deadline <= now {
					e.count.expired++
					e.dropQueued(w.entry)
				}
				w = next
			}
		}
		e.tidy(d)
	}
}
