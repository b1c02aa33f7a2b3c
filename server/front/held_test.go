package front

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"subway/core/wire"
)

// marks is a log that a test moves on.
type marks struct{ appended, stored atomic.Uint64 }

func (m *marks) Appended() uint64 { return m.appended.Load() }
func (m *marks) Stored() uint64   { return m.stored.Load() }

// commit stores what is appended to the end, until it is stopped.
func (m *marks) commit(f *fixture) (stop func()) {
	var all sync.WaitGroup
	end := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if to := m.appended.Load(); to > m.stored.Load() {
				m.stored.Store(to)
				f.s.JournalStored()
			}
			runtime.Gosched()
		}
	})
	return func() {
		close(end)
		all.Wait()
	}
}

// serveHeld starts a server whose durable messages wait for the marks.
func serveHeld(t *testing.T, change func(*Options)) (*fixture, *marks) {
	m := &marks{}
	return serve(t, func(o *Options) {
		o.Journal = m
		if change != nil {
			change(o)
		}
	}), m
}

func send(t *testing.T, e *echo, class wire.Class, text string) {
	t.Helper()
	if got := e.c.Append(class, []byte(text), nil, nil); got != wire.Accepted {
		t.Fatalf("%s: %v", text, got)
	}
}

func TestDurableWaitsForTheJournal(t *testing.T) {
	f, m := serveHeld(t, nil)
	c := f.dial()
	e := f.session()
	send(t, e, wire.ClassNotice|wire.Durable, "nothing is journalled")
	c.expect("nothing is journalled")
	m.appended.Store(1)
	send(t, e, wire.ClassNotice|wire.Durable, "notice 1")
	send(t, e, wire.ClassCommand, "command after 1")
	send(t, e, wire.ClassNotice, "passes")
	c.expect("passes")
	m.appended.Store(3)
	send(t, e, wire.ClassCommand|wire.Durable, "command 3")
	m.stored.Store(2)
	f.s.JournalStored()
	c.expect("notice 1")
	c.expect("command after 1")
	send(t, e, wire.ClassNotice, "passes as well")
	c.expect("passes as well")
	m.appended.Store(4)
	send(t, e, wire.ClassNotice|wire.Durable, "notice 4")
	m.stored.Store(4)
	f.s.JournalStored()
	c.expect("command 3")
	c.expect("notice 4")
	send(t, e, wire.ClassCommand, "free")
	c.expect("free")
}

// What waits for the journal leaves before the close frame.
func TestCloseWaitsForTheJournal(t *testing.T) {
	f, m := serveHeld(t, nil)
	c := f.dial()
	e := f.session()
	m.appended.Store(1)
	send(t, e, wire.ClassNotice|wire.Durable, "first")
	e.c.CloseWith(1001, "going")
	send2 := e.c.Append(wire.ClassNotice, []byte("late"), nil, nil)
	m.stored.Store(1)
	f.s.JournalStored()
	c.expect("first")
	c.wantClose(1001)
	if send2 != wire.Gone {
		t.Errorf("after the close: %v", send2)
	}
	wantReason(t, e, "going")
}

