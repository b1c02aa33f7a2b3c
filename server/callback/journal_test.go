package callback

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// tape is a Journal whose marks a test moves on.
type tape struct {
	mu     sync.Mutex
	kinds  []byte
	recs   [][]byte
	stored uint64
}

func (j *tape) Append(kind byte, rec []byte) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kinds, j.recs = append(j.kinds, kind), append(j.recs, bytes.Clone(rec))
	return uint64(len(j.recs))
}

func (j *tape) Appended() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return uint64(len(j.recs))
}

func (j *tape) Stored() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stored
}

// store has all that was journalled on stable storage.
func (j *tape) store(o *Outbox) {
	j.mu.Lock()
	j.stored = uint64(len(j.recs))
	j.mu.Unlock()
	o.Stored()
}

// always is a tape on which all is stored at once.
type always struct{ tape }

func (j *always) Stored() uint64 { return ^uint64(0) }

func TestNoticesWaitForTheJournal(t *testing.T) {
	s := newSink(t, nil)
	j := &tape{}
	o := open(t, Options{Journal: j, PerHostConns: 1})
	var k track
	j.Append(1, nil) // the acceptance, say
	o.Notify(progress(s.URL, "r", 1))
	o.Notify(final(s.URL, "r", &k))
	o.Notify(progress(s.URL, "r2", 1))
	if st := o.Stats(); st.Queued != 3 || st.Busy != 0 || len(s.seen()) != 0 {
		t.Fatalf("%+v, %d hits", st, len(s.seen()))
	}
	j.mu.Lock()
	j.stored = 1
	j.mu.Unlock()
	o.Stored()
	if h := s.wait(1)[0]; h.json["type"] != "PROGRESS_UPDATE" || h.ref != "r" {
		t.Errorf("first came %v", h.json)
	}
	until(t, "the rest to wait", func() bool { return o.Stats().Queued == 2 && o.Stats().Busy == 0 })
	if !k.is(Pending, 0) {
		t.Error(&k)
	}
	j.store(o)
	s.wait(3)
	until(t, "its delivery", func() bool { return k.is(Delivered, 1) })
	o.Notify(progress(s.URL, "r3", 1)) // the delivery is journalled, and waits for nothing here
	j.store(o)
	s.wait(4)
}

// A journal that stands still bounds what is retained: final notices become dead letters.
func TestHeldNoticesAreBounded(t *testing.T) {
	s := newSink(t, nil)
	j := &tape{}
	o := open(t, Options{Journal: j, MaxBytes: 20_000})
	j.Append(1, nil)
	for i := range 100 {
		o.Notify(final(s.URL, fmt.Sprint("r", i), nil))
		o.Notify(progress(s.URL, fmt.Sprint("p", i), 1))
	}
	st := o.Stats()
	if st.Bytes > 20_000 || st.Dead == 0 || st.Dead+st.Queued < 100 {
		t.Errorf("%+v", st)
	}
	j.store(o)
	until(t, "what was held to go out", func() bool { return o.Stats().Queued == 0 })
	finals := 0
	for _, h := range s.seen() {
		if h.ref[0] == 'r' {
			finals++
		}
	}
	if dead := o.Stats().Dead; finals == 0 || finals+dead != 100 {
		t.Errorf("%d final notices were delivered and %d are dead letters", finals, dead)
	}
}

// again returns an Outbox that begins with these records, and what its trackers are told.
func again(t *testing.T, kinds []byte, recs [][]byte, opt Options) (o *Outbox, tracks map[string]*track, pending, dead int) {
	t.Helper()
	o = open(t, opt)
	tracks = map[string]*track{}
	of := func(ref []byte) Tracker {
		k := tracks[string(ref)]
		if k == nil {
			k = &track{}
			tracks[string(ref)] = k
		}
		return k
	}
	for i := range recs {
		if err := o.Restore(kinds[i], recs[i], of); err != nil {
			t.Fatal(err)
		}
	}
	pending, dead = o.Restored(of)
	return o, tracks, pending, dead
}

