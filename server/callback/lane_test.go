package callback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestProgressInOrderFinalLast(t *testing.T) {
	s := newSink(t, nil)
	o := open(t, Options{})
	for i := range 30 {
		o.Notify(progress(s.URL, "r", i))
	}
	o.Notify(final(s.URL, "r", nil))
	o.Notify(progress(s.URL, "r", 99)) // late if the final is still there; the router sends none
	hs := s.wait(31)
	ids := map[string]bool{}
	for i, h := range hs[:31] {
		if i < 30 && h.json["progress"] != float64(i) || i == 30 && h.json["type"] != "COMMAND_RESPONSE" {
			t.Errorf("hit %d is %s", i, h.body)
		}
		ids[h.id] = true
	}
	if len(ids) != 31 {
		t.Errorf("%d distinct ids of 31", len(ids))
	}
}

func TestIDs(t *testing.T) {
	a, b := New(Options{}), New(Options{})
	id := func(o *Outbox, n *Notice, serial uint64) string {
		u, _ := parseURL(n.URL)
		m := newNotice(n, &u)
		m.serial = serial
		return string(o.appendID(nil, m))
	}
	if x, y := id(a, final("http://h/", "r", nil), 0), id(b, final("http://other/", "r", nil), 0); x != y {
		t.Errorf("a final's id changes over a restart: %s %s", x, y)
	}
	if x, y := id(a, final("http://h/", "r", nil), 0), id(a, final("http://h/", "s", nil), 0); x == y {
		t.Error("two refs share an id")
	}
	p := progress("http://h/", "r", 1)
	if x, y, z := id(a, p, 1), id(a, p, 2), id(b, p, 1); x == y || x == z {
		t.Errorf("progress ids %s %s %s", x, y, z)
	}
}

// A progress whose attempt failed gives way to a newer notice, whether that is there
// already or comes while it waits; alone, it is retried under the same id.
func TestSuperseded(t *testing.T) {
	failTen := func(_ int, h hit, w http.ResponseWriter) {
		if h.json["progress"] == 10.0 {
			w.WriteHeader(500)
		}
	}
	s := newSink(t, failTen)
	o := open(t, Options{FirstDelay: time.Hour})
	o.Notify(progress(s.URL, "r", 10))
	until(t, "the retry to wait", func() bool { return o.Stats().Outcomes[Retried] == 1 })
	o.Notify(progress(s.URL, "r", 20))
	s.wait(2)
	o.Notify(final(s.URL, "r", nil))
	if a := attempts(s.wait(3)); a != "10:1/3 20:1/3 <nil>:1/3 " {
		t.Error(a)
	}

	gate := make(chan struct{})
	s2 := newSink(t, func(n int, h hit, w http.ResponseWriter) {
		if n == 0 {
			<-gate
			w.WriteHeader(500)
		}
	})
	o.Notify(progress(s2.URL, "r", 10))
	s2.wait(1)
	o.Notify(progress(s2.URL, "r", 20))
	close(gate)
	if a := attempts(s2.wait(2)); a != "10:1/3 20:1/3 " {
		t.Error(a)
	}
	until(t, "nothing to be left", func() bool { return o.Stats().Queued == 0 })
	if c := o.Stats().Outcomes; c[Superseded] != 2 || c[Sent] != 3 {
		t.Errorf("%v", c)
	}

	s3 := newSink(t, func(n int, _ hit, w http.ResponseWriter) {
		if n == 0 {
			w.WriteHeader(500)
		}
	})
	o3 := open(t, Options{})
	o3.Notify(progress(s3.URL, "r", 10))
	if hs := s3.wait(2); attempts(hs) != "10:1/3 10:2/3 " || hs[0].id != hs[1].id {
		t.Error(attempts(hs), hs[0].id, hs[1].id)
	}
}

// A URL that fails stops no other request of its host, even with one connection.
func TestRetryHoldsNoSlot(t *testing.T) {
	s := newSink(t, func(_ int, h hit, w http.ResponseWriter) {
		if h.uri == "/bad" {
			w.WriteHeader(503)
		}
	})
	o := open(t, Options{FirstDelay: time.Hour, PerHostConns: 1})
	for i := range 20 {
		o.Notify(final(s.URL+"/bad", fmt.Sprint("bad", i), nil))
	}
	var k track
	o.Notify(final(s.URL+"/good", "good", &k))
	until(t, "delivery past 20 retries", func() bool { return k.is(Delivered, 1) })
	if st := o.Stats(); st.Queued != 20 || st.Busy != 0 {
		t.Errorf("%+v", st)
	}
}

