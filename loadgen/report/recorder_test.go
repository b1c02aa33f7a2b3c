package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// exact is the percentile of the sorted values by its definition.
func exact(sorted []int64, p float64) float64 {
	rank := int(math.Ceil(p/100*float64(len(sorted)) - 1e-9))
	return float64(sorted[max(rank, 1)-1]) / 1e6
}

func checkDistribution(t *testing.T, d Distribution, latencies []int64) {
	t.Helper()
	slices.Sort(latencies)
	sum := 0.0
	for _, ns := range latencies {
		sum += float64(ns) / 1e6
	}
	near := func(name string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within*want+0.0011 { // a bucket is at least half a microsecond wide, and we round to one
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	near("p50", d.P50Ms, exact(latencies, 50), 0.001)
	near("p90", d.P90Ms, exact(latencies, 90), 0.001)
	near("p99", d.P99Ms, exact(latencies, 99), 0.001)
	near("p99.9", d.P999Ms, exact(latencies, 99.9), 0.001)
	near("p99.99", d.P9999Ms, exact(latencies, 99.99), 0.001)
	near("min", d.MinMs, exact(latencies, 0), 0)
	near("max", d.MaxMs, exact(latencies, 100), 0)
	near("mean", d.MeanMs, sum/float64(len(latencies)), 0)
	if d.Count != int64(len(latencies)) {
		t.Errorf("count is %d, want %d", d.Count, len(latencies))
	}
	for _, p := range d.Curve {
		near(fmt.Sprint("curve at ", p.Percentile), p.LatencyMs, exact(latencies, p.Percentile), 0.001)
	}
	in := int64(0)
	for i, b := range d.Buckets {
		in += b.Count
		if i > 0 && b.FromMs != d.Buckets[i-1].ToMs {
			t.Errorf("a gap between buckets before %v", b)
		}
	}
	if in != d.Count || d.Buckets[0].Count == 0 || d.Buckets[len(d.Buckets)-1].Count == 0 {
		t.Errorf("%d of %d in the buckets %v", in, d.Count, d.Buckets)
	}
}

// only gives the one channel of a run with these latencies.
func only(t *testing.T, latencies []int64) Distribution {
	t.Helper()
	l := newLab()
	shard, completed := l.Shard(), l.Code("COMPLETED")
	for i, ns := range latencies {
		shard.Sent(WebSocket)
		shard.Done(WebSocket, completed, ns)
		if i%3000 == 0 {
			l.second(0.1)
		}
	}
	l.now += 1e9
	rep := l.Report(About{})
	if len(rep.Channels) != 1 {
		t.Fatalf("%d channels", len(rep.Channels))
	}
	return rep.Channels[0]
}

func TestPercentiles(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for name, draw := range map[string]func() int64{
		"even":        func() int64 { return 1e5 + random.Int64N(1e8) },
		"exponential": func() int64 { return int64(random.ExpFloat64() * 5e6) },
		"lognormal":   func() int64 { return int64(math.Exp(2*random.NormFloat64()) * 1e6) },
		"constant":    func() int64 { return 1234567 },
		"tiny":        func() int64 { return random.Int64N(3000) },
	} {
		t.Run(name, func(t *testing.T) {
			var latencies []int64
			for range 20_000 {
				latencies = append(latencies, draw())
			}
			checkDistribution(t, only(t, latencies), latencies)
		})
	}
}

// An open loop of one command each millisecond, answered after 1 ms, but for a stall of
// two seconds in which nothing is answered: counted from the intended instant, it shows.
func TestStallShows(t *testing.T) {
	var latencies []int64
	for i := range int64(10_000) {
		intended, answered := i*1e6, i*1e6+1e6
		if stallEnd := int64(5e9); answered > 3e9 && answered < stallEnd {
			answered = stallEnd
		}
		latencies = append(latencies, answered-intended)
	}
	d := only(t, latencies)
	checkDistribution(t, d, latencies)
	if d.P50Ms > 1.01 || d.P90Ms < 999 || d.P99Ms < 1890 || d.P999Ms < 1988 || d.MaxMs < 1999 {
		t.Errorf("the stall does not show: %+v", d)
	}
}

func TestOutOfRange(t *testing.T) {
	d := only(t, []int64{-5, 0, 11 * int64(time.Minute)})
	if d.Count != 3 || d.MinMs != 0 || d.MaxMs != 660_000 || d.P50Ms > 0.001 || d.P99Ms < 599_000 {
		t.Errorf("%+v", d)
	}
	l := newLab()
	s := l.Shard()
	s.Sent(channels)
	s.Done(255, 0, 1)
	s.Done(HTTP, 255, 1)
	s.Late(-1)
	l.now = 1e9
	rep := l.Report(About{})
	if len(rep.Channels) != 1 || rep.Channels[0].Errors != 1 || rep.Errors[0].Code != "other" || rep.Generator.LateMaxMs != 0 {
		t.Errorf("%+v %+v", rep.Channels, rep.Errors)
	}
}

func TestChannels(t *testing.T) {
	names := map[string]bool{}
	for c := range channels {
		names[c.String()] = true
		if h := c.High(); h < high || h.High() != h || h.isCommand() != c.isCommand() {
			t.Errorf("HIGH of %s is %s", c, h)
		}
	}
	if len(names) != int(channels) || channels.String() != "no channel" {
		t.Errorf("names: %v", names)
	}
}

func TestCodesAreBounded(t *testing.T) {
	r := newLab()
	for i := range 3 * maxCodes {
		c := r.Code(fmt.Sprint("E", i))
		if want := min(Code(i), otherCode); i < 255 && c != want {
			t.Fatalf("code %d is %d", i, c)
		}
		if again := r.Code(fmt.Sprint("E", i)); again != c {
			t.Fatalf("code %d is %d, then %d", i, c, again)
		}
	}
	if r.Code("COMPLETED") != otherCode {
		t.Error("a name came in beyond the bound")
	}
	long := newLab()
	a := long.Code("x" + string(make([]byte, 1<<20)))
	if b := long.Code("x" + string(make([]byte, 1<<10))); a != b || len(long.codes.list()[0]) != maxCodeName {
		t.Error("a long name was kept whole")
	}
	if s := cut("ä", 1); s != "" {
		t.Errorf("half a character: %q", s)
	}
}

func TestShardsAreBounded(t *testing.T) {
	r := newLab()
	seen := map[*Shard]bool{}
	for range 2*maxShards + 7 {
		seen[r.Shard()] = true
	}
	if len(seen) != maxShards {
		t.Errorf("%d shards", len(seen))
	}
}

// Goroutines record while another reads: nothing is lost, nothing is seen twice.
func TestConcurrent(t *testing.T) {
	const writers, each = 8, 20_000
	var now atomic.Int64
	r := newRecorder(now.Load, func() int64 { return 0 })
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			s, channel := r.Shard(), Channel(w)%channels
			for i := range int64(each) {
				s.Sent(channel)
				s.Late(i)
				s.Done(channel, r.Code(fmt.Sprint("E", i%120)), i*1000)
			}
		})
	}
	var done atomic.Bool
	var reading sync.WaitGroup
	var sum Second
	reading.Go(func() {
		for !done.Load() {
			s := r.Tick(now.Add(1e9))
			sum.Sent, sum.Done, sum.Callbacks = sum.Sent+s.Sent, sum.Done+s.Done, sum.Callbacks+s.Callbacks
			if s.InFlight < 0 || s.InFlight > writers {
				t.Errorf("%d in flight", s.InFlight)
			}
			r.GatewayCPU(float64(s.AtSeconds))
		}
	})
	writing.Wait()
	done.Store(true)
	reading.Wait()
	s := r.Tick(now.Add(1e9))
	sum.Sent, sum.Done, sum.Callbacks = sum.Sent+s.Sent, sum.Done+s.Done, sum.Callbacks+s.Callbacks
	if sum.Sent != 6*each || sum.Done != 6*each || sum.Callbacks != 2*each || s.InFlight != 0 {
		t.Errorf("%+v", sum)
	}
	rep := r.Report(About{})
	errors := int64(0)
	for _, e := range rep.Errors {
		errors += e.Count
	}
	if rep.Generator.LateCount != writers*each || errors != writers*each || len(rep.Channels) != writers {
		t.Errorf("late %d, errors %d, channels %d", rep.Generator.LateCount, errors, len(rep.Channels))
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	l := newLab()
	s, completed := l.Shard(), l.Code("COMPLETED")
	record := func() {
		s.Sent(HTTP.High())
		s.Late(1000)
		s.Done(HTTP.High(), completed, 420_000)
		if l.Code("COMPLETED") != completed {
			t.Error("another code")
		}
	}
	record()      // the histograms come with the first
	l.second(0.1) // and those of the other half with the first after a Tick
	record()
	if n := testing.AllocsPerRun(1000, record); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDone(b *testing.B) {
	l := newLab()
	s, completed := l.Shard(), l.Code("COMPLETED")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Done(WebSocket, completed, int64(i&0xfffff))
	}
}

func BenchmarkSent(b *testing.B) {
	s := newLab().Shard()
	b.ReportAllocs()
	for b.Loop() {
		s.Sent(WebSocket)
	}
}

func BenchmarkLate(b *testing.B) {
	s := newLab().Shard()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Late(int64(i & 0xffff))
	}
}

// BenchmarkTick closes a second of four shards with three channels each.
func BenchmarkTick(b *testing.B) {
	l := newLab()
	var shards []*Shard
	for range 4 {
		shards = append(shards, l.Shard())
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range shards {
			for i := range int64(300) {
				s.Done(Channel(i%3), 0, i*1e5)
			}
		}
		l.second(0.1)
	}
}
