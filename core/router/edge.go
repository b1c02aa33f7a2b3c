package router

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"subway/core/wire"
)

// device is an addressed thing that has, or had, a route.
type device struct {
	id   string
	kind int32 // index of its type among the metric labels

	edge    atomic.Pointer[edge] // the route; nil: none. See Router.reroute
	waiting atomic.Int32         // its commands in the queue of its edge, or in hand from there
	waits   *record              // those in the queue, in any order; guarded by mu of the edge, or limbo's
	epoch   atomic.Int64
	seen    atomic.Int64 // wire.Time of the last message from or about it
	extra   atomic.Pointer[deviceExtra]

	// Guarded by Router.topo.
	prev, next *device // among its edge's devices
	named      uint64  // value of Router.naming when a REGISTER last named it
}

// deviceExtra is what a device told of itself; a new one replaces it, it never changes.
type deviceExtra struct {
	status   []byte // JSON, the newest DEVICE_STATUS
	statusAt wire.Time
	info     []byte // JSON, deviceInfo of its REGISTER
}

func (x *deviceExtra) size() int64 {
	if x == nil {
		return 0
	}
	return int64(len(x.status) + len(x.info))
}

// edge is what the router knows of an edge, connected or not. A directly connected
// device is its own edge (direct), in a name space of its own.
//
// Records that were handed to it, or wait for it, are in exactly one of its lists:
// queue while PENDING, flight once handed over, replay while a new session of a
// dedupe edge has yet to get them again. What comes with devices that move here is in
// arrived until the hold ends.
type edge struct {
	id     string
	direct bool

	// Guarded by mu. session is also read without it, where a stale answer does no harm.
	mu      sync.Mutex
	session atomic.Pointer[Session] // nil: away
	queue   [3]recordList           // by wire.Priority
	arrived recordList              // in no order; only while on hold, but all that limbo has
	replay  recordList
	flight  recordList
	waiting int   // records in queue and arrived
	bytes   int64 // of their messages
	passed  int   // records passed by to find others' places; tests hold it against a bound
	handing bool  // a goroutine hands over what waits; others queue behind
	again   bool  // the way was reported clear meanwhile
	hold    bool  // a REGISTER is being applied; nothing leaves
	dedupe  bool  // its session said so

	// Guarded by Router.topo.
	devices  *device
	nDevices int
	version  string
	remote   string
	epoch    int64
	goodbye  bool
	told     string // the last CONNECTION_STATUS word, "" before the first
	isAway   bool
	away     wire.Time // since when
	aprev    *edge     // among those that are away
	anext    *edge

	seen atomic.Int64 // wire.Time of its last message
}

// connected reports whether a session of the edge is there now. Any goroutine.
func (e *edge) connected() bool { return e.session.Load() != nil }

// speaks reports whether a CONNECTION_STATUS of e is due when it goes: a directly
// connected device that moved behind an edge did not go. Router.topo is held.
func (e *edge) speaks() bool { return !e.direct || e.devices != nil }

// attach puts d into e's list; Router.topo is held.
func (e *edge) attach(d *device) {
	d.prev, d.next = nil, e.devices
	if e.devices != nil {
		e.devices.prev = d
	}
	e.devices = d
	e.nDevices++
}

// detach takes d out of e's list; Router.topo is held.
func (e *edge) detach(d *device) {
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		e.devices = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil
	e.nDevices--
}

// room reports whether a message of this priority and size may wait for e; e.mu is held.
func (e *edge) room(l *Limits, p wire.Priority, size int) bool {
	n, b := int64(l.EdgeQueue), l.EdgeQueueBytes
	switch p {
	case wire.PriorityLow:
		n, b = n*3/4, b*3/4
	case wire.PriorityNormal:
		n, b = n*7/8, b*7/8
	}
	return int64(e.waiting) < n && e.bytes+int64(size) <= b
}

// enqueue puts a PENDING record at its place in the queue, by acceptance within its
// priority; e.mu and the record's shard are held.
func (e *edge) enqueue(rec *record) {
	e.passed += e.queue[rec.priority].insert(rec)
	rec.place = placeQueue
	e.waits(rec)
}

// arrive takes in a PENDING record of a device that has just been routed here, or to
// nowhere; e.mu is held.
func (e *edge) arrive(rec *record) {
	e.arrived.push(rec)
	rec.place = placeArrived
	e.waits(rec)
}

