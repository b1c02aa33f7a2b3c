// Package gateway is the Gateway of PROTOCOL.md: it wires a listening port (front), the
// router, the callback outbox and the HTTP API together, and drains them in order. What
// it is told over HTTP flows front -> gateway -> router; nothing calls back up.
//
//	g, err := gateway.Start(options)   // listening when it returns
//	err = <-g.Failed()                 // something ended that should not
//	err = g.Shutdown(ctx)              // drains: see there
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/callback"
	"subway/server/front"
)

// Options configure a Gateway. Zero values mean the defaults.
type Options struct {
	Listen          string // host:port; 127.0.0.1:18081
	AllowAnonymous  bool   // may listen beyond loopback though it asks nobody who they are
	DataDir         string // of the journal, PROTOCOL.md section 9; "": all lives in memory
	Segment         int    // bytes of a file of the journal, and between checkpoints at least; 64 MiB
	Loops           int    // event loops
	MaxConnections  int    // 0: from the limit of open files
	Origins         []string
	MaxBatch        int // commands in one batch, after expansion; 1,000
	OrphanResponses bool
	Limits          router.Limits
	Memory          Memory
	Callbacks       callback.Policy
	RatePerSecond   float64 // commands per client; 0: no bound
	Logger          *slog.Logger
	Version         Version

	// The limits of PROTOCOL.md section 2.
	MaxMessage      int           // bytes of a message as received, and of a body
	MaxDepth        int           // levels of JSON nesting
	MaxHead         int           // bytes of a request's head
	RegisterTimeout time.Duration // until a connection must have registered
	HeadTimeout     time.Duration // for a request's head
	BodyTimeout     time.Duration // for its body
	IdleTimeout     time.Duration // of an HTTP connection between requests
	PingInterval    time.Duration
	SilenceTimeout  time.Duration // since a peer's last byte
	StallTimeout    time.Duration // of a peer that does not read what waits for it
}

// Version is what /version tells of the build.
type Version struct{ Version, Commit string }

// Gateway is a running Gateway.
type Gateway struct {
	opt     Options
	clock   clock
	router  *router.Router
	outbox  *callback.Outbox
	front   *front.Server
	metrics *metrics
	limiter *limiter
	data    *dataDir
	durable *durable // nil: no journal

	draining chan struct{} // closed when the drain begins
	stopped  chan struct{} // closed when waiting requests must answer
	drain    sync.Once
	ticker   sync.WaitGroup
	stopTick chan struct{}
	pulse    *pulse
	logged   wire.Time // when flapping was last looked at; the pulse's own
}

// clock gives wall-clock time that never steps back: the wall clock at the start plus
// what the monotonic clock has counted since.
type clock struct{ start time.Time }

func (c clock) now() wire.Time {
	return wire.Time(c.start.UnixNano()) + wire.Time(time.Since(c.start))
}

// Start listens and serves. The error is for the operator: an address that is taken, an
// unusable data directory, a listener beyond loopback that was not allowed.
func Start(opt Options) (*Gateway, error) {
	opt = opt.withDefaults()
	if err := errors.Join(opt.checkListen(), opt.checkLimits()); err != nil {
		return nil, err
	}
	g := &Gateway{
		opt: opt, clock: clock{time.Now()}, limiter: newLimiter(opt.RatePerSecond),
		draining: make(chan struct{}), stopped: make(chan struct{}), stopTick: make(chan struct{}),
	}
	floor := int64(0)
	if opt.DataDir != "" {
		var err error
		if g.data, floor, err = openDataDir(opt.DataDir, g.clock.now(), opt.Logger); err != nil {
			return nil, err
		}
	}
	if err := g.startCore(floor); err != nil {
		return nil, errors.Join(err, g.outbox.Close(context.Background()), g.closeJournal(), g.data.close())
	}
	g.pulse = newPulse(g.router.Pending, g.tick)
	g.metrics = newMetrics(g)
	var err error
	if g.front, err = front.Listen(g.frontOptions()); err != nil {
		return nil, errors.Join(err, g.outbox.Close(context.Background()), g.closeJournal(), g.data.close())
	}
	g.metrics.front.Store(g.front)
	if g.durable != nil {
		g.durable.port.Store(g.front)
		g.front.JournalStored() // what was stored before it was told
		g.startCheckpoints()
	}
	g.ticker.Go(func() { g.pulse.run(g.stopTick) })
	opt.Logger.Info("the Gateway serves", "address", g.Addr().String(), "version", opt.Version.Version)
	return g, nil
}

