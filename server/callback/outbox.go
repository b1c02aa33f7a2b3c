package callback

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"subway/core/wire"
)

// The states that a [Tracker] is told, as GET /api/commands/{ref} shows them.
const (
	Pending   uint8 = 0 // not confirmed yet; attempts may have been made
	Delivered uint8 = 1
	Dead      uint8 = 2 // given up, or never taken: it may be a dead letter
)

// Tracker hears of a final notice's fate. SetCallback is called with the Outbox locked
// and, from within Notify, with whatever the caller of Notify has locked: it must only
// store. Attempts counts those begun in the current series.
type Tracker interface {
	SetCallback(state uint8, attempts int)
}

// Notice is one callback to make (PROTOCOL.md section 7). Its slices are borrowed until
// Notify returns. Members without a value are nil and left out of the body.
type Notice struct {
	URL    []byte // as given, with its {request_ref} placeholders
	Ref    []byte
	Target []byte // the device's id; an orphan may have none
	Type   string // COMMAND_RESPONSE, PROGRESS_UPDATE or ERROR
	Status []byte // decoded text: the response's own word, IN_PROGRESS, TIMEOUT, ...

	Result, Error, Progress, ExecutionTime []byte // JSON, sent byte for byte

	Timestamp []byte // the message's own, decoded text; nil: made from Now
	Now       wire.Time
	Final     bool
	Track     Tracker // of a final notice; nil: nobody asks
}

// Options configure an Outbox. The zero value of a field means its default.
type Options struct {
	Attempts       int           // of a series; 3
	FirstDelay     time.Duration // before the second attempt, then doubled; 1 s
	AttemptTimeout time.Duration // of one attempt from dial to answer; 10 s
	Break          time.Duration // for which a host that many attempts in a row did not reach is left alone, then doubled, up to 8 times; 1 s
	MaxRetryAfter  time.Duration // a longer Retry-After is cut to this; 60 s

	PerHostConns int // connections, which is attempts at a time, to one host; 8
	PerHostQueue int // notices retained for one host; 10,000
	PerHostBytes int // bytes retained for one host; a quarter of MaxBytes
	MaxConns     int // attempts at a time, and idle connections, in all; 512
	MaxHosts     int // hosts known at a time; 4,096
	MaxBytes     int // bytes retained in all without dead letters; 64 MiB
	MaxProgress  int // progress notices retained for one request; 256
	MaxDead      int // dead letters; 10,000
	MaxDeadBytes int // bytes of dead letters; 64 MiB

	IdleTimeout time.Duration // an unused connection is closed after it; 10 s
	UserAgent   string        // "subway"
	TLS         *tls.Config   // of https receivers; nil: the system's roots, TLS 1.2 up
	Resolver    *net.Resolver // nil: Go's own
	Policy      Policy

	Journal Journal // what final notices are kept in, and all wait for; nil: none

	Clock  func() time.Time // the wall clock, for Retry-After dates; time.Now
	Logger *slog.Logger     // nil: silent
}

