package router

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v4"

	"subway/core/wire"
)

// sizes are what every structure is measured with.
var sizes = []int{1_000, 1_000_000}

func named(n int) string { return strconv.Itoa(n) }

// keys returns n device ids of 21 bytes.
func keys(n int) [][]byte {
	ids := make([][]byte, n)
	for i := range ids {
		ids[i] = fmt.Appendf(nil, "device-%014d", i)
	}
	rand.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// strew turns a count into an index far from the last, so that memory is not read in the
// order in which it was taken.
func strew(i, n int) int { return i * 7_368_787 % n }

// routes is what the route table is compared with.
type routes interface {
	find(id []byte) *device
	add(d *device)
	remove(d *device)
}

type ours struct{ *routeTable }

func (t ours) add(d *device)    { t.findOrAdd([]byte(d.id), func(string) *device { return d }) }
func (t ours) remove(d *device) { t.routeTable.remove(d) }

type theirs struct{ m *xsync.Map[string, *device] }

func (t theirs) find(id []byte) *device {
	d, _ := t.m.Load(unsafe.String(unsafe.SliceData(id), len(id)))
	return d
}
func (t theirs) add(d *device) { t.m.LoadOrStore(d.id, d) }
func (t theirs) remove(d *device) {
	t.m.Compute(d.id, func(old *device, loaded bool) (*device, xsync.ComputeOp) {
		if old == d {
			return nil, xsync.DeleteOp
		}
		return old, xsync.CancelOp
	})
}

// eachTable runs fn for both tables at every size, filled.
func eachTable(b *testing.B, fn func(b *testing.B, t routes, ids [][]byte, ds []*device)) {
	for _, n := range sizes {
		ids := keys(n)
		ds := make([]*device, n)
		for i := range ds {
			ds[i] = &device{id: string(ids[i])}
		}
		for name, fresh := range map[string]func() routes{
			"ours":  func() routes { return ours{newRouteTable()} },
			"xsync": func() routes { return theirs{xsync.NewMap[string, *device]()} },
		} {
			b.Run(name+"/"+named(n), func(b *testing.B) {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				t := fresh()
				for _, d := range ds {
					t.add(d)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				fn(b, t, ids, ds)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/entry")
				runtime.KeepAlive(t)
			})
		}
	}
}

func BenchmarkRouteFind(b *testing.B) {
	eachTable(b, func(b *testing.B, t routes, ids [][]byte, _ []*device) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if t.find(ids[strew(i, len(ids))]) == nil {
				b.Fatal("not found")
			}
		}
	})
}

// BenchmarkRouteFindBusy: all processors find, while one of them also adds and removes.
func BenchmarkRouteFindBusy(b *testing.B) {
	eachTable(b, func(b *testing.B, t routes, ids [][]byte, _ []*device) {
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.IntN(len(ids)); pb.Next(); i++ {
				if i%64 == 0 {
					d := &device{id: "other-" + strconv.Itoa(i)}
					t.add(d)
					t.remove(d)
				}
				if t.find(ids[strew(i, len(ids))]) == nil {
					b.Error("not found")
				}
			}
		})
	})
}

func BenchmarkRouteAddRemove(b *testing.B) {
	eachTable(b, func(b *testing.B, t routes, _ [][]byte, ds []*device) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d := ds[strew(i, len(ds))]
			t.remove(d)
			t.add(d)
		}
	})
}

// BenchmarkPending adds, finds and removes records among as many others.
func BenchmarkPending(b *testing.B) {
	for _, n := range sizes {
		b.Run(named(n), func(b *testing.B) {
			r := newRouter(Limits{}, notices{})
			refs := keys(n)
			recs := make([]*record, n)
			for i, ref := range refs {
				hash := maphash.Bytes(r.seed, ref)
				recs[i] = &record{hash: hash, shard: r.shardOf(hash), slot: -1, mem: ref, refLen: len(ref),
					deadline: t0 + wire.Time(rand.Int64N(30_000))*ms}
				recs[i].shard.add(recs[i])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				rec := recs[strew(i, n)]
				sh := r.shardOf(rec.hash)
				sh.mu.Lock()
				if sh.find(rec.hash, rec.ref()) != rec {
					b.Fatal("not found")
				}
				sh.wheel.remove(rec)
				sh.remove(rec)
				sh.add(rec)
				sh.mu.Unlock()
			}
		})
	}
}

