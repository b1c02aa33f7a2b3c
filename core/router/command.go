package router

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"subway/core/wire"
)

// Refusal says why something was refused: an ERROR over WebSocket, an error answer over
// HTTP (PROTOCOL.md section 3). A refused command uses up no requestRef.
type Refusal struct {
	Code    wire.Code
	Text    string
	Details []byte // JSON object, or nil
	Mark    uint64 // in the journal, of what it tells of or takes back: nobody is told before that is stored
}

// message is a COMMAND as it will be sent, in up to three pieces, so that what is added
// to a message on its way needs no copy of it.
type message struct {
	a, b, c []byte
}

func (m *message) size() int { return len(m.a) + len(m.b) + len(m.c) }

func (m *message) appendTo(dst []byte) []byte {
	return append(append(append(slices.Grow(dst, m.size()), m.a...), m.b...), m.c...)
}

// command handles a Backend's COMMAND.
func (s *Session) command(w *work, ref []byte, now wire.Time) *wire.Fault {
	if s.kind != wire.ClientBackend {
		return s.forbid(ref, "Only a Backend may send COMMAND", now)
	}
	hash := s.r.hashOf(ref)
	s.r.shardOf(hash).past.prefetch(hash)
	c := &w.command
	if f := w.env.Command(c, &w.scratch); f != nil {
		return f
	}
	if !s.rate.Take(1, s.r.limits.Rate, now) {
		s.refuseWith(ref, RefuseRate(), now)
		return nil
	}
	if c.Source != nil && string(c.Source) != s.id {
		return s.forbid(ref, "sourceClientId is not the id of this connection", now)
	}
	if c.Callback != nil {
		if err := s.r.cfg.Callbacks.CheckURL(c.Callback); err != nil {
			return &wire.Fault{Code: wire.CodeInvalidMessage, Field: "callback", Text: err.Error()}
		}
	}
	ack := c.Ack || c.Ref == nil
	if c.Ref == nil {
		c.Ref = appendRef(w.ref[:0], now, s.r.chance())
		hash = s.r.hashOf(c.Ref)
	}
	m := s.forward(w, now)
	if refusal := s.r.accept(c, hash, &w.kinds, s, &m, ack, now); refusal != nil {
		s.refuseWith(ref, refusal, now)
	}
	return nil
}

// forward returns the message as it came with what the Gateway adds to it.
func (s *Session) forward(w *work, now wire.Time) message {
	c, msg := &w.command, w.env.Msg
	adds := wire.Additions{Source: s.backend.idBytes, Ref: c.Ref, Priority: c.Priority, TimeoutMs: c.TimeoutMs, Now: now}
	if w.env.HasNulls() {
		w.out = w.env.AppendForward(w.out[:0], &adds)
		return message{a: w.out}
	}
	w.out = w.env.AppendAdditions(w.out[:0], &adds)
	return message{msg[:w.env.Close()], w.out, msg[w.env.Close():]}
}

// AppendRef appends a new requestRef, cmd-{unix ms}-{9 characters of a-z0-9}.
func AppendRef(dst []byte, now wire.Time) []byte { return appendRef(dst, now, rand.Uint64()) }

func appendRef(dst []byte, now wire.Time, x uint64) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	dst = append(strconv.AppendInt(append(dst, "cmd-"...), now.Millis(), 10), '-')
	for range 9 {
		dst = append(dst, letters[x%36])
		x /= 36
	}
	return dst
}

// Submit accepts a command that came over HTTP or says why not. c.Ref must be set; msg
// is the COMMAND as the edge gets it. Nothing of either is kept. Any goroutine.
func (r *Router) Submit(c *wire.Command, msg []byte, now wire.Time) *Refusal {
	return r.counted(r.accept(c, r.hashOf(c.Ref), nil, nil, &message{a: msg}, false, now))
}

// accept makes a record of a command, whose ref has this hash, and hands it to its edge,
// or lets it wait.
func (r *Router) accept(c *wire.Command, hash uint64, kinds *lastType, src *Session, m *message, ack bool, now wire.Time) *Refusal {
	if r.draining.Load() {
		return RefuseDraining(now)
	}
	sh := r.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if rec := r.known(sh, hash, c.Ref); rec != nil {
		return refuseDuplicate(rec)
	}
	d := r.routes.find(c.Target)
	if d == nil || d.edge.Load() == nil {
		return refuseNoRoute(c.Target)
	}
	size := int64(m.size() + len(c.CommandType) + len(c.Callback))
	if r.pending.Add(1) > r.limits.MaxPending || r.held.Load()+size > r.limits.PendingBytes {
		r.pending.Add(-1)
		return refuseOverloaded("The Gateway holds as many commands as it can")
	}
	if r.journal != nil && r.journal.Full() {
		r.pending.Add(-1)
		return refuseOverloaded("The Gateway's journal takes no commands now")
	}
	rec := r.newRecord(c, src, d, sh, hash, now)
	rec.counters = kinds.counters(&r.metrics, c.CommandType)
	if refusal := r.place(rec, m, c, now); refusal != nil {
		r.pending.Add(-1)
		r.holdMore(-excess(rec.mem))
		r.order.drop(rec.seq)
		sh.recycle(rec)
		return refusal
	}
	sh.add(rec)
	r.order.put(rec.seq, hash)
	if ack {
		src.ackCommand(rec, now)
	}
	return nil
}

