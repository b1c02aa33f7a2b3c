package socket

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// ProtocolError is a server's violation of RFC 6455; the connection was closed with 1002
// or 1007.
type ProtocolError struct{ Rule string }

func (e *ProtocolError) Error() string { return "RFC 6455 violation by the server: " + e.Rule }

// inbound is what a connection has received and not delivered. Its bound is MaxMessage
// and one read.
type inbound struct {
	need     int       // bytes that the frame at the front takes in all, as far as that is known
	ahead    []byte    // came with the handshake, begins with a whole frame or the front of one; nearly always nil
	message  []byte    // fragments so far
	op       ws.OpCode // of the message that is under way
	fragment bool      // a message is under way
}

// early reads what came right behind the handshake.
func (in *inbound) early(c *Conn) {
	if in.ahead != nil {
		in.consume(c, in.ahead)
	}
}

// consume cuts frames from the front of b, a connection's in.ahead, and keeps the rest.
func (in *inbound) consume(c *Conn, b []byte) {
	used := in.frames(c, b)
	if in.ahead = b[used:]; len(in.ahead) == 0 {
		in.ahead = nil
	}
}

// read is gnet's OnTraffic: it cuts the frames that are there.
func (c *Conn) read() {
	in := &c.in
	if c.g == nil {
		return
	}
	if c.err != nil { // behind the server's close frame: not to be read, and not to be kept
		_, _ = c.g.Discard(-1)
		return
	}
	if len(in.ahead)+c.g.InboundBuffered() < in.need {
		return // looking at it again with each read would be quadratic
	}
	b, err := c.g.Peek(-1)
	switch {
	case err != nil:
		c.end(err)
	case in.ahead != nil: // gnet takes no bytes back: join them here
		b = append(in.ahead, b...)
		_, _ = c.g.Discard(-1)
		in.consume(c, b)
	default:
		if used := in.frames(c, b); used > 0 { // Discard(0) would drop everything
			_, _ = c.g.Discard(used)
		}
	}
}

// frames acts on the whole frames at the front of b and returns how many bytes they were.
// Handlers that it calls close nothing before the round is over, so c.g stays.
func (in *inbound) frames(c *Conn, b []byte) (used int) {
	limit := c.loop.engine.o.MaxMessage
	for c.err == nil {
		h, size, err := header(b[used:], in.fragment)
		length := int(h.Length)
		switch {
		case err != nil:
			c.fail(ws.StatusProtocolError, err)
		case size == 0:
			in.need = 1
			return used
		case length > limit || !h.OpCode.IsControl() && length > limit-len(in.message):
			c.fail(ws.StatusMessageTooBig, ErrTooBig)
		case len(b)-used < size+length:
			in.need = size + length
			return used
		default:
			in.take(c, h, b[used+size:used+size+length])
			used += size + length
		}
	}
	return used
}

// header reads the head of a server's frame (RFC 6455 section 5.2); size 0: it is not
// whole yet.
func header(b []byte, fragmented bool) (h ws.Header, size int, err error) {
	if len(b) < 2 {
		return h, 0, nil
	}
	h.Fin, h.Rsv, h.OpCode, h.Masked = b[0]&0x80 != 0, b[0]>>4&7, ws.OpCode(b[0]&15), b[1]&0x80 != 0
	size = 2
	switch n := b[1] & 0x7f; {
	case n < 126:
		h.Length = int64(n)
	case n == 126 && len(b) >= 4:
		h.Length, size = int64(binary.BigEndian.Uint16(b[2:])), 4
	case n == 127 && len(b) >= 10:
		h.Length, size = int64(binary.BigEndian.Uint64(b[2:])), 10
	default:
		return h, 0, nil
	}
	state := ws.StateClientSide
	if fragmented {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(h, state); err != nil {
		return h, 0, &ProtocolError{err.Error()}
	}
	if h.Length < 0 || size == 4 && h.Length < 126 || size == 10 && h.Length < 1<<16 {
		return h, 0, &ProtocolError{"a frame length that is not minimal, or beyond 63 bits"}
	}
	return h, size, nil
}

// pongRoom is how many bytes may wait before pings go unanswered.
const pongRoom = 64 << 10

// take acts on one frame.
func (in *inbound) take(c *Conn, h ws.Header, payload []byte) {
	switch h.OpCode {
	case ws.OpPing:
		if c.Waiting() < pongRoom { // else the peer reads nothing, and may have the next (RFC 6455 section 5.5.3)
			c.frame(ws.OpPong, payload)
		}
	case ws.OpPong:
	case ws.OpClose:
		c.closedBy(payload)
	default:
		in.part(c, h, payload)
	}
}

// part delivers a message, or keeps a fragment of one.
func (in *inbound) part(c *Conn, h ws.Header, payload []byte) {
	if h.OpCode != ws.OpContinuation {
		in.op = h.OpCode
	}
	whole := payload
	if in.fragment || !h.Fin {
		in.message = append(in.message, payload...)
		whole = in.message
	}
	if in.fragment = !h.Fin; in.fragment {
		return
	}
	in.message = nil
	if in.op == ws.OpText && !utf8.Valid(whole) {
		c.fail(ws.StatusInvalidFramePayloadData, &ProtocolError{"a text message that is not UTF-8"})
		return
	}
	c.handler.Message(c, whole)
}

// closedBy answers the server's close frame, or takes its answer to ours. The server is
// to end TCP then, for which it gets finMax.
func (c *Conn) closedBy(payload []byte) {
	e := &CloseError{Code: int(ws.StatusNoStatusRcvd), Remote: !c.said}
	switch {
	case len(payload) == 1:
		c.fail(ws.StatusProtocolError, &ProtocolError{"a close frame with half a code"})
		return
	case len(payload) >= 2:
		e.Code, e.Reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
		if rule := closeRule(e); rule != "" {
			c.fail(ws.StatusProtocolError, &ProtocolError{rule})
			return
		}
	}
	c.frame(ws.OpClose, payload[:min(len(payload), 2)])
	c.said = true
	c.err = e
	c.within(min(finMax, c.loop.engine.o.Goodbye), e)
}

// closeRule names the rule that a close frame breaks (RFC 6455 section 7.4, and the codes
// that IANA registered since), empty: none.
func closeRule(e *CloseError) string {
	switch {
	case !utf8.ValidString(e.Reason):
		return "a close reason that is not UTF-8"
	case e.Code < 1000, e.Code >= 1004 && e.Code <= 1006, e.Code >= 1015 && e.Code < 3000, e.Code >= 5000:
		return "a close code that may not be sent"
	}
	return ""
}
