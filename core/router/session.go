package router

import (
	"sync"
	"sync/atomic"

	"subway/core/wire"
)

// Session is one connection's life at the router. Its methods are called from one
// goroutine at a time, the one that reads the connection.
type Session struct {
	r      *Router
	conn   Conn
	remote string

	id      string
	entered int64    // the epoch with which it registered; its sessionId is made of it
	edge    *edge    // of an edge or a direct device
	backend *backend // of a Backend
	rate    Bucket   // of its commands
	invalid int32    // messages in a row
	dropped atomic.Bool
	over    bool            // nothing more is taken from it
	kind    wire.ClientType // 0: not registered
}

// work is what handling one message needs; it is borrowed for one call of Receive.
type work struct {
	env      wire.Envelope
	scratch  wire.Scratch
	command  wire.Command
	register wire.Register
	response wire.Response
	progress wire.Progress
	failure  wire.ErrorMessage
	note     Notice
	out      []byte
	why      []byte // JSON of an error
	kinds    lastType
	ref      [maxRef]byte
	target   [maxRef]byte
	stamp    [64]byte
}

const maxRef = 128

// release gives w back.
func (w *work) release() {
	w.forget()
	workPool.Put(w)
}

// forget lets go of all that was borrowed: the message, and what was read from it.
func (w *work) forget() {
	w.env.Msg = nil
	switch w.env.Type {
	case wire.TypeCommand:
		w.command = wire.Command{}
	case wire.TypeCommandResponse:
		w.response = wire.Response{}
	case wire.TypeProgressUpdate:
		w.progress = wire.Progress{}
	case wire.TypeError:
		w.failure = wire.ErrorMessage{}
	case wire.TypeRegister:
		w.register = wire.Register{}
	}
	if w.note.Type != "" {
		w.note = Notice{}
	}
	if cap(w.out)+cap(w.why) > 64<<10 {
		w.out, w.why = nil, nil
	}
}

var workPool = sync.Pool{New: func() any { return new(work) }}

// Registered reports whether the connection has registered.
func (s *Session) Registered() bool { return s.kind != 0 }

// Receive takes one message of the connection. msg is borrowed until it returns.
func (s *Session) Receive(msg []byte, now wire.Time) {
	if s.over || s.dropped.Load() {
		return
	}
	w := workPool.Get().(*work)
	s.receive(w, msg, now)
	w.release()
}

// Invalid notes a message that could not be read at all: a binary one that is not UTF-8.
func (s *Session) Invalid(now wire.Time) {
	if s.over || s.dropped.Load() {
		return
	}
	s.fault(nil, wire.FaultUTF8(), now)
}

// Writable says that there is room for commands again. It follows an Append that said Full.
func (s *Session) Writable(now wire.Time) {
	if s.edge != nil {
		s.r.handOverWaiting(s.edge, now)
	}
}

// Closed says that the connection is gone; no other call follows.
func (s *Session) Closed(now wire.Time, reason string) {
	s.over = true
	if s.kind != wire.ClientNone {
		s.r.metrics.connections[s.kind].Add(-1)
		s.r.depart(s, reason, now)
	}
}

func (s *Session) receive(w *work, msg []byte, now wire.Time) {
	if s.edge != nil {
		sawAt(&s.edge.seen, now)
	}
	fault, _ := w.env.Scan(msg, s.r.limits.MaxDepth).(*wire.Fault)
	ref := w.env.Ref(w.ref[:0])
	if fault == nil && s.kind == 0 && w.env.Type != wire.TypeRegister {
		s.refuse(ref, wire.CodeNotRegistered, "The first message must be a REGISTER", nil, now)
		s.countInvalid()
		return
	}
	switch {
	case fault != nil:
	case w.env.Type == wire.TypeCommand:
		fault = s.command(w, ref, now)
	case w.env.Type == wire.TypeCommandResponse:
		fault = s.response(w, ref, now)
	case w.env.Type == wire.TypeProgressUpdate:
		fault = s.progress(w, ref, now)
	case w.env.Type == wire.TypeRegister:
		fault = s.register(w, ref, now)
	default:
		fault = s.receiveSeldom(w, ref, now)
	}
	if fault != nil {
		s.fault(ref, fault, now)
		return
	}
	s.invalid = 0
}

// sawAt notes when something was seen last. Much is seen at one reading of the clock.
func sawAt(seen *atomic.Int64, now wire.Time) {
	if seen.Load() != int64(now) {
		seen.Store(int64(now))
	}
}

// receiveSeldom handles the types that are not the bulk of the traffic.
func (s *Session) receiveSeldom(w *work, ref []byte, now wire.Time) *wire.Fault {
	switch w.env.Type {
	case wire.TypeUnregister:
		return s.unregister(w, ref, now)
	case wire.TypeCancel:
		return s.cancel(w, ref, now)
	case wire.TypeDeviceStatus:
		return s.deviceStatus(w, ref, now)
	case wire.TypeError:
		return s.errorMessage(w, ref, now)
	case wire.TypeHeartbeat:
		w.out = wire.AppendHeartbeatAck(w.out[:0], now)
		s.conn.Append(wire.ClassNotice, w.out, nil, nil)
		return nil
	}
	return &wire.Fault{Code: wire.CodeInvalidMessage, Field: "type", Text: w.env.Type.String() + " is not for the Gateway"}
}

// fault answers an invalid message and closes the connection after too many in a row.
func (s *Session) fault(ref []byte, f *wire.Fault, now wire.Time) {
	s.refuse(ref, f.Code, f.Text, f.AppendDetails(nil), now)
	s.countInvalid()
}

func (s *Session) countInvalid() {
	if s.invalid++; int(s.invalid) >= s.r.limits.MaxInvalid {
		s.over = true
		s.conn.CloseWith(wire.CloseInvalid, "too many invalid messages")
	}
}

// refuse sends an ERROR that answers a message and ends nothing.
func (s *Session) refuse(ref []byte, code wire.Code, text string, details []byte, now wire.Time) {
	s.refuseAs(wire.ClassNotice, ref, code, text, details, now)
}

func (s *Session) refuseAs(class wire.Class, ref []byte, code wire.Code, text string, details []byte, now wire.Time) {
	s.r.metrics.routingError(code)
	s.conn.Append(class, wire.AppendError(nil, code.String(), text, details, ref, now), nil, nil)
}

func (s *Session) refuseWith(ref []byte, why *Refusal, now wire.Time) {
	class := wire.ClassNotice
	if why.Mark > 0 && why.Mark > s.r.journal.Stored() {
		class |= wire.Durable
	}
	s.refuseAs(class, ref, why.Code, why.Text, why.Details, now)
}

// forbid refuses what is not this party's to do.
func (s *Session) forbid(ref []byte, text string, now wire.Time) *wire.Fault {
	s.refuse(ref, wire.CodeForbidden, text, nil, now)
	return nil
}

// end closes the connection from the router's side; nothing more is taken from it.
func (s *Session) end(code uint16, reason string) {
	s.dropped.Store(true)
	s.conn.CloseWith(code, reason)
}
