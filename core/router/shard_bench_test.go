package router

import (
	"fmt"
	"testing"
)

// A command's use of the record table at a steady size: look whether the ref is new, add,
// find for the answer, and remove the oldest.
func BenchmarkRecordTable(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := New(Config{}, 1)
			ring := make([]*record, n)
			fresh := func(i int) *record {
				ref := fmt.Appendf(nil, "cmd-1705744800000-%09d", i)
				return &record{mem: ref, refLen: len(ref), hash: r.hashOf(ref), slot: -1, deadline: 1e9}
			}
			for i := range ring {
				ring[i] = fresh(i)
				r.shardOf(ring[i].hash).add(ring[i])
			}
			next := make([]*record, 4096)
			for i := range next {
				next[i] = fresh(n + i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				rec := next[i%len(next)]
				s := r.shardOf(rec.hash)
				if s.find(rec.hash, rec.ref()) == nil {
					s.add(rec)
				}
				s.find(rec.hash, rec.ref())
				old := ring[i%n]
				s = r.shardOf(old.hash)
				s.wheel.remove(old)
				s.remove(old)
				ring[i%n], next[i%len(next)] = rec, old
			}
		})
	}
}