func (r *Router) newRecord(c *wire.Command, src *Session, d *device, sh *shard, hash uint64, now wire.Time) *record {
	rec := sh.fresh()
	rec.hash, rec.shard, rec.seq = hash, sh, r.seq.Add(1)
	rec.mem = append(append(append(rec.mem[:0], c.Ref...), c.CommandType...), c.Callback...)
	rec.refLen, rec.typeLen = len(c.Ref), len(c.CommandType)
	r.holdMore(excess(rec.mem))
	rec.dev, rec.priority, rec.timeoutMs = d, c.Priority, c.TimeoutMs
	rec.created, rec.updated = now, now
	rec.deadline = now + wire.Time(c.TimeoutMs)*1e6
	if src != nil {
		rec.source = src.backend
	}
	if c.Callback != nil {
		rec.track = new(Delivery)
	}
	return rec
}

// ackCommand sends COMMAND_ACK; the record's shard is held, so it precedes any notice.
func (s *Session) ackCommand(rec *record, now wire.Time) {
	w := workPool.Get().(*work)
	w.out = wire.AppendCommandAck(w.out[:0], rec.ref(), []byte(rec.dev.id), now)
	s.conn.Append(wire.ClassNotice|s.r.durable, w.out, nil, nil)
	w.release()
}

// place hands a new command to its edge's connection, or puts it into the edge's queue:
// behind what waits there, when the way is blocked, or when the edge is away and the
// command may wait for it. The record's shard is held.
func (r *Router) place(rec *record, m *message, c *wire.Command, now wire.Time) *Refusal {
	for {
		e := rec.dev.edge.Load()
		if e == nil {
			return refuseNoRoute(c.Target)
		}
		e.mu.Lock()
		if rec.dev.edge.Load() != e { // it moved
			e.mu.Unlock()
			continue
		}
		refusal := r.placeAt(e, rec, m, c.Queue, now)
		e.mu.Unlock()
		return refusal
	}
}

// placeAt is place where the edge is known; its lock is held.
func (r *Router) placeAt(e *edge, rec *record, m *message, mayWait bool, now wire.Time) *Refusal {
	s := e.session.Load()
	logged := false
	if s != nil && e.waiting == 0 && !e.handing && !e.hold && e.replay.head == nil {
		class := wire.ClassCommand
		if logged = r.journal != nil; logged {
			r.logAccepted(rec, e, m, now)
			if !e.dedupe {
				class |= wire.Durable
			}
		}
		switch s.conn.Append(class, m.a, m.b, m.c) {
		case wire.Accepted:
			if e.dedupe {
				r.retain(rec, m)
			}
			r.handed(e, rec, now)
			return nil
		case wire.Gone: // its end is about to be told
			s = nil
		}
	}
	refusal := r.mayWait(e, s, rec, m.size(), mayWait, now)
	if refusal != nil {
		if logged {
			refusal.Mark = r.logVoid(rec)
		}
		return refusal
	}
	r.logAccepted(rec, e, m, 0)
	r.retain(rec, m)
	e.enqueue(rec)
	return nil
}

// mayWait says why a command may not wait for e, whose session is s, or nil.
func (r *Router) mayWait(e *edge, s *Session, rec *record, size int, queue bool, now wire.Time) *Refusal {
	switch {
	case s == nil && !queue:
		return refuseAway(e, now)
	case s == nil && rec.dev.waiting.Load() >= r.limits.DeviceQueue:
		return refuseOverloaded("As many commands wait for the device as may")
	case !e.room(&r.limits, rec.priority, size):
		return refuseOverloaded("As much waits for the edge as may")
	}
	return nil
}

// retain keeps a copy of the message with the record.
func (r *Router) retain(rec *record, m *message) {
	if size := m.size(); size > keepCap {
		rec.large = newBuffer(size)
		rec.msg = rec.large.b
	}
	rec.msg = m.appendTo(rec.msg[:0])
	rec.kept, rec.msgLen = true, len(rec.msg)
	r.held.Add(int64(cap(rec.msg)))
}

// releaseMessage lets go of the copy.
func (r *Router) releaseMessage(rec *record) {
	if rec.kept {
		r.held.Add(-int64(cap(rec.msg)))
		rec.kept, rec.msg = false, emptied(rec.msg)
		if rec.large != nil {
			rec.large.free()
			rec.large = nil
		}
	}
}