// BenchmarkWheel adds and removes timers among as many others, as answers do.
func BenchmarkWheel(b *testing.B) {
	for _, n := range sizes {
		b.Run("AddRemove/"+named(n), func(b *testing.B) {
			w, recs := filledWheel(n)
			for i := 0; b.Loop(); i++ {
				rec := recs[strew(i, n)]
				w.remove(rec)
				w.add(rec)
			}
		})
		b.Run("Advance/"+named(n), func(b *testing.B) { // by 10 ms; what fires is started again
			w, _ := filledWheel(n)
			now := t0
			again := func(rec *record) {
				rec.deadline = now + 30_000*ms
				w.add(rec)
			}
			for b.Loop() {
				now += 10 * ms
				for !w.due(now, 256, again) {
				}
			}
		})
	}
}

func filledWheel(n int) (*wheel, []*record) {
	w := &wheel{tick: int64(t0) / wheelTick}
	recs := make([]*record, n)
	for i := range recs {
		recs[i] = &record{slot: -1, deadline: t0 + wire.Time(rand.Int64N(30_000_000))*1000}
		w.add(recs[i])
	}
	return w, recs
}

// BenchmarkCommand is a whole command of a Backend and its answer, with as many others in
// flight and the ended ones at their bound.
func BenchmarkCommand(b *testing.B) {
	for _, dedupe := range []bool{false, true} {
		for _, n := range sizes {
			b.Run(map[bool]string{false: "plain", true: "dedupe"}[dedupe]+"/"+named(n), func(b *testing.B) {
				c := newCourse(Limits{MaxPending: 2 << 20, MaxRecords: int64(n / 2)}, registerEdge("edge-1", dedupe, "td-01"))
				inFlight := uint64(n)
				for range n + n/2 {
					c.next(inFlight)
				}
				b.ReportAllocs()
				for b.Loop() {
					c.next(inFlight)
				}
			})
		}
	}
}

// BenchmarkCommandKept is the usual state of a busy Gateway: few commands in flight, and as
// many ended ones kept as may be.
func BenchmarkCommandKept(b *testing.B) {
	c := newCourse(Limits{}, registerEdge("edge-1", true, "td-01"))
	text := strings.Repeat("the quick brown fox ", 10)
	c.command = []byte(commandTo(refHex, "td-01", `,"data":"`+text+`","priority":"NORMAL","timeout":30000,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"`))
	c.reply = []byte(`{"type":"COMMAND_RESPONSE","requestRef":"` + refHex + `","status":"COMPLETED","result":{"data":"` + text + `"},"executionTime":1}`)
	for range defaultLimits.MaxRecords + 1000 {
		c.next(256)
	}
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		c.next(256)
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns the processor time of this process so far, in nanoseconds: what a
// benchmark costs where others use the processor as well.
func cpuTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkTick is a Tick with nothing due.
func BenchmarkTick(b *testing.B) {
	for _, n := range sizes {
		b.Run(named(n), func(b *testing.B) {
			c := newCourse(Limits{MaxPending: 2 << 20}, registerEdge("edge-1", false, "td-01"))
			c.command = []byte(commandTo(refHex, "td-01", `,"timeout":86400000`))
			for range n {
				c.next(uint64(n) + 1)
			}
			for b.Loop() {
				c.now += 10 * ms
				c.r.Tick(c.now)
			}
		})
	}
}

// BenchmarkSnapshot registers an edge with its complete set of devices again.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(named(n), func(b *testing.B) {
			var ids []string
			for _, id := range keys(n) {
				ids = append(ids, string(id))
			}
			r := newRouter(Limits{}, notices{})
			msg := []byte(registerEdge("edge-1", false, ids...))
			s := r.Open(new(silent), "", t0)
			b.SetBytes(int64(len(msg)))
			for b.Loop() {
				s.Receive(msg, t0)
			}
		})
	}
}
