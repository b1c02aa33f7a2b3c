package socket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// goroutine names the goroutine that calls it.
func goroutine() string {
	var b [64]byte
	name, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(" ["))
	return string(name)
}

// TestCloseComesOnceOnItsLoop ends connections in every way there is.
func TestCloseComesOnceOnItsLoop(t *testing.T) {
	e := start(t, Options{Loops: 2, Goodbye: 50 * time.Millisecond})
	names := map[*Loop]string{}
	for _, l := range e.Loops() {
		do(t, l, func() { names[l] = goroutine() })
	}
	says := func(b []byte) string {
		return listen(t, upgrade(func(conn net.Conn) { _, _ = conn.Write(b); _, _, _ = next(conn) })).addr
	}
	echoes, deaf := listen(t, upgrade(echo)).addr, listen(t, upgrade(func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })).addr
	ways := []struct {
		addr string
		open func(*Conn)
	}{
		{"127.0.0.1:1", nil},
		{listen(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 404 No\r\n\r\n") }).addr, nil},
		{listen(t, upgrade(func(net.Conn) {})).addr, nil},
		{says(plain(ws.OpClose, "\x03\xe8")), nil},
		{says([]byte{0xff, 0}), nil},
		{says(plain(ws.OpText, "x")), (*Conn).Abort},
		{deaf, func(c *Conn) { c.Close(1000, "") }},
		{echoes, func(c *Conn) { c.Close(1000, ""); c.Abort(); c.Close(1001, "") }},
		{echoes, func(c *Conn) { c.Send(make([]byte, 17<<20)); c.Abort() }},
		{echoes, nil}, // open until Stop
	}
	var mu sync.Mutex
	ends, total := make([]int, 2*len(ways)), 0
	for i := range ends {
		way, l := ways[i/2], e.Loops()[i%2]
		p := newParty()
		p.onOpen = way.open
		e.Dial(l, Target{Address: way.addr}, &ending{p, func(c *Conn) {
			mu.Lock()
			defer mu.Unlock()
			if ends[i]++; c.Loop() != l || goroutine() != names[l] {
				t.Errorf("way %d: told on %s, want %s", i/2, goroutine(), names[l])
			}
			total++
			c.Send([]byte("x")) // what a careless handler does
			c.Close(1000, "")
			c.Abort()
		}})
		if i/2 == len(ways)-1 {
			receive(t, "an open connection", p.opened)
		}
	}
	until(t, "the ends", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return total >= len(ends)-2
	})
	e.Stop()
	if slices.Min(ends) != 1 || slices.Max(ends) != 1 {
		t.Errorf("told of the end %v times", ends)
	}
}

// ending is a party with something to do at the end.
type ending struct {
	*party
	end func(*Conn)
}

func (h *ending) Close(c *Conn, _ error) { h.end(c) }

// TestDialsWaitInOrder makes one dial at a time, the first of them held up: Dial returns
// all the same, and the others come in their order.
func TestDialsWaitInOrder(t *testing.T) {
	const n = 100
	e := start(t, Options{Dials: 1})
	held, paths := make(chan struct{}), make(chan string, n)
	s := listen(t, func(conn net.Conn) {
		buf := make([]byte, 4096)
		m, _ := conn.Read(buf)
		<-held
		paths <- strings.Fields(string(buf[:m]) + " none none")[1]
		_, _ = io.WriteString(conn, "HTTP/1.1 503 No\r\n\r\n")
	})
	for i := range n {
		e.Dial(e.Loops()[0], Target{Address: s.addr, Path: fmt.Sprint("/", i)}, &callback{close: func(*Conn, error) {}})
	}
	close(held)
	for i := range n {
		if got := receive(t, "a handshake", paths); got != fmt.Sprint("/", i) {
			t.Fatalf("handshake %d is of %s", i, got)
		}
	}
}

// TestGoodbyeIsBoundedOnAFullLoop lets the time of a goodbye pass while a loop takes no
// more calls: it must not be lost.
func TestGoodbyeIsBoundedOnAFullLoop(t *testing.T) {
	e := start(t, Options{Goodbye: 200 * time.Millisecond})
	deaf := listen(t, upgrade(func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	p := newParty()
	c := dial(t, e, deaf.addr, p)
	l := c.Loop()
	inside, release := make(chan struct{}), make(chan struct{})
	if err := l.Do(func() { c.Close(1000, ""); close(inside); <-release }); err != nil {
		t.Fatal(err)
	}
	receive(t, "the loop", inside)
	l.mu.Lock()
	for len(l.calls) < maxCalls {
		l.calls = append(l.calls, func() {})
	}
	l.ringLocked()
	l.mu.Unlock()
	if err := l.Do(func() {}); !errors.Is(err, ErrLoopFull) {
		t.Errorf("a full loop answers %v", err)
	}
	defer close(release)
	until(t, "the time limit on the queue", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.calls) > maxCalls
	})
	release <- struct{}{}
	if err := receive(t, "the end", p.closed); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("closed with %v", err)
	}
}
