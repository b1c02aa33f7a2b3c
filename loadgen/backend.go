package loadgen

import (
	"bytes"

	"subway/core/wire"
	"subway/loadgen/ledger"
	"subway/loadgen/report"
	"subway/loadgen/socket"
)

// backlogMax is how many bytes may wait in a Backend before it skips what it should send:
// the gateway does not read.
const backlogMax = 8 << 20

// backend is a simulated Backend: it sends commands and hears how they end. It belongs
// to its lane.
type backend struct {
	lane   *lane
	number int
	id     string
	dead   bool

	conn       *socket.Conn
	registered bool
	inFlight   int     // closed loop
	credit     float64 // open loop: commands that are due
}

func (b *backend) connect() {
	if !b.dead {
		b.conn = b.lane.run.engine.Dial(b.lane.loop, b.lane.run.target(b.number), b)
	}
}

// Open implements socket.Handler.
func (b *backend) Open(c *socket.Conn) {
	c.Send([]byte(`{"type":"REGISTER","clientId":"` + b.id + `","clientType":"BACKEND","version":"1.0"}`))
}

// Close implements socket.Handler. What it was not told until now it may never be told.
func (b *backend) Close(_ *socket.Conn, err error) {
	r := b.lane.run
	if b.registered {
		r.registered.Add(-1)
		r.book.Broken(uint16(b.number), r.engine.Now())
	}
	b.registered, b.conn, b.inFlight = false, nil, 0
	if b.dead {
		return
	}
	r.lost(b.id, err)
	if !r.superseded(b.id, err) {
		b.lane.later(r.s.Fleet.Reconnect, b.connect)
	}
}

// pace sends what is due since the last tick: an open loop, or a closed one that refills
// its window. share is this Backend's part of the rate, per tick.
func (b *backend) pace(share float64, window int, intended int64) {
	if window > 0 {
		for b.registered && b.inFlight < window && b.send(b.lane.loop.Now()) {
		}
		return
	}
	for b.credit += share; b.credit >= 1; b.credit-- {
		if !b.registered || b.conn.Waiting() > backlogMax {
			b.lane.run.skipped.Add(1)
			continue
		}
		b.send(intended)
	}
}

// send sends one command; false when the books are full.
func (b *backend) send(intended int64) bool {
	r, l := b.lane.run, b.lane
	o := order{target: r.pick(l.rng), priority: l.priority()}
	callback := l.rng.Float64() < r.s.Load.Callbacks
	var ok bool
	o.seq, ok = r.book.Open(ledger.Terms{
		Source: uint16(b.number), Priority: o.priority, Target: o.target, Told: true, Callback: callback,
	}, intended)
	if !ok {
		return false
	}
	if callback {
		o.callback = r.callbackURL(l.rng)
	}
	o.ref = r.book.AppendRef(l.scratch[:0], o.seq)
	l.buf = r.texts.appendCommand(l.buf[:0], r.names, &o)
	b.conn.Send(l.buf)
	b.inFlight++
	if r.measured(intended) {
		l.shard.Sent(channelOf(o.priority))
		l.shard.Late(l.loop.Now() - intended)
	}
	return true
}

func channelOf(p ledger.Priority) report.Channel {
	if p == ledger.High {
		return report.WebSocket.High()
	}
	return report.WebSocket
}

// Message implements socket.Handler.
func (b *backend) Message(_ *socket.Conn, msg []byte) {
	r, env := b.lane.run, &b.lane.env
	if err := env.Scan(msg, wire.DefaultMaxDepth); err != nil {
		r.trouble("%s got what is no message: %v", b.id, err)
		return
	}
	switch env.Type {
	case wire.TypeCommandResponse:
		b.response(env)
	case wire.TypeError:
		b.failure(env, msg)
	case wire.TypeProgressUpdate:
		b.progress(env)
	case wire.TypeRegisterAck:
		if !b.registered {
			b.registered = true
			r.registered.Add(1)
		}
	}
}

func (b *backend) response(env *wire.Envelope) {
	r := b.lane.run
	ref := env.Ref(b.lane.scratch[:0])
	seq, ok := r.book.Seq(ref)
	if !ok {
		r.foreign("response", ref)
		return
	}
	status, _ := env.Str(wire.MemberStatus, b.lane.scratch[64:64])
	end, code := ledger.Failed, r.codes.failed
	if string(status) == "COMPLETED" {
		end, code = ledger.Completed, r.codes.completed
		b.lane.inner = r.texts.appendResult(b.lane.inner[:0], seq)
		if !bytes.Equal(env.Raw(wire.MemberResult), b.lane.inner) {
			r.book.Fault(ledger.Altered, string(ref), "the result")
		}
	}
	b.ended(seq, end, code)
}

func (b *backend) failure(env *wire.Envelope, msg []byte) {
	r := b.lane.run
	ref := env.Ref(b.lane.scratch[:0])
	seq, ok := r.book.Seq(ref)
	if !ok {
		r.trouble("%s got %s", b.id, clip(msg))
		return
	}
	word, _ := env.Str(wire.MemberCode, b.lane.scratch[64:64])
	b.ended(seq, outcomeOf(string(word)), r.recorder.Code(string(word)))
}

// outcomeOf sorts the error codes of PROTOCOL.md section 3: what ends a command that was
// accepted, and what refuses one.
func outcomeOf(code string) ledger.Outcome {
	switch code {
	case "COMPLETED", "SUCCESS":
		return ledger.Completed
	case "TIMEOUT", "CONNECTION_LOST":
		return ledger.TimedOut
	case "CANCELLED":
		return ledger.Cancelled
	case "FAILED", "DEVICE_ERROR", "DEVICE_NOT_FOUND":
		return ledger.Failed
	}
	return ledger.Refused
}

func (b *backend) ended(seq uint64, end ledger.Outcome, code report.Code) {
	r, l := b.lane.run, b.lane
	now := l.loop.Now()
	latency, priority, first := r.book.Final(seq, uint16(b.number), end, now)
	if !first {
		return
	}
	r.plausible(seq, end, latency)
	if r.measured(now - latency) {
		l.shard.Done(channelOf(priority), code, latency)
	}
	if b.inFlight > 0 {
		b.inFlight--
	}
	if end != ledger.Refused && r.sending.Load() && b.inFlight < r.s.Load.Window {
		b.send(now) // a refusal is followed up at the next tick, not in a tight circle
	}
}

func (b *backend) progress(env *wire.Envelope) {
	r := b.lane.run
	ref := env.Ref(b.lane.scratch[:0])
	seq, ok := r.book.Seq(ref)
	step, ok2 := r.texts.step(env.Raw(wire.MemberProgress))
	if !ok || !ok2 {
		r.foreign("progress", ref)
		return
	}
	r.book.Progress(seq, step)
}

func (b *backend) goodbye() {
	b.dead = true
	if b.conn != nil {
		b.conn.Close(int(wire.CloseNormal), "done")
	}
}
