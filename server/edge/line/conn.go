package line

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"subway/core/wire"
	"subway/server/edge/local"
)

// conn is one device's socket. Append and CloseWith are called from any goroutine; serve
// runs it.
type conn struct {
	a      *Adapter
	sock   net.Conn
	br     *bufio.Reader
	opened time.Time
	out    outbox

	// Used by the goroutine that reads.
	registered bool
	last       time.Time // when the last byte came
	begun      time.Time // the line in progress began; zero: none
	got        int       // bytes of it

	sessMu sync.Mutex
	sess   local.Session // guarded by sessMu; nil after Closed
}

const readBuffer = 4 << 10

func newConn(a *Adapter, sock net.Conn) *conn {
	now := time.Now()
	c := &conn{a: a, sock: sock, opened: now, last: now}
	c.out.init(a.opt.Outbox)
	c.br = bufio.NewReaderSize((*timed)(c), readBuffer)
	return c
}

// Append implements local.Conn.
func (c *conn) Append(class wire.Class, x, y, z []byte) wire.Result {
	r := c.out.append(class, x, y, z)
	if r == wire.Full && class == wire.ClassNotice {
		c.CloseWith(wire.CloseTooSlow, "the device does not read")
		return wire.Gone
	}
	return r
}

// CloseWith implements local.Conn.
func (c *conn) CloseWith(code uint16, reason string) {
	if c.out.seal(code, reason, c.a.door.Now()) {
		_ = c.sock.SetReadDeadline(time.Now()) // the reader ends; what is queued still leaves
	}
}

// serve runs the connection until its end.
func (c *conn) serve() {
	c.sess = c.a.door.Open(c, c.sock.RemoteAddr().String(), c.a.door.Now())
	if c.sess == nil {
		_ = c.sock.Close()
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	err := c.read()
	code := codeOf(err)
	if code != 0 {
		c.CloseWith(code, err.Error())
	}
	reason := c.out.reason(err)
	c.tell(func(s local.Session) {
		s.Closed(c.a.door.Now(), reason)
		c.sess = nil
	})
	if errors.Is(err, io.EOF) {
		c.out.seal(wire.CloseNormal, "", 0) // what is queued may still be read
	} else if !c.out.sealed() {
		c.out.drop()
	}
	bound := time.AfterFunc(c.a.opt.CloseTimeout, func() { _ = c.sock.Close() })
	<-written
	bound.Stop()
	c.linger()
	_ = c.sock.Close()
}

// linger lets the device read what was written: a socket closed with bytes unread would
// take it back.
func (c *conn) linger() {
	if s, ok := c.sock.(interface{ CloseWrite() error }); ok && s.CloseWrite() == nil {
		_ = c.sock.SetReadDeadline(time.Now().Add(min(c.a.opt.CloseTimeout, time.Second)))
		_, _ = io.Copy(io.Discard, c.sock)
	}
}

// tell calls the session, if it is still there; one call at a time.
func (c *conn) tell(f func(local.Session)) {
	c.sessMu.Lock()
	defer c.sessMu.Unlock()
	if c.sess != nil {
		f(c.sess)
	}
}

// read gives the lines to the session until there is none any more.
func (c *conn) read() error {
	var buf []byte
	for {
		line, err := c.line(&buf)
		if err != nil {
			return err
		}
		if len(line) > 0 && !c.out.sealed() {
			c.receive(line)
		}
		c.begun, c.got = time.Time{}, 0
		if c.br.Buffered() > 0 {
			c.begun = time.Now()
		}
	}
}

func (c *conn) receive(line []byte) {
	now := c.a.door.Now()
	c.tell(func(s local.Session) {
		if wire.ValidUTF8(line) {
			s.Receive(line, now)
		} else {
			s.Invalid(now)
		}
		c.registered = c.registered || s.Registered()
	})
}

// line reads to the next \n, which it leaves out, as it does \r. A line that fits the
// buffer is not copied; buf holds longer ones.
func (c *conn) line(buf *[]byte) ([]byte, error) {
	part, err := c.br.ReadSlice('\n')
	if err == nil {
		return c.cut(part)
	}
	b := append((*buf)[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(b) > c.a.opt.MaxLine+2 {
			return nil, errTooLong
		}
		c.got = len(b)
		part, err = c.br.ReadSlice('\n')
		b = append(b, part...)
	}
	if cap(b) <= 64<<10 {
		*buf = b
	} else {
		*buf = nil // one long line is no reason to keep a megabyte
	}
	if err != nil {
		return nil, err
	}
	return c.cut(b)
}

func (c *conn) cut(line []byte) ([]byte, error) {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > c.a.opt.MaxLine {
		return nil, errTooLong
	}
	return line, nil
}

// timed reads from the socket with the deadline that is in force.
type timed conn

// Read implements io.Reader.
func (t *timed) Read(p []byte) (int, error) {
	c := (*conn)(t)
	by, why := c.deadline()
	_ = c.sock.SetReadDeadline(by)
	if c.out.sealed() { // CloseWith may have set its own just before
		return 0, io.EOF
	}
	n, err := c.sock.Read(p)
	if n > 0 {
		c.last = time.Now()
		if c.begun.IsZero() {
			c.begun = c.last
		}
	}
	if e, ok := err.(net.Error); ok && e.Timeout() && !c.out.sealed() {
		err = why
	}
	return n, err
}

// deadline says until when the next byte must come, and what it means if it does not
// (PROTOCOL.md section 2).
func (c *conn) deadline() (by time.Time, why error) {
	by, why = c.last.Add(c.a.opt.Silence), errSilent
	if slow := c.begun.Add(max(c.a.opt.SlowAfter, time.Duration(c.got+c.br.Buffered())*(time.Second/minRate))); !c.begun.IsZero() && slow.Before(by) {
		by, why = slow, errSlow
	}
	if late := c.opened.Add(c.a.opt.RegisterTimeout); !c.registered && late.Before(by) {
		by, why = late, errUnregistered
	}
	return by, why
}

// Why this side ends a connection.
var (
	errTooLong      = errors.New("the line is too long")
	errSilent       = errors.New("the device was silent")
	errSlow         = errors.New("the line came too slowly")
	errUnregistered = errors.New("the device did not register in time")
)

// codeOf returns the close code of a reason of ours, 0 for what the peer or the network
// did.
func codeOf(err error) uint16 {
	switch err {
	case errTooLong:
		return closeTooBig
	case errSilent:
		return wire.CloseSilent
	case errSlow:
		return wire.CloseTooSlow
	case errUnregistered:
		return wire.CloseUnregistered
	}
	return 0
}

const closeTooBig uint16 = 1009 // RFC 6455 section 7.4.1

// write sends what waits until the outbox is sealed and empty, or the socket fails.
func (c *conn) write() {
	for range c.out.wake {
		b, last := c.out.take()
		if err := c.writeAll(b); err != nil {
			c.out.drop()
			_ = c.sock.Close()
			return
		}
		if last {
			return
		}
		if c.out.giveBack(b) {
			c.tell(func(s local.Session) { s.Writable(c.a.door.Now()) })
		}
	}
}

// writeAll gives the socket a piece at a time, so that a slow link is not a stalled one.
func (c *conn) writeAll(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), 64<<10)
		_ = c.sock.SetWriteDeadline(time.Now().Add(c.a.opt.StallTimeout))
		if _, err := c.sock.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
