package router

import (
	"strconv"

	"subway/core/wire"
)

// The words of callbacks that are not the device's own.
var (
	stateWords = func() (w [numStates][]byte) {
		for i, name := range stateNames {
			w[i] = []byte(name)
		}
		return w
	}()
	wordFailed, wordInProgress = stateWords[Failed], stateWords[InProgress]
)

// lookup finds the record that a message of a party is about and checks that it is this
// party's to answer. The record's shard is returned locked where rec is not nil.
func (s *Session) lookup(ref []byte, hash uint64) (rec *record, sh *shard, mine bool) {
	rec, sh = s.r.locked(ref, hash)
	return rec, sh, rec != nil && s.owns(rec)
}

// owns reports whether an answer to rec may come from s: from the edge it was sent to,
// or from the connection that is its target's route now (PROTOCOL.md section 4).
func (s *Session) owns(rec *record) bool {
	if s.edge == nil || s.edge.session.Load() != s {
		return false
	}
	if p := rec.past; p != nil && string(p.edge) == s.edge.id && p.direct == s.edge.direct {
		return true
	}
	return rec.edge.Load() == s.edge || s.r.routedTo(rec, s.edge)
}

// answer runs fn on the record that ref names, with its shard held, if it is this party's
// to answer and not ended; fn says whether more ended records are kept than may be. known
// is false where there is no record.
func (s *Session) answer(ref []byte, hash uint64, now wire.Time, fn func(*record) (full bool)) (known bool) {
	r := s.r
	rec, sh, mine := s.lookup(ref, hash)
	full := false
	switch {
	case rec == nil:
		return false
	case !mine:
		sh.mu.Unlock()
		s.forbid(ref, "The command was not sent to this connection", now)
		return true
	case rec.state.Final():
		r.metrics.late.Add(1)
	default:
		sawAt(&rec.dev.seen, now)
		full = fn(rec)
	}
	sh.mu.Unlock()
	if full {
		r.evict(now)
	}
	return true
}

// response handles COMMAND_RESPONSE.
func (s *Session) response(w *work, ref []byte, now wire.Time) *wire.Fault {
	hash := s.r.hashOf(ref)
	s.r.shardOf(hash).past.prefetch(hash) // where the record goes in the end
	m := &w.response
	if f := w.env.Response(m, &w.scratch); f != nil {
		return f
	}
	if s.kind == wire.ClientBackend {
		return s.forbid(ref, "A Backend answers no commands", now)
	}
	state, code := Failed, wordFailed
	if m.Completed {
		state = Completed
	} else if m.ErrorCode != nil {
		code = m.ErrorCode
	}
	note := func() {
		w.note = Notice{Type: "COMMAND_RESPONSE", Status: m.Status, Result: m.ResultRaw, Error: m.ErrorRaw,
			ExecutionTime: m.ExecutionTimeRaw, Final: true}
	}
	if !s.answer(ref, hash, now, func(rec *record) bool {
		rec.result, rec.errorJSON, rec.execution = m.ResultRaw, m.ErrorRaw, m.ExecutionTimeRaw
		s.r.together(rec)
		s.r.conclude(rec, state, code, now)
		s.r.tell(rec, w.env.Msg)
		if rec.track != nil {
			note()
			s.notify(w, rec, now)
		}
		s.r.apart(rec)
		s.r.metrics.answered(rec.source != nil, s.edge.direct)
		return s.r.settle(rec)
	}) {
		note()
		s.orphan(w, m.Callback, m.Source, ref, now)
	}
	return nil
}

// progress handles PROGRESS_UPDATE: it restarts the timeout and ends nothing.
func (s *Session) progress(w *work, ref []byte, now wire.Time) *wire.Fault {
	m := &w.progress
	if f := w.env.Progress(m, &w.scratch); f != nil {
		return f
	}
	if s.kind == wire.ClientBackend {
		return s.forbid(ref, "A Backend answers no commands", now)
	}
	w.note = Notice{Type: "PROGRESS_UPDATE", Status: wordInProgress, Progress: m.ProgressRaw}
	if !s.answer(ref, s.r.hashOf(ref), now, func(rec *record) bool {
		s.r.advance(rec, m.ProgressRaw, now)
		s.r.tell(rec, w.env.Msg)
		s.notify(w, rec, now)
		return false
	}) {
		s.orphan(w, m.Callback, m.Source, ref, now)
	}
	return nil
}

// advance notes progress; the record's shard is held.
func (r *Router) advance(rec *record, progress []byte, now wire.Time) {
	if rec.state == Pending {
		r.reached(rec, now)
	}
	rec.state, rec.progressed, rec.updated = InProgress, now, now
	r.keepProgress(rec, progress)
	sh := rec.shard
	sh.wheel.remove(rec)
	rec.deadline = min(now+wire.Time(rec.timeoutMs)*1e6, rec.created+wire.Time(r.limits.MaxLifetime))
	sh.wheel.add(rec)
	r.logDeadline(rec)
}