// Receivers that keep silent hold their own slots only: a good one gets its callbacks
// while they hold all they may have.
func TestSilentReceiversDelayNobody(t *testing.T) {
	o := open(t, Options{MaxConns: 64, AttemptTimeout: time.Hour})
	for i := range 20 {
		url := silence(t)
		for j := range 50 {
			o.Notify(final(url, fmt.Sprint("r", i, "-", j), nil))
		}
	}
	// Twelve hosts have four slots each, the other eight one of the last quarter.
	until(t, "the slots to be taken", func() bool { return o.Stats().Busy == 12*4+8 })
	s := newSink(t, nil)
	for i := range 200 {
		o.Notify(final(s.URL, fmt.Sprint("good", i), nil))
	}
	s.wait(200)
}

// With every slot taken, those who queue get them in turn.
func TestSlotsInTurn(t *testing.T) {
	o := open(t, Options{MaxConns: 1})
	gate := make(chan struct{})
	first := newSink(t, func(n int, _ hit, _ http.ResponseWriter) {
		if n == 0 {
			<-gate
		}
	})
	for i := range 100 {
		o.Notify(final(first.URL, fmt.Sprint("a", i), nil))
	}
	first.wait(1)
	other := make([]*sink, 5)
	for i := range other {
		other[i] = newSink(t, nil)
		o.Notify(final(other[i].URL, "b", nil))
	}
	close(gate)
	for _, s := range other {
		s.wait(1)
	}
	first.wait(100)
	last := first.seen()[99].at
	for _, s := range other {
		if s.seen()[0].at.After(last) {
			t.Error("a host with one notice waited for one with a hundred")
		}
	}
}

func TestBounds(t *testing.T) {
	url := silence(t)
	o := open(t, Options{PerHostQueue: 10, AttemptTimeout: time.Hour, MaxProgress: 3, PerHostConns: 1})
	o.Notify(progress(url, "p", 0))
	until(t, "the first under way", func() bool { return o.Stats().Busy == 1 })
	for i := range 9 {
		o.Notify(progress(url, "p", i+1))
	}
	if st := o.Stats(); st.Queued != 3 || st.Outcomes[Coalesced] != 7 {
		t.Errorf("one request's progress: %+v", st)
	}
	ks := make([]track, 12)
	for i := range ks {
		o.Notify(final(url, fmt.Sprint("f", i), &ks[i]))
	}
	// One under way and nine finals; two progresses gave way, three finals found no room.
	st := o.Stats()
	if st.Queued != 10 || st.Outcomes[Coalesced] != 9 || st.Outcomes[Full] != 3 || st.Dead != 3 {
		t.Errorf("finals: %+v", st)
	}
	for i := range ks {
		if want := map[bool]uint8{true: Pending, false: Dead}[i < 9]; !ks[i].is(want, 0) {
			t.Errorf("final %d is %s", i, &ks[i])
		}
	}
	o.Notify(progress(url, "q", 1))
	if st := o.Stats(); st.Outcomes[Full] != 4 || st.Dead != 3 || st.Queued != 10 {
		t.Errorf("a progress too many: %+v", st)
	}
	dead, _, _ := o.Dead("", 10)
	if len(dead) != 3 || dead[0].LastError == "" || dead[0].Attempts != 0 || dead[0].RequestRef != "f11" {
		t.Errorf("%+v", dead)
	}
}

func TestBytesBounds(t *testing.T) {
	url := silence(t)
	o := open(t, Options{MaxBytes: 1 << 20, AttemptTimeout: time.Hour, MaxHosts: 2})
	big := final(url, "r", nil)
	big.Result = fmt.Appendf(nil, "%q", make([]byte, 1<<14))
	for i := range 100 {
		big.Ref = fmt.Append(nil, i)
		o.Notify(big)
	}
	if st := o.Stats(); st.Bytes > 1<<18 || st.Queued < 3 || st.Queued+st.Dead != 100 {
		t.Errorf("one host: %+v", st)
	}
	o.Notify(final(silence(t), "x", nil))
	o.Notify(final(silence(t), "y", nil)) // a third host
	if st := o.Stats(); st.Hosts != 2 || st.Queued+st.Dead != 102 {
		t.Errorf("hosts: %+v", st)
	}
}