// After a restart what was not confirmed is sent under the same id, what was is not, and
// dead letters are there; be it as things happened or at a checkpoint.
func TestRestoredCallbacks(t *testing.T) {
	s := newSink(t, func(_ int, h hit, w http.ResponseWriter) {
		switch h.ref[0] {
		case 'd': // dies
			w.WriteHeader(410)
		case 'w': // waits: the stop finds it under way
			w.WriteHeader(503)
			w.Header().Set("Retry-After", "60")
		}
	})
	j := &always{}
	o := open(t, Options{Journal: j, FirstDelay: 60e9})
	for i := range 5 {
		for _, kind := range []string{"ok", "dead", "wait", "resent-dead"} {
			o.Notify(final(s.URL+"/{request_ref}", fmt.Sprint(kind, i), nil))
		}
	}
	until(t, "ten to be dead", func() bool {
		st := o.Stats()
		return st.Dead == 5 && st.Outcomes[Sent] == 10 && st.Outcomes[Retried] == 5
	})
	letters, _, _ := o.Dead("", 10)
	if err := o.Retry(letters[0].ID); err != nil {
		t.Fatal(err)
	}
	until(t, "it to be dead again", func() bool { return o.Stats().Dead == 5 })
	before := len(j.recs)
	if !o.Checkpoint(func() bool { return true }) {
		t.Fatal("no checkpoint")
	}
	ids := map[string]string{}
	for _, h := range s.seen() {
		ids[h.ref] = h.id
	}
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	_ = o.Close(stopped)
	o.Notify(final(s.URL+"/{request_ref}", "late", nil)) // while it closes: for the next start
	late := len(j.recs) - 1
	for name, from := range map[string]int{"as it happened": 0, "checkpoint": before} {
		kinds, recs := j.kinds[from:], j.recs[from:]
		if from == 0 {
			kinds, recs = append(bytes.Clone(j.kinds[:before]), j.kinds[late]), append(append([][]byte{}, j.recs[:before]...), j.recs[late])
		}
		next := newSink(t, nil)
		moved := make([][]byte, len(recs)) // to another receiver with an address as long
		for i, rec := range recs {
			moved[i] = bytes.ReplaceAll(rec, []byte(s.URL), []byte(next.URL))
		}
		if len(next.URL) != len(s.URL) {
			t.Skip("addresses of different lengths")
		}
		o2, tracks, pending, dead := again(t, kinds, moved, Options{Journal: &always{}})
		if pending != 6 || dead != 5 {
			t.Errorf("%s: %d pending and %d dead", name, pending, dead)
		}
		until(t, "all to be sent", func() bool { return o2.Stats().Queued == 0 })
		for _, h := range next.seen() {
			if h.ref != "late" && (h.id != ids[h.ref] || !strings.HasPrefix(h.ref, "wait")) || h.attempt != "1/3" {
				t.Errorf("%s: %s came as %s, attempt %s; it was %s", name, h.ref, h.id, h.attempt, ids[h.ref])
			}
		}
		if n := len(next.seen()); n != 6 {
			t.Errorf("%s: %d hits", name, n)
		}
		again, _, _ := o2.Dead("", 10)
		for i := range again {
			if i < len(letters) && (again[i].Attempts != 1 || again[i].LastError != "HTTP 410") {
				t.Errorf("%s: %+v", name, again[i])
			}
		}
		if k := tracks["wait0"]; k == nil || !k.is(Delivered, 1) {
			t.Errorf("%s: wait0 is %v", name, k)
		}
		if k := tracks["dead0"]; k == nil || !k.is(Dead, 1) {
			t.Errorf("%s: dead0 is %v", name, k)
		}
		if k := tracks["ok0"]; from == 0 && (k == nil || !k.is(Delivered, 1)) {
			t.Errorf("%s: ok0 is %v", name, k)
		}
	}
}

func TestRestoreBadRecords(t *testing.T) {
	o := open(t, Options{Journal: &always{}})
	of := func([]byte) Tracker { return nil }
	for _, rec := range [][]byte{nil, make([]byte, 10), append(make([]byte, 16), 255, 255, 255, 255, 1, 0, 0, 0), append(make([]byte, 10), 200)} {
		for kind := kindNotice; kind <= kindEnd; kind++ {
			if o.Restore(kind, rec, of) == nil && (len(rec) < noticeHead || kind == kindNotice) {
				t.Errorf("kind %d: %x is taken", kind, rec)
			}
		}
	}
}
