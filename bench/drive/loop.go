package drive

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the loop.
const (
	eventsMax   = 512
	messageMax  = 1<<20 + 4<<10 // PROTOCOL.md section 2: what a gateway may send on
	readSize    = messageMax + 256<<10
	outMax      = 256 << 20 // bytes waiting for one connection: the window bounds it long before
	pollTimeout = 50        // ms: how late the end of a phase may be seen
)

// reader takes the bytes of one connection. read handles what is complete in b and returns how much that was; the rest is
// offered again with more behind it. b is valid until read returns.
type reader interface {
	read(c *conn, b []byte) (used int, err error)
}

// conn is one non-blocking connection of the loop. Only the loop's goroutine touches it.
type conn struct {
	loop    *loop
	fd      int
	index   int32
	reader  reader
	in      []byte // a begun message, empty most of the time
	out     []byte
	outOff  int
	dirty   bool         // in loop.dirty
	blocked bool         // the socket is full: EPOLLOUT is armed
	ready   func() error // instead of a read: a listening socket
	mayEnd  bool         // the peer may close it, which is no error
}

// loop is a level-triggered epoll loop on the caller's goroutine: it reads each ready connection once per round, lets the
// readers append what they answer, and then writes once per connection. So the driver costs few system calls and gathers its
// writes as far as the server's pace allows.
type loop struct {
	epfd   int
	conns  []*conn
	dirty  []*conn
	events [eventsMax]unix.EpollEvent
	buffer []byte
	base   time.Time
	now    int64 // nanoseconds since base, read once per ready connection
}

func newLoop() (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &loop{epfd: epfd, buffer: make([]byte, readSize), base: time.Now()}, nil
}

// clock returns the monotonic nanoseconds since the loop was made.
func (l *loop) clock() int64 { return int64(time.Since(l.base)) }

// add takes over the descriptor, which is or becomes non-blocking. Bytes already read (in) are offered with the next read.
func (l *loop) add(fd int, r reader, in []byte) (*conn, error) {
	c := &conn{loop: l, fd: fd, index: int32(len(l.conns)), reader: r, in: in}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("non-blocking: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.index}
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return nil, fmt.Errorf("epoll_ctl: %w", err)
	}
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		unix.Close(c.fd)
	}
	unix.Close(l.epfd)
}

// send appends nothing itself: it marks c as having something in c.out for the end of the round.
func (c *conn) send() {
	if !c.dirty {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// round waits up to pollTimeout for events, reads and writes. It returns the number of connections that were ready.
func (l *loop) round() (int, error) {
	n, errno := rawEpollWait(l.epfd, l.events[:], pollTimeout)
	if errno == unix.EINTR {
		n = 0
	} else if errno != 0 {
		return 0, fmt.Errorf("epoll_wait: %w", errno)
	}
	for i := range n {
		ev := &l.events[i]
		c := l.conns[ev.Fd]
		if ev.Events&unix.EPOLLOUT != 0 {
			if err := c.flush(); err != nil {
				return n, err
			}
		}
		if ev.Events&^uint32(unix.EPOLLOUT) != 0 {
			if err := c.receive(); err != nil {
				return n, err
			}
		}
	}
	return n, l.flush()
}

// flush writes what the round has gathered, once per connection.
func (l *loop) flush() error {
	for _, c := range l.dirty {
		c.dirty = false
		if c.blocked {
			continue
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
	l.dirty = l.dirty[:0]
	return nil
}

// deaf has the loop hear nothing more of a connection, as if its owner hung.
func (c *conn) deaf() error {
	if err := unix.EpollCtl(c.loop.epfd, unix.EPOLL_CTL_DEL, c.fd, nil); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (c *conn) receive() error {
	l := c.loop
	if c.ready != nil {
		return c.ready()
	}
	begun := copy(l.buffer, c.in)
	n, errno := rawRead(c.fd, l.buffer[begun:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return nil
	case c.mayEnd && (n == 0 || errno == unix.ECONNRESET):
		return c.deaf() // closed with the loop
	case errno != 0:
		return fmt.Errorf("read: %w", errno)
	case n == 0:
		return fmt.Errorf("the server closed a connection: %w", io.ErrUnexpectedEOF)
	}
	l.now = l.clock()
	b := l.buffer[:begun+n]
	used, err := c.reader.read(c, b)
	c.in = append(c.in[:0], b[used:]...)
	if err == nil && len(c.in) >= readSize-1 {
		err = errors.New("a message larger than the read buffer")
	}
	return err
}

func (c *conn) flush() error {
	if len(c.out)-c.outOff > outMax {
		return fmt.Errorf("over %d bytes wait for one connection: the server does not read", outMax)
	}
	for c.outOff < len(c.out) {
		n, errno := rawWrite(c.fd, c.out[c.outOff:])
		switch errno {
		case 0:
			c.outOff += n
		case unix.EAGAIN:
			return c.arm(true)
		case unix.EINTR:
		default:
			return fmt.Errorf("write: %w", errno)
		}
	}
	c.out, c.outOff = c.out[:0], 0
	return c.arm(false)
}

// arm asks for EPOLLOUT, or no longer.
func (c *conn) arm(blocked bool) error {
	if c.blocked == blocked {
		return nil
	}
	c.blocked = blocked
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.index}
	if blocked {
		ev.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(c.loop.epfd, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}
