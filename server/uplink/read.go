package uplink

import (
	"bufio"
	"encoding/binary"
	"io"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

const (
	growStep  = 64 << 10 // a declared length is believed in steps of this many bytes
	keepBytes = 64 << 10 // the largest buffer that is kept between messages
)

// reader takes the frames of a server apart and puts its messages together (RFC 6455
// section 5). One goroutine uses it.
type reader struct {
	br   *bufio.Reader
	max  int
	head [ws.MaxHeaderSize]byte

	held  int       // bytes of br that were handed out and go at the next call
	msg   []byte    // the message so far
	given bool      // msg was handed out
	msgOp ws.OpCode // of the fragmented message in progress, 0 for none
}

// next returns the next message (OpText, also for binary ones; OpBinary where that is not
// UTF-8, which no message of PROTOCOL.md is) or control frame. The
// payload is borrowed until the next call. The error is a *violation or the connection's.
func (r *reader) next() (ws.OpCode, []byte, error) {
	r.giveBack()
	for {
		h, err := r.header()
		if err != nil {
			return 0, nil, err
		}
		if h.OpCode.IsControl() {
			b, err := r.peek(int(h.Length))
			return h.OpCode, b, err
		}
		if h.Length > int64(r.max-len(r.msg)) {
			return 0, nil, &violation{closeTooBig, "a message is too large"}
		}
		op := h.OpCode
		if r.msgOp != 0 {
			op = r.msgOp
		}
		b, err := r.data(h)
		if err != nil {
			return 0, nil, err
		}
		if !h.Fin {
			continue
		}
		r.msgOp = 0
		if !utf8.Valid(b) {
			if op == ws.OpBinary {
				return op, b, nil
			}
			return 0, nil, &violation{closeUTF8, "a message is not UTF-8"}
		}
		return ws.OpText, b, nil
	}
}

// header reads and checks one frame's header.
func (r *reader) header() (h ws.Header, err error) {
	first, err := r.br.Peek(2)
	if err != nil {
		if len(first) > 0 || r.msgOp != 0 {
			err = unexpected(err)
		}
		return h, err
	}
	short := first[1] & 0x7f
	if h, err = ws.ReadHeaderBuffer(r.br, r.head[:]); err != nil {
		if err == ws.ErrHeaderLengthMSB {
			err = &violation{closeProtocol, "a frame's length is negative"}
		}
		return h, unexpected(err)
	}
	state := ws.StateClientSide
	if r.msgOp != 0 {
		state |= ws.StateFragmented
	}
	if err = ws.CheckHeader(h, state); err != nil {
		return h, &violation{closeProtocol, err.Error()}
	}
	if short == 126 && h.Length < 126 || short == 127 && h.Length <= 0xffff {
		return h, &violation{closeProtocol, "a frame's length is not in its shortest form"}
	}
	return h, nil
}

// data reads the payload of a data frame and returns the message so far: where it is
// whole and fits the buffer, without a copy.
func (r *reader) data(h ws.Header) ([]byte, error) {
	n := int(h.Length)
	if h.Fin && len(r.msg) == 0 && n <= r.br.Size() {
		return r.peek(n)
	}
	if r.msgOp == 0 {
		r.msgOp = h.OpCode
	}
	r.given = h.Fin
	for n > 0 {
		step := min(n, growStep)
		have := len(r.msg)
		r.msg = append(r.msg, make([]byte, step)...)
		if _, err := io.ReadFull(r.br, r.msg[have:]); err != nil {
			return nil, unexpected(err)
		}
		n -= step
	}
	return r.msg, nil
}

func (r *reader) peek(n int) ([]byte, error) {
	b, err := r.br.Peek(n)
	if err != nil {
		return nil, unexpected(err)
	}
	r.held = n
	return b, nil
}

func (r *reader) giveBack() {
	_, _ = r.br.Discard(r.held) // it was peeked
	r.held = 0
	if r.given {
		r.given = false
		if r.msg = r.msg[:0]; cap(r.msg) > keepBytes {
			r.msg = nil
		}
	}
}

// unexpected tells an end in the middle of something from an end.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// closeFrame reads the body of a close frame (RFC 6455 section 5.5.1).
func closeFrame(b []byte) (*Closed, error) {
	if len(b) == 0 {
		return &Closed{Code: closeNoCode}, nil
	}
	if len(b) == 1 || !utf8.Valid(b[2:]) {
		return nil, &violation{closeProtocol, "a close frame is malformed"}
	}
	code := binary.BigEndian.Uint16(b)
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014, code >= 3000 && code <= 4999:
		return &Closed{Code: code, Reason: string(b[2:])}, nil
	}
	return nil, &violation{closeProtocol, "a close frame has a code that is never sent"}
}
