package router

import (
	"fmt"
	"strings"
	"testing"

	"subway/core/wire"
)

// TestArchive keeps records of all sizes and holds them against a plain list: the newest
// that fit the bounds are there and say what they said, the others are not, and the
// memory behind them is little more than what they count for.
func TestArchive(t *testing.T) {
	rng := newRand(t)
	const bound = 3 << 20
	r := newRouter(Limits{MaxRecords: 2000, RecordBytes: bound}, notices{})
	backend := party(r, newConn(deaf), registerBackend("backend-1"), t0)
	edge := party(r, newConn(deaf), registerEdge("edge-1", true, "td-1"), t0)
	type life struct {
		ref, result string
		callback    bool
	}
	var lives []life
	for i := range 6000 {
		size := rng.IntN([]int{1, 100, 3000}[i%3])
		if rng.IntN(100) == 0 {
			size = rng.IntN([]int{2 * largeBytes, 2 * chunkBytes}[i%2])
		}
		x := life{ref: fmt.Sprintf("r%d-%s", i, strings.Repeat("x", rng.IntN(100))), result: `"` + strings.Repeat("y", size) + `"`}
		more := ""
		if x.callback = rng.IntN(3) == 0; x.callback {
			more = `,"callback":"http://example/cb"`
		}
		backend.Receive([]byte(commandTo(x.ref, "td-1", more)), t0)
		edge.Receive([]byte(`{"type":"COMMAND_RESPONSE","requestRef":"`+x.ref+`","status":"COMPLETED","result":`+x.result+`,"executionTime":7}`), t0)
		lives = append(lives, x)
		if i%500 == 499 {
			if err := broken(r); err != nil {
				t.Fatalf("after %d: %v", i, err)
			}
		}
	}
	a := &r.archive
	kept := int(a.n)
	if kept < 10 || kept == 2000 && a.bytes < bound/10 || a.bytes > bound {
		t.Errorf("%d records of %d bytes are kept", kept, a.bytes)
	}
	memory := int64(len(a.spare) * chunkBytes)
	for _, c := range *a.chunks.Load() {
		if c != nil {
			memory += int64(len(c.buf))
		}
	}
	t.Logf("%d records kept, %d bytes counted, %d bytes of memory", kept, a.bytes, memory)
	if memory > a.bytes*9/8+(2+mostSpare)*chunkBytes {
		t.Errorf("%d bytes of memory for %d that are counted", memory, a.bytes)
	}
	for i, x := range lives {
		rec := r.Record([]byte(x.ref))
		if i < len(lives)-kept {
			if rec != nil {
				t.Fatalf("%s is still there", x.ref)
			}
			continue
		}
		if rec == nil || rec.RequestRef != x.ref || string(rec.Result) != x.result || string(rec.ExecutionTime) != "7" || rec.Error != nil ||
			rec.Status != "COMPLETED" || rec.TargetClientID != "td-1" || rec.CommandType != "T" || (rec.Callback != nil) != x.callback {
			t.Fatalf("%s reads %+v", x.ref, rec)
		}
	}
	r.Tick(t0 + wire.Time(defaultLimits.Retention) + 1)
	if err := broken(r); err != nil || a.n != 0 || a.bytes != 0 {
		t.Errorf("%d records of %d bytes are left: %v", a.n, a.bytes, err)
	}
}

// A listing with a filter gives what an unfiltered one holds of it, over records in flight
// and ended ones, and reads back no record that it does not give.
func TestFilteredListing(t *testing.T) {
	r := newRouter(Limits{}, notices{})
	backend := party(r, newConn(deaf), registerBackend("backend-1"), t0)
	edge := party(r, newConn(deaf), registerEdge("edge-1", true, "td-1", "td-12", "td-2"), t0)
	for i := range 300 {
		ref, device := fmt.Sprintf("r%d", i), []string{"td-1", "td-12", "td-2"}[i%3]
		backend.Receive([]byte(commandTo(ref, device, "")), t0)
		if status := []string{"COMPLETED", "FAILED", ""}[i%5%3]; status != "" {
			edge.Receive([]byte(`{"type":"COMMAND_RESPONSE","requestRef":"`+ref+`","status":"`+status+`","result":"`+strings.Repeat("y", i)+`"}`), t0)
		}
	}
	all, _, _ := r.Records(&RecordQuery{Limit: 1000})
	for _, target := range []string{"", "td-1", "td-12", "td-2", "td-3"} {
		for status := range numStates + 1 { // the last: any
			q := RecordQuery{Limit: 1000, Target: target, Status: status, Filter: status < numStates}
			var want []string
			for _, rec := range all {
				if (!q.Filter || rec.Status == status.String()) && (target == "" || rec.TargetClientID == target) {
					want = append(want, rec.RequestRef)
				}
			}
			var got []string
			page, _, _ := r.Records(&q)
			for _, rec := range page {
				got = append(got, rec.RequestRef)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("target %q, filter %v, status %d: got %v, want %v", target, q.Filter, status, got, want)
			}
		}
	}
	few := testing.AllocsPerRun(10, func() { r.Records(&RecordQuery{Limit: 100, Target: "td-3"}) })
	if few > 20 {
		t.Errorf("a listing that gives nothing allocates %.0f times over %d records", few, len(all))
	}
}

// Who waits for a command's end is told it, all alike, although the record went at once
// for a bound.
func TestWaiterIsToldWhatIsNotKept(t *testing.T) {
	r := newRouter(Limits{MaxRecords: 1}, notices{})
	backend := party(r, newConn(deaf), registerBackend("backend-1"), t0)
	edge := party(r, newConn(deaf), registerEdge("edge-1", true, "td-1"), t0)
	for _, ref := range []string{"r1", "r2", "r3"} {
		backend.Receive([]byte(commandTo(ref, "td-1", `,"callback":"http://example/cb"`)), t0)
	}
	w, same := r.Wait([]byte("r1")), r.Wait([]byte("r1"))
	cancelled := r.Wait([]byte("r2"))
	if w == nil || w != same || w.Record() != nil {
		t.Fatalf("before its end: %v, %v", w, same)
	}
	msg := []byte(`{"type":"COMMAND_RESPONSE","requestRef":"r1","status":"COMPLETED","result":{"a":1},"executionTime":7}`)
	edge.Receive(msg, t0)
	for i := range msg {
		msg[i] = 'x' // it was borrowed
	}
	r.Cancel([]byte("r2"), t0)
	r.Cancel([]byte("r3"), t0)
	if rec := r.Record([]byte("r1")); rec != nil {
		t.Fatalf("r1 is still kept: %+v", rec)
	}
	<-w.Done()
	rec := w.Record()
	if rec.RequestRef != "r1" || rec.Status != "COMPLETED" || string(rec.Result) != `{"a":1}` || string(rec.ExecutionTime) != "7" || rec.Callback == nil || rec.TargetClientID != "td-1" {
		t.Errorf("the waiter is told %+v", rec)
	}
	if rec.Success = true; w.Record().Success {
		t.Error("two who wait share one record")
	}
	<-cancelled.Done()
	if rec := cancelled.Record(); rec.Status != "CANCELLED" || rec.Error == nil {
		t.Errorf("the waiter is told %+v", rec)
	}
	if r.Wait([]byte("r3")) != nil || r.Wait([]byte("r4")) != nil {
		t.Error("there is something to wait for that has ended, or never was")
	}
}
