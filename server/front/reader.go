package front

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"github.com/panjf2000/gnet/v2/pkg/pool/byteslice"

	"subway/core/wire"
)

// Kind says what the Reader found in the bytes it was given.
type Kind uint8

// The kinds of events.
const (
	Nothing       Kind = iota // more bytes are needed
	Text                      // a whole text message, valid UTF-8
	Binary                    // a whole binary message, valid UTF-8
	InvalidBinary             // a whole binary message that is not UTF-8
	Ping                      // a ping frame
	Pong                      // a pong frame
	CloseFrame                // a close frame; Code is 1005 where it had none
	Violation                 // the peer broke a rule; Code says with what to close
)

// Event is what the Reader found. Payload is borrowed until the next call of Next.
type Event struct {
	Kind    Kind
	Code    uint16
	Payload []byte
}

// Close codes of RFC 6455 section 7.4.1 that the reader itself arrives at.
const (
	closeProtocol uint16 = 1002
	closeNoStatus uint16 = 1005 // never on the wire
	closeUTF8     uint16 = 1007
	closeTooBig   uint16 = 1009
	closeBusy     uint16 = 1013
)

const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa

	maxHead     = 14 // bytes of the longest header of a masked frame
	maxControl  = 125
	firstBuffer = 4 << 10  // the least that is taken for a message in pieces
	trustLength = 64 << 10 // a declared length is believed up to here; beyond, the buffer doubles as bytes arrive
)

// Reader takes the frames of a client apart (RFC 6455 section 5), whatever pieces
// they come in: bytes in, events out, no socket and no clock. It enforces the rules
// for masks, reserved bits, opcodes, fragments, lengths, close codes and UTF-8.
//
// A frame that arrives whole is unmasked where it lies and costs no memory. What is
// incomplete is kept in a pooled buffer that grows with the bytes that arrive. A
// Reader is used by one goroutine at a time.
type Reader struct {
	max    int
	budget *Budget

	msg     []byte // pooled: the message so far
	ctl     []byte // pooled: the control frame so far
	charged int    // bytes of msg's capacity taken from the budget
	taken   int64  // bytes of the message or frame in progress, headers too

	left int // payload bytes of the frame that are still to come
	pos  int // payload bytes of the frame that came

	head    [maxHead]byte // a header that came in pieces
	headLen uint8
	mask    [4]byte
	op      uint8 // of the frame in progress
	msgOp   uint8 // of the fragmented message in progress, 0: none
	fin     bool
	inFrame bool
	given   bool // msg or ctl was handed out and goes back at the next call
	dead    bool // after a close frame or a violation nothing more is read
}

// NewReader returns a Reader of messages of up to max bytes whose incomplete
// messages are counted against budget (nil: no bound).
func NewReader(max int, budget *Budget) *Reader {
	return &Reader{max: max, budget: budget}
}

// Next reads from data, which it may modify, and returns the first event and the
// bytes it consumed. With Nothing all of data is consumed. After CloseFrame or
// Violation there are no further events. It does not allocate for frames that are
// whole in data.
func (r *Reader) Next(data []byte) (Event, int) {
	if r.given {
		r.giveBack()
	}
	if r.dead {
		return Event{}, len(data)
	}
	used := 0
	for used < len(data) {
		if !r.inFrame {
			n, code := r.header(data[used:])
			used += n
			r.taken += int64(n)
			if code != 0 {
				return r.violation(code), used
			}
			if !r.inFrame {
				break
			}
		}
		part := data[used:]
		if len(part) > r.left {
			part = part[:r.left]
		}
		used += len(part)
		r.taken += int64(len(part))
		if ev := r.payload(part); ev.Kind != Nothing {
			return ev, used
		}
	}
	return Event{}, used
}

// Partial reports whether a frame or a fragmented message is in progress.
func (r *Reader) Partial() bool { return r.headLen > 0 || r.inFrame || r.msgOp != 0 }

// Taken returns how many bytes of the message in progress have come, headers and
// control frames between its fragments included.
func (r *Reader) Taken() int64 { return r.taken }

// Close gives all memory back; no event follows.
func (r *Reader) Close() {
	r.dead, r.given = true, true
	r.giveBack()
	if r.msg != nil {
		r.dropMessage()
	}
}

// header reads a frame's header, from as many pieces as it comes in.
func (r *Reader) header(data []byte) (n int, code uint16) {
	if r.headLen == 0 && len(data) >= maxHead {
		if code = r.firstTwo(data[0], data[1]); code != 0 {
			return 2, code
		}
		n = headLength(data[1])
		return n, r.lengthAndMask(data[:n])
	}
	for {
		need := 2
		if r.headLen >= 2 {
			need = headLength(r.head[1])
		}
		m := copy(r.head[r.headLen:need], data[n:])
		n += m
		r.headLen += uint8(m)
		switch {
		case int(r.headLen) < need:
			return n, 0
		case r.headLen == 2:
			if code = r.firstTwo(r.head[0], r.head[1]); code != 0 {
				return n, code
			}
		default:
			r.headLen = 0
			return n, r.lengthAndMask(r.head[:need])
		}
	}
}

// headLength returns the length of a masked frame's header by its second byte.
func headLength(b1 byte) int {
	switch b1 & 0x7f {
	case 126:
		return 8
	case 127:
		return maxHead
	}
	return 6
}