func (o Options) withDefaults() Options {
	orInt := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	orTime := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	orInt(&o.Attempts, 3)
	orTime(&o.FirstDelay, time.Second)
	orTime(&o.AttemptTimeout, 10*time.Second)
	orTime(&o.Break, time.Second)
	orTime(&o.MaxRetryAfter, time.Minute)
	orInt(&o.PerHostConns, 8)
	orInt(&o.PerHostQueue, 10_000)
	orInt(&o.MaxConns, 512)
	orInt(&o.MaxHosts, 4096)
	orInt(&o.MaxBytes, 64<<20)
	orInt(&o.PerHostBytes, max(o.MaxBytes/4, 1))
	orInt(&o.MaxProgress, 256)
	orInt(&o.MaxDead, 10_000)
	orInt(&o.MaxDeadBytes, 64<<20)
	orTime(&o.IdleTimeout, 10*time.Second)
	if o.UserAgent == "" {
		o.UserAgent = "subway"
	}
	if o.Resolver == nil {
		o.Resolver = &net.Resolver{PreferGo: true} // its look-ups can be cancelled
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Outbox delivers callbacks. Make it with New; all methods may be called from any
// goroutine.
type Outbox struct {
	opt    Options
	boot   string // makes progress ids distinct over restarts
	dialer net.Dialer
	cancel context.CancelFunc
	ctx    context.Context // ends when Close gives up
	work   sync.WaitGroup  // workers; Add under mu and not after stopped
	conns  registry

	mu      sync.Mutex
	hosts   map[string]*host
	unused  list[host]    // hosts without a lane, longest unused first
	waiting [2]list[host] // hosts with a ready lane and no slot: without any slot, with some
	busy    int           // slots in use, which is workers
	idle    int           // idle connections of all hosts
	queued  int           // notices retained, dead letters not
	bytes   int           // of these
	serial  uint64        // of progress ids
	dead    deadStore
	counts  [numOutcomes]uint64
	quiet   quiet

	spareLanes []*lane // to be used again

	held      []heldNotice // what waits for the journal, in its order
	heldBytes int
	numbers   uint64     // of the last final notice that was journalled
	rec       []byte     // a record in the making
	restore   *restoring // what is being restored; nil: nothing

	closing bool          // Notify refuses
	stopped bool          // nothing starts any more and what fails is left as it is
	drained chan struct{} // closed when closing and queued == 0
}

// New makes an Outbox. It has no goroutine until there is something to send.
func New(opt Options) *Outbox {
	o := &Outbox{opt: opt.withDefaults(), boot: bootID(), hosts: make(map[string]*host), drained: make(chan struct{})}
	o.unused.at = func(h *host) *link[host] { return &h.unusedLink }
	for i := range o.waiting {
		o.waiting[i].at = func(h *host) *link[host] { return &h.waitLink }
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.dialer = net.Dialer{Resolver: o.opt.Resolver, Control: o.opt.Policy.control}
	return o
}

// CheckURL says why a URL may not be called, or nil: what is seen when a command is
// posted (PROTOCOL.md section 7). The addresses that a name resolves to are judged when
// a connection is made. The error's text is fit for the caller.
func (o *Outbox) CheckURL(url []byte) error {
	t, err := parseURL(url)
	if err != nil {
		return err
	}
	return o.opt.Policy.checkTarget(&t)
}

// Stats is a snapshot of an Outbox.
type Stats struct {
	Queued   int                 // notices waiting or under way: callback_queue_length
	Bytes    int                 // retained for them
	Dead     int                 // dead letters kept
	Hosts    int                 // hosts known
	Broken   int                 // of these, left alone for a while
	Busy     int                 // attempts under way
	Outcomes [numOutcomes]uint64 // indexed by Outcome: callbacks_total{outcome}
}

// Stats returns a snapshot; it is cheap enough for every scrape.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := Stats{
		Queued: o.queued + len(o.held), Bytes: o.bytes + o.heldBytes, Dead: len(o.dead.letters), Hosts: len(o.hosts),
		Busy: o.busy, Outcomes: o.counts,
	}
	for _, h := range o.hosts {
		if h.breaker.open() {
			st.Broken++
		}
	}
	return st
}

// Close refuses new notices, lets those retained go out until ctx ends, retries
// included, then stops everything. It returns when no goroutine is left; an error says
// how many notices were not delivered. They stay Pending for their trackers.
func (o *Outbox) Close(ctx context.Context) error {
	o.mu.Lock()
	if !o.closing {
		o.closing = true
		o.checkDrainedLocked()
	}
	o.mu.Unlock()
	select {
	case <-o.drained:
	case <-ctx.Done():
	}
	o.mu.Lock()
	o.stopped = true
	left := o.queued + len(o.held)
	for _, h := range o.hosts {
		for _, f := range h.lanes {
			f.stopTimer()
		}
		h.breaker.stop()
		o.dropIdleLocked(h)
		o.settleLocked(h)
	}
	o.mu.Unlock()
	o.cancel()
	o.conns.closeAll()
	o.work.Wait()
	if left > 0 {
		return fmt.Errorf("callback: %d notices were not delivered before the stop: %w", left, ctx.Err())
	}
	return nil
}

func (o *Outbox) checkDrainedLocked() {
	if !o.closing || o.queued > 0 || len(o.held) > 0 {
		return
	}
	select {
	case <-o.drained:
	default:
		close(o.drained)
	}
}
