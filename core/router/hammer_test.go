package router

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"subway/core/wire"
)

var hammerCommands = flag.Int("hammer", 60_000, "commands of each TestHammer; half with -race, a fifth with -short")

// TestHammer lets Backends, HTTP callers, edges and devices loose on one Router from many
// goroutines: commands, answers, progress, cancels, timeouts, ways that fill up and clear,
// losses, returns, takeovers, moves and goodbyes. Then it reads the ledger of all that
// was said, and the router's own books. -hammer sets its length, -seed its dice (the
// scheduler has dice of its own).
func TestHammer(t *testing.T) {
	keep := Limits{Retention: 1000 * time.Hour, MaxRecords: 1 << 40, RecordBytes: 1 << 40, RouteRetention: 1000 * time.Hour}
	recycle := Limits{MaxRecords: 300, EdgeQueue: 60, MaxPending: 1500, DeviceBytes: 2000, RouteRetention: 1000 * time.Hour}
	t.Run("kept", func(t *testing.T) { hammer(t, &world{kept: true, devices: ids(40), edges: 5, blocks: 40}, keep) })
	t.Run("recycled", func(t *testing.T) { hammer(t, &world{devices: ids(40), edges: 5, blocks: 40}, recycle) })
	// Few edges, two actors for each, that are mostly blocked: nearly all commands wait.
	t.Run("blocked", func(t *testing.T) {
		hammer(t, &world{kept: true, devices: ids(6), edges: 2, rivals: true, blocks: 2}, keep)
	})
}

func ids(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("td-%d", i))
	}
	return ids
}

// world is what the actors of a hammer share.
type world struct {
	t        *testing.T
	r        *Router
	ledger   ledger
	now      atomic.Int64
	sent     atomic.Int64
	total    int64
	sessions atomic.Int64
	full     atomic.Int64
	recent   [128]atomic.Pointer[string] // refs sent lately

	kept    bool // records are kept: refs are tried again, and the record is compared
	devices []string
	edges   int
	rivals  bool // every edge has two actors, else the first
	blocks  int  // one command in so many finds the way blocked
}

func (w *world) time() wire.Time { return wire.Time(w.now.Load()) }
func (w *world) over() bool      { return w.sent.Load() >= w.total }
func (w *world) device(rng *rand.Rand) string {
	return w.devices[rng.IntN(len(w.devices))]
}

func hammer(t *testing.T, w *world, l Limits) {
	seed := newRand(t)
	w.t, w.total = t, int64(*hammerCommands)
	if raced {
		w.total /= 2
	}
	if testing.Short() {
		w.total /= 5
	}
	w.now.Store(int64(t0))
	w.r = newRouter(l, notices{w.ledger.notified})
	within(t, 5*time.Minute, func() { w.run(seed) })
	accepted, wrong := w.ledger.judge(func(ref string) string {
		if rec := w.r.Record([]byte(ref)); rec != nil {
			return rec.Status
		}
		if w.kept {
			return "no record"
		}
		return ""
	})
	if w.kept {
		wrong = append(wrong, w.ledger.judgeOrder(w.order())...)
	}
	for _, what := range wrong {
		t.Error(what)
	}
	t.Logf("%d of %d commands accepted, the way full %d times, %v of their time", accepted, w.sent.Load(), w.full.Load(), time.Duration(w.time()-t0))
	w.atRest()
}

// within fails with the stacks of all goroutines where fn takes longer.
func within(t *testing.T, most time.Duration, fn func()) {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(most):
		buf := make([]byte, 1<<20)
		t.Fatalf("no end after %v:\n%s", most, buf[:runtime.Stack(buf, true)])
	}
}

