package faults

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mood is how a receiver answers callbacks.
type mood int

const (
	fine    mood = iota
	slow         // after a second
	broken       // 500
	garbage      // bytes that are not HTTP
	mute         // never
)

// receiver takes callbacks into the books, and answers them as it is in the mood to.
type receiver struct {
	t    testing.TB
	addr string
	book *ledger
	srv  *http.Server
	done chan struct{} // closed when srv has ended

	mu      sync.Mutex
	mood    mood          // guarded by mu
	changed chan struct{} // guarded by mu: closed when the mood changes
	treated atomic.Int64  // callbacks that came since
}

func newReceiver(t testing.TB, addr string, book *ledger) *receiver {
	r := &receiver{t: t, addr: addr, book: book, changed: make(chan struct{})}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *receiver) start() {
	r.t.Helper()
	lis, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	r.srv, r.done = &http.Server{Handler: r, ReadHeaderTimeout: patience}, done
	srv := r.srv
	go func() {
		defer close(done)
		_ = srv.Serve(lis)
	}()
}

// kill does to the sockets what the kernel does to those of a process that is killed.
func (r *receiver) kill() {
	_ = r.srv.Close()
	<-r.done
}

// feel changes the mood.
func (r *receiver) feel(m mood) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mood = m
	r.treated.Store(0)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *receiver) feeling() (mood, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mood, r.changed
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var notice struct{ RequestRef, Status string }
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // it was cut while it came
	}
	if err := json.Unmarshal(body, &notice); err != nil || req.URL.Path != "/"+notice.RequestRef {
		r.book.complain("a callback to %s says %s", req.URL, body)
		return
	}
	m, changed := r.feeling()
	r.enter(req.Header.Get("X-Callback-Id"), notice.RequestRef, notice.Status, m == fine || m == slow)
	r.treated.Add(1)
	switch m {
	case slow:
		wait := time.NewTimer(time.Second)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-changed:
		case <-req.Context().Done():
		}
	case broken:
		w.WriteHeader(http.StatusInternalServerError)
	case garbage:
		r.babble(w)
	case mute:
		select {
		case <-changed:
		case <-req.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
}

// enter takes a final notice into the books.
func (r *receiver) enter(id, ref, word string, taken bool) {
	if !isFinal(word) && word != "IN_PROGRESS" || id == "" {
		r.book.complain("%s: a callback with id %q says %q", ref, id, word)
	}
	r.book.with(ref, func(a *account) {
		if !isFinal(word) {
			return
		}
		a.ids[id], a.words[word] = true, true
		if taken {
			a.calls++
		}
	})
}

// babble answers with bytes that are not HTTP.
func (r *receiver) babble(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, err = conn.Write([]byte("\x00\xffHTTP/9 \r\n\r\n\x16\x03\x01 200 OK"))
	if err = errors.Join(err, conn.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		return // who asked has gone
	}
}
