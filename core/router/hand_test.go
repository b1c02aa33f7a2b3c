package router

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"subway/core/wire"
)

// hand is a Router with one command in hand: taken out of its list by the goroutine that
// hands over what waits for its edge, which waits for the command's shard, held by the test.
type hand struct {
	t    *testing.T
	r    *Router
	rec  *record
	e    *edge
	c    *conn // of the session it is to be handed to
	done sync.WaitGroup

	mu  sync.Mutex
	got map[string][]string // refs by connection
}

// inHand brings a command into hand, lets fn do something meanwhile, and checks the books
// when it was handed over or not. The command is the first of three that wait; with
// handed they had been handed to an earlier session of the dedupe edge, else they are PENDING.
func inHand(t *testing.T, handed bool, fn func(h *hand)) *hand {
	t.Helper()
	h := &hand{t: t, r: newRouter(Limits{}, notices{}), got: map[string][]string{}}
	h.join("edge-2", true, "td-9")
	b := party(h.r, newConn(deaf), registerBackend("backend-1"), t0)
	first, c := h.join("first", true, "td-1", "td-2")
	if !handed {
		c.set(wayFull, -1)
	}
	one := h.r.shardOf(h.r.hashOf([]byte("r1")))
	for _, ref := range []string{"r1", "r2", "r3"} {
		for ref != "r1" && h.r.shardOf(h.r.hashOf([]byte(ref))) == one { // which will be held
			ref += "-"
		}
		b.Receive([]byte(commandTo(ref, "td-1", "")), t0)
	}
	s := first
	if h.c = c; handed {
		h.got = map[string][]string{}
		s, h.c = h.session("second")
		h.c.set(wayFull, -1)
		s.Receive([]byte(registerEdge("edge-1", true)), t0)
		first.Closed(t0, "superseded")
	}
	h.e = s.edge
	h.rec, _ = h.locked("r1")
	h.c.set(wayClear, -1)
	h.done.Go(func() { s.Writable(t0) })
	h.until(func() bool { return h.rec.place == placeHand })
	fn(h)
	h.rec.shard.mu.Unlock()
	h.done.Wait()
	if err := broken(h.r); err != nil {
		t.Error(err)
	}
	return h
}

// locked returns the record of a ref with its shard held.
func (h *hand) locked(ref string) (*record, *shard) {
	rec, sh := h.r.locked([]byte(ref), h.r.hashOf([]byte(ref)))
	if rec == nil {
		h.t.Fatalf("no record of %s", ref)
	}
	return rec, sh
}

func (h *hand) until(ok func() bool) {
	tick, late := time.NewTicker(50*time.Microsecond), time.After(10*time.Second)
	defer tick.Stop()
	for {
		h.e.mu.Lock()
		now := ok()
		h.e.mu.Unlock()
		if now {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			h.t.Fatal("the command does not come into hand")
		}
	}
}

// session opens a session whose commands are noted under name.
func (h *hand) session(name string) (*Session, *conn) {
	c := newConn(func(class wire.Class, msg []byte) {
		if class == wire.ClassCommand {
			h.mu.Lock()
			h.got[name] = append(h.got[name], strings.TrimRight(member(msg, "requestRef"), "-"))
			h.mu.Unlock()
		}
	})
	return h.r.Open(c, "", t0), c
}

// join opens a session and registers it: under its name, or as edge-1.
func (h *hand) join(name string, dedupe bool, devices ...string) (*Session, *conn) {
	s, c := h.session(name)
	id := name
	if name != "edge-2" {
		id = "edge-1"
	}
	s.Receive([]byte(registerEdge(id, dedupe, devices...)), t0)
	return s, c
}

func (h *hand) want(name string, refs ...string) {
	h.t.Helper()
	if got := h.got[name]; !slices.Equal(got, refs) {
		h.t.Errorf("%s got %v, want %v", name, got, refs)
	}
}

func TestInHandProgress(t *testing.T) {
	h := inHand(t, false, func(h *hand) { h.r.advance(h.rec, []byte("5"), t0) })
	h.want("first", "r2", "r3")
	if h.rec.state != InProgress || h.rec.place != placeFlight {
		t.Errorf("state %s, place %d", h.rec.state, h.rec.place)
	}
}

func TestInHandEnd(t *testing.T) {
	for _, handed := range []bool{false, true} {
		h := inHand(t, handed, func(h *hand) { h.r.fail(h.rec, Cancelled, wire.CodeCancelled, "", t0) })
		h.want([]string{"first", "second"}[index(handed)], "r2", "r3")
	}
}

func TestInHandTakeover(t *testing.T) {
	for _, handed := range []bool{false, true} {
		h := inHand(t, handed, func(h *hand) { h.join("third", true) })
		h.want("first")
		h.want("second")
		h.want("third", "r1", "r2", "r3")
	}
	h := inHand(t, false, func(h *hand) { h.join("third", false) })
	h.want("third", "r1", "r2", "r3")
	h = inHand(t, true, func(h *hand) { h.join("third", false) })
	h.want("third") // nothing a second time to an edge without dedupe
}

func TestInHandMove(t *testing.T) {
	h := inHand(t, false, func(h *hand) { h.join("edge-2", false, "td-1") })
	h.want("first")
	h.want("edge-2", "r2", "r3", "r1") // those that wait move at once, the one in hand when it is seen
	h = inHand(t, true, func(h *hand) { h.join("edge-2", false, "td-1") })
	h.want("second")
	h.want("edge-2")
}

// TestInHandNoRoute: the device goes with a command in hand, is not forgotten for it, and
// comes back.
func TestInHandNoRoute(t *testing.T) {
	h := inHand(t, false, func(h *hand) {
		h.r.topo.Lock()
		h.r.dropRoute(h.rec.dev)
		h.r.topo.Unlock()
		h.r.tidy(t0)
	})
	h.want("first")
	h.join("edge-2", false, "td-1")
	h.want("edge-2", "r1", "r2", "r3")
}

// TestInHandClear: the way is reported clear while the command that is to find it blocked
// is in hand.
func TestInHandClear(t *testing.T) {
	h := inHand(t, false, func(h *hand) {
		h.c.mu.Lock()
		h.c.refuse = 1
		h.c.mu.Unlock()
		h.r.handOverWaiting(h.e, t0) // as by Writable
	})
	h.want("first", "r1", "r2", "r3")
}