// run plays until enough commands were sent, and on until all of them ended.
func (w *world) run(seed *rand.Rand) {
	var actors, clock sync.WaitGroup
	var stop atomic.Bool
	clock.Go(func() { w.tick(&stop) })
	for i := range 3 {
		rng := newRandFrom(seed)
		b := &backendActor{w: w, rng: rng, id: fmt.Sprintf("backend-%d", i), steady: i < 2}
		actors.Go(b.play)
	}
	h := &httpActor{w: w, rng: newRandFrom(seed)}
	actors.Go(h.play)
	for i := range w.edges {
		for range 1 + index(i == 0 || w.rivals) {
			e := &edgeActor{w: w, rng: newRandFrom(seed), id: fmt.Sprintf("edge-%d", i), dedupe: i < 1+w.edges/2}
			actors.Go(e.play)
		}
	}
	for i := range 2 {
		e := &edgeActor{w: w, rng: newRandFrom(seed), id: fmt.Sprintf("scr-%d", i), direct: true, dedupe: i == 0}
		actors.Go(e.play)
	}
	reader := newRandFrom(seed)
	actors.Go(func() { w.look(reader) })
	actors.Wait()
	for w.r.Pending() > 0 {
		runtime.Gosched()
	}
	stop.Store(true)
	clock.Wait()
}

// note counts a new ref.
func (w *world) note(ref string) { w.recent[w.sent.Add(1)%int64(len(w.recent))].Store(&ref) }

// tick lets time pass: with the commands that are sent, or where many wait for an end.
func (w *world) tick(stop *atomic.Bool) {
	last := int64(0)
	for !stop.Load() {
		sent := w.sent.Load()
		if sent-last < 10 && w.r.Pending() < 1000 && !w.over() {
			runtime.Gosched()
			continue
		}
		last = sent
		w.r.Tick(wire.Time(w.now.Add(int64(5 * ms))))
	}
}

// look reads what the HTTP API reads.
func (w *world) look(rng *rand.Rand) {
	for !w.over() {
		switch rng.IntN(6) {
		case 0:
			w.r.Records(&RecordQuery{Limit: 5, Target: w.device(rng)})
		case 1:
			w.r.Devices(&PartyQuery{Limit: 10, Edge: "edge-1"})
			w.r.Edges(&PartyQuery{Limit: 10})
		case 2:
			w.r.Device(w.device(rng))
			w.r.Edge("edge-0")
		case 3:
			w.r.Gauges(w.time())
		default:
			ref := fmt.Appendf(nil, "backend-0-%d", rng.Int64N(w.sent.Load()+1))
			w.r.Trace(ref)
			if waiter := w.r.Wait(ref); waiter != nil && rng.IntN(20) == 0 {
				<-waiter.Done()
				if rec := waiter.Record(); rec.RequestRef != string(ref) || rec.Status == "PENDING" {
					w.t.Errorf("who waited for %s is told %+v", ref, rec)
				}
			}
		}
		runtime.Gosched()
	}
}

// order returns the order of acceptance of all records.
func (w *world) order() map[string]uint64 {
	seq := map[string]uint64{}
	for i := range w.r.shards {
		w.r.shards[i].each(func(rec *record) { seq[string(rec.ref())] = rec.seq })
	}
	return seq
}

// atRest checks that nothing is left but the records, and then not even these.
func (w *world) atRest() {
	for range 2 {
		w.now.Add(int64(2 * time.Second))
		w.r.Tick(w.time())
		if err := broken(w.r); err != nil {
			w.t.Error(err)
		}
	}
	if n := len(w.r.stray); n > 0 {
		w.t.Errorf("%d stray devices", n)
	}
	if p, h := w.r.pending.Load(), w.r.held.Load(); p != 0 || h != 0 {
		w.t.Errorf("pending %d, held %d", p, h)
	}
	w.now.Add(int64(2000 * time.Hour))
	w.r.Tick(w.time())
	w.r.Tick(w.time() + 2*wire.Time(time.Second))
	if err := broken(w.r); err != nil {
		w.t.Error(err)
	}
	if n := w.r.archive.n + w.r.archive.bytes + w.r.routes.n.Load() + int64(len(w.r.edges)+len(w.r.directs)); n > 0 {
		w.t.Errorf("ended %d, routes %d, edges %d, direct devices %d", w.r.archive.n, w.r.routes.n.Load(), len(w.r.edges), len(w.r.directs))
	}
	if n := len(w.r.order.chunks); n > 1 {
		w.t.Errorf("%d chunks of the order are left", n)
	}
}

// backendActor is a Backend.
type backendActor struct {
	w      *world
	rng    *rand.Rand
	id     string
	steady bool // it is always connected, though not always by the same connection
	s      *Session
	refs   []string
	n      int
}

