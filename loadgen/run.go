package loadgen

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"subway/loadgen/attack"
	"subway/loadgen/ledger"
	"subway/loadgen/report"
	"subway/loadgen/socket"
)

// ErrUnreachable says that there is no gateway at the URL, or none that works.
var ErrUnreachable = errors.New("there is no gateway to drive")

// ErrOptions says that a run cannot be made as it was asked for.
var ErrOptions = errors.New("cannot run this")

// Options of a run.
type Options struct {
	URL      string // of the gateway: http://HOST:PORT
	Scenario Scenario
	Seed     uint64
	Loops    int          // event loops; 0: half of the processors
	Live     func(string) // a line for each second; nil: none
	Log      *slog.Logger
	Vegeta   io.Writer // vegeta's own text report of the HTTP channel; nil: none
}

// httpShards is enough for as many goroutines as can be at it in one instant, or nearly. There
// is no sync.Pool of shards: the garbage collector empties it, a recorder keeps its shards
// for good, and closing a second takes the longer the more there are.
const httpShards = 16

// loopsMax bounds the event loops: gnet takes no more.
const loopsMax = 256

// run is a scenario that is being played.
type run struct {
	o     Options
	s     *Scenario
	addr  string
	names names
	texts *texts
	hash  maphash.Seed

	engine   *socket.Engine
	began    time.Time // the engine's time 0
	book     *ledger.Book
	recorder *report.Recorder
	codes    struct{ completed, failed, accepted report.Code }

	shards    [httpShards]*report.Shard // of the goroutines of the HTTP channel and the receivers
	lanes     []*lane
	laneOf    map[*socket.Loop]*lane // not changed once the run has begun
	edges     []*edge                // those of edges first, then direct devices
	backends  []*backend
	slow      *slowParties
	sources   []netip.Addr
	calm      [2]span // the devices that commands go to
	unordered bool    // order is not watched: devices come and go
	receivers []*attack.Receiver

	sending    atomic.Bool
	from       atomic.Int64  // commands intended since then are measured
	rate       atomic.Uint64 // float64 bits: factor of the rates
	registered atomic.Int64  // parties that are registered
	skipped    atomic.Uint64 // commands that could not be sent
	left       atomic.Uint64 // devices that left
	losses     atomic.Uint64 // connections lost

	mu       sync.Mutex
	notes    []string // under mu
	troubles int      // under mu

	storms      []report.Storm
	steps       []report.Step
	idle        *report.Idle
	sent        time.Duration // how long commands were sent
	intended    float64       // commands that should have been sent in it; 0: a closed loop
	firstSample attack.Sample
	lastSample  attack.Sample
}

// span is a range of device numbers.
type span struct{ first, count uint32 }

// Run plays a scenario and returns what it measured; the report's Books say whether the
// gateway kept its word. The error wraps ErrOptions or, when there is no gateway, ErrUnreachable. When
// ctx ends the run stops sending and is brought to its end like any other.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.Scenario.Complete(); err != nil {
		return nil, fmt.Errorf("%w: scenario %s: %w", ErrOptions, o.Scenario.Name, err)
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%w: the gateway's URL is %q, want http://HOST:PORT", ErrOptions, o.URL)
	}
	if o.Loops <= 0 {
		o.Loops = max(1, runtime.NumCPU()/2)
	}
	if o.Loops > loopsMax {
		return nil, fmt.Errorf("%w: %d event loops, at most %d", ErrOptions, o.Loops, loopsMax)
	}
	if o.Scenario.Ramp != nil {
		o.Scenario.Load.Rate = o.Scenario.Ramp.From // the warm-up's, and the first step's
	}
	r := &run{o: o, s: &o.Scenario, addr: u.Host, hash: maphash.MakeSeed(), laneOf: map[*socket.Loop]*lane{}}
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	r.names = names{r.s.Fleet.Prefix}
	r.texts = newTexts(r.s, rng)
	r.unordered = r.s.Churn != nil
	r.from.Store(math.MaxInt64)
	r.setFactor(1)
	health, err := probe(ctx, o.URL)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.open(rng); err != nil {
		return nil, err
	}
	defer spareProcs(o.Loops)()
	r.recorder.SetCores(float64(runtime.NumCPU()), float64(runtime.NumCPU()))
	start := time.Now()
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	return r.report(start, health), nil
}

