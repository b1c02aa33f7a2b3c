package line

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"subway/core/wire"
	"subway/server/edge/local"
)

// Limits of an adapter, unless configured (PROTOCOL.md section 2).
const (
	defaultMaxLine   = 1 << 20 // what a device sends is passed on to a Gateway, which takes no more
	defaultOutbox    = 4 << 20
	defaultMaxConns  = 10_000
	defaultRegister  = 10 * time.Second
	defaultSilence   = 75 * time.Second // no earlier than 60 s, no later than 90 s
	defaultSlowAfter = 30 * time.Second
	defaultStall     = 30 * time.Second
	defaultClose     = 5 * time.Second
	minRate          = 1 << 10  // bytes a second of a line that has begun
	maxCommands      = 64 << 10 // bytes that wait for a device to read, until commands are refused
	maxStatus        = 1 << 20  // likewise, until status is dropped
	acceptPause      = 100 * time.Millisecond
)

// Options bound an adapter. Zero values mean the defaults.
type Options struct {
	MaxLine         int           // bytes of a line received, its end not counted; 1 MiB
	Outbox          int           // bytes that may wait for a device to read; 4 MiB
	MaxConnections  int           // more are closed at once; 10,000
	RegisterTimeout time.Duration // until REGISTER was accepted; 10 s
	Silence         time.Duration // without a byte; 75 s
	SlowAfter       time.Duration // from when a line must keep to 1 KiB/s; 30 s
	StallTimeout    time.Duration // for a device to take 64 KiB; 30 s
	CloseTimeout    time.Duration // for what is queued to leave before the end; 5 s
}

func (o Options) withDefaults() Options {
	o.MaxLine = orDefault(o.MaxLine, defaultMaxLine)
	o.Outbox = orDefault(o.Outbox, defaultOutbox)
	o.MaxConnections = orDefault(o.MaxConnections, defaultMaxConns)
	o.RegisterTimeout = orDefault(o.RegisterTimeout, defaultRegister)
	o.Silence = orDefault(o.Silence, defaultSilence)
	o.SlowAfter = orDefault(o.SlowAfter, defaultSlowAfter)
	o.StallTimeout = orDefault(o.StallTimeout, defaultStall)
	o.CloseTimeout = orDefault(o.CloseTimeout, defaultClose)
	return o
}

func orDefault[T int | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Adapter is the listening socket and its connections. Start and Shutdown are called once
// each; it implements local.Adapter.
type Adapter struct {
	opt      Options
	address  string
	listener net.Listener
	door     local.Door
	all      sync.WaitGroup

	mu     sync.Mutex
	conns  map[*conn]struct{} // guarded by mu
	closed bool               // guarded by mu
}

// New makes an adapter with the default limits; it implements local.Make.
func New(address string) (local.Adapter, error) { return NewWith(address, Options{}) }

// NewWith makes an adapter that will listen on address; the error is for the operator.
func NewWith(address string, opt Options) (*Adapter, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, err
	}
	return &Adapter{opt: opt.withDefaults(), address: address, conns: map[*conn]struct{}{}}, nil
}

// Start implements local.Adapter.
func (a *Adapter) Start(door local.Door) (net.Addr, error) {
	l, err := net.Listen("tcp", a.address)
	if err != nil {
		return nil, err
	}
	a.listener, a.door = l, door
	a.all.Go(a.accept)
	return l.Addr(), nil
}

// accept takes connections in until the listener is closed. Other errors pass: descriptors
// that are used up now are free again later.
func (a *Adapter) accept() {
	for {
		sock, err := a.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			<-time.After(acceptPause)
		default:
			a.take(sock)
		}
	}
}

// take begins a connection, or closes it where there are too many.
func (a *Adapter) take(sock net.Conn) {
	c := newConn(a, sock)
	a.mu.Lock()
	full := a.closed || len(a.conns) >= a.opt.MaxConnections
	if !full {
		a.conns[c] = struct{}{}
	}
	a.mu.Unlock()
	if full {
		_ = sock.Close()
		return
	}
	a.all.Go(func() {
		c.serve()
		a.mu.Lock()
		delete(a.conns, c)
		a.mu.Unlock()
	})
}

// Shutdown implements local.Adapter.
func (a *Adapter) Shutdown(ctx context.Context) error {
	if a.listener == nil {
		return nil
	}
	_ = a.listener.Close()
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.each(func(c *conn) { c.CloseWith(wire.CloseGoingAway, "the edge is going down") })
	done := make(chan struct{})
	go func() {
		a.all.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	a.each(func(c *conn) { _ = c.sock.Close() })
	<-done
	return ctx.Err()
}

func (a *Adapter) each(f func(*conn)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		f(c)
	}
}