// A journal that stands still holds no connection open, and lets nothing out.
func TestCloseWithoutTheJournal(t *testing.T) {
	for _, code := range []uint16{1001, 4429} {
		f, m := serveHeld(t, func(o *Options) { o.CloseTimeout = 20 * time.Millisecond })
		c := f.dial()
		e := f.session()
		m.appended.Store(1)
		send(t, e, wire.ClassNotice|wire.Durable, "never")
		e.c.CloseWith(code, "going")
		c.wantClose(int(code))
		wantReason(t, e, "going")
		e.c.outboxMu.Lock()
		if n := e.c.box.heldBytes(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
		e.c.outboxMu.Unlock()
	}
}

// What is held counts: a peer for which too much is held is let go.
func TestHeldIsBounded(t *testing.T) {
	f, m := serveHeld(t, func(o *Options) { o.MaxOutbox, o.CommandWindow = 4000, 2000 })
	c := f.dial()
	e := f.session()
	m.appended.Store(1)
	kb := make([]byte, 1000)
	for i := range kb {
		kb[i] = 'x'
	}
	for range 2 {
		e.c.Append(wire.ClassNotice|wire.Durable, kb, nil, nil)
	}
	if got := e.c.Append(wire.ClassCommand|wire.Durable, kb, nil, nil); got != wire.Full {
		t.Errorf("a command beyond the window: %v", got)
	}
	m.stored.Store(1)
	f.s.JournalStored()
	c.expect(string(kb))
	c.expect(string(kb))
	select {
	case <-e.writable:
	case <-time.After(patience):
		t.Fatal("it is not said to be writable again")
	}
	m.appended.Store(2)
	for e.c.Append(wire.ClassNotice|wire.Durable, kb, nil, nil) == wire.Accepted {
	}
	c.wantClose(4429)
}

// Many append while the journal moves: each sees its own in order, none before its mark.
func TestHeldInOrder(t *testing.T) {
	const conns, writers, n = 8, 3, 2000
	f, m := serveHeld(t, func(o *Options) { o.CommandWindow = 16 << 20 })
	var readers, all sync.WaitGroup
	stop := m.commit(f)
	for range conns {
		c := f.dial()
		e := f.session()
		for w := range writers {
			all.Go(func() {
				for i := range n {
					class := wire.ClassNotice | wire.Durable
					mark := m.appended.Add(uint64(i % 2))
					if i%3 == 0 {
						class = wire.ClassCommand // goes behind what waits; or at once, then it has no mark
						mark = 0
					}
					e.c.Append(class, fmt.Appendf(nil, "%d %d %d", w, i, mark), nil, nil)
				}
			})
		}
		readers.Go(func() {
			var next [writers]int
			for range writers * n {
				_, b, err := c.tryNext()
				var w, i int
				var mark uint64
				if _, serr := fmt.Sscan(string(b), &w, &i, &mark); err != nil || serr != nil {
					t.Errorf("%q: %v, %v", b, err, serr)
					return
				}
				if stored := m.stored.Load(); mark > stored {
					t.Errorf("a message of mark %d came at %d", mark, stored)
				}
				if i < next[w] || i%3 != 0 && i > next[w]+2 {
					t.Errorf("writer %d: %s after %d", w, strconv.Itoa(i), next[w])
				}
				next[w] = i
			}
		})
	}
	readers.Wait()
	all.Wait()
	stop()
}

// holding has every answer wait for the mark that is appended then.
func holding(m *marks) func(*Options) {
	return func(o *Options) {
		promptly(o)
		o.Journal = m
		o.HTTP = func(ctx *fasthttp.RequestCtx) {
			Hold(ctx, m.appended.Load())
			api(ctx)
		}
	}
}

func TestAnswersWaitForTheJournal(t *testing.T) {
	m := &marks{}
	f := serve(t, holding(m))
	m.appended.Store(1)
	c := f.tcp()
	br := bufio.NewReader(c)
	_, _ = io.WriteString(c, post)
	until(t, "the answer to be held", func() bool { return len(f.heldConns()) == 1 })
	_, _ = io.WriteString(c, post+get) // what comes meanwhile waits, too
	m.stored.Store(1)
	f.s.JournalStored()
	for _, want := range []string{"3", "3", "hello /x"} {
		if r, body := readAnswer(t, br, post); r.StatusCode != 200 || body != want {
			t.Fatalf("%s %q, want %q", r.Status, body, want)
		}
	}
	if n := f.onGoroutines(); n != 1 {
		t.Errorf("%d connections on goroutines after the GET", n)
	}
}

// heldConns are the connections that the loops know to wait for the journal.
func (f *fixture) heldConns() (all []*Conn) {
	for _, l := range f.s.loops {
		l.mu.Lock()
		all = append(all, l.asked.held...)
		l.mu.Unlock()
	}
	return all
}

// An answer that waits too long is not given at all.
func TestAnswersThatAreNeverStored(t *testing.T) {
	m := &marks{}
	f := serve(t, func(o *Options) { holding(m)(o); o.HoldTimeout = 30 * time.Millisecond })
	m.appended.Store(1)
	c := f.tcp()
	_, _ = io.WriteString(c, strings.Repeat(post, 3))
	if all, _ := io.ReadAll(c); len(all) > 0 {
		t.Errorf("it is answered with %q", all)
	}
	until(t, "it to be gone", func() bool { return f.s.stats.total.Load() == 0 && f.s.Stats().HTTP == 0 })
}

// A server that goes down gives the answers that wait, and then ends the connection.
func TestHeldAnswersAtTheEnd(t *testing.T) {
	m := &marks{}
	f := serve(t, holding(m))
	m.appended.Store(1)
	c := f.tcp()
	_, _ = io.WriteString(c, post)
	until(t, "the answer to be held", func() bool { return len(f.heldConns()) == 1 })
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ended <- f.s.Shutdown(ctx)
	}()
	until(t, "the drain to have begun", func() bool {
		l := f.heldConns()[0].l
		l.mu.Lock()
		defer l.mu.Unlock()
		return f.s.draining.Load() && !l.asked.drain
	})
	m.stored.Store(1)
	f.s.JournalStored()
	br := bufio.NewReader(c)
	if r, body := readAnswer(t, br, post); r.StatusCode != 200 || body != "3" {
		t.Errorf("%s %q", r.Status, body)
	}
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Errorf("then came %q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
