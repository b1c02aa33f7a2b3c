package socket

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestStopWithEverythingOpen stops with connections of each kind, dials that wait, and a
// schedule; the server's half is not part of what is counted.
func TestStopWithEverythingOpen(t *testing.T) {
	s := listen(t, upgrade(echo))
	silent := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	before, running := descriptors(t), goleak.IgnoreCurrent()

	e, err := Start(Options{Loops: 2, Dials: 20})
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	closed := make(chan error, 4*n)
	var opened atomic.Int64
	for i := range n {
		p := &party{opened: make(chan *Conn, 1), closed: closed, messages: make(chan string, 1)}
		p.onOpen = func(c *Conn) {
			opened.Add(1)
			switch i % 3 {
			case 1:
				c.Close(1000, "")
			case 2:
				c.Send(make([]byte, 300_000))
			}
		}
		e.Dial(e.Loops()[i%2], Target{Address: s.addr}, p)
	}
	until(t, "the connections", func() bool { return opened.Load() == n })
	for i := range n { // more than are dialled at a time
		e.Dial(e.Loops()[i%2], Target{Address: silent.addr}, &callback{close: func(c *Conn, err error) {
			closed <- err
			// It must not go on for ever.
			e.Dial(c.Loop(), Target{Address: s.addr}, &callback{close: func(*Conn, error) { t.Error("told of a dial after Stop") }})
		}})
	}
	var ticks atomic.Int64
	stop := e.Every(time.Millisecond, func(*Loop, int64, int64) { ticks.Add(1) })
	e.Every(time.Hour, func(*Loop, int64, int64) { t.Error("a tick an hour early") })
	until(t, "ticks", func() bool { return ticks.Load() > 10 })

	e.Stop()
	e.Stop()
	stop()
	if len(closed) != 2*n {
		t.Errorf("%d of %d connections were told of their end", len(closed), 2*n)
	}
	for range len(closed) {
		var goodbye *CloseError
		if err := <-closed; !errors.Is(err, ErrStopped) && !errors.As(err, &goodbye) {
			t.Errorf("ended with %v", err)
		}
	}
	if err := e.Loops()[0].Do(func() { t.Error("called after Stop") }); !errors.Is(err, ErrStopped) {
		t.Errorf("Do after Stop: %v", err)
	}
	e.Every(time.Millisecond, func(*Loop, int64, int64) { t.Error("a tick after Stop") })()

	until(t, "the server's ends", func() bool {
		s.mu.Lock()
		silent.mu.Lock()
		defer s.mu.Unlock()
		defer silent.mu.Unlock()
		return len(s.open)+len(silent.open) == 0
	})
	until(t, "the descriptors", func() bool { return descriptors(t) <= before })
	if err := goleak.Find(running); err != nil {
		t.Error(err)
	}
}

func TestDo(t *testing.T) {
	e := start(t, Options{})
	l := e.Loops()[0]
	if l.Engine() != e {
		t.Error("the loop is another engine's")
	}
	var order []int
	var first, last int64
	do(t, l, func() { // calls that wait together run in one round, in order
		for i := range 100 {
			if err := l.Do(func() {
				if order = append(order, i); i == 0 {
					first = l.Now()
				}
				last = l.Now()
			}); err != nil {
				t.Error(err)
			}
		}
	})
	do(t, l, func() {})
	if len(order) != 100 || !slices.IsSorted(order) {
		t.Errorf("ran in the order %v", order)
	}
	if first != last || first <= 0 || first > e.Now() {
		t.Errorf("the clock went from %d to %d in one round", first, last)
	}
}

// TestDoStarvesNoSocket lets a call ask for itself for ever; messages still come.
func TestDoStarvesNoSocket(t *testing.T) {
	e := start(t, Options{})
	s := listen(t, upgrade(echo))
	p := newParty()
	c := dial(t, e, s.addr, p)
	var again func()
	rounds := 0
	again = func() {
		rounds++
		_ = c.Loop().Do(again)
	}
	do(t, c.Loop(), func() {
		again()
		c.Send([]byte("hello"))
	})
	if got := receive(t, "an echo", p.messages); got != "hello" {
		t.Errorf("got %q", got)
	}
}

func TestDoIsBounded(t *testing.T) {
	e := start(t, Options{})
	l := e.Loops()[0]
	inside, release := make(chan struct{}), make(chan struct{})
	_ = l.Do(func() { close(inside); <-release })
	receive(t, "the loop", inside)
	ran := 0
	for range maxCalls {
		if err := l.Do(func() { ran++ }); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Do(func() { t.Error("one too many") }); !errors.Is(err, ErrLoopFull) {
		t.Errorf("got %v", err)
	}
	close(release)
	until(t, "room", func() bool { return l.Do(func() {}) == nil })
	do(t, l, func() {})
	if ran != maxCalls {
		t.Errorf("%d of %d calls ran", ran, maxCalls)
	}
}
