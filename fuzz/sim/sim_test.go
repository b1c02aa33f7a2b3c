package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seeds = flag.Uint64("seeds", 0, "worlds of TestSim; 0: 100, or 12 with -race")
	first = flag.Uint64("first", 1, "seed of the first")
	seed  = flag.Uint64("seed", 0, "replay the world of this seed alone")
)

// TestSim plays a world per seed and finds no fault.
func TestSim(t *testing.T) {
	if *seed != 0 {
		report(t, Run(*seed))
		return
	}
	n := *seeds
	if n == 0 {
		n = 100
		if raced {
			n = 12
		}
	}
	var commands, events, sum atomic.Uint64
	worlds(*first, n, func(s uint64) bool {
		out := Run(s)
		commands.Add(uint64(out.Commands))
		events.Add(out.Events)
		sum.Add(uint64(out.Sum))
		report(t, out)
		return len(out.Faults) == 0
	})
	t.Logf("seeds %d to %d: %d commands, %d events, sum %x", *first, *first+n-1, commands.Load(), events.Load(), sum.Load())
}

// worlds calls play for each seed, several at a time, until one returns false.
func worlds(first, n uint64, play func(seed uint64) bool) {
	var next atomic.Uint64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1); i <= n && !stop.Load(); i = next.Add(1) {
				if !play(first + i - 1) {
					stop.Store(true)
				}
			}
		})
	}
	all.Wait()
}

// report fails with the line that replays a world and its history.
func report(t *testing.T, out Outcome) {
	if len(out.Faults) == 0 {
		return
	}
	text := fmt.Sprintf("seed %d: %s\nreplay: make sim SEED=%d\n", out.Seed, out.Faults[0], out.Seed)
	for _, f := range out.Faults[1:] {
		text += "and " + f + "\n"
	}
	t.Error(text + out.Excerpt)
}

// The same seed gives the same history, byte for byte.
func TestReplay(t *testing.T) {
	for s := uint64(1); s <= 5; s++ {
		if a, b := Run(s), Run(s); a.Sum != b.Sum || a.Events != b.Events {
			t.Errorf("seed %d: %d events with sum %08x, then %d with %08x", s, a.Events, a.Sum, b.Events, b.Sum)
		}
	}
}
