package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"subway/core/wire"
	"subway/server/edge/local"
	"subway/server/edge/store"
	"subway/server/front"
	"subway/server/uplink"
)

// Edge is a running Edge. Its exported methods may be called from any goroutine.
type Edge struct {
	opt   Options
	log   *slog.Logger
	start time.Time
	keep  wire.Time // of Options.Keep
	nonce string
	store *store.Store
	front *front.Server
	ports map[string]net.Addr // of adapters, by name

	inbound  work // the link's goroutine's
	metrics  *metrics
	stopping atomic.Bool
	stop     context.CancelFunc // ends the link
	stopTick chan struct{}
	running  sync.WaitGroup

	mu          sync.Mutex // guards all below
	devices     map[string]*device
	connected   int // devices with a session
	infoBytes   int
	departed    map[string]struct{} // the Gateway is to be told that they left
	epoch       int64
	refs        map[string]*entry
	unconfirmed map[*entry]struct{} // answered, not in the backlog, and perhaps not at the Gateway
	expiry      expiry
	backlog     backlog
	used        int64     // bytes in the store, about
	unsynced    int       // bytes of messages that are not on disk yet
	failing     error     // why the disk refuses, nil: it does not
	expected    wire.Time // until then devices of before the restart are waited for, 0: not any more
	distrust    wire.Time // until then refs may have been handed over that are not known
	queued      int64     // bytes of commands that wait
	arrivals    uint64
	answers     uint64
	up          up
	count       counts
}

// now is wall-clock time that never steps back while the process lives.
func (e *Edge) now() wire.Time {
	return wire.Time(e.start.UnixNano()) + wire.Time(time.Since(e.start))
}

