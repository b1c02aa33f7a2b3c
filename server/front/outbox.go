package front

import (
	"encoding/binary"

	"github.com/panjf2000/gnet/v2/pkg/pool/byteslice"
	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// outbox is what waits to be written to a connection. Anybody appends to buf; the
// loop takes it as a whole, and what it took counts as waiting until the socket has it.
type outbox struct {
	buf     []byte // pooled: frames that came since the loop last looked; nil when there are none
	waiting int    // bytes in buf, in held, and in Conn.out from Conn.off on
	raw     uint16 // bytes at the start of buf that are no frames: the answer to the handshake
	want    bool   // a command was refused: the session is owed a Writable
	blocked bool   // the socket is full; the loop goes on by itself when there is room
	queued  bool   // the connection is in its loop's list of dirty ones
	shut    bool   // closed or closing: nothing more is taken

	charged  int        // bytes counted in the server's total, see charge
	held     []heldBack // what waits for the journal, in its order; see held.go
	latePong *latePong  // the newest ping, to be answered when there is room; nil: none
	close    *closing   // what to close with; nil until then
}

// latePong is a ping's payload. Only a flood of pings needs one.
type latePong struct {
	payload [maxControl]byte
	n       int
}

// closing is what CloseWith was called with.
type closing struct {
	code uint16
	why  CloseReason
	text string
}

const (
	firstOutbox = 1 << 10  // the least that is taken from the pool for an outbox
	pongWindow  = 64 << 10 // while more waits only the newest ping is remembered
)

// Append queues a, b and c as one text message, copying them into the outbox.
//
// A ClassCommand is refused with Full while the socket is blocked or
// Options.CommandWindow bytes wait; Session.Writable then follows. A ClassStatus is
// Dropped while more than Options.StatusLimit waits. A ClassNotice is taken up to
// Options.MaxOutbox; beyond, the connection is closed with 4429. Gone: the
// connection is closed or closing. With wire.Durable it waits for Options.Journal as
// well. It never blocks and, with pooled memory at hand, does not allocate.
func (c *Conn) Append(class wire.Class, a, b, e []byte) wire.Result {
	o := &c.l.srv.o
	durable := class&wire.Durable != 0 && o.Journal != nil
	class &^= wire.Durable
	n := len(a) + len(b) + len(e)
	c.outboxMu.Lock()
	box := &c.box
	switch {
	case box.shut:
		c.outboxMu.Unlock()
		return wire.Gone
	case class == wire.ClassCommand && (box.blocked || box.waiting >= o.CommandWindow):
		box.want = true
		c.outboxMu.Unlock()
		return wire.Full
	case class == wire.ClassStatus && box.waiting > o.StatusLimit:
		c.outboxMu.Unlock()
		return wire.Dropped
	case box.waiting+n > o.MaxOutbox && class != wire.ClassCommand,
		box.waiting+n >= box.charged+2*chargeStep && !c.charge(box.waiting+n) && box.blocked:
		c.outboxMu.Unlock()
		c.CloseWith(wire.CloseTooSlow, reasonTooSlow)
		return wire.Gone
	}
	if durable || len(box.held) > 0 {
		if mark := box.mark(class, durable, o.Journal); mark > 0 {
			first := box.hold(mark, a, b, e)
			c.outboxMu.Unlock()
			if first {
				c.l.pushHeld(c, mark)
			}
			return wire.Accepted
		}
	}
	had := len(box.buf)
	box.reserve(n + maxHead)
	box.buf = appendHeader(box.buf, opText, n)
	box.buf = append(append(append(box.buf, a...), b...), e...)
	box.waiting += len(box.buf) - had
	wake := box.queue()
	c.outboxMu.Unlock()
	if wake {
		c.l.push(c)
	}
	return wire.Accepted
}

// chargeStep is how finely a connection counts towards Options.MaxWaiting. The first
// step is free, so that the usual traffic does not meet at one counter.
const chargeStep = 64 << 10

// charge keeps the server's total of what waits, in steps. It returns false when the
// total is beyond its bound: then a connection whose peer does not keep up is let go.
// Called with the outbox's lock held.
func (c *Conn) charge(waiting int) bool {
	want := max(waiting-chargeStep, 0) / chargeStep * chargeStep
	total := c.l.srv.waiting.Add(int64(want - c.box.charged))
	c.box.charged = want
	return total <= c.l.srv.o.MaxWaiting
}

// queue says whether the connection has to be put on its loop's list of dirty ones.
func (box *outbox) queue() bool {
	if box.queued || box.blocked {
		return false
	}
	box.queued = true
	return true
}

// reserve makes room for n more bytes in buf.
func (box *outbox) reserve(n int) {
	box.buf = reserve(box.buf, n)
}

// reserve returns pooled memory, or nil, with room for n more bytes.
func reserve(buf []byte, n int) []byte {
	need := len(buf) + n
	if need <= cap(buf) {
		return buf
	}
	b := byteslice.Get(max(need, 2*cap(buf), firstOutbox))
	m := copy(b, buf)
	if buf != nil {
		byteslice.Put(buf)
	}
	return b[:m]
}

// control queues a control frame.
func (box *outbox) control(op byte, payload []byte) {
	had := len(box.buf)
	box.reserve(2 + len(payload))
	box.buf = append(appendHeader(box.buf, op, len(payload)), payload...)
	box.waiting += len(box.buf) - had
}

// appendHeader appends the header of an unmasked frame that stands alone, in the
// shortest form (RFC 6455 section 5.2).
func appendHeader(dst []byte, op byte, n int) []byte {
	switch {
	case n <= 125:
		return append(dst, 0x80|op, byte(n))
	case n <= 0xffff:
		return append(dst, 0x80|op, 126, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0x80|op, 127), uint64(n))
}

// pong answers a ping. While much waits only the newest is remembered, which
// RFC 6455 section 5.5.3 allows, so that a flood of pings cannot grow the outbox.
func (c *Conn) pong(payload []byte) {
	c.outboxMu.Lock()
	box := &c.box
	wake := false
	switch {
	case box.shut:
	case box.waiting-box.heldBytes() < pongWindow:
		box.latePong = nil // an older one
		box.control(opPong, payload)
		wake = box.queue()
	default:
		if box.latePong == nil {
			box.latePong = new(latePong)
		}
		box.latePong.n = copy(box.latePong.payload[:], payload)
	}
	c.outboxMu.Unlock()
	if wake {
		c.l.push(c)
	}
}

// flush writes what waits, once: the socket gets everything that came in this
// round in one write. Loop only. What becomes of the connection shows in its state.
func (c *Conn) flush(now wire.Time) {
	switch c.state {
	case stateHead:
		if c.served {
			c.sendHeld(now)
		}
		return
	case stateLinger, stateGone:
		return
	}
	if c.take() {
		c.beginClose(now)
		c.take()
	} else if c.closeHeld && c.until == 0 {
		c.until = now + c.l.srv.o.closeFlush
		c.l.arm(c, c.until)
	}
	if c.write(now) {
		c.written(now)
	}
}

// take moves what came since into the loop's hands, if it has nothing left to write.
// What comes from here on puts the connection on the list of dirty ones again. It
// reports, and takes nothing, when an open connection is to be closed.
func (c *Conn) take() (toClose bool) {
	c.outboxMu.Lock()
	defer c.outboxMu.Unlock()
	c.box.queued = false
	if c.box.shut && c.state == stateOpen {
		if len(c.box.held) == 0 || c.box.close.code == wire.CloseTooSlow {
			return true
		}
		c.closeHeld = true
	}
	if c.off == len(c.out) {
		if c.out != nil {
			byteslice.Put(c.out)
		}
		c.out, c.off, c.raw = c.box.buf, 0, c.box.raw
		c.box.buf, c.box.raw = nil, 0
	}
	return false
}

// written settles accounts after a write: whether the socket is full, what is owed,
// and what follows when all has left.
func (c *Conn) written(now wire.Time) {
	c.outboxMu.Lock()
	box := &c.box
	drained := c.off == len(c.out)
	box.blocked = !drained
	if late := box.latePong; drained && late != nil && !box.shut {
		box.control(opPong, late.payload[:late.n])
		box.latePong = nil
	}
	box.waiting = len(c.out) - c.off + len(box.buf) + box.heldBytes()
	tooSlow := box.charged > 0 && !c.charge(box.waiting) && box.blocked
	again := len(box.buf) > 0 && box.queue()
	empty := box.waiting == 0
	writable := box.want && !box.shut && drained && box.waiting < c.l.srv.o.CommandWindow
	if writable {
		box.want = false
	}
	c.outboxMu.Unlock()
	if again {
		c.l.push(c) // in the next round, after the others
	}
	if drained && c.out != nil {
		byteslice.Put(c.out)
		c.out, c.off, c.raw = nil, 0, 0
	}
	if c.l.block(c, !drained) != nil {
		c.drop(reasonReset, now)
		return
	}
	switch {
	case tooSlow:
		c.CloseWith(wire.CloseTooSlow, reasonTooSlow)
	case empty && c.state == stateClosing:
		c.halfClose(now)
	case writable && c.sess != nil:
		c.sess.Writable(now)
	}
}

// write gives the socket what it takes. It returns false when the connection broke.
func (c *Conn) write(now wire.Time) bool {
	for c.off < len(c.out) {
		n, err := write(int(c.fd), c.out[c.off:])
		switch {
		case n > 0:
			if c.moved == 0 {
				c.moved = now
				c.l.arm(c, now+c.l.srv.o.stallLook)
			}
			c.off += n
			c.sent += int64(n)
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if c.moved == 0 {
				c.moved = now
				c.l.arm(c, now+c.l.srv.o.stallLook)
			}
			return true
		default:
			c.drop(reasonReset, now)
			return false
		}
	}
	return true
}

// dropUnstarted frees everything that waits but the frame that is partly written,
// so that a close frame may follow it.
func (c *Conn) dropUnstarted() {
	at := int(c.raw)
	for at < c.off {
		h := c.out[at:]
		switch n := int(h[1]); n {
		case 126:
			at += 4 + int(binary.BigEndian.Uint16(h[2:]))
		case 127:
			at += 10 + int(binary.BigEndian.Uint64(h[2:]))
		default:
			at += 2 + n
		}
	}
	c.out = c.out[:at]
	c.outboxMu.Lock()
	if c.box.buf != nil {
		byteslice.Put(c.box.buf)
		c.box.buf, c.box.raw = nil, 0
	}
	c.box.dropHeld()
	c.box.waiting = len(c.out) - c.off
	c.outboxMu.Unlock()
}
