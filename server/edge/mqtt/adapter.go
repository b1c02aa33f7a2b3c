package mqtt

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	broker "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"subway/core/wire"
	"subway/server/edge/local"
)

// Limits of an adapter, unless configured (PROTOCOL.md section 2).
const (
	defaultMaxMessage = 1 << 20
	defaultMaxConns   = 10_000
	defaultRegister   = 10 * time.Second
	defaultKeepAlive  = 60 * time.Second // a client is lost after one and a half
	defaultClose      = 5 * time.Second
	takeoverWait      = time.Second // a connection that was taken over stays a device's so long, at most
	maxWindow         = 32          // messages a device has not acknowledged, until commands are refused
	maxWindowBytes    = 64 << 10    // likewise, in bytes
	maxNotices        = 32          // messages beyond the window, until the connection is closed
	packetRoom        = 4 << 10     // of a packet besides its payload, in bytes
	maxProperties     = 16          // user properties of a CONNECT that become deviceInfo
	maxProperty       = 256         // bytes of one
	yearSeconds       = 365 * 24 * 3600
)

// Options bound an adapter. Zero values mean the defaults.
type Options struct {
	MaxMessage      int           // bytes of a payload received; 1 MiB
	MaxConnections  int           // more are closed at once; 10,000
	RegisterTimeout time.Duration // for the CONNECT packet; 10 s
	KeepAlive       time.Duration // the longest a device may be silent, whatever it asks for, times 1.5; whole seconds, 60 s
	CloseTimeout    time.Duration // for a device to take what tells it the end; 5 s
}

func (o Options) withDefaults() Options {
	o.MaxMessage = orDefault(o.MaxMessage, defaultMaxMessage)
	o.MaxConnections = orDefault(o.MaxConnections, defaultMaxConns)
	o.RegisterTimeout = orDefault(o.RegisterTimeout, defaultRegister)
	o.KeepAlive = max(orDefault(o.KeepAlive, defaultKeepAlive), time.Second)
	o.CloseTimeout = orDefault(o.CloseTimeout, defaultClose)
	return o
}

func orDefault[T int | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Adapter is the broker. Start and Shutdown are called once each; it implements
// local.Adapter.
type Adapter struct {
	opt      Options
	address  string
	door     local.Door
	server   *broker.Server
	listener *listener
	closing  sync.WaitGroup // disconnects under way
	once     sync.Once      // of the broker's end
	order    sync.Mutex     // held while a device registers, taken before any other lock: none registers after its successor

	mu    sync.Mutex
	byID  map[string]*conn   // guarded by mu: the newest of each id
	conns map[net.Conn]*conn // guarded by mu
}

// New makes an adapter with the default limits; it implements local.Make.
func New(address string) (local.Adapter, error) { return NewWith(address, Options{}) }

// NewWith makes an adapter that will listen on address; the error is for the operator.
func NewWith(address string, opt Options) (*Adapter, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, err
	}
	return &Adapter{opt: opt.withDefaults(), address: address, byID: map[string]*conn{}, conns: map[net.Conn]*conn{}}, nil
}

// Start implements local.Adapter.
func (a *Adapter) Start(door local.Door) (net.Addr, error) {
	l, err := net.Listen("tcp", a.address)
	if err != nil {
		return nil, err
	}
	a.door = door
	a.server = broker.New(&broker.Options{
		Capabilities: a.capabilities(), SysTopicResendInterval: yearSeconds,
		Logger: slog.New(slog.DiscardHandler), // the edge logs what matters
	})
	a.listener = newListener(a, l)
	if err := a.server.AddHook(&hook{a: a}, nil); err != nil {
		return nil, err
	}
	if err := a.server.AddListener(a.listener); err != nil {
		return nil, err
	}
	if err := a.server.Serve(); err != nil {
		return nil, err
	}
	return l.Addr(), nil
}

func (a *Adapter) capabilities() *broker.Capabilities {
	c := broker.NewDefaultServerCapabilities()
	c.MaximumClients = int64(a.opt.MaxConnections)
	c.MaximumClientWritesPending = 1 // nothing goes that way
	c.MaximumSessionExpiryInterval = 0
	c.MaximumPacketSize = uint32(a.opt.MaxMessage + packetRoom)
	c.ReceiveMaximum = 64
	c.MaximumInflight = 1024
	c.TopicAliasMaximum = 16
	c.SharedSubAvailable = 0
	c.MinimumProtocolVersion = 4
	return c
}

// Shutdown implements local.Adapter.
func (a *Adapter) Shutdown(ctx context.Context) error {
	if a.server == nil {
		return nil
	}
	a.listener.stop()
	a.each(func(c *conn) { c.CloseWith(wire.CloseGoingAway, "the edge is going down") })
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.listener.all.Wait()
		a.closing.Wait()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		a.listener.cut()
		<-done
	}
	a.once.Do(func() { _ = a.server.Close() }) // it panics when called twice
	return err
}

func (a *Adapter) each(f func(*conn)) {
	a.mu.Lock()
	conns := make([]*conn, 0, len(a.conns))
	for _, c := range a.conns {
		conns = append(conns, c)
	}
	a.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

// of returns the connection of a client of the broker, nil where it is not (or no longer)
// a device.
func (a *Adapter) of(cl *broker.Client) *conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conns[cl.Net.Conn]
}

// has says whether a socket is a device's.
func (a *Adapter) has(sock net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conns[sock] != nil
}

// connect makes a device of a client, and an older connection of the same id a thing of
// the past: what the edge still says to it reaches nobody.
func (a *Adapter) connect(cl *broker.Client, pk packets.Packet) {
	c := newConn(a, cl, pk)
	a.mu.Lock()
	old := a.byID[c.id]
	a.byID[c.id], a.conns[cl.Net.Conn] = c, c
	if old != nil {
		old.next = c
	}
	a.mu.Unlock()
	if old != nil {
		old.superseded()
	}
}

// successor returns the connection that took over from c, nil for none.
func (a *Adapter) successor(c *conn) *conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.next
}

// leave forgets a connection.
func (a *Adapter) leave(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, c.cl.Net.Conn)
	if a.byID[c.id] == c {
		delete(a.byID, c.id)
	}
}

// forget ends a connection whose end the broker did not tell: it failed between the
// CONNECT and the CONNACK, where the broker forgets to forget it.
func (a *Adapter) forget(sock net.Conn) {
	a.mu.Lock()
	c := a.conns[sock]
	a.mu.Unlock()
	if c == nil {
		return
	}
	c.disconnected(net.ErrClosed)
	if now, ok := a.server.Clients.Get(c.id); ok && now == c.cl {
		a.server.Clients.Delete(c.id)
	}
}