// startCore makes the outbox and the router, and restores what the journal has of them.
func (g *Gateway) startCore(floor int64) error {
	callbackOptions := g.opt.callbackOptions()
	config := router.Config{
		Limits: g.opt.Limits, OrphanResponses: g.opt.OrphanResponses,
		EpochFloor: floor, HeartbeatMs: int(g.opt.PingInterval / time.Millisecond),
	}
	if g.data != nil {
		g.durable = newDurable()
		callbackOptions.Journal, config.Journal = g.durable, g.durable
	}
	g.outbox = callback.New(callbackOptions)
	config.Callbacks = callbacks{g.outbox}
	g.router = router.New(config, g.clock.now())
	if g.durable == nil {
		return nil
	}
	return g.openJournal()
}

func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:18081"
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 1000
	}
	if o.PingInterval == 0 {
		o.PingInterval = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Segment == 0 {
		o.Segment = segmentBytes
	}
	o.Memory = o.Memory.withDefaults()
	o.Memory.apply(&o.Limits)
	o.Limits.Rate = o.RatePerSecond
	if o.MaxDepth <= 0 {
		o.MaxDepth = wire.DefaultMaxDepth
	}
	o.Limits.MaxDepth = o.MaxDepth
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMessage
	}
	if o.Limits.EdgeQueueBytes == 0 {
		o.Limits.EdgeQueueBytes = int64(o.waitingBytes())
	}
	return o
}

const defaultMessage = 1 << 20

// waitingBytes bounds what waits for one party: the contract's 16 MiB, or two messages
// where they may be larger.
func (o Options) waitingBytes() int { return max(16<<20, 2*o.MaxMessage) }

// checkListen refuses to serve anybody who can reach the port, as long as nobody is
// asked who they are, unless the operator says so.
func (o Options) checkListen() error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", o.Listen, err)
	}
	ip := net.ParseIP(host)
	if o.AllowAnonymous || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen address %q is not a loopback address: clients are not authenticated, so anybody who reaches the port could command every device; use --allow-anonymous if that is meant", o.Listen)
}

// checkLimits refuses limits that would not mean what they say.
func (o Options) checkLimits() error {
	const mostMessage, mostHead, mostJournalled = 1 << 30, 1 << 20, 8 << 20
	for name, v := range map[string]int64{
		"max-connections": int64(o.MaxConnections), "loops": int64(o.Loops), "segment": int64(o.Segment), "max-batch": int64(o.MaxBatch),
		"max-message": int64(o.MaxMessage), "max-head": int64(o.MaxHead), "max-depth": int64(o.MaxDepth),
		"max-pending": o.Limits.MaxPending, "max-routes": o.Limits.MaxRoutes, "max-edges": int64(o.Limits.MaxEdges), "max-backends": int64(o.Limits.MaxBackends),
		"max-records": o.Limits.MaxRecords, "retention": int64(o.Limits.Retention), "route-retention": int64(o.Limits.RouteRetention),
		"register-timeout": int64(o.RegisterTimeout), "head-timeout": int64(o.HeadTimeout), "body-timeout": int64(o.BodyTimeout),
		"idle-timeout": int64(o.IdleTimeout), "ping-interval": int64(o.PingInterval), "silence-timeout": int64(o.SilenceTimeout),
		"stall-timeout": int64(o.StallTimeout), "rate": int64(o.RatePerSecond * 1e6),
	} {
		if v < 0 {
			return fmt.Errorf("%s must not be negative", name)
		}
	}
	switch {
	case o.Memory > 0 && o.Memory < leastMemory:
		return fmt.Errorf("a memory limit below %d bytes leaves no room for commands", leastMemory)
	case o.MaxMessage > mostMessage:
		return fmt.Errorf("messages of more than %d bytes are not supported", mostMessage)
	case o.DataDir != "" && o.MaxMessage > mostJournalled:
		return fmt.Errorf("messages of more than %d bytes cannot be journalled", mostJournalled)
	case o.MaxHead > mostHead:
		return fmt.Errorf("request heads of more than %d bytes are not supported", mostHead)
	case o.MaxDepth > wire.MaxDepth:
		return fmt.Errorf("JSON nesting of more than %d levels is not supported", wire.MaxDepth)
	}
	return nil
}

func (g *Gateway) frontOptions() front.Options {
	o := g.opt
	var log front.Journal
	if g.durable != nil {
		log = g.durable
	}
	return front.Options{
		Journal: log,
		Listen:  o.Listen, Loops: o.Loops, MaxConns: o.MaxConnections, Origins: o.Origins,
		Open: func(c *front.Conn, now wire.Time) front.Session {
			return &session{g.router.Open(c, c.RemoteAddr().String(), now), g.pulse}
		},
		HTTP: g.serve, Prompt: isPrompt, Clock: g.clock.now, Logger: o.Logger,
		MaxPartial: int64(o.Memory / 16), MaxWaiting: int64(o.Memory / 4), MaxMessage: o.MaxMessage, MaxBody: o.MaxMessage, MaxOutbox: o.waitingBytes(), MaxHead: o.MaxHead,
		RegisterTimeout: o.RegisterTimeout, HeadTimeout: o.HeadTimeout, BodyTimeout: o.BodyTimeout, IdleTimeout: o.IdleTimeout,
		PingInterval: o.PingInterval, SilenceTimeout: o.SilenceTimeout, StallTimeout: o.StallTimeout,
	}
}

