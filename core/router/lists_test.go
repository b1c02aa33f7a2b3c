package router

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	"subway/core/wire"
)

// TestWheelOracle compares the wheel with a list of deadlines: none is early, none later
// than a tick of the wheel and the time between two visits, none is lost, up to 24 h.
func TestWheelOracle(t *testing.T) {
	rng := newRand(t)
	for round := range 6 {
		w := wheel{tick: int64(t0) / wheelTick}
		live, now, last := map[*record]bool{}, t0, t0
		most := []time.Duration{time.Millisecond, 50 * time.Millisecond, 3 * time.Second, time.Minute, time.Hour, 24 * time.Hour}[round]
		fire := func(rec *record) {
			if !live[rec] || rec.deadline > now {
				t.Fatalf("fired at %d: deadline %d, there %v", now, rec.deadline, live[rec])
			}
			if late := now - rec.deadline; rec.deadline > last && late > wire.Time(wheelTick)+now-last {
				t.Fatalf("%v late, %v after the last visit", time.Duration(late), time.Duration(now-last))
			}
			delete(live, rec)
		}
		for range 3000 {
			for range rng.IntN(5) {
				rec := &record{slot: -1, deadline: now + wire.Time(rng.Int64N(int64(most)))}
				live[rec] = true
				w.add(rec)
			}
			for rec := range live {
				if rng.IntN(10) == 0 {
					w.remove(rec)
					w.remove(rec) // it does nothing more
					delete(live, rec)
				}
				break
			}
			last, now = now, now+wire.Time(rng.Int64N(int64(min(most, 20*time.Millisecond+most/500))))
			for !w.due(now, 1+rng.IntN(4), fire) {
			}
			for rec := range live {
				if rec.deadline+wire.Time(wheelTick) < now {
					t.Fatalf("deadline %d is not fired at %d", rec.deadline, now)
				}
			}
		}
		last, now = now, now+wire.Time(most)+wire.Time(time.Second)
		for !w.due(now, 100, fire) {
		}
		if len(live) > 0 || slices.ContainsFunc(w.slots, func(rec *record) bool { return rec != nil }) {
			t.Fatalf("%d are left", len(live))
		}
	}
}

