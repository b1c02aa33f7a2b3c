package router

import (
	"math"
	"sort"
	"testing"

	"subway/core/wire"
)

// TestBuckets: a duration is counted in the first bucket whose bound it does not pass.
func TestBuckets(t *testing.T) {
	durations := []wire.Time{math.MinInt64, -1, 0, 1, 2, math.MaxInt64}
	for _, b := range bucketNanos {
		durations = append(durations, b-1, b, b+1)
	}
	for n := range 62 {
		durations = append(durations, 1<<n-1, 1<<n, 1<<n+1)
	}
	for _, d := range durations {
		var h Histogram
		h.observe(d)
		want := sort.Search(len(bucketNanos), func(i int) bool { return d <= bucketNanos[i] })
		for i := range h.counts {
			if n := h.counts[i].Load(); n != uint64(index(i == want)) {
				t.Errorf("%d: bucket %d counts %d, want it in %d", d, i, n, want)
			}
		}
	}
}

// TestLastType: the counters are those of the name that is asked for, whichever came before.
func TestLastType(t *testing.T) {
	var one, two Metrics
	one.init()
	two.init()
	var l lastType
	long := "a type whose name is longer than what is remembered"
	for _, name := range []string{"A", "A", "AB", "A", long, "AB", long, long[:32], "B"} {
		for _, m := range []*Metrics{&one, &two, &two} {
			if l.counters(m, []byte(name)) != m.typeCounters([]byte(name)) {
				t.Errorf("%q: another's counters", name)
			}
		}
	}
}

// TestRefusedTakeNoLabel: a type gets its label with the first command that is accepted,
// so that what is refused cannot use the labels up.
func TestRefusedTakeNoLabel(t *testing.T) {
	r := newRouter(Limits{}, notices{})
	backend := party(r, newConn(deaf), registerBackend("backend-1"), t0)
	party(r, newConn(deaf), registerEdge("edge-1", true, "td-1"), t0)
	known := len(r.metrics.types.names())
	backend.Receive([]byte(commandTo("r1", "td-2", "")), t0)
	if r.Submit(&wire.Command{Ref: []byte("r2"), Target: []byte("td-2"), CommandType: []byte("OTHER"), TimeoutMs: 1000}, []byte("{}"), t0) == nil {
		t.Fatal("accepted without a route")
	}
	if names := r.metrics.types.names(); len(names) != known {
		t.Errorf("labels %q", names)
	}
	backend.Receive([]byte(commandTo("r3", "td-1", "")), t0)
	if names := r.metrics.types.names(); len(names) != known+1 {
		t.Errorf("labels %q", names)
	}
}
