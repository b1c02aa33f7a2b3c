package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// lean is a party for much traffic: it checks nothing and, once warm, allocates nothing.
// One goroutine reads, one writes.
type lean struct {
	conn net.Conn
	br   *bufio.Reader
	in   []byte
	out  []byte
}

// joinLean dials and registers.
func (f *fixture) joinLean(register string, control ...func(fd int)) (*lean, error) {
	p, err := f.tryDial(control...)
	if err != nil {
		return nil, err
	}
	_ = p.conn.SetDeadline(time.Time{})
	l := &lean{conn: p.conn, br: bufio.NewReaderSize(p.br, 32<<10)}
	l.add([]byte(register))
	if err := l.flush(); err != nil {
		return nil, err
	}
	for {
		msg, err := l.read()
		if err != nil {
			_ = l.conn.Close()
			return nil, err
		}
		if bytes.Contains(msg, []byte(`"REGISTER_ACK"`)) {
			return l, nil
		}
	}
}

// add appends a text message to what the next flush sends, masked with zeros.
func (l *lean) add(msg []byte) {
	l.out = append(l.out, 0x81)
	switch n := len(msg); {
	case n <= 125:
		l.out = append(l.out, 0x80|byte(n))
	case n <= 0xffff:
		l.out = binary.BigEndian.AppendUint16(append(l.out, 0x80|126), uint16(n))
	default:
		l.out = binary.BigEndian.AppendUint64(append(l.out, 0x80|127), uint64(n))
	}
	l.out = append(append(l.out, 0, 0, 0, 0), msg...)
}

func (l *lean) addf(format string, args ...any) { l.add(fmt.Appendf(nil, format, args...)) }

func (l *lean) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.conn.Write(l.out)
	l.out = l.out[:0]
	return err
}

// read returns the next text message, borrowed until the next call. io.EOF: a close.
func (l *lean) read() ([]byte, error) {
	for {
		h, err := l.br.Peek(2)
		if err != nil {
			return nil, err
		}
		op, n, skip := h[0]&0x0f, int(h[1]), 2
		if n >= 126 {
			skip = []int{4, 10}[n-126]
			if h, err = l.br.Peek(skip); err != nil {
				return nil, err
			}
			n = int(binary.BigEndian.Uint16(h[2:]))
			if skip == 10 {
				n = int(binary.BigEndian.Uint64(h[2:]))
			}
		}
		_, _ = l.br.Discard(skip)
		if cap(l.in) < n {
			l.in = make([]byte, n, 2*n)
		}
		l.in = l.in[:n]
		if _, err := io.ReadFull(l.br, l.in); err != nil {
			return nil, err
		}
		switch op {
		case 1:
			return l.in, nil
		case 8:
			return nil, io.EOF
		}
	}
}

// member returns the string member of this name, undecoded, in a message without white
// space whose strings hold no such name.
func member(msg []byte, name string) []byte {
	for rest := msg; ; {
		i := bytes.Index(rest, []byte(name))
		if i < 0 {
			return nil
		}
		if rest = rest[i+len(name):]; i > 0 && bytes.HasPrefix(rest, []byte(`":"`)) {
			rest = rest[3:]
			return rest[:max(bytes.IndexByte(rest, '"'), 0)]
		}
	}
}
