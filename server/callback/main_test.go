package callback

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 40 * time.Second

// hit is a request that a sink saw.
type hit struct {
	uri, id, attempt, ref string
	header                http.Header
	body                  []byte
	json                  map[string]any
	at                    time.Time
}

// sink is a receiver on a loopback address.
type sink struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	hits   []hit
	signal chan struct{}
}

// newSink starts a receiver; answer (nil: 200) is told the number of the hit, from 0.
func newSink(t *testing.T, answer func(n int, h hit, w http.ResponseWriter)) *sink {
	t.Helper()
	s := &sink{t: t, signal: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := hit{uri: r.RequestURI, id: r.Header.Get("X-Callback-Id"), attempt: r.Header.Get("X-Callback-Attempt"),
			header: r.Header, body: body, at: time.Now()}
		if err := json.Unmarshal(body, &h.json); err != nil {
			t.Errorf("body %q: %v", body, err)
		}
		h.ref, _ = h.json["requestRef"].(string)
		s.mu.Lock()
		n := len(s.hits)
		s.hits = append(s.hits, h)
		s.mu.Unlock()
		select {
		case s.signal <- struct{}{}:
		default:
		}
		if answer != nil {
			answer(n, h, w)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func status(code int) func(int, hit, http.ResponseWriter) {
	return func(_ int, _ hit, w http.ResponseWriter) { w.WriteHeader(code) }
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		c.Close()
	}
}

func (s *sink) seen() []hit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]hit(nil), s.hits...)
}

// wait returns the hits when there are n.
func (s *sink) wait(n int) []hit {
	s.t.Helper()
	late := time.After(patience)
	for {
		if hs := s.seen(); len(hs) >= n {
			return hs
		}
		select {
		case <-s.signal:
		case <-late:
			s.t.Fatalf("%d hits, want %d", len(s.seen()), n)
		}
	}
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("waited in vain for " + what)
		}
	}
}

// track is a Tracker that remembers.
type track struct{ v atomic.Int64 }

func (k *track) SetCallback(state uint8, attempts int) { k.v.Store(int64(state)<<32 | int64(attempts)) }

func (k *track) is(state uint8, attempts int) bool {
	return k.v.Load() == int64(state)<<32|int64(attempts)
}

func (k *track) String() string { v := k.v.Load(); return fmt.Sprintf("%d/%d", v>>32, v&0xffffffff) }

// open makes an Outbox with short delays that the test's end closes.
func open(t testing.TB, opt Options) *Outbox {
	if opt.FirstDelay == 0 {
		opt.FirstDelay = 20 * time.Millisecond
	}
	o := New(opt)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = o.Close(ctx)
	})
	return o
}

const t0 = wire.Time(1705744800000_000000)

func final(url, ref string, k Tracker) *Notice {
	return &Notice{URL: []byte(url), Ref: []byte(ref), Target: []byte("td-01"), Type: "COMMAND_RESPONSE",
		Status: []byte("COMPLETED"), Result: []byte(`{"b": 80}`), Now: t0, Final: true, Track: k}
}

func progress(url, ref string, n int) *Notice {
	return &Notice{URL: []byte(url), Ref: []byte(ref), Target: []byte("td-01"), Type: "PROGRESS_UPDATE",
		Status: []byte("IN_PROGRESS"), Progress: fmt.Append(nil, n), Now: t0}
}

// silence is an address that accepts connections and never answers.
func silence(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}
