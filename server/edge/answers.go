package edge

import (
	"bytes"

	"subway/core/wire"
	"subway/server/edge/store"
)

// response handles COMMAND_RESPONSE: kept with its ref, and passed on byte for byte.
func (s *session) response(w *work, ref []byte, now wire.Time) *wire.Fault {
	if f := w.env.Response(&w.response, &w.scratch); f != nil {
		return f
	}
	return s.answer(w.env.Msg, ref, now)
}

// errorMessage handles an ERROR of a device: with a requestRef it is the end of that
// request; one without concerns nobody.
func (s *session) errorMessage(w *work, ref []byte, now wire.Time) *wire.Fault {
	if f := w.env.ErrorMessage(&w.failure, &w.scratch); f != nil {
		return f
	}
	if ref == nil {
		s.e.log.Debug("a device reports an error", "device", s.id, "code", string(w.failure.Code))
		return nil
	}
	return s.answer(w.env.Msg, ref, now)
}

// answer takes the final answer to a ref. It counts from the device that the command was
// sent to (PROTOCOL.md section 4); one to a ref that is not known here is passed on.
func (s *session) answer(msg, ref []byte, now wire.Time) *wire.Fault {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.refs[string(ref)]
	switch {
	case s.dev.sess != s:
		return nil // superseded
	case t == nil:
		if !e.pass(store.Response, s.id, string(ref), msg, nil) {
			return s.overloaded(ref, now)
		}
		return nil
	case t.device != s.id:
		return s.forbid(ref, "The command was sent to another device", now)
	case t.stage == stageAnswered:
		e.count.late++
		return nil
	case e.unsynced > maxUnsynced && !e.direct():
		return s.overloaded(ref, now)
	}
	if t.stage == stageQueued {
		t.wait.dev.queue[t.wait.priority].remove(t.wait)
		e.release(t)
	}
	t.stage = stageAnswered
	e.answers++
	t.order = e.answers
	e.count.answered++
	e.opt.hook("answered", t.ref)
	if e.unsynced <= maxUnsynced { // else it is passed on, and that is all
		e.keepAnswer(t, msg)
	}
	if !e.pass(store.Response, s.id, t.ref, msg, t) {
		return s.overloaded(ref, now)
	}
	return nil
}

// keepAnswer stores an answer with its ref. e.mu is held.
func (e *Edge) keepAnswer(t *entry, msg []byte) {
	size := len(msg)
	t.answer = size
	e.used += int64(size)
	e.unsynced += size
	e.store.Answer(t.record(), bytes.Clone(msg), func(error) {
		e.opt.hook("stored", t.ref)
		e.synced(size)
	})
}

// direct reports whether what devices say goes straight to the link. e.mu is held.
func (e *Edge) direct() bool { return e.up.registered && !e.up.draining }

// overloaded tells a device that its answer could not be kept: it may send it again.
func (s *session) overloaded(ref []byte, now wire.Time) *wire.Fault {
	s.refuse(ref, wire.CodeOverloaded, "The edge cannot store more", []byte(`{"retryAfter":5}`), now)
	return nil
}

// synced notes that bytes which waited for the disk are on it.
func (e *Edge) synced(n int) {
	e.mu.Lock()
	e.unsynced -= n
	e.mu.Unlock()
}

// progress handles PROGRESS_UPDATE, which restarts the request's timeout.
func (s *session) progress(w *work, ref []byte, now wire.Time) *wire.Fault {
	if f := w.env.Progress(&w.progress, &w.scratch); f != nil {
		return f
	}
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.refs[string(ref)]
	switch {
	case s.dev.sess != s:
		return nil
	case t != nil && t.device != s.id:
		return s.forbid(ref, "The command was sent to another device", now)
	case t != nil && t.stage == stageAnswered:
		e.count.late++
		return nil
	case t != nil:
		e.extend(t, now)
	}
	e.pass(store.Progress, s.id, string(ref), w.env.Msg, nil)
	return nil
}

// extend moves a command's deadline; on disk it follows when it has moved by half the
// timeout. e.mu is held.
func (e *Edge) extend(t *entry, now wire.Time) {
	timeout := wire.Time(t.timeoutMs) * 1_000_000
	t.deadline = max(t.deadline, now+timeout)
	if t.stable && t.deadline-t.stored > timeout/2 {
		t.stored = t.deadline
		e.store.Extend(t.ref, t.deadline)
	}
}

// deviceStatus handles DEVICE_STATUS: a device speaks for itself only.
func (s *session) deviceStatus(w *work, ref []byte, now wire.Time) *wire.Fault {
	if f := w.env.DeviceStatus(&w.status, &w.scratch); f != nil {
		return f
	}
	if string(w.status.ClientID) != s.id {
		return s.forbid(ref, "A device reports its own status only", now)
	}
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.dev.sess == s {
		if direct := e.direct(); e.pass(store.Status, s.id, "", w.env.Msg, nil) && direct && e.direct() {
			e.spoke(s.dev, w.env.Msg)
		} else {
			e.unspeak(s.dev)
		}
	}
	return nil
}

// pass sends a message of a device on, or keeps it until the link is there. t is the
// entry that it answers, if there is one. It is false where nothing could be done. e.mu is held.
func (e *Edge) pass(kind store.Kind, device, ref string, msg []byte, t *entry) bool {
	if e.direct() {
		if e.send(msg) {
			if t != nil {
				e.unconfirmed[t] = struct{}{}
				e.up.sent = append(e.up.sent, t)
			} else if kind == store.Response {
				e.strayed(device, ref, msg)
			}
			return true
		}
		e.up.draining = true // what comes now queues behind it
	}
	if !e.keepItem(kind, device, ref, msg) {
		if t != nil {
			e.unconfirmed[t] = struct{}{} // it is in the store all the same
			return true
		}
		return false
	}
	if t != nil {
		t.item = e.backlog.seq
	}
	return true
}
