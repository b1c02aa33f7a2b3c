package socket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
)

var errHeadTooLong = fmt.Errorf("the answer to the handshake has a head of more than %d bytes", maxHead)

// head stands between a handshake and its connection: ws reads lines without bound, and
// bytes behind the head. Here it gets the head and nothing else.
type head struct {
	conn  net.Conn
	rest  []byte // of the head, not read yet
	ahead []byte // behind it
	whole bool
	err   error // what the connection failed with
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	n, err := h.conn.Write(p)
	h.err = errors.Join(h.err, err)
	return n, err
}

// Read implements io.Reader.
func (h *head) Read(p []byte) (int, error) {
	if !h.whole {
		if h.err = h.fill(); h.err != nil {
			return 0, h.err
		}
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// fill reads until the head is whole.
func (h *head) fill() error {
	var buf [maxHead]byte
	for n := 0; n < len(buf); {
		m, err := h.conn.Read(buf[n:])
		n += m
		if end := bytes.Index(buf[:n], []byte("\r\n\r\n")); end >= 0 {
			h.whole = true
			h.rest = bytes.Clone(buf[:end+4])
			if end+4 < n {
				h.ahead = bytes.Clone(buf[end+4 : n])
			}
			return nil
		}
		switch {
		case err == io.EOF:
			return fmt.Errorf("the server ended the connection within its answer to the handshake: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return err
		}
	}
	return errHeadTooLong
}