// Addr is the address that the Gateway listens on.
func (g *Gateway) Addr() net.Addr { return g.front.Addr() }

// Failed delivers an error when the port stopped serving by itself.
func (g *Gateway) Failed() <-chan error { return g.front.Failed() }

// tick drives the router's timers and, once a second, names what flaps.
func (g *Gateway) tick() {
	now := g.clock.now()
	g.router.Tick(now)
	if now-g.logged >= wire.Time(time.Second) {
		g.logged = now
		g.logFlapping()
	}
}

// logFlapping names the devices that go to and fro between edges, a few a second.
func (g *Gateway) logFlapping() {
	found := g.router.TakeFlapping()
	for _, d := range found[:min(len(found), 10)] {
		g.opt.Logger.Warn("a device goes to and fro between edges: two devices may have its id",
			"device", d.ClientID, "edges", d.Flapping.Edges, "moves", d.Flapping.Moves)
	}
	if n := len(found) - 10; n > 0 {
		g.opt.Logger.Warn("more devices go to and fro between edges", "count", n)
	}
}

// Shutdown drains: readiness goes off and new commands are refused at once; those in
// flight have until ctx ends to finish. Then no WebSocket is let in any more and those
// that are there are closed with 1001, callbacks that are due get what is left of the
// time, at least lastGrace, and everything stops. Call it once.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.beginDrain()
	g.awaitPending(ctx)
	close(g.stopped)
	g.front.StopAccepting()
	g.front.CloseAll(wire.CloseGoingAway, "the Gateway is going down")
	rest := lastGrace
	if end, ok := ctx.Deadline(); ok {
		rest = max(rest, time.Until(end))
	}
	due, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
	defer cancel()
	err := g.outbox.Close(due)
	if errors.Is(err, context.DeadlineExceeded) {
		g.opt.Logger.Warn("callbacks were not confirmed before the end", "queued", g.outbox.Stats().Queued)
		err = nil
	}
	ending, cancelEnding := context.WithTimeout(context.WithoutCancel(ctx), lastGrace)
	defer cancelEnding()
	if cut := g.front.Shutdown(ending); errors.Is(cut, context.DeadlineExceeded) {
		g.opt.Logger.Warn("connections were cut that did not end by themselves")
	} else {
		err = errors.Join(err, cut)
	}
	close(g.stopTick)
	g.ticker.Wait()
	err = errors.Join(err, g.closeJournal(), g.data.close())
	g.opt.Logger.Info("the Gateway has ended")
	return err
}

// lastGrace is what callbacks that are due, and peers that have yet to answer the close,
// get when the drain time is over.
const lastGrace = 2 * time.Second

func (g *Gateway) beginDrain() {
	g.drain.Do(func() {
		g.opt.Logger.Info("draining", "pending", g.router.Pending(), "callbacks", g.outbox.Stats().Queued)
		close(g.draining)
		g.router.SetDraining(true)
	})
}

// awaitPending waits until every accepted command has ended, or ctx has.
func (g *Gateway) awaitPending(ctx context.Context) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for g.router.Pending() > 0 {
		select {
		case <-ctx.Done():
			g.opt.Logger.Warn("commands were in flight at the end of the drain time", "pending", g.router.Pending())
			return
		case <-t.C:
		}
	}
}

// The states of a Delivery are the outbox's, by value: neither package knows the other.
var (
	_ = [1]struct{}{}[router.CallbackPending-callback.Pending]
	_ = [1]struct{}{}[router.CallbackDelivered-callback.Delivered]
	_ = [1]struct{}{}[router.CallbackDead-callback.Dead]
)

// callbacks hands the router's notices to the outbox.
type callbacks struct{ *callback.Outbox }

// Notify implements router.Callbacks.
func (c callbacks) Notify(n *router.Notice) {
	m := callback.Notice{
		URL: n.URL, Ref: n.Ref, Target: n.Target, Type: n.Type, Status: n.Status,
		Result: n.Result, Error: n.Error, Progress: n.Progress, ExecutionTime: n.ExecutionTime,
		Timestamp: n.Timestamp, Now: n.Now, Final: n.Final,
	}
	if n.Track != nil {
		m.Track = n.Track
	}
	c.Outbox.Notify(&m)
}
