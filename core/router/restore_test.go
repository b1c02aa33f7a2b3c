package router

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"subway/core/wire"
)

// tape is a Journal that keeps what it is given.
type tape struct {
	mu   sync.Mutex
	recs []taped
	full bool
}

type taped struct {
	kind byte
	rec  []byte
}

func (j *tape) Append(kind byte, rec []byte) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recs = append(j.recs, taped{kind, bytes.Clone(rec)})
	return uint64(len(j.recs))
}

func (j *tape) Full() bool     { return j.full }
func (j *tape) Stored() uint64 { return 0 }
func (j *tape) Hold()          {}
func (j *tape) Release()       {}

// restored returns a Router that begins with these records, and the tape that it goes on with.
func restored(t testing.TB, recs []taped, l Limits, now wire.Time) (*Router, *tape) {
	t.Helper()
	j := &tape{}
	r := New(Config{Limits: l, Callbacks: notices{}, Journal: j}, now)
	for _, x := range recs {
		if err := r.Restore(x.kind, x.rec, now); err != nil {
			t.Fatalf("record of kind %d: %v", x.kind, err)
		}
	}
	r.Restored(now)
	if len(j.recs) > 0 {
		t.Fatalf("restoring journalled %d records", len(j.recs))
	}
	return r, j
}

// station is an edge in the random world of TestRestore.
type station struct {
	id      string
	dedupe  bool
	devices []string
	s       *Session
	c       *conn
	got     map[string]int // refs of COMMANDs, by how often they came
	open    []string       // refs to be answered
}

func (st *station) connect(r *Router, now wire.Time) {
	st.c = newConn(func(class wire.Class, msg []byte) {
		if class != wire.ClassCommand {
			return
		}
		_, rest, _ := strings.Cut(string(msg), `"requestRef":"`)
		ref, _, _ := strings.Cut(rest, `"`)
		st.got[ref]++
		st.open = append(st.open, ref)
	})
	st.s = party(r, st.c, registerEdge(st.id, st.dedupe, st.devices...), now)
}

// liveOn drives a Router with a journal at random and returns the refs that it accepted.
func liveOn(r *Router, rng *rand.Rand, stations []*station, steps int, now *wire.Time) (refs []string) {
	back := party(r, newConn(deaf), registerBackend("b"), *now)
	for i := range steps {
		*now += wire.Time(rng.IntN(40)) * ms
		st := stations[rng.IntN(len(stations))]
		switch k := rng.IntN(23); {
		case k < 9:
			ref := fmt.Sprintf("r%d-%d", i, now.Millis())
			more := []string{"", `,"priority":"HIGH"`, `,"timeout":1000`, `,"whenOffline":"QUEUE"`, `,"callback":"http://a/b"`}[rng.IntN(5)]
			back.Receive([]byte(commandTo(ref, st.devices[rng.IntN(len(st.devices))], more)), *now)
			refs = append(refs, ref)
		case k < 14 && st.s != nil && len(st.open) > 0:
			at := rng.IntN(len(st.open))
			ref := st.open[at]
			st.open = append(st.open[:at], st.open[at+1:]...)
			text := []string{
				`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":{"x":[1,2]},"executionTime":12}`,
				`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"FAILED","error":{"code":"E1","message":"no"}}`,
				`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":{"percent":5}}`,
				`{"type":"ERROR","requestRef":"%s","error":{"code":"DEVICE_ERROR","message":"x"}}`,
			}[rng.IntN(4)]
			st.s.Receive(fmt.Appendf(nil, text, ref), *now)
		case k == 14 && st.s != nil:
			st.s.Closed(*now, "lost")
			st.s = nil
		case k == 15 && st.s == nil:
			st.connect(r, *now)
		case k == 16 && len(refs) > 0:
			back.Receive(fmt.Appendf(nil, `{"type":"CANCEL","requestRef":"%s"}`, refs[rng.IntN(len(refs))]), *now)
		case k == 20 && st.s != nil: // the way is blocked
			st.c.set(wayFull, -1)
		case k == 21 && st.s != nil: // or clear again
			st.c.set(wayClear, -1)
			st.s.Writable(*now)
		case k == 22 && st.s != nil: // or its end is about to be told
			st.c.set(wayGone, -1)
		case k == 17:
			r.Tick(*now)
		case k == 18 && st.s != nil:
			st.s.Receive(fmt.Appendf(nil, `{"type":"UNREGISTER","clientId":"%s"}`, st.devices[0]), *now)
		case k == 19 && st.s != nil:
			st.s.Receive(fmt.Appendf(nil, `{"type":"REGISTER","clientId":"%s","clientType":"DEVICE","edgeInfo":{"edgeId":"%s"}}`, st.devices[0], st.id), *now)
		}
	}
	r.Tick(*now)
	return refs
}

