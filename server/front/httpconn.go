package front

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

const (
	lingerHTTP  = 2 * time.Second // for what a client still sends after an error answer
	lingerBytes = 8 << 20
)

var errSealed = errors.New("front: the connection goes back to its loop")

// handOver gives the connection to fasthttp: the descriptor is duplicated, the loop
// closes its own, and a goroutine serves it from the bytes that were read on, after it has
// written what is left of the answers before. It returns why that cannot be done, or nil.
// Loop only.
func (s *Server) handOver(c *Conn, data, unsent []byte) *Refusal {
	switch {
	case s.draining.Load():
		return refuseGoing
	case !c.served && s.stats.http.Load() >= int64(s.o.MaxHTTP):
		return refuseBusy
	}
	conn, err := duplicate(int(c.fd))
	if err != nil {
		s.log.Warn("no descriptor for an HTTP connection", "error", err)
		return refuseBusy
	}
	h := &httpConn{Conn: conn, s: s, l: c.l, pre: append([]byte(nil), data...)}
	c.l.poll.remove(int(c.fd))
	_ = unix.Close(int(c.fd))
	c.l.remove(c)
	c.release()
	c.kind().Add(-1)
	s.stats.http.Add(1)
	s.mu.Lock()
	s.httpConn[h] = struct{}{}
	s.mu.Unlock()
	go h.serve(append([]byte(nil), unsent...))
	return nil
}

// serve is the connection's goroutine.
func (h *httpConn) serve(unsent []byte) {
	if len(unsent) > 0 {
		if h.SetWriteDeadline(time.Now().Add(h.s.o.WriteTimeout)) != nil {
			_ = h.Close()
			return
		}
		if _, err := h.Write(unsent); err != nil {
			_ = h.Close()
			return
		}
	}
	_ = h.s.http.ServeConn(h)
}

// duplicate returns a net.Conn for the same socket. The descriptors it makes are
// close-on-exec; the socket stays non-blocking.
func duplicate(own int) (net.Conn, error) {
	fd, err := unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return net.FileConn(f)
}

// httpConn is a connection on the HTTP road. Read and Close are called by the
// goroutine that serves it.
type httpConn struct {
	net.Conn
	s      *Server
	l      *loop  // that it came from, and goes back to as a WebSocket
	pre    []byte // read, not yet by fasthttp
	ends   bounds // of the requests
	sealed bool   // nothing more is to be read here
	moved  bool   // it is a WebSocket now
	linger bool   // an error was answered: the client may still be sending
	closed atomic.Bool

	mu   sync.Mutex
	idle bool // between requests
}

// PeerGone reports whether the client of an HTTP request has closed its connection, or
// its half of it, and sent nothing before that is still to be read. A handler that waits
// looks now and then, so that a client that went keeps no descriptor. Any goroutine.
func PeerGone(ctx *fasthttp.RequestCtx) bool {
	h, ok := ctx.Conn().(*httpConn)
	if !ok {
		return false
	}
	raw, err := h.Conn.(syscall.Conn).SyscallConn()
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

// Read reads no further than to the end of the request in progress.
func (h *httpConn) Read(p []byte) (int, error) {
	if len(h.pre) > 0 {
		n := copy(p, h.pre)
		n = h.ends.next(p[:n])
		if h.pre = h.pre[n:]; len(h.pre) == 0 {
			h.pre = nil
		}
		return n, nil
	}
	if h.sealed {
		return 0, errSealed
	}
	all, err := h.Conn.Read(p)
	n := h.ends.next(p[:all])
	if n < all {
		h.pre = append([]byte(nil), p[n:all]...)
	}
	return n, err
}

// Close ends the connection, after an error answer only when the client had the
// time to read it: closing a socket with unread bytes resets it, and a reset may
// overtake the answer.
func (h *httpConn) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	if h.linger && !h.moved {
		h.drain()
	}
	err := h.Conn.Close()
	h.s.mu.Lock()
	delete(h.s.httpConn, h)
	h.s.mu.Unlock()
	if h.moved {
		h.s.stats.http.Add(-1)
	} else {
		h.s.stats.leave(&h.s.stats.http)
	}
	return err
}

func (h *httpConn) drain() {
	half, ok := h.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || h.Conn.SetReadDeadline(time.Now().Add(lingerHTTP)) != nil {
		return
	}
	var sink [4096]byte
	for total := 0; total < lingerBytes; {
		n, err := h.Conn.Read(sink[:])
		if err != nil {
			return
		}
		total += n
	}
}

// setIdle notes whether a request is being served.
func (h *httpConn) setIdle(idle bool) {
	h.mu.Lock()
	h.idle = idle
	h.mu.Unlock()
}

// endIdle ends the connection if it is between requests. fasthttp sets a deadline of
// its own after it said that a request began, so none is cut short.
func (h *httpConn) endIdle() {
	h.mu.Lock()
	if h.idle {
		_ = h.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	h.mu.Unlock()
}