// TestRecordListOracle compares a list with a slice that is kept sorted.
func TestRecordListOracle(t *testing.T) {
	rng := newRand(t)
	var l recordList
	var oracle []*record
	for step := range 20_000 {
		switch n := len(oracle); {
		case n > 0 && (rng.IntN(2) == 0 || n > 50):
			i := []int{0, n - 1, rng.IntN(n)}[rng.IntN(3)]
			l.remove(oracle[i])
			oracle = slices.Delete(oracle, i, i+1)
		case rng.IntN(2) == 0 && n > 0: // the newest
			rec := &record{seq: oracle[n-1].seq + uint64(1+rng.IntN(5))}
			l.push(rec)
			oracle = append(oracle, rec)
		default:
			rec := &record{seq: rng.Uint64N(1 << 40)}
			l.insert(rec)
			i, _ := slices.BinarySearchFunc(oracle, rec, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
			oracle = slices.Insert(oracle, i, rec)
		}
		if step%10 != 0 {
			continue
		}
		var got, back []*record
		for rec := l.head; rec != nil; rec = rec.qnext {
			got = append(got, rec)
		}
		for rec := l.tail; rec != nil; rec = rec.qprev {
			back = append(back, rec)
		}
		slices.Reverse(back)
		if !slices.Equal(got, oracle) || !slices.Equal(back, oracle) {
			t.Fatalf("step %d: %d forwards, %d backwards, want %d", step, len(got), len(back), len(oracle))
		}
	}
}

// TestOrderOracle compares the order of acceptance with a slice, over several chunks and
// in pages, while records come and go.
func TestOrderOracle(t *testing.T) {
	rng := newRand(t)
	r := newRouter(Limits{}, notices{})
	var oracle []*record // oldest first
	add := func() {
		seq := r.seq.Add(1)
		if rng.IntN(4) == 0 { // refused
			r.order.drop(seq)
			return
		}
		oracle = append(oracle, inOrderOf(r, seq, &device{}))
	}
	for range 200 {
		for range rng.IntN(200) {
			add()
		}
		for range rng.IntN(120) {
			if n := len(oracle); n > 0 {
				i := rng.IntN(n)
				if rng.IntN(2) == 0 {
					i = 0
				}
				oracle[i].shard.remove(oracle[i])
				r.order.drop(oracle[i].seq)
				oracle = slices.Delete(oracle, i, i+1)
			}
		}
		before, want := uint64(1<<64-1), len(oracle)
		if rng.IntN(2) == 0 && want > 0 {
			want = rng.IntN(want)
			before = oracle[want].seq
		}
		comparePages(t, r, oracle[:want], before, 1+rng.IntN(300))
	}
	for _, rec := range oracle {
		r.order.drop(rec.seq)
	}
	if n := len(r.order.chunks); n > 1 {
		t.Fatalf("%d chunks are left of an order that is empty", n)
	}
}

// inOrderOf makes a record of seq that its order finds.
func inOrderOf(r *Router, seq uint64, d *device) *record {
	ref := strconv.AppendUint(nil, seq, 10)
	hash := r.hashOf(ref)
	rec := &record{seq: seq, hash: hash, mem: ref, refLen: len(ref), shard: r.shardOf(hash), dev: d, slot: -1}
	rec.shard.add(rec)
	r.order.put(seq, hash)
	return rec
}

func comparePages(t *testing.T, r *Router, want []*record, before uint64, page int) {
	t.Helper()
	var got []*record
	for {
		n := 0
		last, _ := r.walk(&RecordQuery{}, before, maxLook, func(rec *record) bool {
			got = append(got, rec)
			n++
			return n < page
		})
		if n == 0 {
			break
		}
		before = last
		if more := r.any(before, maxLook); more != (len(got) < len(want)) {
			t.Fatalf("any(%d) = %v after %d of %d", before, more, len(got), len(want))
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%d records in pages of %d, want %d", len(got), page, len(want))
	}
}

// TestSparseListing lists the records of an order that is mostly gone: a page ends when
// as many places were looked at as may be, with a cursor that leads on to all that are
// there, and the last page has none.
func TestSparseListing(t *testing.T) {
	r := newRouter(Limits{}, notices{})
	d, want := &device{id: "td-1"}, 0
	for range maxLook*5/2 + 7 {
		seq := r.seq.Add(1)
		if seq%chunkSize != 3 {
			r.order.drop(seq)
			continue
		}
		want++
		inOrderOf(r, seq, d)
	}
	for target, want := range map[string]int{"": want, "td-1": want, "td-2": 0} {
		q := RecordQuery{Limit: want + 1, Target: target}
		var pages []int
		n := 0
		for more := true; more; more = q.Cursor != "" {
			page, next, ok := r.Records(&q)
			if q.Cursor = next; !ok || len(pages) > 3 {
				t.Fatalf("pages of %v", pages)
			}
			pages = append(pages, len(page))
			n += len(page)
		}
		if n != want || len(pages) != 3 {
			t.Errorf("%q: %d records in pages of %v, want %d", target, n, pages, want)
		}
	}
	q := RecordQuery{Limit: 10} // a page that is full looks on for another
	for range 2 {
		page, next, _ := r.Records(&q)
		if q.Cursor = next; len(page) != 10 || next == "" {
			t.Fatalf("%d records, then %q", len(page), next)
		}
	}
}

// TestDeviceListing compares pages of devices with a sorted slice.
func TestDeviceListing(t *testing.T) {
	rng := newRand(t)
	r := newRouter(Limits{}, notices{})
	var all []string
	for e := range 7 {
		var ids []string
		for range 150 {
			ids = append(ids, fmt.Sprintf("t%d-%d", rng.IntN(3), rng.IntN(1_000_000)))
		}
		sort.Strings(ids)
		ids = slices.Compact(ids)
		s := party(r, newConn(deaf), registerEdge(fmt.Sprintf("edge-%d", e), false, ids...), t0)
		if e%2 == 1 {
			s.Closed(t0, "reset")
		}
	}
	r.routes.each(func(d *device) bool { all = append(all, d.id); return true })
	sort.Strings(all)
	online := true
	for _, q := range []PartyQuery{{}, {Type: "t1"}, {Edge: "edge-3"}, {Online: &online}, {Type: "t2", Online: &online, Edge: "edge-2"}} {
		want := slices.DeleteFunc(slices.Clone(all), func(id string) bool {
			d := r.Device(id)
			return q.Type != "" && d.DeviceType != q.Type || q.Edge != "" && d.EdgeID != q.Edge || q.Online != nil && d.Connection != wordOnline
		})
		var got []string
		for q.Limit = 1 + rng.IntN(90); ; {
			page, next := r.Devices(&q)
			for _, d := range page {
				got = append(got, d.ClientID)
			}
			if q.Cursor = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %d devices, want %d", q, len(got), len(want))
		}
	}
}