func stationsOf(r *Router, now wire.Time) (all []*station) {
	for i := range 4 {
		st := &station{id: fmt.Sprintf("edge-%d", i), dedupe: i%2 == 0, got: map[string]int{}}
		for d := range 3 {
			st.devices = append(st.devices, fmt.Sprintf("td-%d", (2*i+d)%8)) // two edges have some in common
		}
		st.connect(r, now)
		all = append(all, st)
	}
	return all
}

// told is what GET tells of a command, but for when it changed last and its progress,
// which are not journalled.
func told(r *Router, ref string) string {
	rec := r.Record([]byte(ref))
	if rec == nil {
		return "none"
	}
	v := *rec
	if v.Mark = 0; v.Status == "PENDING" || v.Status == "DISPATCHED" || v.Status == "IN_PROGRESS" {
		v.UpdatedAt, v.Progress = 0, nil
	}
	return string(v.Append(nil))
}

// What a journal says is what the Router knew, be it as things happened or at a checkpoint.
func TestRestore(t *testing.T) {
	rng := newRand(t)
	for range 60 {
		now := t0
		j := &tape{}
		r := New(Config{Callbacks: notices{}, Journal: j}, now)
		r.Restored(now)
		stations := stationsOf(r, now)
		refs := liveOn(r, rng, stations, 300, &now)
		logs := map[string][]taped{"as it happened": j.recs}

		var point []taped
		for _, x := range j.recs {
			if x.kind == kindEnded {
				point = append(point, x)
			}
		}
		before := len(j.recs)
		if !r.Checkpoint(func() bool { return true }) {
			t.Fatal("no checkpoint")
		}
		logs["a checkpoint"] = append(point, j.recs[before:]...)
		logs["both"] = j.recs
		for name, recs := range logs {
			again, _ := restored(t, recs, Limits{}, now)
			if got, want := again.Pending(), r.Pending(); got != want {
				t.Fatalf("%s: %d pending, want %d", name, got, want)
			}
			for _, ref := range refs {
				if got, want := told(again, ref), told(r, ref); got != want && !(strings.Contains(want, "IN_PROGRESS") && strings.Contains(got, "DISPATCHED")) {
					t.Fatalf("%s: %s is\n%s\nwant\n%s", name, ref, got, want)
				}
			}
			compareTopology(t, name, again, r)
			mustFit(t, again)
		}
		// Any beginning of it can be restored.
		cut := rng.IntN(len(j.recs) + 1)
		again, _ := restored(t, j.recs[:cut], Limits{}, now)
		mustFit(t, again)
	}
}

func compareTopology(t *testing.T, name string, got, want *Router) {
	t.Helper()
	list := func(r *Router) string {
		var b strings.Builder
		devices, _ := r.Devices(&PartyQuery{Limit: 100})
		for _, d := range devices {
			fmt.Fprintf(&b, "%s->%s ", d.ClientID, d.EdgeID)
		}
		edges, _ := r.Edges(&PartyQuery{Limit: 100})
		for _, e := range edges {
			fmt.Fprintf(&b, "%s:%d ", e.EdgeID, e.Devices)
		}
		return b.String()
	}
	if g, w := list(got), list(want); g != w {
		t.Fatalf("%s: routes are\n%s\nwant\n%s", name, g, w)
	}
	if online, _ := got.Devices(&PartyQuery{Limit: 1, Online: new(true)}); len(online) > 0 {
		t.Fatalf("%s: %s is online", name, online[0].ClientID)
	}
}

