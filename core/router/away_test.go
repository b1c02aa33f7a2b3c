package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"subway/core/wire"
)

// TestAwayOracle compares the lists of edges and direct devices that are away with a
// plain map that is looked through every time: who is told of as gone for good, and who
// is forgotten, in time or to make room.
func TestAwayOracle(t *testing.T) {
	rng := newRand(t)
	const maxEdges = 25
	r := newRouter(Limits{MaxEdges: maxEdges, PermanentAfter: 20 * time.Second, RouteRetention: 30 * time.Second}, notices{})
	var told []string
	party(r, newConn(func(_ wire.Class, msg []byte) {
		if member(msg, "status") == wordPermanent {
			told = append(told, member(msg, "clientId"))
		}
	}), registerBackend("backend-1"), t0)
	type oracle struct {
		s       *Session
		away    wire.Time // 0: connected
		order   int
		goodbye bool
		told    bool
	}
	now, parties, left := t0, map[string]*oracle{}, 0
	for step := range 20_000 {
		now += wire.Time(rng.Int64N(int64(time.Second)))
		id, direct := fmt.Sprintf("edge-%d", rng.IntN(40)), rng.IntN(2) == 0
		register := registerEdge(id, false, "td-"+id)
		if direct {
			id = fmt.Sprintf("scr-%d", rng.IntN(20))
			register = fmt.Sprintf(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE"}`, id)
		}
		p := parties[id]
		switch n := rng.IntN(4); {
		case n == 0 || p == nil && n == 1:
			if s := party(r, newConn(deaf), register, now); s.Registered() {
				if p == nil && !direct && oldest(parties, maxEdges, func(p *oracle) (wire.Time, int) { return p.away, p.order }) == "none" {
					t.Fatalf("step %d: %s came and there was no room", step, id)
				}
				parties[id] = &oracle{s: s}
			}
		case n == 1 && p.away == 0:
			p.goodbye = rng.IntN(4) == 0
			left++
			if p.away, p.order = now, left; p.goodbye {
				p.s.Receive([]byte(fmt.Sprintf(`{"type":"UNREGISTER","clientId":"%s"}`, id)), now)
			}
			p.s.Closed(now, "reset")
		default:
			r.Tick(now)
			if now == r.lastTidy {
				var want []string
				for id, p := range parties {
					if p.away != 0 && now-p.away > wire.Time(20*time.Second) && !p.told && !p.goodbye {
						p.told = true
						want = append(want, id)
					}
					if p.away != 0 && now-p.away > wire.Time(50*time.Second) {
						delete(parties, id)
					}
				}
				slices.Sort(want)
				slices.Sort(told)
				if !slices.Equal(told, want) {
					t.Fatalf("step %d: told of %v, want %v", step, told, want)
				}
				told = nil
			}
		}
		if len(parties) != len(r.edges)+len(r.directs) {
			t.Fatalf("step %d: %d parties are known, want %d", step, len(r.edges)+len(r.directs), len(parties))
		}
		if step%100 == 0 {
			if err := broken(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// oldest forgets the edge that is away longest where most are known: it returns its id,
// "" where there was room, "none" where all are connected.
func oldest[P any](parties map[string]P, most int, away func(P) (wire.Time, int)) (id string) {
	n, first := 0, 0
	for k, p := range parties {
		if k[0] != 'e' {
			continue
		}
		n++
		if at, order := away(p); at != 0 && (first == 0 || order < first) {
			id, first = k, order
		}
	}
	switch {
	case n < most:
		return ""
	case first == 0:
		return "none"
	}
	delete(parties, id)
	return id
}

// TestTidyLooksAtDue: edges and direct devices that are away cost tidy nothing until they
// are due. One at the end of a list that says it is due stays, for nobody looks at it.
func TestTidyLooksAtDue(t *testing.T) {
	r := newRouter(Limits{}, notices{})
	for i := range many {
		e := &edge{id: fmt.Sprint(i), direct: i%2 == 0, told: wordOffline}
		r.edgesBy(e.direct)[e.id] = e
		r.awayOf(e).push(e, t0)
	}
	last := r.away[0].tail
	last.away -= wire.Time(1000 * time.Hour)
	r.tidy(t0 + wire.Time(time.Minute))
	if !last.isAway || r.away[0].untold != r.away[0].head {
		t.Error("edges that are not due were looked at")
	}
}

// BenchmarkTidy: half a million are away and none is due.
func BenchmarkTidy(b *testing.B) {
	r := newRouter(Limits{}, notices{})
	for i := range 500_000 {
		e := &edge{id: fmt.Sprint(i), direct: i%2 == 0, told: wordOffline}
		r.edgesBy(e.direct)[e.id] = e
		r.awayOf(e).push(e, t0)
	}
	for b.Loop() {
		r.tidy(t0 + wire.Time(time.Minute))
	}
}