// reached takes a PENDING record out of what is to be handed over, now or again: its
// device has the command, however it came there. The record's shard is held.
func (r *Router) reached(rec *record, now wire.Time) {
	e := rec.lockEdge()
	defer e.mu.Unlock()
	r.releaseMessage(rec)
	if rec.place != placeHand { // else whoever has it in hand will see
		e.unlink(rec)
		e.fly(rec)
	}
	r.logHanded(rec, e, now, false)
}

// keepProgress keeps the newest progress with the record, or none where that is too
// much; the record's shard is held.
func (r *Router) keepProgress(rec *record, progress []byte) {
	old := excess(rec.progress)
	if old > 0 {
		rec.progress = nil
	}
	if len(progress) > keepCap && r.held.Load()-old+int64(len(progress)) > r.limits.PendingBytes {
		progress = nil
	}
	rec.progress = append(rec.progress[:0], progress...)
	r.holdMore(excess(rec.progress) - old)
}

// errorMessage handles an ERROR of an edge or a device: with a requestRef it ends that
// request as FAILED with its code, without one there is nothing to end.
func (s *Session) errorMessage(w *work, ref []byte, now wire.Time) *wire.Fault {
	m := &w.failure
	if f := w.env.ErrorMessage(m, &w.scratch); f != nil {
		return f
	}
	if len(ref) == 0 {
		return nil
	}
	if s.kind == wire.ClientBackend {
		return s.forbid(ref, "A Backend answers no commands", now)
	}
	s.answer(ref, s.r.hashOf(ref), now, func(rec *record) bool {
		w.why = appendErrorJSON(w.why[:0], m.Code, m.Message, m.DetailsRaw)
		rec.errorJSON = w.why
		w.note = Notice{Type: "ERROR", Status: wordFailed, Error: w.why, Final: true}
		s.r.together(rec)
		s.r.conclude(rec, Failed, m.Code, now)
		s.r.tell(rec, w.env.Msg)
		s.notify(w, rec, now)
		s.r.apart(rec)
		return s.r.settle(rec)
	})
	return nil
}

// cancel handles a Backend's CANCEL.
func (s *Session) cancel(w *work, ref []byte, now wire.Time) *wire.Fault {
	if s.kind != wire.ClientBackend {
		return s.forbid(ref, "Only a Backend may send CANCEL", now)
	}
	var m wire.Cancel
	if f := w.env.Cancel(&m, &w.scratch); f != nil {
		return f
	}
	if refusal := s.r.cancelRef(&m, w.env.Msg, now); refusal != nil {
		s.refuseWith(m.Ref, refusal, now)
	}
	return nil
}

// Cancel ends a command as CANCELLED at once, or says why not; the device is told, best
// effort (PROTOCOL.md section 3). Any goroutine.
func (r *Router) Cancel(ref []byte, now wire.Time) *Refusal {
	return r.counted(r.cancelRef(&wire.Cancel{Ref: ref}, nil, now))
}

// cancelRef is Cancel; msg is the CANCEL that came, nil where none did. It is passed on
// where it names the command's target; an edge finds the device by that.
func (r *Router) cancelRef(c *wire.Cancel, msg []byte, now wire.Time) *Refusal {
	rec, sh := r.locked(c.Ref, r.hashOf(c.Ref))
	if rec == nil {
		return &Refusal{Code: wire.CodeCommandNotFound, Text: "No command with this requestRef is known"}
	}
	var refusal *Refusal
	if rec.state.Final() {
		refusal = &Refusal{Code: wire.CodeAlreadyEnded, Text: "The command has ended already", Details: appendStatus(nil, rec.state), Mark: rec.mark}
	} else {
		if string(c.Target) != rec.dev.id {
			msg = nil
		}
		tell := func() {}
		if rec.state != Pending {
			tell = r.deviceCancelled(rec, msg, now)
		}
		r.fail(rec, Cancelled, wire.CodeCancelled, "Command cancelled", now)
		tell()
	}
	sh.mu.Unlock()
	r.evict(now)
	return refusal
}

// deviceCancelled returns what passes a CANCEL on to where the device is, or else where
// the command went, to be done when the end is journalled: the record is not needed then.
func (r *Router) deviceCancelled(rec *record, msg []byte, now wire.Time) (tell func()) {
	e := rec.edge.Load()
	if at := r.routeOf(rec); at != nil && at.connected() {
		e = at
	}
	s := e.session.Load()
	if s == nil {
		return func() {}
	}
	if msg == nil {
		msg = wire.AppendCancel(nil, rec.ref(), []byte(rec.dev.id), now)
	}
	return func() { s.conn.Append(wire.ClassNotice|r.durable, msg, nil, nil) } // behind the command
}

