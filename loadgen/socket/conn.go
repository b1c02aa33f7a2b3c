package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"github.com/panjf2000/gnet/v2"
)

// finMax is how long the server gets to end TCP once both have said goodbye: it should be
// the first to do so (RFC 6455 section 7.1.1).
const finMax = time.Second

// Handler is told what happens on a connection, on its loop.
type Handler interface {
	// Open says that the handshake is done.
	Open(c *Conn)
	// Message brings a whole text or binary message; msg is valid until it returns.
	Message(c *Conn, msg []byte)
	// Close comes once and last, also where Open never came because the dial failed.
	// After the server's close frame err is a *CloseError, after Stop ErrStopped.
	Close(c *Conn, err error)
}

// CloseError is a connection that ended with a close frame (RFC 6455 section 5.5.1). Code
// and Reason are the server's.
type CloseError struct {
	Code   int // 1005: a frame without a code
	Reason string
	Remote bool // the server said it first; false: it answered ours
}

func (e *CloseError) Error() string {
	if e.Remote {
		return fmt.Sprintf("the server closed the connection with %d %q", e.Code, e.Reason)
	}
	return fmt.Sprintf("closed; the server answered with %d %q", e.Code, e.Reason)
}

// Conn is one connection. But for Loop its methods are for its loop only; before Open and
// after Close they do no more than they say.
type Conn struct {
	loop    *Loop
	target  Target
	handler Handler

	g     gnet.Conn // nil before it stands and after it is gone: gnet's Write does not look whether its descriptor is another's by now
	dirty bool      // it is in loop.dirty
	stood bool      // gnet has opened it
	said  bool      // our close frame is out, or on its way
	cut   bool      // close it at the end of the round
	reset bool      // ... and write nothing more
	over  bool      // Close was called
	out   []byte    // frames of this round
	err   error     // what it ends with; once it is set nothing more is read
	timer *time.Timer

	in inbound
}

// Loop returns the loop it belongs to. Any goroutine may call it.
func (c *Conn) Loop() *Loop { return c.loop }

// LocalAddr is the local end, nil where there is none.
func (c *Conn) LocalAddr() net.Addr {
	if c.g == nil {
		return nil
	}
	return c.g.LocalAddr()
}

// Waiting is how many bytes have not gone to the kernel yet.
func (c *Conn) Waiting() int {
	if c.g == nil {
		return 0
	}
	return len(c.out) + c.g.OutboundBuffered()
}

// Send appends a text frame, which leaves at the end of the round; msg may be used again
// at once. Before Open, after the goodbye and after Close it does nothing.
func (c *Conn) Send(msg []byte) { c.frame(ws.OpText, msg) }

// Ping appends a ping (RFC 6455 section 5.5.2); payload beyond 125 bytes is cut. The pong
// is not told.
func (c *Conn) Ping(payload []byte) { c.frame(ws.OpPing, payload[:min(len(payload), 125)]) }

// Close says goodbye behind what was sent (RFC 6455 section 7.1.2). The connection ends
// when the server has answered, or after Options.Goodbye. A reason beyond 123 bytes is cut. Before
// Open it ends the connection with ErrAborted.
func (c *Conn) Close(code int, reason string) {
	if c.g == nil {
		c.giveUp()
		return
	}
	if c.said || c.err != nil {
		return
	}
	c.goodbye(code, reason)
	wait := c.loop.engine.o.Goodbye
	c.within(wait, fmt.Errorf("the server did not answer our close frame within %v", wait))
}

// Abort ends the connection at the end of the round by a reset, without a goodbye; what
// has not left is dropped. Before Open it ends the connection once it stands.
func (c *Conn) Abort() {
	if c.g == nil {
		c.giveUp()
		return
	}
	c.kill(ErrAborted)
}

// giveUp marks a connection that does not stand yet.
func (c *Conn) giveUp() {
	if !c.over && c.err == nil {
		c.err = ErrAborted
	}
}

// kill resets the connection at the end of the round.
func (c *Conn) kill(err error) {
	_ = c.g.SetLinger(0) // if it fails the end is a FIN: harmless
	c.reset = true
	c.end(err)
}

// end closes the connection at the end of the round. The first reason counts.
func (c *Conn) end(err error) {
	if c.err == nil {
		c.err = err
	}
	c.cut = true
	c.mark()
}

// fail ends the connection because the server broke a rule; code tells it (RFC 6455
// section 7.1.7).
func (c *Conn) fail(code ws.StatusCode, err error) {
	c.goodbye(int(code), "")
	c.end(err)
}

// goodbye appends a close frame, the last one.
func (c *Conn) goodbye(code int, reason string) {
	for len(reason) > 123 || len(reason) > 0 && !utf8.ValidString(reason) {
		reason = reason[:min(len(reason)-1, 123)]
	}
	var body [125]byte
	binary.BigEndian.PutUint16(body[:], uint16(code))
	c.frame(ws.OpClose, body[:2+copy(body[2:], reason)])
	c.said = true
}

// within ends the connection after d, unless it has ended by then.
func (c *Conn) within(d time.Duration, err error) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(d, func() {
		_ = c.loop.post(func() {
			if c.g != nil {
				c.kill(err)
			}
		}, unbounded)
	})
}

func (c *Conn) mark() {
	if !c.dirty {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// frame appends a masked frame (RFC 6455 section 5.3).
func (c *Conn) frame(op ws.OpCode, payload []byte) {
	if c.g == nil || c.said || c.err != nil {
		return
	}
	if c.out == nil {
		c.out = c.loop.buffer()
	}
	c.out = appendFrame(c.out, op, payload, rand.Uint32())
	c.mark()
	if c.Waiting() > c.loop.engine.o.MaxOutbox {
		c.kill(ErrOutboxFull)
	}
}

// appendFrame appends a frame that stands alone, masked with mask.
func appendFrame(out []byte, op ws.OpCode, payload []byte, mask uint32) []byte {
	out = append(out, 0x80|byte(op))
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mask)
	out = append(append(out, key[:]...), payload...)
	ws.Cipher(out[len(out)-len(payload):], key, 0)
	return out
}

// flush ends the connection's part in a round: one write, then the end if that was asked
// for. A write that fails calls gone before it returns.
func (c *Conn) flush() {
	out := c.out
	c.out = nil
	if c.g != nil && len(out) > 0 && !c.reset {
		_, _ = c.g.Write(out)
	}
	if out != nil {
		c.loop.recycle(out)
	}
	if c.g != nil && c.cut {
		_ = c.g.EventLoop().Close(c.g)
	}
}

// opened is gnet's OnOpen: the connection stands. What the server sent right behind its
// handshake is read here.
func (c *Conn) opened(g gnet.Conn) {
	c.g, c.stood = g, true
	if c.err != nil { // given up
		c.kill(c.err)
		return
	}
	c.handler.Open(c)
	c.in.early(c)
}

// gone is gnet's OnClose: the descriptor goes.
func (c *Conn) gone(err error) {
	switch {
	case c.err != nil:
	case c.loop.engine.ctx.Err() != nil:
		c.err = ErrStopped
	case err == nil || errors.Is(err, io.EOF):
		c.err = fmt.Errorf("the server ended the connection without a close frame: %w", io.ErrUnexpectedEOF)
	default:
		c.err = err
	}
	c.closed()
}

// closed tells the handler, once.
func (c *Conn) closed() {
	if c.over {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.out != nil {
		c.loop.recycle(c.out)
	}
	c.over, c.g, c.out, c.in = true, nil, nil, inbound{}
	c.handler.Close(c, c.err)
}
