package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"subway/core/wire"
)

// heard is how a message was sent: its class, and how many records the tape held then.
type heard struct {
	class wire.Class
	mark  int
}

// ear is a Conn that notes what it is sent.
type ear struct {
	j   *tape
	got map[wire.Type][]heard
}

func (e *ear) Append(class wire.Class, a, b, c []byte) wire.Result {
	var env wire.Envelope
	if env.Scan(slices.Concat(a, b, c), wire.DefaultMaxDepth) == nil {
		e.got[env.Type] = append(e.got[env.Type], heard{class, len(e.j.recs)})
	}
	return wire.Accepted
}

func (e *ear) CloseWith(uint16, string) {}

// listen has an edge register that notes what it is sent.
func listen(r *Router, e *ear, dedupe bool) {
	r.Open(e, "192.0.2.1:5000", t0).Receive([]byte(registerEdge("edge-1", dedupe, "td-1")), t0)
}

// An edge that was connected when the process ended has been away since the restart, however
// long it had been there.
func TestRestoreConnectedEdge(t *testing.T) {
	r, j := restored(t, nil, Limits{}, t0)
	s := party(r, newConn(deaf), registerEdge("edge-1", false, "td-1"), t0)
	away := party(r, newConn(deaf), registerEdge("edge-2", false, "td-2"), t0)
	later := t0 + wire.Time(20*time.Hour)
	away.Closed(later, "lost")
	later += wire.Time(10 * time.Hour)
	s.Receive([]byte(`{"type":"HEARTBEAT"}`), later)
	r, after := restored(t, j.recs, Limits{}, later)
	r.Checkpoint(func() bool { return true })
	for _, recs := range [][]taped{j.recs, slices.Concat(j.recs, after.recs)} {
		r, _ := restored(t, recs, Limits{}, later+wire.Time(time.Hour))
		r.Tick(later + wire.Time(time.Hour))
		if r.Edge("edge-1") == nil || r.Edge("edge-2") == nil {
			t.Errorf("edge-1 is known: %v, edge-2: %v", r.Edge("edge-1") != nil, r.Edge("edge-2") != nil)
		}
		r.Tick(later + wire.Time(15*time.Hour)) // edge-2 went 25 hours before
		if r.Edge("edge-1") == nil || r.Edge("edge-2") != nil {
			t.Errorf("edge-1 is known: %v, edge-2 still: %v", r.Edge("edge-1") != nil, r.Edge("edge-2") != nil)
		}
	}
}

// A CANCEL tells the device of the end, so it comes behind that in the journal.
func TestCancelIsToldLast(t *testing.T) {
	r, j := restored(t, nil, Limits{}, t0)
	e := &ear{j, map[wire.Type][]heard{}}
	listen(r, e, true)
	back := party(r, newConn(deaf), registerBackend("b"), t0)
	back.Receive([]byte(commandTo("c", "td-1", "")), t0)
	if f := r.Cancel([]byte("c"), t0); f != nil {
		t.Fatal(f.Text)
	}
	ended := slices.IndexFunc(j.recs, func(x taped) bool { return x.kind == kindEnded }) + 1
	if x := e.got[wire.TypeCancel]; len(x) != 1 || x[0].class&wire.Durable == 0 || x[0].mark < ended {
		t.Errorf("CANCEL came as %v, the end is record %d", x, ended)
	}
}

// What is handed over again may leave for the first time: it waits for the journal too.
func TestReplayIsDurable(t *testing.T) {
	r, j := restored(t, nil, Limits{}, t0)
	e := &ear{j, map[wire.Type][]heard{}}
	s := party(r, newConn(deaf), registerEdge("edge-1", true, "td-1"), t0)
	s.Closed(t0, "lost")
	back := party(r, newConn(deaf), registerBackend("b"), t0)
	back.Receive([]byte(commandTo("c", "td-1", `,"whenOffline":"QUEUE"`)), t0)
	for range 2 {
		listen(r, e, true)
	}
	if x := e.got[wire.TypeCommand]; len(x) != 2 || x[1].class != wire.ClassCommand|wire.Durable {
		t.Errorf("handed over as %v", x)
	}
}

// What an edge that did not dedupe was handed after it had waited is not handed to it again,
// though it dedupes after the restart.
func TestRestoreHandedOnce(t *testing.T) {
	for _, dedupe := range []bool{false, true} {
		t.Run(fmt.Sprint(dedupe), func(t *testing.T) {
			r, j := restored(t, nil, Limits{}, t0)
			s := party(r, newConn(deaf), registerEdge("edge-1", dedupe, "td-1"), t0)
			s.Closed(t0, "lost")
			back := party(r, newConn(deaf), registerBackend("b"), t0)
			back.Receive([]byte(commandTo("c", "td-1", `,"whenOffline":"QUEUE"`)), t0)
			party(r, newConn(deaf), registerEdge("edge-1", dedupe, "td-1"), t0)
			r, j = restored(t, j.recs, Limits{}, t0)
			e := &ear{j, map[wire.Type][]heard{}}
			listen(r, e, true)
			if n := len(e.got[wire.TypeCommand]); n > 0 != dedupe {
				t.Errorf("handed over %d times after the restart", n)
			}
		})
	}
}