// After a restart a dedupe edge gets again what was in flight, another gets nothing twice,
// and all get what waited; all commands end.
func TestRestoredGoesOn(t *testing.T) {
	rng := newRand(t)
	for range 60 {
		now := t0
		j := &tape{}
		r := New(Config{Callbacks: notices{}, Journal: j}, now)
		r.Restored(now)
		stations := stationsOf(r, now)
		refs := liveOn(r, rng, stations, 200, &now)
		again, j2 := restored(t, j.recs, Limits{}, now)
		for _, st := range stations {
			had := st.got
			st.got, st.open = map[string]int{}, nil
			st.connect(again, now)
			for ref, n := range st.got {
				if n > 1 || !st.dedupe && had[ref] > 0 {
					t.Fatalf("%s got %s %d times, and %d before", st.id, ref, n, had[ref])
				}
			}
		}
		liveOn(again, rng, stations, 200, &now)
		now += 60_000 * ms
		again.Tick(now)
		if n := again.Pending(); n != 0 {
			t.Fatalf("%d commands have not ended", n)
		}
		last, _ := restored(t, append(j.recs, j2.recs...), Limits{}, now)
		for _, ref := range refs {
			if got, want := told(last, ref), told(again, ref); got != want {
				t.Fatalf("%s is\n%s\nwant\n%s", ref, got, want)
			}
		}
	}
}

// A restored device was last seen when its edge was, in whatever order that was journalled.
func TestRestoredSeen(t *testing.T) {
	j := &tape{}
	r := New(Config{Callbacks: notices{}, Journal: j}, t0)
	r.Restored(t0)
	for _, msg := range []string{
		`{"type":"REGISTER","clientId":"edge-1","clientType":"EDGE","devices":["td-1","td-2"]}`,
		`{"type":"REGISTER","clientId":"td-3","clientType":"DEVICE"}`,
	} {
		r.Open(&silent{}, "192.0.2.1:1", t0).Receive([]byte(msg), t0+5*ms)
	}
	again, _ := restored(t, j.recs, Limits{}, t0+60_000*ms)
	for _, id := range []string{"td-1", "td-2", "td-3"} {
		if d := again.Device(id); d == nil || d.LastSeen != r.Device(id).LastSeen {
			t.Errorf("%s is restored as %+v, was %+v", id, d, r.Device(id))
		}
	}
}

// Bad records are refused and change nothing that matters.
func TestRestoreBadRecords(t *testing.T) {
	rng := newRand(t)
	now := t0
	j := &tape{}
	r := New(Config{Callbacks: notices{}, Journal: j}, now)
	r.Restored(now)
	liveOn(r, rng, stationsOf(r, now), 200, &now)
	r.Checkpoint(func() bool { return true })
	for range 3000 {
		again := New(Config{Callbacks: notices{}, Journal: &tape{}}, now)
		for range 5 {
			x := j.recs[rng.IntN(len(j.recs))]
			b := bytes.Clone(x.rec)
			for range rng.IntN(4) {
				if len(b) > 0 {
					b[rng.IntN(len(b))] = byte(rng.IntN(256))
				}
			}
			_ = again.Restore(x.kind, b[:len(b)-rng.IntN(min(len(b), 3)+1)], now)
		}
		again.Restored(now)
		again.Tick(now + ms)
		again.Records(&RecordQuery{Limit: 10})
	}
}

func TestNoCommandsWhileTheJournalIsFull(t *testing.T) {
	j := &tape{}
	r := New(Config{Callbacks: notices{}, Journal: j}, t0)
	r.Restored(t0)
	party(r, newConn(deaf), registerEdge("e", true, "td-1"), t0)
	j.full = true
	var text string
	b := party(r, newConn(func(_ wire.Class, msg []byte) { text = string(msg) }), registerBackend("b"), t0)
	b.Receive([]byte(commandTo("r1", "td-1", "")), t0)
	if !strings.Contains(text, "OVERLOADED") || r.Pending() != 0 {
		t.Errorf("%s; %d pending", text, r.Pending())
	}
	j.full = false
	b.Receive([]byte(commandTo("r1", "td-1", "")), t0)
	if r.Pending() != 1 {
		t.Error("it is not accepted afterwards")
	}
}

func mustFit(t *testing.T, r *Router) {
	t.Helper()
	if err := broken(r); err != nil {
		t.Fatal(err)
	}
}

// A clock that was set back between two lives gives nobody more than the timeout.
func TestRestoreAfterTheClockWasSetBack(t *testing.T) {
	r, j := restored(t, nil, Limits{}, t0)
	party(r, newConn(deaf), registerEdge("e", true, "td-1"), t0)
	party(r, newConn(deaf), registerBackend("b"), t0).Receive([]byte(commandTo("r1", "td-1", `,"timeout":5000`)), t0)
	before := t0 - 3_600_000*ms
	again, _ := restored(t, j.recs, Limits{}, before)
	again.Tick(before + 4900*ms)
	if again.Pending() != 1 {
		t.Error("it ended before its time")
	}
	again.Tick(before + 5100*ms)
	if again.Pending() != 0 {
		t.Error("it has not ended")
	}
}