// expire ends a command whose deadline has come; the record's shard is held. One that
// waits for a device without a route has lost no edge: the edge is back, without it.
func (r *Router) expire(rec *record, now wire.Time) {
	if e := rec.edge.Load(); e != r.limbo && !e.connected() {
		r.fail(rec, TimedOut, wire.CodeConnectionLost, "The edge went and did not come back before the timeout", now)
		return
	}
	r.fail(rec, TimedOut, wire.CodeTimeout, "Command timeout after "+strconv.FormatInt(rec.timeoutMs, 10)+"ms", now)
}

// fail ends a command by the Gateway's own decision and tells of it; the record's shard
// is held.
func (r *Router) fail(rec *record, state State, code wire.Code, text string, now wire.Time) {
	w := workPool.Get().(*work)
	defer w.release()
	details := append(append([]byte(`{"stage":"`), rec.state.String()...), `"}`...)
	w.why = appendErrorJSON(w.why[:0], code.String(), text, details)
	rec.errorJSON = w.why
	r.together(rec)
	r.conclude(rec, state, []byte(code.String()), now)
	if rec.source != nil {
		w.out = wire.AppendError(w.out[:0], code.String(), text, details, rec.ref(), now)
		r.tell(rec, w.out)
	}
	w.note = Notice{Type: "ERROR", Status: stateWords[state], Error: w.why, Final: true}
	r.notifyRecord(&w.note, rec, now)
	r.apart(rec)
	r.settle(rec)
}

// settle makes an ended record of a command whose end everybody was told of; its shard is
// held, and rec is not to be used any more. Only then it ceases to count among the
// pending: who waits for none to be pending (a drain, before it closes the connections)
// finds nothing left to say.
// full says that more ended records are kept than may be: evict is due.
func (r *Router) settle(rec *record) (full bool) {
	full = r.bury(rec)
	r.pending.Add(-1)
	return full
}

// conclude is the one step that ends a command; its shard is held and it is not final. Its
// result, error and execution time are set.
// The caller tells of the end and calls settle.
func (r *Router) conclude(rec *record, state State, code []byte, now wire.Time) {
	rec.state = state
	rec.ended, rec.updated = now, now
	rec.shard.wheel.remove(rec)
	e := rec.lockEdge()
	e.unlink(rec)
	e.mu.Unlock()
	r.releaseMessage(rec)
	r.holdMore(-excess(rec.mem) - excess(rec.progress))
	r.write(rec)
	r.metrics.concluded(rec, code, now)
	if rec.waiter != nil {
		rec.waiter.tell(rec)
		rec.waiter = nil
	}
}

// lockEdge locks and returns the edge that has rec in a list or in hand; its shard is
// held. The record may be on the move from one edge to another, so the edge is looked at
// again under its lock.
func (rec *record) lockEdge() *edge {
	for {
		e := rec.edge.Load()
		e.mu.Lock()
		if rec.edge.Load() == e {
			return e
		}
		e.mu.Unlock()
	}
}

// tell sends a notice to the command's source, if that is a connected Backend. Where a
// newer session of it takes over at this moment, the newer one gets it.
func (r *Router) tell(rec *record, msg []byte) {
	if rec.source == nil {
		return
	}
	var last *Session
	for s := r.backends.sessionOf(rec.source); s != last; s = r.backends.sessionOf(rec.source) {
		if s == nil || s.conn.Append(wire.ClassNotice|r.durable, msg, nil, nil) != wire.Gone {
			return
		}
		last = s
	}
}

// notify makes the callback of w.note, with what the message and the record add to it.
func (s *Session) notify(w *work, rec *record, now wire.Time) {
	if rec.track != nil {
		w.note.Timestamp, _ = w.env.Str(wire.MemberTimestamp, w.stamp[:0])
		s.r.notifyRecord(&w.note, rec, now)
	}
}

func (r *Router) notifyRecord(n *Notice, rec *record, now wire.Time) {
	if rec.track == nil {
		return
	}
	n.URL, n.Ref, n.Target, n.Now = rec.callback(), rec.ref(), []byte(rec.dev.id), now
	if n.Final {
		n.Track = rec.track
	}
	r.cfg.Callbacks.Notify(n)
}

// orphan passes on an answer to a request that is not known, where it carries a callback
// or a source itself (PROTOCOL.md section 4).
func (s *Session) orphan(w *work, callback, source, ref []byte, now wire.Time) {
	r := s.r
	if callback == nil && source == nil || !r.cfg.OrphanResponses {
		return
	}
	r.metrics.orphans.Add(1)
	if source != nil {
		if b := r.backends.find(string(source)); b != nil {
			b.conn.Append(wire.ClassNotice, w.env.Msg, nil, nil)
		}
	}
	if callback == nil || r.cfg.Callbacks.CheckURL(callback) != nil {
		return
	}
	n := &w.note
	n.URL, n.Ref, n.Now = callback, ref, now
	n.Timestamp, _ = w.env.Str(wire.MemberTimestamp, w.stamp[:0])
	n.Target, _ = w.env.Str(wire.MemberTargetClientID, w.target[:0])
	r.cfg.Callbacks.Notify(n)
}