// waits counts a record as one that waits for e; e.mu is held.
func (e *edge) waits(rec *record) {
	rec.edge.Store(e)
	e.waiting++
	e.bytes += int64(rec.msgLen)
	d := rec.dev
	rec.dprev, rec.dnext = nil, d.waits
	if d.waits != nil {
		d.waits.dprev = rec
	}
	d.waits = rec
	d.waiting.Add(1)
}

// dequeue takes a record that waits out of its list; e.mu is held. It still counts.
func (e *edge) dequeue(rec *record) {
	if rec.place == placeArrived {
		e.arrived.remove(rec)
	} else {
		e.queue[rec.priority].remove(rec)
	}
	if rec.dprev != nil {
		rec.dprev.dnext = rec.dnext
	} else {
		rec.dev.waits = rec.dnext
	}
	if rec.dnext != nil {
		rec.dnext.dprev = rec.dprev
	}
	rec.dprev, rec.dnext = nil, nil
}

// settle puts what arrived at its place in the queue; e.mu is held.
func (e *edge) settle() {
	var of [len(e.queue)][]*record
	for _, rec := range e.arrived.takeAll(nil) {
		of[rec.priority] = append(of[rec.priority], rec)
		rec.place = placeQueue
	}
	for p, recs := range of {
		inOrder(recs)
		e.passed += e.queue[p].merge(recs)
	}
}

// unlink takes a record out of whichever list holds it; e.mu is held.
func (e *edge) unlink(rec *record) {
	switch rec.place {
	case placeQueue, placeArrived:
		e.dequeue(rec)
		e.waiting--
		e.bytes -= int64(rec.msgLen)
		rec.dev.waiting.Add(-1)
	case placeReplay:
		e.replay.remove(rec)
	case placeFlight:
		e.flight.remove(rec)
	case placeHand: // whoever has it in hand will see that it ended
		return
	}
	rec.place = placeNone
}

// next returns the record that leaves first, or nil; e.mu is held.
func (e *edge) next() *record {
	if e.hold {
		return nil
	}
	if e.replay.head != nil {
		return e.replay.head
	}
	for p := len(e.queue) - 1; p >= 0; p-- {
		if e.queue[p].head != nil {
			return e.queue[p].head
		}
	}
	return nil
}

// recordList is an intrusive list of records in the order of their acceptance.
type recordList struct{ head, tail *record }

// push puts rec at the end.
func (l *recordList) push(rec *record) { l.insertAfter(l.tail, rec) }

// insert puts rec behind all that were accepted before it and returns how many it
// passed by. The usual places, the end and (a record put back) the front, are found at
// once.
func (l *recordList) insert(rec *record) (passed int) {
	at := l.tail
	if l.head != nil && rec.seq < l.head.seq {
		at = nil
	}
	for at != nil && at.seq > rec.seq {
		at = at.qprev
		passed++
	}
	l.insertAfter(at, rec)
	return passed
}

// merge inserts records that are in order, in one pass.
func (l *recordList) merge(recs []*record) (passed int) {
	at := l.tail
	for _, rec := range slices.Backward(recs) {
		for at != nil && at.seq > rec.seq {
			at = at.qprev
			passed++
		}
		l.insertAfter(at, rec)
	}
	return passed
}

// takeAll empties the list and appends what it held to recs.
func (l *recordList) takeAll(recs []*record) []*record {
	for rec := l.head; rec != nil; rec = l.head {
		l.remove(rec)
		recs = append(recs, rec)
	}
	return recs
}

// inOrder sorts records by their acceptance.
func inOrder(recs []*record) {
	slices.SortFunc(recs, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
}

func (l *recordList) insertAfter(at, rec *record) {
	rec.qprev = at
	if at == nil {
		rec.qnext, l.head = l.head, rec
	} else {
		rec.qnext, at.qnext = at.qnext, rec
	}
	if rec.qnext == nil {
		l.tail = rec
	} else {
		rec.qnext.qprev = rec
	}
}

func (l *recordList) remove(rec *record) {
	if rec.qprev == nil {
		l.head = rec.qnext
	} else {
		rec.qprev.qnext = rec.qnext
	}
	if rec.qnext == nil {
		l.tail = rec.qprev
	} else {
		rec.qnext.qprev = rec.qprev
	}
	rec.qprev, rec.qnext = nil, nil
}
