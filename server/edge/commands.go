package edge

import (
	"bytes"

	"subway/core/wire"
)

// receive takes a message of the Gateway. It is called on the link's goroutine.
func (e *Edge) receive(msg []byte) {
	now := e.now()
	w := &e.inbound
	err := w.env.Scan(msg, wire.DefaultMaxDepth)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up.seen = now
	if fault, bad := err.(*wire.Fault); bad {
		e.faulty(w, fault, now)
		return
	}
	switch w.env.Type {
	case wire.TypeCommand:
		if f := e.command(w, now); f != nil {
			e.faulty(w, f, now)
		}
	case wire.TypeCancel:
		if f := w.env.Cancel(&w.cancel, &w.scratch); f != nil {
			e.faulty(w, f, now)
			return
		}
		e.cancel(w, now)
	case wire.TypeHeartbeatAck:
		e.reached(now)
	case wire.TypeHeartbeat:
		e.send(wire.AppendHeartbeatAck(nil, now))
	case wire.TypeError:
		if f := w.env.ErrorMessage(&w.failure, &w.scratch); f == nil {
			e.log.Info("the Gateway refused a message", "code", string(w.failure.Code), "message", string(w.failure.Message), "requestRef", string(w.failure.Ref))
		}
	}
}

// faulty answers a message of the Gateway that cannot be read: a command that names its
// ref ends so. e.mu is held.
func (e *Edge) faulty(w *work, f *wire.Fault, now wire.Time) {
	e.log.Warn("a message of the Gateway cannot be read", "error", f)
	if ref := w.env.Ref(w.ref[:0]); ref != nil && w.env.Type == wire.TypeCommand {
		e.refuse(string(ref), f.Code, f.Text, f.AppendDetails(nil), now)
	}
}

var faultNoRef = &wire.Fault{Code: wire.CodeInvalidMessage, Field: "requestRef", Text: "requestRef is required"}

// command handles COMMAND. e.mu is held.
func (e *Edge) command(w *work, now wire.Time) *wire.Fault {
	c := &w.command
	if f := w.env.Command(c, &w.scratch); f != nil {
		return f
	}
	if len(c.Ref) == 0 {
		return faultNoRef
	}
	if t := e.refs[string(c.Ref)]; t != nil {
		e.again(t)
		return nil
	}
	ref, target := string(c.Ref), string(c.Target)
	d := e.devices[target]
	if d == nil && now < e.expected {
		d = &device{id: target}
		e.devices[target] = d
		defer e.tidy(d)
	}
	if d == nil || d.sess == nil && now >= e.expected {
		e.notHere(ref, target, now)
		return nil
	}
	t := &entry{ref: ref, device: d.id, timeoutMs: c.TimeoutMs, deadline: now + wire.Time(c.TimeoutMs)*1_000_000}
	switch {
	case !e.room(d, c.Priority, len(w.env.Msg)):
		e.refuse(ref, wire.CodeOverloaded, "Too many commands wait at the edge", []byte(`{"retryAfter":1}`), now)
	case e.used+t.cost() > e.opt.StoreBytes || e.failing != nil:
		e.refuse(ref, wire.CodeOverloaded, "The edge cannot store commands now", []byte(`{"retryAfter":5}`), now)
	default:
		e.count.accepted++
		e.track(t)
		e.enqueue(d, t, bytes.Clone(w.env.Msg), c.Priority)
		e.pump(d, now)
	}
	return nil
}

// notHere refuses a command whose device is not connected. e.mu is held.
func (e *Edge) notHere(ref, target string, now wire.Time) {
	details := wire.AppendString([]byte(`{"targetClientId":`), target)
	details = append(wire.AppendString(append(details, `,"edgeId":`...), e.opt.ID), '}')
	e.refuse(ref, wire.CodeDeviceNotFound, "Device "+target+" is not connected to this edge", details, now)
}

// again handles a command whose ref is known (PROTOCOL.md section 5): its answer, if there
// is one, is given again; otherwise nothing happens, for the command is queued or was
// handed over. An answer that will still go by itself on this link, from the backlog or
// behind the REGISTER, is enough. One that went is not: the two may have crossed, and then
// the Gateway counts the second as late, but it may also have been read by a Gateway that
// did not know the ref yet. e.mu is held.
func (e *Edge) again(t *entry) {
	e.count.repeated++
	if t.stage == stageAnswered && t.item <= e.up.sentTo && t.unasked != e.up.gen {
		e.answerAgain(t)
	}
}

// answerAgain sends the answer that is kept. e.mu is held.
func (e *Edge) answerAgain(t *entry) {
	gen := e.up.gen
	e.store.ReadAnswer(t.ref, func(msg []byte, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if err != nil {
			e.log.Error("an answer cannot be read", "requestRef", t.ref, "error", err)
		}
		if msg == nil || gen != e.up.gen || !e.up.registered {
			return
		}
		if e.send(msg) {
			e.up.sent = append(e.up.sent, t)
			return
		}
		t.unasked = gen // when there is room
		e.up.resend = append(e.up.resend, t)
		e.up.draining = true
	})
}

// cancel handles CANCEL: a command that is queued never leaves; one that was handed over
// is followed by the CANCEL, once. e.mu is held.
func (e *Edge) cancel(w *work, now wire.Time) {
	c := &w.cancel
	t := e.refs[string(c.Ref)]
	var d *device
	switch {
	case t == nil: // of a device that moved here while it executes
		d = e.devices[string(c.Target)]
	case t.stage == stageQueued || t.stage == stageCommitting:
		e.dropQueued(t)
		return
	case t.stage == stageHanded && !t.told && !t.dropped:
		t.told = true
		d = e.devices[t.device]
	}
	if d != nil && d.sess != nil {
		d.sess.conn.Append(wire.ClassNotice, w.env.Msg, nil, nil)
	}
}

// refuse sends the Gateway an ERROR that ends a request. e.mu is held.
func (e *Edge) refuse(ref string, code wire.Code, text string, details []byte, now wire.Time) {
	e.count.refusals[code].Add(1)
	e.send(wire.AppendError(nil, code.String(), text, details, []byte(ref), now))
}
