package front

import (
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"subway/core/wire"
)

// Options configure a port. The zero value of a member means its default.
type Options struct {
	// Listen is host:port. Port 0: the system picks one. No host: all addresses.
	Listen string
	// Loops is the number of event loops (default: GOMAXPROCS).
	Loops int
	// Open is called for each WebSocket after a good handshake, on its loop, before
	// any message. Nil refuses the connection with 1013.
	Open func(c *Conn, now wire.Time) Session
	// HTTP serves every request that asks for no WebSocket, on a goroutine of the
	// connection or, where Prompt says so, on its event loop (nil: 404).
	HTTP fasthttp.RequestHandler
	// Prompt says which requests HTTP answers at once, without waiting for anything, by
	// method and target as they were sent. They are served on the event loop unless
	// something about them is out of the ordinary. Nil: none.
	Prompt func(method, target []byte) bool
	// Origins are accepted besides the request's own host; "*" stands for any.
	Origins []string

	MaxMessage    int   // bytes of a message as received; beyond: 1009 (1 MiB)
	MaxPartial    int64 // bytes of all messages that have come in part; beyond: 1013 (256 MiB)
	MaxConns      int   // connections of all kinds; beyond: closed at once (from RLIMIT_NOFILE, about 90 %)
	MaxHTTP       int   // HTTP connections; beyond: 503 (a quarter of MaxConns, at most 4,096)
	MaxHead       int   // bytes of a request's head; beyond: 431 (8 KiB)
	MaxBody       int   // bytes of a request's body; beyond: 413 (1 MiB)
	MaxOutbox     int   // bytes that wait for one connection; beyond: 4429 (16 MiB)
	MaxWaiting    int64 // bytes that wait for all connections, beyond the first 64 KiB of each; then a blocked one that adds to it: 4429 (1 GiB)
	StatusLimit   int   // while more bytes wait, ClassStatus is dropped (1 MiB)
	CommandWindow int   // while so many bytes wait, ClassCommand is refused (64 KiB)
	SlowRate      int64 // bytes per second at which a message must arrive, else 4429 (1,024)

	RegisterTimeout time.Duration // until Session.Registered, else 4408 (10 s)
	HeadTimeout     time.Duration // for a request's head (10 s)
	BodyTimeout     time.Duration // for a request's body (30 s)
	IdleTimeout     time.Duration // of an HTTP connection between requests (75 s)
	WriteTimeout    time.Duration // for an HTTP answer (30 s)
	HoldTimeout     time.Duration // that an answer may wait for Journal, else the connection is cut without it (30 s)
	PingInterval    time.Duration // (30 s)
	SilenceTimeout  time.Duration // since the peer's last byte, else 4410 (60.5 s; never less than PROTOCOL.md's 60 s)
	SlowTimeout     time.Duration // when SlowRate is first measured, after a message began (30 s)
	StallTimeout    time.Duration // without progress of what waits for the peer, else 4429 (30 s)
	CloseTimeout    time.Duration // for what is queued when a connection is closed (3 s)
	LingerTimeout   time.Duration // for the peer's answer to our close (5 s)
	Tick            time.Duration // how late a deadline is noticed at most (250 ms)

	// Journal is what messages of class wire.Durable wait for; nil: they wait for nothing.
	Journal Journal

	// Clock returns the present instant; it must never step back (default: wall time
	// at the start plus the monotonic time since).
	Clock  func() wire.Time
	Logger *slog.Logger // default: slog.Default()
}

// options are Options with defaults filled in and durations as wire.Time.
type options struct {
	Options
	registerAfter, headAfter, idleAfter, holdAfter, silentAfter, slowAfter, stallAfter wire.Time
	pingEvery, closeFlush, linger                                                      wire.Time

	slowLook, stallLook wire.Time // how often a slow message, a stalled peer is looked at
}

// Server is a listening port. Its methods may be called from any goroutine.
type Server struct {
	o       options
	log     *slog.Logger
	clock   func() wire.Time
	addr    net.Addr
	fdGuard int // a descriptor from here on is shed
	budget  *Budget
	waiting atomic.Int64 // bytes in outboxes, see Conn.charge
	stats   counters
	http    *fasthttp.Server
	loops   []*loop

	ended    chan struct{} // all loops have
	failed   chan error
	refusing atomic.Bool // no WebSocket is opened any more
	draining atomic.Bool // nor anything else
	stopping atomic.Bool

	mu       sync.Mutex // guards httpConn
	httpConn map[*httpConn]struct{}
}

