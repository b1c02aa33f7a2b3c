package edge

import (
	"sync"

	"subway/core/wire"
	"subway/server/edge/local"
)

// session is one connection of a device. Its methods are called from one goroutine at a
// time, the one that reads the connection.
type session struct {
	e      *Edge
	conn   local.Conn
	remote string

	id      string  // "" until it has registered
	dev     *device // guarded by Edge.mu; dev.sess is another once this one was superseded
	name    string  // sessionId
	invalid int     // messages in a row
	over    bool    // nothing more is taken from it
}

// work is what handling one message needs; it is borrowed for the time of one call.
type work struct {
	env      wire.Envelope
	scratch  wire.Scratch
	register wire.Register
	response wire.Response
	progress wire.Progress
	status   wire.DeviceStatus
	failure  wire.ErrorMessage
	command  wire.Command
	cancel   wire.Cancel
	ref      [wire.MaxIDBytes]byte
	out      []byte
}

var workPool = sync.Pool{New: func() any { return new(work) }}

func (w *work) giveBack() {
	w.env.Msg = nil
	if cap(w.out) > 64<<10 {
		w.out = nil
	}
	workPool.Put(w)
}

// Open implements local.Door.
func (e *Edge) Open(c local.Conn, remote string, _ wire.Time) local.Session {
	if e.stopping.Load() {
		return nil
	}
	return &session{e: e, conn: c, remote: remote}
}

// Now implements local.Door.
func (e *Edge) Now() wire.Time { return e.now() }

// Registered implements local.Session.
func (s *session) Registered() bool { return s.id != "" }

// Receive implements local.Session.
func (s *session) Receive(msg []byte, now wire.Time) {
	if s.over {
		return
	}
	w := workPool.Get().(*work)
	defer w.giveBack()
	fault, _ := w.env.Scan(msg, wire.DefaultMaxDepth).(*wire.Fault)
	ref := w.env.Ref(w.ref[:0])
	if fault == nil && s.id == "" && w.env.Type != wire.TypeRegister {
		s.refuse(ref, wire.CodeNotRegistered, "The first message must be a REGISTER", nil, now)
		s.countInvalid()
		return
	}
	if fault == nil {
		fault = s.dispatch(w, ref, now)
	}
	if fault != nil {
		s.fault(ref, fault, now)
		return
	}
	s.invalid = 0
}

func (s *session) dispatch(w *work, ref []byte, now wire.Time) *wire.Fault {
	switch w.env.Type {
	case wire.TypeCommandResponse:
		return s.response(w, ref, now)
	case wire.TypeProgressUpdate:
		return s.progress(w, ref, now)
	case wire.TypeDeviceStatus:
		return s.deviceStatus(w, ref, now)
	case wire.TypeError:
		return s.errorMessage(w, ref, now)
	case wire.TypeHeartbeat:
		s.heartbeat(w, now)
		return nil
	case wire.TypeRegister:
		return s.register(w, ref, now)
	case wire.TypeUnregister:
		return s.unregister(w, ref, now)
	case wire.TypeCommand:
		if f := w.env.Command(&w.command, &w.scratch); f != nil {
			return f
		}
		return s.forbid(ref, "Only a Backend sends commands", now)
	case wire.TypeCancel:
		if f := w.env.Cancel(&w.cancel, &w.scratch); f != nil {
			return f
		}
		return s.forbid(ref, "Only a Backend cancels commands", now)
	}
	return &wire.Fault{Code: wire.CodeInvalidMessage, Field: "type", Text: w.env.Type.String() + " is not for the Edge"}
}

// Invalid implements local.Session.
func (s *session) Invalid(now wire.Time) {
	if !s.over {
		s.fault(nil, wire.FaultUTF8(), now)
	}
}

// Writable implements local.Session.
func (s *session) Writable(now wire.Time) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if d := s.dev; d != nil && d.sess == s {
		d.blocked = false
		s.e.pump(d, now)
	}
}

// Closed implements local.Session.
func (s *session) Closed(now wire.Time, reason string) {
	s.over = true
	if s.id == "" {
		return
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.leave(s, reason, now)
}

// heartbeat answers, and says so where the Gateway is out of reach (PROTOCOL.md section 5).
func (s *session) heartbeat(w *work, now wire.Time) {
	w.out = wire.AppendHeartbeatAck(w.out[:0], now)
	s.conn.Append(wire.ClassNotice, w.out, nil, nil)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if d := s.dev; d.sess == s && now-d.warned >= wire.Time(warnEvery) {
		s.e.warn(d, now)
	}
}

// fault answers an invalid message and closes the connection after too many in a row.
func (s *session) fault(ref []byte, f *wire.Fault, now wire.Time) {
	s.refuse(ref, f.Code, f.Text, f.AppendDetails(nil), now)
	s.countInvalid()
}

func (s *session) countInvalid() {
	if s.invalid++; s.invalid >= maxInvalid {
		s.over = true
		s.conn.CloseWith(wire.CloseInvalid, "too many invalid messages")
	}
}

// refuse sends an ERROR that answers a message and ends nothing.
func (s *session) refuse(ref []byte, code wire.Code, text string, details []byte, now wire.Time) {
	s.e.count.refusals[code].Add(1)
	s.conn.Append(wire.ClassNotice, wire.AppendError(nil, code.String(), text, details, ref, now), nil, nil)
}

// forbid refuses what is not this device's to do.
func (s *session) forbid(ref []byte, text string, now wire.Time) *wire.Fault {
	s.refuse(ref, wire.CodeForbidden, text, nil, now)
	return nil
}