// handed notes that a command was handed to the edge's connection; shard and edge are held.
func (r *Router) handed(e *edge, rec *record, now wire.Time) {
	if rec.state == Pending {
		rec.state, rec.handed, rec.updated = Dispatched, now, now
		r.metrics.routed(rec.source != nil, e.direct, now-rec.created)
	}
	e.fly(rec)
}

// fly puts a record, in no list, among those handed over; e.mu and the record's shard
// are held.
func (e *edge) fly(rec *record) {
	rec.edge.Store(e)
	rec.place = placeFlight
	e.flight.push(rec)
}

// handOverWaiting hands over what waits for e, in its order, until nothing waits or the way is
// blocked. One goroutine does so at a time. No lock is held.
func (r *Router) handOverWaiting(e *edge, now wire.Time) {
	e.mu.Lock()
	if e.handing {
		e.again = true
		e.mu.Unlock()
		return
	}
	e.handing = true
	for {
		rec, s := e.next(), e.session.Load()
		if rec == nil || s == nil {
			break
		}
		e.take(rec)
		sh := rec.shard
		e.mu.Unlock()
		sh.mu.Lock()
		moved, ok := r.handOver(e, s, rec, now)
		sh.mu.Unlock()
		if moved != nil {
			r.handOverWaiting(moved, now)
		}
		e.mu.Lock()
		if !ok && !e.again {
			break
		}
		e.again = false
	}
	e.handing = false
	e.mu.Unlock()
}

// take takes a record out of its list for handing over; it still counts as waiting.
// e.mu is held.
func (e *edge) take(rec *record) {
	if rec.place == placeReplay {
		e.replay.remove(rec)
	} else {
		e.dequeue(rec)
		rec.queued = true
	}
	rec.place = placeHand
}

// handOver hands a record in hand to s, e's session when it was taken. It reports false
// when the way is blocked; the record is back in its place then. Where its device has
// moved it is put into the new edge's queue, which is returned, to hand over what waits. The
// record's shard is held.
func (r *Router) handOver(e *edge, s *Session, rec *record, now wire.Time) (moved *edge, ok bool) {
	e.mu.Lock()
	waited := rec.queued
	if waited {
		rec.queued = false
		e.waiting--
		e.bytes -= int64(rec.msgLen)
		defer rec.dev.waiting.Add(-1) // last: it never reads 0 while the record has no place
	}
	rec.place = placeNone
	if rec.state.Final() {
		e.mu.Unlock()
		return nil, true
	}
	if rec.state == Pending && rec.dev.edge.Load() != e {
		e.mu.Unlock()
		return r.requeue(rec), true
	}
	defer e.mu.Unlock()
	switch {
	case rec.state != Pending && (waited || !e.dedupe || !r.routedTo(rec, e)):
		e.fly(rec) // progress came meanwhile, or it is not to be handed over again here
		return nil, true
	case e.session.Load() != s: // another session has an order of its own
		e.putBack(rec)
		return nil, true
	case !r.pushAgain(e, s, rec, now):
		e.putBack(rec)
		return nil, false
	}
	if !e.dedupe {
		r.releaseMessage(rec)
	}
	r.handed(e, rec, now)
	return nil, true
}

// pushAgain gives a record in hand to s, or reports that the way is blocked. One that is
// handed over for the first time leaves when that is journalled, so that nobody who reads
// the journal takes it for one that the edge cannot have. So does one that is handed over
// again: the first time it may not have left. The edge and the record's shard are held.
func (r *Router) pushAgain(e *edge, s *Session, rec *record, now wire.Time) bool {
	if e.hold {
		return false
	}
	if r.journal == nil || rec.state != Pending {
		return s.conn.Append(wire.ClassCommand|r.durable, rec.msg, nil, nil) == wire.Accepted
	}
	r.logHanded(rec, e, now, e.dedupe)
	if s.conn.Append(wire.ClassCommand|wire.Durable, rec.msg, nil, nil) == wire.Accepted {
		return true
	}
	r.logHanded(rec, e, 0, true)
	return false
}

// putBack puts a record in hand back where it was taken from; e.mu and the record's
// shard are held.
func (e *edge) putBack(rec *record) {
	if rec.state == Pending {
		e.enqueue(rec)
		return
	}
	e.passed += e.replay.insert(rec)
	rec.place = placeReplay
}

// requeue puts a PENDING record, in no list, into the queue of its device's edge now.
func (r *Router) requeue(rec *record) *edge {
	for {
		to := rec.dev.edge.Load()
		if to == nil {
			to = r.limbo
		}
		to.mu.Lock()
		now, there := rec.dev.edge.Load(), true
		switch {
		case now == to:
			to.enqueue(rec)
		case now == nil && to == r.limbo:
			to.arrive(rec)
		default:
			there = false
		}
		to.mu.Unlock()
		if there {
			return to
		}
	}
}
