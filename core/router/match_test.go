package router

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestDevicesMatchingAny compares the one pass for many prefixes with a look at all
// devices for each: nested prefixes, some twice, some that nothing begins with.
func TestDevicesMatchingAny(t *testing.T) {
	rng := newRand(t)
	word := func(most int) string {
		b := make([]byte, rng.IntN(most+1))
		for i := range b {
			b[i] = "ab-"[rng.IntN(3)]
		}
		return string(b)
	}
	for range 200 {
		r := newRouter(Limits{}, notices{})
		ids := []string{}
		for range rng.IntN(60) {
			ids = append(ids, "d"+word(6))
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		party(r, newConn(deaf), registerEdge("edge-1", false, ids...), t0)
		prefixes := []string{}
		for range rng.IntN(12) {
			prefixes = append(prefixes, strings.Repeat("d", rng.IntN(2))+word(4))
		}
		limit := 1 + rng.IntN(20)
		var want, got []string
		for i, p := range prefixes {
			n := 0
			for _, id := range ids {
				if strings.HasPrefix(id, p) && n < limit {
					n++
					want = append(want, fmt.Sprint(i, " ", id))
				}
			}
		}
		r.DevicesMatchingAny(prefixes, limit, func(i int, id string) { got = append(got, fmt.Sprint(i, " ", id)) })
		if !slices.Equal(got, want) {
			t.Fatalf("%q of %q, %d at most:\ngot  %q\nwant %q", prefixes, ids, limit, got, want)
		}
	}
}

// BenchmarkDevicesMatchingAny: a batch of 1,000 patterns over 100,000 devices.
func BenchmarkDevicesMatchingAny(b *testing.B) {
	r := newRouter(Limits{}, notices{})
	for _, id := range keys(100_000) {
		r.routes.findOrAdd(id, func(id string) *device { return &device{id: id} }).edge.Store(r.limbo)
	}
	var prefixes []string
	for i := range 1000 {
		prefixes = append(prefixes, fmt.Sprintf("device-%012d", i))
	}
	for b.Loop() {
		n := 0
		r.DevicesMatchingAny(prefixes, 2000, func(int, string) { n++ })
		if n != 100_000 {
			b.Fatal(n)
		}
	}
}