// Start opens the store, listens, and begins to reach for the Gateway. The error is for
// the operator.
func Start(opt Options) (*Edge, error) {
	opt = opt.withDefaults()
	if err := opt.check(); err != nil {
		return nil, err
	}
	e := &Edge{
		opt: opt, log: opt.Logger, start: time.Now(), keep: wire.Time(opt.Keep), ports: map[string]net.Addr{},
		nonce: strconv.FormatUint(rand.Uint64()>>24, 36), stopTick: make(chan struct{}),
		devices: map[string]*device{}, departed: map[string]struct{}{}, refs: map[string]*entry{},
		unconfirmed: map[*entry]struct{}{}, backlog: newBacklog(), expiry: expiry{buckets: map[int64][]*entry{}},
	}
	if _, err := uplink.New(e.linkConfig()); err != nil {
		return nil, err
	}
	e.metrics = newMetrics(e)
	if err := e.openStore(); err != nil {
		return nil, err
	}
	if err := e.listen(); err != nil {
		return nil, errors.Join(err, e.store.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	e.running.Go(func() { e.runLink(ctx) })
	e.running.Go(e.tick)
	return e, nil
}

// openStore opens the store and takes over what it held.
func (e *Edge) openStore() error {
	s, c, err := store.Open(store.Options{
		Dir: e.opt.DataDir, MaxBytes: 3*e.opt.StoreBytes + 64<<20, Now: e.now(), Failing: e.storeFailing,
	})
	if err != nil {
		return err
	}
	e.store = s
	if c.SetAside != "" {
		e.log.Error("the store cannot be used: it was set aside, nothing of it was thrown away, and an empty one took its place. Until all commands of before have ended the Gateway is not asked to repeat commands, so that none is executed twice",
			"reason", c.Reason, "file", c.SetAside, "until", time.Unix(0, int64(c.Distrust)).UTC())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restore(c, e.now())
	if len(c.Records)+len(c.Items) > 0 {
		e.log.Info("the store was read", "refs", len(c.Records), "waiting", len(c.Items), "unconfirmed", len(e.unconfirmed))
	}
	return nil
}

// storeFailing hears when the disk begins to refuse and when it takes again.
func (e *Edge) storeFailing(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = why
	if why != nil {
		e.log.Error("the disk refuses: new commands are refused with OVERLOADED, answers are kept in memory and passed on", "error", why)
	} else {
		e.log.Warn("the disk takes changes again")
	}
}

// listen opens the WebSocket port and the adapters, and writes where they are.
func (e *Edge) listen() error {
	var err error
	e.front, err = front.Listen(front.Options{
		Listen: e.opt.Listen, MaxConns: e.opt.MaxConns, Origins: e.opt.Origins, HTTP: e.serve, Clock: e.now, Logger: e.log,
		SilenceTimeout: e.opt.Silence, RegisterTimeout: e.opt.Register, MaxPartial: 64 << 20, MaxWaiting: 256 << 20, Loops: 1, // the book has one lock
		LingerTimeout: 2 * time.Second,
		Open: func(c *front.Conn, now wire.Time) front.Session {
			if s := e.Open(c, c.RemoteAddr().String(), now); s != nil {
				return s
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	err = e.publish("listen", e.front.Addr())
	for i, a := range e.opt.Adapters {
		if err != nil {
			e.closePorts(context.Background(), e.opt.Adapters[:i])
			return err
		}
		var addr net.Addr
		if addr, err = a.Adapter.Start(e); err != nil {
			e.closePorts(context.Background(), e.opt.Adapters[:i])
			return fmt.Errorf("adapter %s: %w", a.Name, err)
		}
		e.ports[a.Name] = addr
		err = e.publish("listen."+a.Name, addr)
	}
	if err != nil {
		e.closePorts(context.Background(), e.opt.Adapters)
	}
	return err
}

// publish writes an address to a file of the data directory, as a whole or not at all. A
// disk that is full must not keep an edge from starting.
func (e *Edge) publish(name string, addr net.Addr) error {
	path := filepath.Join(e.opt.DataDir, name)
	err := os.WriteFile(path+".new", []byte(addr.String()+"\n"), 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path) // an old address would mislead
		_ = os.Remove(path + ".new")
		e.log.Error("the address cannot be written to the data directory", "file", path, "error", err)
	}
	return nil
}

// Addr is the address for WebSocket devices and HTTP.
func (e *Edge) Addr() net.Addr { return e.front.Addr() }

// AdapterAddr is the address of an adapter, nil if there is none of that name.
func (e *Edge) AdapterAddr(name string) net.Addr { return e.ports[name] }

// Failed delivers an error when the port stopped serving by itself.
func (e *Edge) Failed() <-chan error { return e.front.Failed() }

// Shutdown ends the edge in order: devices are closed with 1001 while the link still takes
// what they say, then the link, then the store. The Gateway is sent no goodbye: it keeps
// the devices as OFFLINE until the edge is back. Call it once.
func (e *Edge) Shutdown(ctx context.Context) error {
	e.stopping.Store(true)
	e.front.StopAccepting()
	e.front.CloseAll(wire.CloseGoingAway, "the edge is going down")
	err := e.closePorts(ctx, e.opt.Adapters)
	e.awaitConfirmed(ctx)
	e.stop()
	close(e.stopTick)
	e.running.Wait()
	return errors.Join(err, e.store.Close())
}

func (e *Edge) closePorts(ctx context.Context, adapters []Named) error {
	var all sync.WaitGroup
	errs := make([]error, len(adapters)+1)
	for i, a := range adapters {
		all.Go(func() { errs[i] = a.Adapter.Shutdown(ctx) })
	}
	errs[len(adapters)] = e.front.Shutdown(ctx)
	all.Wait()
	for i, err := range errs {
		if errors.Is(err, context.DeadlineExceeded) {
			e.log.Warn("connections were cut that did not end by themselves")
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

// awaitConfirmed gives the Gateway a moment to say that the last answers arrived.
func (e *Edge) awaitConfirmed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		e.mu.Lock()
		if e.up.registered && (len(e.up.sent) > 0 || e.up.unbarred) && len(e.up.barriers) == 0 {
			e.bar(nil, e.now())
		}
		idle := !e.up.registered || len(e.up.sent) == 0 && !e.up.unbarred && len(e.up.barriers) == 0 && !e.up.draining
		e.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// tick looks after what no message starts.
func (e *Edge) tick() {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-t.C:
		case <-e.stopTick:
			return
		}
		now := e.now()
		e.mu.Lock()
		if e.expected != 0 && now >= e.expected {
			e.endWait(now)
		}
		if e.up.registered {
			if len(e.departed) > 0 || e.up.unannounced {
				e.catchUp(now)
			}
			e.drain(now)
			if (len(e.up.sent) > 0 || e.up.unbarred) && len(e.up.barriers) < maxBarriers && now-e.up.barred >= barrierWait {
				e.bar(nil, now)
			}
		}
		if n%10 == 0 {
			e.sweep(now)
			e.expire(now)
		}
		e.mu.Unlock()
	}
}

var _ local.Door = (*Edge)(nil)
