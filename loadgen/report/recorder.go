package report

import (
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	lowest    = int64(time.Microsecond)
	highest   = int64(10 * time.Minute)
	digits    = 3
	maxShards = 1024 // beyond it, shards are shared
)

// Recorder collects what the shards saw. Shard and Code may be called from any goroutine;
// Tick, Phase, GatewayCPU, SetCores and Report are for the one that owns the run, but are
// safe from any.
type Recorder struct {
	clock func() int64
	cpu   func() int64 // ns of CPU this process used
	codes codeTable

	mu     sync.Mutex
	shards []*Shard
	next   int // the shard that is shared next once there are maxShards

	total  period         // since the start, as of the last Tick
	second *hdr.Histogram // commands of the second that is being closed
	phase  phase

	series     series
	lastTick   int64 // ns since start
	lastSent   int64 // the end of the last second with a send in it
	lastCPU    int64
	firstCPU   int64
	cores      float64
	gateCores  float64
	gate       gatewayCPU
	busy       shares
	gateShares shares
}

// NewRecorder makes a Recorder for a run that starts now. The clock gives nanoseconds
// since the start of the run, is monotonic, and may be called from any goroutine.
func NewRecorder(clock func() int64) *Recorder {
	return newRecorder(clock, processCPU)
}

func newRecorder(clock, cpu func() int64) *Recorder {
	r := &Recorder{clock: clock, cpu: cpu, second: newHistogram()}
	r.lastTick, r.firstCPU = clock(), cpu()
	r.lastCPU = r.firstCPU
	r.phase.started, r.phase.latency = r.lastTick, newHistogram()
	r.cores, r.gateCores = defaultCores(), defaultCores()
	r.gate.share = unknown
	return r
}

// SetCores says how many processors the generator and the gateway may use: what their
// shares are shares of. Without it, both may use what Go sees. Values below or at 0 are
// ignored. Call it before the first Tick.
func (r *Recorder) SetCores(generator, gateway float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if generator > 0 {
		r.cores = generator
	}
	if gateway > 0 {
		r.gateCores = gateway
	}
}

// Code gives the number for how a command ended: COMPLETED, FAILED, TIMEOUT, CANCELLED,
// ACCEPTED (a POST that was taken on) or an error code. It knows maxCodes names, each cut
// to 64 bytes; whatever comes later is "other". Any goroutine; no lock and no allocation
// for a name that is known.
func (r *Recorder) Code(name string) Code { return r.codes.code(name) }

// Shard gives one event loop or goroutine its own place to record.
func (r *Recorder) Shard() *Shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.shards) == maxShards {
		r.next = (r.next + 1) % maxShards
		return r.shards[r.next]
	}
	s := &Shard{open: new(period), spare: new(period)}
	r.shards = append(r.shards, s)
	return s
}

// Shard records for one event loop or goroutine. Its lock is contended by the reader
// alone, once a second, so its methods may be called from any goroutine and do not wait.
type Shard struct {
	mu    sync.Mutex
	open  *period // guarded by mu
	spare *period // empty; owned by the Recorder's lock
}

// Sent counts a command that left.
func (s *Shard) Sent(c Channel) {
	if c >= channels {
		return
	}
	s.mu.Lock()
	s.open.channel[c].sent++
	s.mu.Unlock()
}

// Done counts a command that ended (or, for Callback, whose final callback came), so many
// nanoseconds after its intended instant. It need not be the shard that counted it Sent.
func (s *Shard) Done(c Channel, code Code, latencyNs int64) {
	if c >= channels {
		return
	}
	s.mu.Lock()
	t := &s.open.channel[c]
	t.code[min(code, otherCode)]++
	t.latency.add(latencyNs)
	s.mu.Unlock()
}

// Late says how many nanoseconds after its intended instant the generator sent a command.
func (s *Shard) Late(ns int64) {
	s.mu.Lock()
	s.open.late.add(ns)
	s.mu.Unlock()
}

// period is what was recorded in a stretch of time.
type period struct {
	channel [channels]tally
	late    values
}

type tally struct {
	sent    int64
	code    [maxCodes + 1]int64
	latency values
}

// values are a histogram with exact bounds and sum beside it. The zero value is empty.
type values struct {
	histogram *hdr.Histogram // nil until the first value; kept when emptied
	count     int64
	sum       float64
	min, max  int64
}

func newHistogram() *hdr.Histogram { return hdr.New(lowest, highest, digits) }

func (v *values) add(ns int64) {
	ns = max(ns, 0)
	if v.histogram == nil {
		v.histogram = newHistogram()
	}
	if v.count == 0 || ns < v.min {
		v.min = ns
	}
	v.max = max(v.max, ns)
	v.count++
	v.sum += float64(ns)
	// It cannot fail: the value is within the bounds, and no count nears its limit.
	_ = v.histogram.RecordValue(min(ns, highest))
}

// moveTo adds v to w and empties v.
func (v *values) moveTo(w *values) {
	if v.count == 0 {
		return
	}
	if w.histogram == nil {
		w.histogram = newHistogram()
	}
	w.histogram.Merge(v.histogram)
	if w.count == 0 || v.min < w.min {
		w.min = v.min
	}
	w.max = max(w.max, v.max)
	w.count += v.count
	w.sum += v.sum
	v.histogram.Reset()
	*v = values{histogram: v.histogram}
}

// collectLocked moves what the shards hold into the totals and says what it was; the
// latencies of commands are then in r.second. Needs r.mu.
func (r *Recorder) collectLocked() (s Second) {
	if r.second.TotalCount() > 0 {
		r.second.Reset()
	}
	fineCode := r.fineCodes()
	for _, shard := range r.shards {
		shard.mu.Lock()
		p := shard.open
		shard.open, shard.spare = shard.spare, p
		shard.mu.Unlock()
		for c := range channels {
			r.moveChannelLocked(c, &p.channel[c], &fineCode, &s)
		}
		p.late.moveTo(&r.total.late)
	}
	return s
}

func (r *Recorder) moveChannelLocked(c Channel, t *tally, fineCode *[maxCodes + 1]bool, s *Second) {
	if t.sent == 0 && t.latency.count == 0 {
		return
	}
	total := &r.total.channel[c]
	var failed int64
	for code, n := range t.code {
		total.code[code] += n
		if !fineCode[code] {
			failed += n
		}
	}
	total.sent += t.sent
	if c.isCommand() {
		s.Sent, s.Done, s.Errors = s.Sent+t.sent, s.Done+t.latency.count, s.Errors+failed
		if t.latency.count > 0 {
			r.second.Merge(t.latency.histogram)
		}
	} else {
		s.Callbacks, s.CallbackErrors = s.Callbacks+t.latency.count, s.CallbackErrors+failed
	}
	t.sent, t.code = 0, [maxCodes + 1]int64{}
	t.latency.moveTo(&total.latency)
}

func (r *Recorder) fineCodes() (is [maxCodes + 1]bool) {
	for i, name := range r.codes.list() {
		is[i] = fine[name]
	}
	return is
}

func (r *Recorder) inFlightLocked() (n int64) {
	for c := range channels {
		if c.isCommand() {
			n += r.total.channel[c].sent - r.total.channel[c].latency.count
		}
	}
	return max(n, 0)
}
