package router

import (
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"

	"subway/core/wire"
)

// Metrics are what a Router counts (PROTOCOL.md section 8). Counting takes no lock and
// no look-up by label on the way of a message: what a label needs is found once, when a
// command or a device is first seen. Read them with Router.VisitMetrics.
type Metrics struct {
	connections   [4]atomic.Int64 // by wire.ClientType
	late          atomic.Uint64
	orphans       atomic.Uint64
	statusDropped atomic.Uint64
	routing       [64]atomic.Uint64 // routing errors by wire.Code

	toEdge   [2][2]Histogram // [source is a Backend][target is direct]
	fromEdge [2][2]Histogram

	types, kinds, codes labels // of commands, of devices, of failures
	byType              [maxLabels]typeCounters
}

// typeCounters are what is counted per command type.
type typeCounters struct {
	success  [maxLabels]atomic.Uint64         // by kind of device
	failure  [maxLabels]atomic.Uint64         // by error code
	duration [numStates - Completed]Histogram // by outcome
}

// maxLabels bounds the distinct values of a label; the rest count as otherLabel, and so
// does a value of more than maxLabelBytes: a client must not be able to grow them.
const (
	maxLabels     = 100
	maxLabelBytes = 128
	otherLabel    = "other"
)

// labels numbers the values of a label; otherLabel is 0. Reading takes no lock.
type labels struct {
	mu sync.Mutex // guards growing
	at atomic.Pointer[map[string]int32]
}

func (l *labels) init(known ...string) {
	l.at.Store(&map[string]int32{otherLabel: 0})
	for _, name := range known {
		l.index([]byte(name))
	}
}

