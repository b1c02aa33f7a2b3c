package loadgen

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"subway/core/wire"
	"subway/loadgen/ledger"
	"subway/loadgen/socket"
)

// heldMax bounds the answers that an edge keeps while its link is down.
const heldMax = 10_000

// edge is a simulated edge with its devices, or a device that is connected directly: to
// the gateway that is an edge with one device (PROTOCOL.md section 3). It belongs to its
// lane.
type edge struct {
	lane   *lane
	number int
	id     string
	direct bool
	first  uint32 // its devices are first to first+count-1
	count  uint32
	dead   bool // it is not to come back: the run is over
	stormy bool // it comes back at once

	conn       *socket.Conn
	registered bool
	session    uint16
	order      ledger.Order
	held       [][]byte        // answers while the link is down, oldest first
	away       map[uint32]bool // devices that have left
	attempts   int
}

func (e *edge) owns(device uint32) bool { return device-e.first < e.count }

// connect dials; the rest comes through Open and Close.
func (e *edge) connect() {
	if e.dead {
		return
	}
	e.conn = e.lane.run.engine.Dial(e.lane.loop, e.lane.run.target(e.number), e)
}

// Open implements socket.Handler: it registers, an edge with all its devices.
func (e *edge) Open(c *socket.Conn) {
	buf := append(e.lane.buf[:0], `{"type":"REGISTER","clientId":"`...)
	buf = append(buf, e.id...)
	if e.direct {
		buf = append(buf, `","clientType":"DEVICE","version":"1.0"}`...)
	} else {
		buf = append(buf, `","clientType":"EDGE","version":"1.0",`...)
		if !e.lane.run.s.Fleet.NoDedupe {
			buf = append(buf, `"capabilities":["dedupe"],`...)
		}
		buf = e.appendDevices(append(buf, `"devices":[`...))
		buf = append(buf, `]}`...)
	}
	e.lane.buf = buf
	c.Send(buf)
}

func (e *edge) appendDevices(buf []byte) []byte {
	for i := range e.count {
		if e.away[e.first+i] {
			continue
		}
		if buf[len(buf)-1] != '[' {
			buf = append(buf, ',')
		}
		buf = append(e.lane.run.names.appendDevice(append(buf, '"'), e.first+i), '"')
	}
	return buf
}

// Close implements socket.Handler: the link is gone, or never came to be.
func (e *edge) Close(_ *socket.Conn, err error) {
	r := e.lane.run
	if e.registered {
		r.registered.Add(-1)
		r.book.EdgeBroken()
	}
	e.registered, e.conn = false, nil
	if e.dead {
		return
	}
	if e.direct && e.away[e.first] { // it left by itself, and no command can reach it until it is back
		delete(e.away, e.first)
		e.lane.later(r.s.Churn.Away, e.connect)
		return
	}
	r.lost(e.id, err)
	if r.superseded(e.id, err) {
		return
	}
	wait := r.s.Fleet.Reconnect
	if e.stormy {
		wait = 0 // it is to come back at once, with a pause only where it is refused
		if e.attempts > 0 {
			wait = 100 * time.Millisecond
		}
	}
	e.attempts++
	e.lane.later(wait, e.connect)
}

// superseded says whether another connection took a party's id: it is not dialled again
// then, or the two would take it from each other for ever (PROTOCOL.md section 3).
func (r *run) superseded(id string, err error) bool {
	var closed *socket.CloseError
	if !errors.As(err, &closed) || closed.Code != int(wire.CloseSuperseded) {
		return false
	}
	r.trouble("%s was superseded by another connection: another run with the same prefix?", id)
	return true
}

// Message implements socket.Handler.
func (e *edge) Message(_ *socket.Conn, msg []byte) {
	env := &e.lane.env
	if err := env.Scan(msg, wire.DefaultMaxDepth); err != nil {
		e.lane.run.trouble("%s got what is no message: %v", e.id, err)
		return
	}
	switch env.Type {
	case wire.TypeCommand:
		e.command(env)
	case wire.TypeRegisterAck:
		e.acknowledged()
	case wire.TypeError:
		e.lane.run.trouble("%s got %s", e.id, clip(msg))
	}
}

