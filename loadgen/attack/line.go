package attack

import (
	"errors"
	"hash/maphash"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// line is a connection of the Receiver that knows which callback the next write answers.
// But for the Close of Receiver.Close, the connection's goroutine alone uses it.
type line struct {
	net.Conn
	receiver *Receiver
	callback Callback
	body     []byte // of callback
	pending  bool   // callback is read, its answer not yet written
}

type lineListener struct {
	net.Listener
	receiver *Receiver
}

func (ln lineListener) Accept() (net.Conn, error) {
	r := ln.receiver
	conn, err := ln.Listener.Accept()
	for errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		// The server would end for it; a descriptor may come back.
		if !r.pause(50 * time.Millisecond) {
			return nil, net.ErrClosed
		}
		conn, err = ln.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	l := &line{Conn: conn, receiver: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		conn.Close()
		return nil, net.ErrClosed
	}
	r.lines[l] = struct{}{}
	return l, nil
}

var refSeed = maphash.MakeSeed()

// Write writes an answer, which the server hands over in one piece: it is short, and
// flushed by itself. Got is told before the lock of its ref is given back, so that it
// hears of the next callback for that ref, which cannot come before this answer, later.
func (l *line) Write(b []byte) (int, error) {
	if !l.pending {
		return l.Conn.Write(b) // not to a callback: a request that was no HTTP, or 100 Continue
	}
	order := l.order()
	order.Lock()
	defer order.Unlock()
	gone := hungUp(l.Conn)
	n, err := l.Conn.Write(b)
	l.tell(err == nil && n == len(b) && !gone)
	return n, err
}

// Close implements net.Conn. An answer that was never written is one not confirmed.
func (l *line) Close() error {
	err := l.Conn.Close()
	r := l.receiver
	r.mu.Lock()
	delete(r.lines, l)
	r.mu.Unlock()
	if l.pending {
		order := l.order()
		order.Lock()
		defer order.Unlock()
		l.tell(false)
	}
	return err
}

func (l *line) order() *sync.Mutex {
	locks := &l.receiver.inOrder
	return &locks[maphash.String(refSeed, l.callback.Ref)%uint64(len(locks))]
}

const keptCallback = 64 << 10 // a longer body's memory is not kept

func (l *line) tell(written bool) {
	l.pending = false
	c := &l.callback
	c.Confirmed = written && c.Answered >= 200 && c.Answered < 300
	l.receiver.opt.Got(c)
	*c = Callback{}
	if cap(l.body) > keptCallback {
		l.body = nil
	}
}

// hungUp looks whether the peer has closed its side, without reading anything.
func hungUp(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return gone || err != nil
}
