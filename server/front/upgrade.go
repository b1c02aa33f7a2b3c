package front

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// comer is a connection that comes back from HTTP.
type comer struct {
	fd     int
	remote netip.AddrPort
	h      *Handshake
	early  []byte
}

// upgrade answers a request for a WebSocket on an HTTP connection, by the same rules
// as a connection's first request. A good one goes back to its event loop. It is
// called for every such request before Options.HTTP.
func (s *Server) upgrade(ctx *fasthttp.RequestCtx) {
	conn, ok := ctx.Conn().(*httpConn)
	if !ok {
		answerHTTP(ctx, refuseUpgrade)
		return
	}
	h, refusal := ParseHandshake(rawHead(ctx))
	if refusal == nil {
		refusal = s.admit(&h)
	}
	if refusal != nil {
		refuseHTTP(ctx, refusal)
		switch refusal {
		case refuseVersion:
			ctx.Response.Header.Set("Upgrade", "websocket")
			ctx.Response.Header.Set("Sec-WebSocket-Version", "13")
		case refuseMethod:
			ctx.Response.Header.Set("Allow", "GET")
		}
		s.stats.refused.Add(1)
		return
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(hijacked net.Conn) { s.sendBack(&h, conn, hijacked) })
}

// rawHead returns the request's head as it came, in memory of its own.
func rawHead(ctx *fasthttp.RequestCtx) []byte {
	h := &ctx.Request.Header
	b := make([]byte, 0, len(h.RawHeaders())+len(h.RequestURI())+32)
	b = append(append(b, h.Method()...), ' ')
	b = append(append(b, h.RequestURI()...), ' ')
	b = append(append(b, h.Protocol()...), "\r\n"...)
	b = append(b, h.RawHeaders()...)
	return append(b, "\r\n"...)
}

// sendBack gives the connection back to its loop, under a descriptor of its own. What
// fasthttp had read ahead goes along.
func (s *Server) sendBack(h *Handshake, conn *httpConn, hijacked net.Conn) {
	conn.sealed = true
	early, _ := io.ReadAll(hijacked) // ends when the buffers are empty
	fd, err := duplicateOf(conn.Conn)
	if err != nil {
		s.log.Warn("a WebSocket could not be put on its event loop", "error", err)
		return
	}
	b := comer{fd: fd, remote: addrPort(conn.RemoteAddr()), h: h, early: early}
	conn.moved = conn.l.ask(func(a *asked) { a.back = append(a.back, b) })
	if !conn.moved {
		_ = unix.Close(fd)
	}
}

// duplicateOf returns another descriptor for the socket, close-on-exec, which stays
// non-blocking.
func duplicateOf(conn net.Conn) (fd int, err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return -1, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fail := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if fail != nil {
		return -1, fail
	}
	return fd, os.NewSyscallError("fcntl", err)
}

// comeBack takes in a connection that was an HTTP one. CloseAll may have passed here
// since the handshake was admitted, so that is asked again. Loop only.
func (l *loop) comeBack(b comer, now wire.Time) {
	s := l.srv
	c := s.newConn(l, b.remote)
	c.upgraded = true
	if err := l.add(c, b.fd, never); err != nil {
		s.log.Warn("a WebSocket could not be put on its event loop", "error", err)
		_ = unix.Close(b.fd)
		s.stats.total.Add(-1)
		return
	}
	s.stats.websockets.Add(1)
	if s.refusing.Load() {
		c.refuse(refuseGoing, now)
	} else {
		c.start(b.h, b.early, now)
	}
}