// A host without work is forgotten once its connections are, or when another needs its
// place.
func TestHostsAreForgotten(t *testing.T) {
	s, s2 := newSink(t, nil), newSink(t, nil)
	o := open(t, Options{MaxHosts: 1, IdleTimeout: time.Hour})
	o.Notify(final(s.URL, "r", nil))
	s.wait(1)
	until(t, "it to be idle", func() bool { st := o.Stats(); return st.Busy == 0 && st.Queued == 0 })
	o.Notify(final(s2.URL, "r", nil))
	s2.wait(1)
	if st := o.Stats(); st.Hosts != 1 {
		t.Errorf("%+v", st)
	}
	o = open(t, Options{IdleTimeout: 20 * time.Millisecond})
	o.Notify(final(s.URL, "r", nil))
	s.wait(2)
	until(t, "it to be forgotten", func() bool { return o.Stats().Hosts == 0 })
}

// judgeRun is the oracle of TestChaos: what one request's receiver saw, and whether it
// is what PROTOCOL.md section 7 allows.
type judgeRun struct {
	newest   int // progress
	final    bool
	accepted int // of the final
}

func (j *judgeRun) see(p int, isFinal, ok bool) error {
	switch {
	case isFinal:
		j.final = true
		if ok {
			j.accepted++
		}
	case j.final:
		return fmt.Errorf("progress %d after the final", p)
	case p < j.newest:
		return fmt.Errorf("progress %d after %d", p, j.newest)
	default:
		j.newest = p
	}
	return nil
}

func seed(t *testing.T) uint64 {
	s := rand.Uint64()
	if v := os.Getenv("SEED"); v != "" {
		s, _ = strconv.ParseUint(v, 10, 64)
	}
	t.Logf("SEED=%d", s)
	return s
}

// Thousands of requests against receivers that fail at random: each final is delivered
// once or dead, order holds, nothing is left.
func TestChaos(t *testing.T) {
	base := seed(t)
	var mu sync.Mutex
	runs := map[string]*judgeRun{}
	rng := rand.New(rand.NewPCG(base, 1))
	answer := func(_ int, h hit, w http.ResponseWriter) {
		mu.Lock()
		defer mu.Unlock()
		j := runs[h.ref]
		if j == nil {
			j = &judgeRun{newest: -1}
			runs[h.ref] = j
		}
		dice := rng.IntN(20)
		p, isProgress := h.json["progress"].(float64)
		if err := j.see(int(p), !isProgress, dice > 3); err != nil {
			t.Errorf("%s: %v", h.ref, err)
		}
		switch dice {
		case 0, 1:
			w.WriteHeader(503)
		case 2:
			w.WriteHeader(404)
		case 3:
			hangUp(w)
		}
	}
	sinks := []*sink{newSink(t, answer), newSink(t, answer), newSink(t, answer)}
	o := New(Options{FirstDelay: time.Millisecond, PerHostConns: 4, MaxConns: 8, MaxDead: 1 << 20})
	const senders, each = 8, 250
	ks := make([]track, senders*each)
	var wg sync.WaitGroup
	for g := range senders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(base, uint64(g)+2))
			for i := range each {
				k, ref := g*each+i, fmt.Sprintf("r%d-%d", g, i)
				url := sinks[k%len(sinks)].URL
				for p := range r.IntN(4) {
					o.Notify(progress(url, ref, p))
				}
				o.Notify(final(url, ref, &ks[k]))
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := o.Close(ctx); err != nil {
		t.Fatal(err, o.Stats())
	}
	delivered, dead := 0, 0
	for k := range ks {
		ref := fmt.Sprintf("r%d-%d", k/each, k%each)
		switch state := uint8(ks[k].v.Load() >> 32); {
		case state == Delivered && runs[ref].accepted == 1:
			delivered++
		case state == Dead && runs[ref].accepted == 0:
			dead++
		default:
			t.Errorf("%s: state %s, accepted %d times", ref, &ks[k], runs[ref].accepted)
		}
	}
	st := o.Stats()
	if delivered+dead != senders*each || st.Dead != dead || st.Queued != 0 || st.Bytes != 0 || st.Hosts != 0 {
		t.Errorf("delivered %d, dead %d, %+v", delivered, dead, st)
	}
	t.Logf("delivered %d, dead %d, outcomes %v", delivered, dead, st.Outcomes)
}
