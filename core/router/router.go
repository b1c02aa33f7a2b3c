package router

import (
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"subway/core/wire"
)

// Conn is a registered connection as the router sees it. Both methods may be called
// from any goroutine and must not block.
type Conn interface {
	// Append sends a, b and c as one message, copying them.
	Append(class wire.Class, a, b, c []byte) wire.Result
	// CloseWith ends the connection after what was appended, with an RFC 6455 close code.
	CloseWith(code uint16, reason string)
}

// Callbacks takes the notices for callers' URLs (PROTOCOL.md section 7).
type Callbacks interface {
	// CheckURL says why a URL may not be called, or nil.
	CheckURL(url []byte) error
	// Notify takes one notice; it is called with the command's lock held, in the order
	// of the command's notices, must not block, and copies what it keeps.
	Notify(n *Notice)
}

// Notice is one callback to make. Nil members have no value.
type Notice struct {
	URL, Ref, Target []byte
	Type             string
	Status           []byte
	Result           []byte // JSON, as are the next three
	Error            []byte
	Progress         []byte
	ExecutionTime    []byte
	Timestamp        []byte // RFC 3339
	Now              wire.Time
	Final            bool
	Track            *Delivery // nil: nobody asks
}

// Config is what a Router is made of.
type Config struct {
	Limits    Limits
	Callbacks Callbacks
	// OrphanResponses says whether answers to unknown requests that carry a callback or
	// a source themselves are passed on (PROTOCOL.md section 4).
	OrphanResponses bool
	// EpochFloor is below every epoch to be given; a restart gives a higher one.
	EpochFloor int64
	// Journal keeps what must survive the process; nil: nothing does.
	Journal Journal
	// HeartbeatMs is the interval that REGISTER_ACK announces.
	HeartbeatMs int
	// Seed, where it is not 0, takes the place of all chance, so that a simulation can be
	// replayed. Not for a Gateway: clients could make their requestRefs collide.
	Seed uint64
}

// Router routes. Make it with New.
type Router struct {
	cfg    Config
	limits Limits
	seed   maphash.Seed
	nonce  string // of this run, in session ids

	journal Journal    // nil: none
	durable wire.Class // wire.Durable where there is one
	restore *restoring // what is being restored; nil: nothing any more

	routes   *routeTable
	backends backendTable
	shards   [numShards]shard
	order    order
	archive  archive
	metrics  Metrics

	seq       atomic.Uint64 // of the last accepted command
	epoch     atomic.Int64
	pending   atomic.Int64
	held      atomic.Int64 // bytes of commands kept to be sent
	extraHeld atomic.Int64 // bytes of deviceExtra
	draining  atomic.Bool
	drawn     atomic.Uint64 // numbers of chance, with a Seed

	// topo guards who is where: edges, directs, away, stray, the lists of devices.
	topo     sync.Mutex
	edges    map[string]*edge
	directs  map[string]*edge
	away     [2]awayList // edges, and direct devices, that are not connected
	naming   uint64      // counts the REGISTERs that were looked through for room
	limbo    *edge       // holds what waits for devices without a route
	stray    map[*device]struct{}
	flaps    map[*device]*flap
	flapping []*device // found since they were last taken
	lastTidy wire.Time
}

// New returns a Router.
func New(cfg Config, now wire.Time) *Router {
	r := &Router{
		cfg:     cfg,
		limits:  cfg.Limits.withDefaults(),
		seed:    maphash.MakeSeed(),
		routes:  newRouteTable(),
		edges:   make(map[string]*edge),
		directs: make(map[string]*edge),
		limbo:   &edge{},
		stray:   make(map[*device]struct{}),
		flaps:   make(map[*device]*flap),
	}
	if r.journal = cfg.Journal; r.journal != nil {
		r.durable, r.restore = wire.Durable, newRestoring()
	}
	r.nonce = strconv.FormatUint(r.chance()|1<<63, 36)
	r.epoch.Store(max(cfg.EpochFloor, now.Millis()<<10))
	for i := range r.shards {
		r.shards[i].wheel.tick = int64(now) / wheelTick
	}
	r.metrics.init()
	r.backends.init(r.limits.MaxBackends)
	return r
}

// Open returns the session of a new connection, not yet registered; remote is its
// address, for people. Any goroutine.
func (r *Router) Open(conn Conn, remote string, _ wire.Time) *Session {
	return &Session{r: r, conn: conn, remote: remote}
}

// SetDraining makes the router refuse new commands with GATEWAY_UNAVAILABLE, or take
// them again. What is in flight goes on.
func (r *Router) SetDraining(on bool) { r.draining.Store(on) }

// Pending returns the number of commands that are accepted and not final.
func (r *Router) Pending() int64 { return r.pending.Load() }

// Tick ends what is due, lets go of what has been kept long enough, and tells of edges
// that are gone for good. Call it about every 10 ms, from one goroutine.
func (r *Router) Tick(now wire.Time) {
	for i := range r.shards {
		s := &r.shards[i]
		for done := false; !done; {
			s.mu.Lock()
			done = s.wheel.due(now, 256, func(rec *record) { r.expire(rec, now) })
			s.mu.Unlock()
			r.evict(now)
		}
	}
	r.evict(now)
	// A snapshot of a great many devices holds topo; timeouts do not wait for it.
	if now-r.lastTidy >= wire.Time(time.Second) && r.topo.TryLock() {
		r.lastTidy = now
		r.tidy(now)
		r.topo.Unlock()
	}
}

// evict lets go of the ended records that are over a bound or out of time. No lock is held.
func (r *Router) evict(now wire.Time) {
	var d doomed
	for {
		gone := d[:r.archive.take(&d, now, &r.limits)]
		if len(gone) == 0 {
			return
		}
		for _, x := range gone {
			r.shardOf(x.hash).past.prefetch(x.hash)
		}
		for _, x := range gone {
			r.shardOf(x.hash).forget(x)
		}
		r.order.dropAll(gone)
		r.archive.gone(gone)
	}
}

// RetentionSeconds is the time for which ended records are really kept now: the
// configured one, or less where a bound made records go early.
func (r *Router) RetentionSeconds(now wire.Time) float64 {
	a := &r.archive
	a.mu.Lock()
	defer a.mu.Unlock()
	window := wire.Time(r.limits.Retention)
	if a.early != 0 && now-a.early < window {
		window = now - a.early
	}
	return time.Duration(window).Seconds()
}