// spareProcs gives Go a P for each thread that sits in a system call most of the time:
// an event loop in epoll_wait and the pacer in its sleep keep theirs until the runtime
// takes it away, up to 10 ms later, and whoever waits for the network (vegeta, the
// receivers) would wait with them.
func spareProcs(loops int) (undo func()) {
	before := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(before + loops + 1)
	}
	return func() { runtime.GOMAXPROCS(before) }
}

func probe(ctx context.Context, url string) (attack.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	health, err := attack.Probe(ctx, url)
	if err == nil && !health.Ready {
		err = fmt.Errorf("it is not ready: %s", health.Reason)
	}
	if err != nil {
		return health, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return health, nil
}

// open makes the parties, and connects none of them.
func (r *run) open(rng *rand.Rand) error {
	if err := r.raiseFileLimit(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	var err error
	if r.sources, err = r.localAddresses(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	engine, err := socket.Start(socket.Options{
		Loops: r.o.Loops, MaxOutbox: 64 << 20, MaxMessage: 2 << 20, Log: r.o.Log,
	})
	if err != nil {
		return err
	}
	r.engine, r.began = engine, time.Now().Add(-time.Duration(engine.Now()))
	r.book = ledger.New(ledger.Options{Run: uint32(time.Now().UnixNano() / 1e6), Repeats: r.s.Repeats})
	r.recorder = report.NewRecorder(engine.Now)
	r.codes.completed, r.codes.failed, r.codes.accepted =
		r.recorder.Code("COMPLETED"), r.recorder.Code("FAILED"), r.recorder.Code("ACCEPTED")
	for i := range r.shards {
		r.shards[i] = r.recorder.Shard()
	}
	for _, l := range engine.Loops() {
		lane := &lane{run: r, loop: l, shard: r.recorder.Shard(), rng: rand.New(rand.NewPCG(r.o.Seed, rng.Uint64()))}
		r.lanes = append(r.lanes, lane)
		r.laneOf[l] = lane
	}
	r.makeParties()
	return r.openReceivers()
}

// makeParties spreads edges, direct devices and Backends over the lanes.
func (r *run) makeParties() {
	f := &r.s.Fleet
	for i := range f.Edges {
		l := r.lanes[i%len(r.lanes)]
		r.edges = append(r.edges, &edge{lane: l, number: i, id: r.names.edge(i), first: uint32(i * f.Devices), count: uint32(f.Devices)})
	}
	base := f.Edges * f.Devices
	for i := range f.Direct {
		r.edges = append(r.edges, r.directDevice(uint32(base+i)))
	}
	for i := range f.Backends {
		l := r.lanes[i%len(r.lanes)]
		b := &backend{lane: l, number: i, id: r.names.backend(i), credit: float64(i) / float64(f.Backends)}
		l.backends = append(l.backends, b)
		r.backends = append(r.backends, b)
	}
	r.calm = [2]span{{0, uint32(base)}, {uint32(base), uint32(f.Direct)}}
	if r.s.Load.Calm && r.s.Storm != nil {
		stormy := r.s.Storm.takes(f.Edges)
		r.calm[0] = span{uint32(stormy * f.Devices), uint32((f.Edges - stormy) * f.Devices)}
		stormy = r.s.Storm.takes(f.Direct)
		r.calm[1] = span{uint32(base + stormy), uint32(f.Direct - stormy)}
	}
	if r.s.Slow != nil {
		r.slow = newSlowParties(r, uint32(base+f.Direct))
	}
}

func (r *run) directDevice(number uint32) *edge {
	return &edge{
		lane: r.lanes[int(number)%len(r.lanes)], number: int(number), id: string(r.names.appendDevice(nil, number)),
		direct: true, first: number, count: 1,
	}
}

// pick chooses the device that the next command goes to.
func (r *run) pick(rng *rand.Rand) uint32 {
	a, b, slow := r.calm[0], r.calm[1], span{}
	if r.slow != nil && !r.s.Load.Calm {
		slow = r.slow.devices
	}
	n := rng.Uint32N(a.count + b.count + slow.count)
	switch {
	case n < a.count:
		return a.first + n
	case n < a.count+b.count:
		return b.first + n - a.count
	}
	return slow.first + n - a.count - b.count
}

// shard is the place where a goroutine that has none of its own records; any number will do.
func (r *run) shard(n uint64) *report.Shard { return r.shards[n%httpShards] }

func (r *run) setFactor(f float64) { r.rate.Store(math.Float64bits(f)) }
func (r *run) factor() float64     { return math.Float64frombits(r.rate.Load()) }

func (r *run) ratePerBackend() float64 {
	return r.s.Load.Rate * r.factor() / float64(max(1, len(r.backends)))
}

// measured says whether a command counts in the figures: the books keep all of them.
func (r *run) measured(intended int64) bool { return intended >= r.from.Load() }

// plausible enters an end that cannot be: nobody here cancels, and a timeout fires no more
// than 10 ms early (PROTOCOL.md section 8). latency counts from the intended instant,
// which is before the gateway's own count begins.
func (r *run) plausible(seq uint64, end ledger.Outcome, latency int64) {
	what := ""
	switch {
	case end == ledger.Cancelled:
		what = "CANCELLED, which nobody asked for"
	case end == ledger.TimedOut && latency < int64(r.s.Load.Timeout-10*time.Millisecond):
		what = "TIMEOUT before its time"
	default:
		return
	}
	r.book.Fault(ledger.Contradiction, string(r.book.AppendRef(nil, seq)), what)
}

// since turns an instant into the run's nanoseconds.
func (r *run) since(t time.Time) int64 { return int64(t.Sub(r.began)) }

// target says how a party connects.
func (r *run) target(number int) socket.Target {
	t := socket.Target{Address: r.addr, Path: "/ws", Timeout: 30 * time.Second}
	if len(r.sources) > 0 {
		t.Source = r.sources[number%len(r.sources)]
	}
	return t
}

// note keeps a sentence for the report.
func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notes) < notesMax {
		r.notes = append(r.notes, fmt.Sprintf(format, args...))
	}
}

// Bounds of what is said in words.
const (
	notesMax    = 50
	troublesMax = 20
)

// trouble logs what a party met and did not expect; the first ones.
func (r *run) trouble(format string, args ...any) {
	r.mu.Lock()
	r.troubles++
	few := r.troubles <= troublesMax
	r.mu.Unlock()
	if few {
		r.o.Log.Warn(fmt.Sprintf(format, args...))
	}
}

// lost notes a connection that went, or never came to be.
func (r *run) lost(id string, err error) {
	if n := r.losses.Add(1); n <= 3 {
		r.trouble("%s lost its connection: %v", id, err)
	}
}

// foreign enters a notice about a ref that is not of this run.
func (r *run) foreign(what string, ref []byte) {
	if !r.book.Stray(ref) {
		r.book.Fault(ledger.Foreign, string(clip(ref)), what)
	}
}

// raiseFileLimit makes room for every connection, and says what it did.
func (r *run) raiseFileLimit() error {
	f := &r.s.Fleet
	want := f.Edges + f.Direct + f.Backends + r.s.HTTP.Workers + 4096
	if r.s.Idle != nil {
		want += r.s.Idle.Connections
	}
	got, raised, err := socket.RaiseFileLimit(uint64(want))
	if raised {
		r.note("raised the limit of open files to %d", got)
	}
	if got < uint64(want) {
		return fmt.Errorf("the scenario needs %d open files and the limit is %d (ulimit -n): %v", want, got, err)
	}
	return nil
}

// perSource is how many connections one address may make to one port, with room to spare.
const perSource = 20_000

// localAddresses gives loopback addresses to connect from, where one has too few ports.
func (r *run) localAddresses() ([]netip.Addr, error) {
	n := r.s.Fleet.Sources
	connections := r.s.Fleet.Edges + r.s.Fleet.Direct
	if r.s.Idle != nil {
		connections += r.s.Idle.Connections
	}
	if n == 0 && connections > perSource {
		n = (connections + perSource - 1) / perSource
	}
	host, err := netip.ParseAddrPort(r.addr)
	if n == 0 || err != nil || !host.Addr().Is4() || !host.Addr().IsLoopback() {
		if n > 0 {
			r.note("the gateway is not on 127.0.0.0/8: all connections come from one address")
		}
		return nil, nil
	}
	if n > 254 {
		return nil, fmt.Errorf("%d connections need %d source addresses; there are 254", connections, n)
	}
	r.note("connects from %d loopback addresses", n)
	return socket.Sources(n), nil
}