func (b *backendActor) connect() {
	b.s = party(b.w.r, newConn(func(_ wire.Class, msg []byte) { b.w.ledger.backendHears(msg) }), registerBackend(b.id), b.w.time())
}

func (b *backendActor) play() {
	b.connect()
	for !b.w.over() {
		switch x := b.rng.IntN(1000); {
		case b.w.r.Pending() > 1200:
			runtime.Gosched()
		case x < 850:
			b.command()
		case x < 940 && len(b.refs) > 0:
			b.cancel()
		case x < 943:
			old := b.s
			b.connect() // takes over
			old.Closed(b.w.time(), "superseded")
		case x < 945 && !b.steady:
			b.s.Closed(b.w.time(), "reset")
			b.connect()
		}
	}
	for b.w.r.Pending() > 0 { // hear of the ends
		runtime.Gosched()
	}
	b.s.Closed(b.w.time(), "done")
}

// options makes the members of a command, and says whether it has a callback, which is
// the same whenever the ref is.
func options(rng *rand.Rand, ref string) (more string, callback bool) {
	more = fmt.Sprintf(`,"timeout":%d,"priority":"%s"`, 5+rng.IntN(1500), wire.Priority(rng.IntN(3)))
	if rng.IntN(10) == 0 {
		more = strings.Replace(more, `"timeout":`, `"timeout":1`, 1) // a long one
	}
	if rng.IntN(2) == 0 {
		more += `,"whenOffline":"QUEUE"`
	}
	if callback = ref[len(ref)-1]%2 == 0; callback {
		more += `,"callback":"http://eudi/cb"`
	}
	if rng.IntN(200) == 0 {
		more += `,"p":"` + strings.Repeat("p", 20_000) + `"`
	}
	return more, callback
}

func (b *backendActor) command() {
	ref := fmt.Sprintf("%s-%d", b.id, b.n)
	again := b.w.kept && b.n > 0 && b.rng.IntN(50) == 0
	if again {
		ref = b.refs[b.rng.IntN(len(b.refs))]
	}
	more, callback := options(b.rng, ref)
	if !again {
		b.n++
		b.w.ledger.of(ref, func(x *life) { x.source, x.steady, x.callback = b.id, b.steady, callback })
		b.refs = append(b.refs, ref)
		if len(b.refs) > 100 {
			b.refs = b.refs[50:]
		}
		b.w.note(ref)
	}
	target := b.w.device(b.rng)
	if b.rng.IntN(20) == 0 {
		target = fmt.Sprintf("scr-%d", b.rng.IntN(2))
	}
	b.s.Receive([]byte(commandTo(ref, target, more+`,"ack":true`)), b.w.time())
}

func (b *backendActor) cancel() {
	ref := b.refs[b.rng.IntN(len(b.refs))]
	b.w.ledger.of(ref, func(x *life) { x.cancelled = true })
	b.s.Receive([]byte(`{"type":"CANCEL","requestRef":"`+ref+`"}`), b.w.time())
}

// httpActor posts and cancels over HTTP.
type httpActor struct {
	w   *world
	rng *rand.Rand
	n   int
}

func (h *httpActor) play() {
	var env wire.Envelope
	var scratch wire.Scratch
	for !h.w.over() {
		if h.w.r.Pending() > 1200 {
			runtime.Gosched()
			continue
		}
		ref := fmt.Sprintf("http-%d", h.n)
		more, callback := options(h.rng, ref)
		h.n++
		h.w.note(ref)
		h.w.ledger.of(ref, func(x *life) { x.callback = callback })
		var c wire.Command
		msg := []byte(commandTo(ref, h.w.device(h.rng), more))
		if err := env.Scan(msg, wire.DefaultMaxDepth); err != nil {
			h.w.t.Error(err)
			return
		}
		if f := env.Command(&c, &scratch); f != nil {
			h.w.t.Error(f)
			return
		}
		f := h.w.r.Submit(&c, msg, h.w.time())
		h.w.ledger.of(ref, func(x *life) {
			if f == nil {
				x.accepted++
			}
		})
		if h.rng.IntN(10) == 0 {
			ref := fmt.Sprintf("http-%d", h.rng.IntN(h.n))
			h.w.ledger.of(ref, func(x *life) { x.cancelled = true })
			h.w.r.Cancel([]byte(ref), h.w.time())
		}
	}
}
