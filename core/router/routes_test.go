package router

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func fresh(id string) *device { return &device{id: id} }

// TestRouteTableOracle compares the table with a plain map.
func TestRouteTableOracle(t *testing.T) {
	rng := newRand(t)
	for _, universe := range []int{10, 500, 8_000} {
		table, oracle := newRouteTable(), map[string]*device{}
		for range 20 * universe {
			id := fmt.Sprintf("td-%d", rng.IntN(universe))
			switch d := oracle[id]; rng.IntN(5) {
			case 0, 1:
				got := table.findOrAdd([]byte(id), fresh)
				if d != nil && got != d || got.id != id {
					t.Fatalf("findOrAdd(%s) = %v, want %v", id, got, d)
				}
				oracle[id] = got
			case 2:
				if d != nil && !table.remove(d) {
					t.Fatalf("%s was there and is not removed", id)
				}
				delete(oracle, id)
			case 3: // another device of this id, or one that is not there
				if table.remove(fresh(id)) {
					t.Fatalf("removed a device %s that was never in the table", id)
				}
			default:
				if got := table.find([]byte(id)); got != d {
					t.Fatalf("find(%s) = %v, want %v", id, got, d)
				}
			}
		}
		compareRoutes(t, table, oracle)
		for _, d := range oracle {
			table.remove(d)
		}
		compareRoutes(t, table, map[string]*device{})
		for i := range table.shards {
			if n := len(*table.shards[i].slots.Load()); n > 4*routeMinSlots {
				t.Fatalf("an empty shard has %d slots", n)
			}
		}
	}
}

func compareRoutes(t *testing.T, table *routeTable, oracle map[string]*device) {
	t.Helper()
	n := 0
	table.each(func(d *device) bool {
		n++
		if oracle[d.id] != d {
			t.Errorf("%s is in the table and should not be", d.id)
		}
		return true
	})
	if n != len(oracle) || int(table.n.Load()) != n {
		t.Fatalf("%d devices, counted %d, want %d", n, table.n.Load(), len(oracle))
	}
	for id, d := range oracle {
		if table.find([]byte(id)) != d {
			t.Fatalf("%s is not found", id)
		}
	}
}

// TestRouteTableReaders: while others come and go, a device that stays is always found,
// and one that was never there is not.
func TestRouteTableReaders(t *testing.T) {
	seed := newRand(t)
	table := newRouteTable()
	const stay, others = 200, 3000
	for i := range stay {
		table.findOrAdd(fmt.Appendf(nil, "stay-%d", i), fresh)
	}
	var done atomic.Bool
	var readers, writers sync.WaitGroup
	for range 2 {
		rng := newRandFrom(seed)
		readers.Go(func() {
			for !done.Load() {
				i := rng.IntN(stay)
				if d := table.find(fmt.Appendf(nil, "stay-%d", i)); d == nil || d.id != fmt.Sprintf("stay-%d", i) {
					t.Errorf("stay-%d is not found", i)
					return
				}
				if table.find(fmt.Appendf(nil, "never-%d", i)) != nil {
					t.Errorf("never-%d is found", i)
					return
				}
				if rng.IntN(500) == 0 {
					n := 0
					table.each(func(d *device) bool {
						if d.id[0] == 's' {
							n++
						}
						return true
					})
					if n != stay {
						t.Errorf("each saw %d of those that stay, want %d", n, stay)
						return
					}
				}
			}
		})
	}
	for w := range 2 {
		rng := newRandFrom(seed)
		writers.Go(func() {
			for range 30_000 {
				id := fmt.Appendf(nil, "other-%d-%d", w, rng.IntN(others))
				if d := table.find(id); d != nil {
					table.remove(d)
				} else {
					table.findOrAdd(id, fresh)
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
}