// index returns the number of a value.
func (l *labels) index(name []byte) int32 {
	if k, ok := (*l.at.Load())[string(name)]; ok {
		return k
	}
	if len(name) > maxLabelBytes {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := *l.at.Load()
	if k, ok := at[string(name)]; ok || len(at) >= maxLabels {
		return k
	}
	at = maps.Clone(at)
	k := int32(len(at))
	at[string(name)] = k
	l.at.Store(&at)
	return k
}

// names returns the values by number.
func (l *labels) names() []string {
	at := *l.at.Load()
	names := make([]string, len(at))
	for name, k := range at {
		names[k] = name
	}
	return names
}

func (m *Metrics) init() {
	m.types.init()
	m.kinds.init()
	known := []string{stateNames[Failed]} // what ends commands has its label whatever devices say
	for c := wire.CodeInvalidMessage; c <= wire.CodeInternal; c++ {
		known = append(known, c.String())
	}
	m.codes.init(known...)
}

// typeCounters returns the counters of a command type.
func (m *Metrics) typeCounters(name []byte) *typeCounters { return &m.byType[m.types.index(name)] }

// lastType remembers the counters of the type that was asked for last; the next is nearly
// always the same.
type lastType struct {
	of   *Metrics
	name [32]byte
	n    int
	last *typeCounters
}

// counters returns those of a type; l may be nil.
func (l *lastType) counters(m *Metrics, name []byte) *typeCounters {
	if l == nil {
		return m.typeCounters(name)
	}
	if l.of != m || string(l.name[:l.n]) != string(name) {
		if len(name) > len(l.name) {
			return m.typeCounters(name)
		}
		l.of, l.n, l.last = m, copy(l.name[:], name), m.typeCounters(name)
	}
	return l.last
}

func (m *Metrics) routingError(code wire.Code) { m.routing[code].Add(1) }

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// routed notes how long a command took from its acceptance to the edge's connection.
func (m *Metrics) routed(backend, direct bool, d wire.Time) {
	m.toEdge[index(backend)][index(direct)].observe(d)
}

// answered counts a response that was handed on. How long that took reads 0: a response
// is handed on while it is read, within one reading of the clock (PROTOCOL.md section 8),
// so the series says how many there were and no more.
func (m *Metrics) answered(backend, direct bool) {
	m.fromEdge[index(backend)][index(direct)].observe(0)
}

// concluded counts a command's end.
func (m *Metrics) concluded(rec *record, code []byte, now wire.Time) {
	t := rec.counters
	t.duration[rec.state-Completed].observe(now - rec.created)
	if rec.state == Completed {
		t.success[rec.dev.kind].Add(1)
		return
	}
	t.failure[m.codes.index(code)].Add(1)
}

// Buckets are the upper bounds of a Histogram's buckets, in seconds.
var Buckets = [...]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

var bucketNanos = func() (b [len(Buckets)]wire.Time) {
	for i, s := range Buckets {
		b[i] = wire.Time(s * 1e9)
	}
	return b
}()

// firstBucket is the bucket of the least duration of so many bits, where a search begins.
var firstBucket = func() (first [64]uint8) {
	for n := 1; n < len(first); n++ {
		least := wire.Time(1) << (n - 1)
		for int(first[n]) < len(bucketNanos) && least > bucketNanos[first[n]] {
			first[n]++
		}
	}
	return first
}()

// Histogram counts durations. Any goroutine.
type Histogram struct {
	counts [len(Buckets) + 1]atomic.Uint64
	nanos  atomic.Int64
}

func (h *Histogram) observe(d wire.Time) {
	i := int(firstBucket[bits.Len64(uint64(max(d, 0)))])
	for i < len(bucketNanos) && d > bucketNanos[i] {
		i++
	}
	h.counts[i].Add(1)
	if d > 0 {
		h.nanos.Add(int64(d))
	}
}

// Load returns the cumulative counts at Buckets, the count of all, and the sum in seconds.
func (h *Histogram) Load() (buckets map[float64]uint64, count uint64, sum float64) {
	buckets = make(map[float64]uint64, len(Buckets))
	for i := range h.counts {
		count += h.counts[i].Load()
		if i < len(Buckets) {
			buckets[Buckets[i]] = count
		}
	}
	return buckets, count, float64(h.nanos.Load()) / 1e9
}

// Visitor takes what a Router counts, a call per series; every member must be set.
type Visitor struct {
	// RouteLatency takes, towards an edge, the times from acceptance to its connection.
	// Those from an edge are all 0: they are below one reading of the clock.
	RouteLatency  func(from, to string, h *Histogram)
	Duration      func(commandType, outcome string, h *Histogram)
	Success       func(commandType, deviceType string, n uint64)
	Failure       func(commandType, errorCode string, n uint64)
	Connections   func(nodeType string, n int64)
	RoutingErrors func(errorCode string, n uint64)
}

// Gauges are the single values that a Router counts.
type Gauges struct {
	Late, Orphans, StatusDropped uint64
	Pending, Routes              int64
	RetentionSeconds             float64
}

// Gauges returns the single values. Any goroutine.
func (r *Router) Gauges(now wire.Time) Gauges {
	m := &r.metrics
	return Gauges{
		Late: m.late.Load(), Orphans: m.orphans.Load(), StatusDropped: m.statusDropped.Load(),
		Pending: r.pending.Load(), Routes: r.routes.n.Load(), RetentionSeconds: r.RetentionSeconds(now),
	}
}

// VisitMetrics calls v for every series. Any goroutine.
func (r *Router) VisitMetrics(v *Visitor) {
	m := &r.metrics
	for i, source := range [...]string{"http", "backend"} {
		for j, target := range [...]string{"edge", "device"} {
			v.RouteLatency(source, target, &m.toEdge[i][j])
			v.RouteLatency(target, source, &m.fromEdge[i][j])
		}
	}
	kinds, codes := m.kinds.names(), m.codes.names()
	for k, name := range m.types.names() {
		m.byType[k].visit(v, name, kinds, codes)
	}
	for kind, name := range [...]string{wire.ClientBackend: "backend", wire.ClientEdge: "edge", wire.ClientDevice: "device"} {
		if name != "" {
			v.Connections(name, m.connections[kind].Load())
		}
	}
	for code := range m.routing {
		if n := m.routing[code].Load(); n > 0 {
			v.RoutingErrors(wire.Code(code).String(), n)
		}
	}
}

func (t *typeCounters) visit(v *Visitor, name string, kinds, codes []string) {
	for i := range t.duration {
		if _, n, _ := t.duration[i].Load(); n > 0 {
			v.Duration(name, (Completed + State(i)).String(), &t.duration[i])
		}
	}
	for k, kind := range kinds {
		if n := t.success[k].Load(); n > 0 {
			v.Success(name, kind, n)
		}
	}
	for k, code := range codes {
		if n := t.failure[k].Load(); n > 0 {
			v.Failure(name, code, n)
		}
	}
}