func pick[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

func (o *Options) defaults() options {
	pick(&o.Loops, runtime.GOMAXPROCS(0))
	pick(&o.MaxMessage, 1<<20)
	pick(&o.MaxPartial, 256<<20)
	pick(&o.MaxHead, 8<<10)
	pick(&o.MaxBody, 1<<20)
	pick(&o.MaxOutbox, 16<<20)
	pick(&o.MaxWaiting, 1<<30)
	pick(&o.StatusLimit, 1<<20)
	pick(&o.CommandWindow, 64<<10)
	pick(&o.SlowRate, 1<<10)
	pick(&o.RegisterTimeout, 10*time.Second)
	pick(&o.HeadTimeout, 10*time.Second)
	pick(&o.BodyTimeout, 30*time.Second)
	pick(&o.IdleTimeout, 75*time.Second)
	pick(&o.WriteTimeout, 30*time.Second)
	pick(&o.HoldTimeout, 30*time.Second)
	pick(&o.PingInterval, 30*time.Second)
	pick(&o.SilenceTimeout, 60*time.Second+500*time.Millisecond)
	pick(&o.SlowTimeout, 30*time.Second)
	pick(&o.StallTimeout, 30*time.Second)
	pick(&o.CloseTimeout, 3*time.Second)
	pick(&o.LingerTimeout, 5*time.Second)
	pick(&o.Tick, 250*time.Millisecond)
	if o.Clock == nil {
		o.Clock = monotonic()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return options{
		Options:       *o,
		registerAfter: wire.Time(o.RegisterTimeout),
		headAfter:     wire.Time(o.HeadTimeout),
		idleAfter:     wire.Time(o.IdleTimeout),
		holdAfter:     wire.Time(o.HoldTimeout),
		silentAfter:   wire.Time(o.SilenceTimeout),
		slowAfter:     wire.Time(o.SlowTimeout),
		stallAfter:    wire.Time(o.StallTimeout),
		pingEvery:     wire.Time(o.PingInterval),
		closeFlush:    wire.Time(o.CloseTimeout),
		linger:        wire.Time(o.LingerTimeout),
		slowLook:      wire.Time(max(o.SlowTimeout/30, o.Tick)),
		stallLook:     wire.Time(max(o.StallTimeout/6, o.Tick)),
	}
}

// monotonic returns a clock that starts with the wall's time and never steps.
func monotonic() func() wire.Time {
	base := time.Now()
	start := wire.Time(base.UnixNano())
	return func() wire.Time { return start + wire.Time(time.Since(base)) }
}

// Listen binds the port and serves it. An address that is in use or cannot be had
// is a plain error.
func Listen(o Options) (*Server, error) {
	s := &Server{
		o:        o.defaults(),
		ended:    make(chan struct{}),
		failed:   make(chan error, 1),
		httpConn: make(map[*httpConn]struct{}),
	}
	s.log, s.clock = s.o.Logger, s.o.Clock
	s.budget = NewBudget(s.o.MaxPartial)
	s.limitDescriptors()
	s.http = s.newHTTP()
	ports, addr, err := listen(s.o.Listen, s.o.Loops)
	if err != nil {
		return nil, err
	}
	s.addr = addr
	for i, port := range ports {
		l, err := newLoop(s, port)
		if err != nil {
			closeAll(ports[i:])
			for _, l := range s.loops {
				l.end()
			}
			return nil, err
		}
		s.loops = append(s.loops, l)
	}
	s.start()
	return s, nil
}

// start runs the loops.
func (s *Server) start() {
	var running sync.WaitGroup
	for _, l := range s.loops {
		running.Go(l.run)
	}
	go func() {
		running.Wait()
		close(s.ended)
	}()
}

// Addr returns the address that the port is bound to.
func (s *Server) Addr() net.Addr { return s.addr }

// Failed delivers one error if the port stops serving unasked, which only a failure
// of the system can bring about. The process should end then.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	s.log.Error("an event loop ended", "error", err)
	select {
	case s.failed <- err:
	default:
	}
}

// CloseAll closes every WebSocket that is open now with this code, as by
// Conn.CloseWith; 1001 when the server is going down. After StopAccepting none is left
// out, and none comes after.
func (s *Server) CloseAll(code uint16, reason string) {
	for _, l := range s.loops {
		l.ask(func(a *asked) { a.closeCode, a.closeText = code, reason })
	}
}
