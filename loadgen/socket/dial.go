package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

const (
	maxQueued = 1 << 20          // dials that wait their turn
	maxHead   = 8 << 10          // bytes of the head of a handshake's answer
	dialMax   = 10 * time.Second // where a target names no timeout
)

// Target is where to connect.
type Target struct {
	Address string        // host:port
	Path    string        // of the handshake, with its query; empty: "/ws"
	Host    string        // of the handshake; empty: Address
	Header  http.Header   // of the handshake, beside its own
	Source  netip.Addr    // local address; zero: the system picks
	Timeout time.Duration // from the connect to the end of the handshake; zero: 10 s
}

// RefusedError is a handshake that was answered with another status than 101.
type RefusedError struct{ Status int }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the handshake was refused: %d %s", e.Status, http.StatusText(e.Status))
}

// Dial begins a connection that will live on l, and returns at once; the handler hears
// of it there. It offers subway.v1 and takes a server that does not choose it. At most
// Options.Dials are made at a time, the others wait in the order of their coming; a
// target's time runs from its turn. Once Stop has begun the handler is told nothing, so
// that one which dials again in Close comes to an end.
func (e *Engine) Dial(l *Loop, t Target, h Handler) *Conn {
	if t.Timeout <= 0 {
		t.Timeout = dialMax
	}
	if t.Path == "" {
		t.Path = "/ws"
	}
	c := &Conn{loop: l, target: t, handler: h}
	if !e.enqueue(c) {
		c.refuse(ErrDialsFull)
	}
	return c
}

// enqueue gives c to a goroutine that dials, or lets it wait; false: too many do.
func (e *Engine) enqueue(c *Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped:
	case e.dialing < e.o.Dials:
		e.dialing++
		e.workers.Go(func() { e.dial(c) })
	case len(e.queue) >= maxQueued:
		return false
	default:
		e.queue = append(e.queue, c)
	}
	return true
}

// dial makes connections until none waits.
func (e *Engine) dial(c *Conn) {
	for c != nil {
		if err := c.connect(e.ctx); err != nil {
			c.refuse(err)
		}
		c = e.next()
	}
}

func (e *Engine) next() (c *Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		e.dialing--
		e.queue = nil
		return nil
	}
	c = e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	return c
}

// refuse ends a connection that never stood, on its loop. There is always room for it:
// it takes the place of a dial, and those are bounded.
func (c *Conn) refuse(err error) {
	_ = c.loop.post(func() {
		if c.err == nil { // else it was given up
			c.err = err
		}
		c.closed()
	}, unbounded)
}

// connect dials, shakes hands and gives the connection to its loop.
func (c *Conn) connect(engine context.Context) error {
	ctx, cancel := context.WithTimeout(engine, c.target.Timeout)
	defer cancel()
	conn, err := c.target.dial(ctx)
	if err != nil {
		return because(engine, ctx, err)
	}
	if c.in.ahead, err = c.target.handshake(ctx, conn); err != nil {
		_ = conn.Close()
		return because(engine, ctx, err)
	}
	// It returns when the loop has called opened; it closes conn and keeps a duplicate.
	if _, err := c.loop.client.EnrollContext(conn, c); err != nil {
		return explain(err)
	}
	if !c.stood {
		return errors.New("the loop could not watch the connection")
	}
	return nil
}

// dial connects from the source, if there is one.
func (t *Target) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	if t.Source.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: t.Source.AsSlice()}
		d.Control = lateBind
	}
	return d.DialContext(ctx, "tcp", t.Address)
}

// lateBind lets the port be chosen at connect, when the far end is known: one source then
// has all its ports for each far end.
func lateBind(_, _ string, raw syscall.RawConn) error {
	var err error
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return errors.Join(control, err)
}

// handshake asks for a WebSocket and checks the answer (RFC 6455 section 4.1). ahead are
// the server's first frames, where they came with it.
func (t *Target) handshake(ctx context.Context, conn net.Conn) (ahead []byte, err error) {
	u, err := url.Parse("ws://" + t.Address + t.Path)
	if err != nil {
		return nil, err
	}
	interrupt := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	d := ws.Dialer{Protocols: []string{"subway.v1"}, Header: ws.HandshakeHeaderHTTP(t.Header), Host: t.Host}
	answer := &head{conn: conn}
	_, _, err = d.Upgrade(answer, u)
	if !interrupt() {
		return nil, context.Cause(ctx)
	}
	var status ws.StatusError
	switch {
	case errors.As(err, &status):
		return nil, &RefusedError{int(status)}
	case answer.err != nil:
		return nil, answer.err
	case err != nil:
		return nil, fmt.Errorf("the answer to the handshake: %w", err)
	}
	return answer.ahead, nil
}

// because says why a connect or a handshake ended, in words that tell what can be done.
func because(engine, ctx context.Context, err error) error {
	switch {
	case engine.Err() != nil:
		return ErrStopped
	case ctx.Err() != nil:
		return fmt.Errorf("no handshake within the time limit: %w", context.DeadlineExceeded)
	}
	return explain(err)
}

// explain says what can be done about an error of the system.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: no local port is left (or the source is not an address of this machine); connect from more source addresses", err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: raise the limit of open files (ulimit -n)", err)
	}
	return err
}
