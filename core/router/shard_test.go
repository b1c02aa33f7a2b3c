package router

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"subway/core/wire"
)

// The table of a shard against a map, with hashes that collide, at every fill.
func TestShardTable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var s shard
	want := make(map[string]*record)
	for range 200_000 {
		ref := fmt.Sprint("r", rng.IntN(600))
		hash := uint64(ref[len(ref)-1]) % 7 * numShards // seven homes
		rec := s.find(hash, []byte(ref))
		if rec != want[ref] {
			t.Fatalf("find(%s) = %v, want %v", ref, rec, want[ref])
		}
		switch {
		case rec == nil:
			rec = &record{hash: hash, mem: []byte(ref), refLen: len(ref), slot: -1, deadline: wire.Time(1e9)}
			s.add(rec)
			want[ref] = rec
		case rng.IntN(2) == 0:
			s.wheel.remove(rec)
			s.remove(rec)
			delete(want, ref)
		}
		if s.n != len(want) {
			t.Fatalf("%d records, want %d", s.n, len(want))
		}
	}
	for _, x := range s.slots {
		if x.rec == nil && x.hash != 0 {
			t.Fatal("a free slot keeps a hash")
		}
	}
}