// acknowledged sends what waited for the link.
func (e *edge) acknowledged() {
	if e.registered {
		return
	}
	e.registered, e.attempts, e.stormy = true, 0, false
	e.session++
	e.order.Reset()
	e.lane.run.registered.Add(1)
	for _, m := range e.held {
		e.conn.Send(m)
	}
	e.held = nil
}

// command runs a command: it enters it in the books, and answers now or later.
func (e *edge) command(env *wire.Envelope) {
	r := e.lane.run
	ref := env.Ref(e.lane.scratch[:0])
	seq, ok := r.book.Seq(ref)
	if !ok {
		r.foreign("command", ref)
		return
	}
	id, _ := env.Str(wire.MemberTargetClientID, e.lane.scratch[64:64])
	device, known := r.names.device(id)
	again, answered := r.book.Arrived(ledger.Arrival{
		Seq: seq, Target: device, Owned: known && e.owns(device), Dedupe: !r.s.Fleet.NoDedupe && !e.direct, Session: e.session,
	})
	if !again && !r.unordered {
		e.order.Arrived(r.book, seq)
	}
	e.lane.inner = r.texts.appendInner(e.lane.inner[:0], seq)
	if !bytes.Equal(env.Raw(wire.MemberCommand), e.lane.inner) {
		r.book.Fault(ledger.Altered, string(ref), "the command")
	}
	switch {
	case again && answered != ledger.Unknown:
		e.answer(seq, answered, 0)
	case !again && e.away[device]:
		e.answer(seq, ledger.Failed, 0)
	case !again && !r.isDead(device):
		e.lane.execute(e, seq, device)
	}
}

// answer ends a command, by a response that waits here while the link is down.
func (e *edge) answer(seq uint64, o ledger.Outcome, took time.Duration) {
	r := e.lane.run
	r.book.Answered(seq, o)
	ref := r.book.AppendRef(e.lane.scratch[:0], seq)
	e.lane.buf = r.texts.appendResponse(e.lane.buf[:0], ref, seq, o, took.Milliseconds())
	if e.registered {
		e.conn.Send(e.lane.buf)
		return
	}
	if len(e.held) == heldMax {
		r.trouble("%s holds %d answers while its link is down; the oldest is dropped", e.id, heldMax)
		e.held = e.held[1:]
	}
	e.held = append(e.held, bytes.Clone(e.lane.buf))
}

// progress reports a step, if somebody can hear it.
func (e *edge) progress(seq uint64, step int) {
	if !e.registered {
		return
	}
	r := e.lane.run
	r.book.Stepped(seq, step)
	ref := r.book.AppendRef(e.lane.scratch[:0], seq)
	e.lane.buf = r.texts.appendProgress(e.lane.buf[:0], ref, step)
	e.conn.Send(e.lane.buf)
}

// leave and comeBack are one device of an edge that goes and comes, or a direct one.
func (e *edge) leave(device uint32, away time.Duration) {
	if !e.registered || e.away[device] {
		return
	}
	if e.away == nil {
		e.away = map[uint32]bool{}
	}
	e.away[device] = true
	e.sendAbout(`{"type":"UNREGISTER","clientId":"`, device, `"}`)
	e.lane.run.left.Add(1)
	if !e.direct { // the goodbye of a direct device closes its connection, and Close goes on from there
		e.lane.later(away, func() { e.comeBack(device) })
	}
}

func (e *edge) comeBack(device uint32) {
	delete(e.away, device)
	if e.registered {
		e.sendAbout(`{"type":"REGISTER","clientType":"DEVICE","edgeInfo":{"edgeId":"`+e.id+`"},"clientId":"`, device, `","version":"1.0"}`)
	}
}

func (e *edge) sendAbout(before string, device uint32, after string) {
	buf := append(e.lane.buf[:0], before...)
	buf = e.lane.run.names.appendDevice(buf, device)
	e.lane.buf = append(buf, after...)
	e.conn.Send(e.lane.buf)
}

// goodbye ends the edge for good; its routes go with it.
func (e *edge) goodbye() {
	e.dead = true
	if e.conn == nil {
		return
	}
	if e.registered {
		e.conn.Send([]byte(`{"type":"UNREGISTER","clientId":` + strconv.Quote(e.id) + `}`))
		return
	}
	e.conn.Abort()
}

// clip shortens a message for a log.
func clip(msg []byte) []byte { return msg[:min(len(msg), 300)] }