// firstTwo checks what a header's first two bytes say (RFC 6455 sections 5.2, 5.4, 5.5).
func (r *Reader) firstTwo(b0, b1 byte) uint16 {
	fin, op, short := b0&0x80 != 0, b0&0x0f, b1&0x7f
	if b0&0x70 != 0 || b1&0x80 == 0 {
		return closeProtocol
	}
	switch op {
	case opContinuation:
		if r.msgOp == 0 {
			return closeProtocol
		}
	case opText, opBinary:
		if r.msgOp != 0 {
			return closeProtocol
		}
	case opClose, opPing, opPong:
		if !fin || short > maxControl {
			return closeProtocol
		}
	default:
		return closeProtocol
	}
	r.fin, r.op = fin, op
	return 0
}

// lengthAndMask reads the rest of a complete header and begins the frame.
func (r *Reader) lengthAndMask(h []byte) uint16 {
	length := uint64(h[1] & 0x7f)
	switch length {
	case 126:
		if length = uint64(binary.BigEndian.Uint16(h[2:])); length < 126 {
			return closeProtocol
		}
	case 127:
		if length = binary.BigEndian.Uint64(h[2:]); length <= 0xffff || length>>63 != 0 {
			return closeProtocol
		}
	}
	if r.op < opClose && length > uint64(r.max-len(r.msg)) {
		return closeTooBig
	}
	copy(r.mask[:], h[len(h)-4:])
	r.inFrame, r.left, r.pos = true, int(length), 0
	return 0
}

// payload takes the next part of the frame in progress, at most r.left bytes.
func (r *Reader) payload(part []byte) Event {
	control := r.op >= opClose
	if len(part) == r.left && r.pos == 0 && (control || r.fin && len(r.msg) == 0) {
		ws.Cipher(part, r.mask, 0) // the usual case: a whole frame
		return r.frameDone(part)
	}
	if control {
		if r.ctl == nil {
			r.ctl = byteslice.Get(maxControl)[:0]
		}
		r.ctl = append(r.ctl, part...)
		ws.Cipher(r.ctl[len(r.ctl)-len(part):], r.mask, r.pos)
	} else if !r.gather(part) {
		return r.violation(closeBusy)
	}
	r.pos += len(part)
	r.left -= len(part)
	if r.left > 0 {
		return Event{}
	}
	if control {
		return r.frameDone(r.ctl)
	}
	return r.frameDone(r.msg)
}

// frameDone ends a frame whose payload, or whose message so far, is b.
func (r *Reader) frameDone(b []byte) Event {
	r.inFrame = false
	if r.op >= opClose {
		return r.controlDone(b)
	}
	if r.msgOp == 0 {
		r.msgOp = r.op
	}
	if !r.fin {
		return Event{}
	}
	text := r.msgOp == opText
	r.msgOp, r.taken, r.given = 0, 0, true
	switch {
	case wire.ValidUTF8(b):
		if text {
			return Event{Kind: Text, Payload: b}
		}
		return Event{Kind: Binary, Payload: b}
	case text:
		return r.violation(closeUTF8)
	}
	return Event{Kind: InvalidBinary, Payload: b}
}

func (r *Reader) controlDone(b []byte) Event {
	r.given = r.ctl != nil
	if r.msgOp == 0 {
		r.taken = 0
	}
	switch r.op {
	case opPing:
		return Event{Kind: Ping, Payload: b}
	case opPong:
		return Event{Kind: Pong, Payload: b}
	}
	code := closeNoStatus
	if len(b) > 0 {
		if len(b) == 1 || !utf8.Valid(b[2:]) {
			return r.violation(closeProtocol)
		}
		if code = binary.BigEndian.Uint16(b); !goodCloseCode(code) {
			return r.violation(closeProtocol)
		}
		b = b[2:]
	}
	r.dead = true
	return Event{Kind: CloseFrame, Code: code, Payload: b}
}

// goodCloseCode says whether a peer may send the code (RFC 6455 section 7.4 and
// the IANA registry it founded).
func goodCloseCode(code uint16) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014, code >= 3000 && code <= 4999:
		return true
	}
	return false
}

// gather adds a part to the message in progress, unmasked. It returns false when
// the budget is used up.
func (r *Reader) gather(part []byte) bool {
	if len(part) == 0 {
		return true
	}
	have := len(r.msg)
	if have+len(part) > cap(r.msg) && !r.grow(have+len(part)) {
		return false
	}
	r.msg = append(r.msg, part...)
	ws.Cipher(r.msg[have:], r.mask, r.pos)
	return true
}

func (r *Reader) grow(need int) bool {
	want := max(need, 2*cap(r.msg), firstBuffer, min(len(r.msg)+r.left, trustLength))
	b := byteslice.Get(want)
	if more := cap(b) - r.charged; r.budget != nil && !r.budget.take(int64(more)) {
		byteslice.Put(b)
		return false
	}
	r.charged = cap(b)
	n := copy(b, r.msg)
	if r.msg != nil {
		byteslice.Put(r.msg)
	}
	r.msg = b[:n]
	return true
}

func (r *Reader) violation(code uint16) Event {
	r.dead, r.given = true, true
	return Event{Kind: Violation, Code: code}
}

// giveBack returns the memory of the payload handed out last.
func (r *Reader) giveBack() {
	r.given = false
	if r.ctl != nil {
		byteslice.Put(r.ctl)
		r.ctl = nil
	}
	if r.msg != nil && (r.msgOp == 0 || r.dead) {
		r.dropMessage()
	}
}

func (r *Reader) dropMessage() {
	byteslice.Put(r.msg)
	if r.budget != nil {
		r.budget.put(int64(r.charged))
	}
	r.msg, r.charged = nil, 0
}
