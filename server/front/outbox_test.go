package front

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

// Many goroutines append; the order of each is kept, and nothing is lost or mixed.
func TestAppendFromManyGoroutines(t *testing.T) {
	f := serve(t, nil)
	c := f.dial()
	e := f.session()
	const writers, each = 8, 2000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			pad := strings.Repeat("x", 50*w)
			for i := range each {
				if r := e.c.Append(wire.ClassNotice, fmt.Appendf(nil, "%d %d ", w, i), []byte(pad), nil); r != wire.Accepted {
					t.Errorf("writer %d, message %d: %v", w, i, r)
					return
				}
			}
		})
	}
	var next [writers]int
	for range writers * each {
		op, b := c.next()
		var w, i int
		if _, err := fmt.Sscanf(string(b), "%d %d ", &w, &i); op != ws.OpText || err != nil {
			t.Fatalf("%x %q: %v", op, b, err)
		}
		if i != next[w] || len(b) != len(fmt.Sprintf("%d %d ", w, i))+50*w {
			t.Fatalf("from writer %d came %d, want %d", w, i, next[w])
		}
		next[w]++
	}
	wg.Wait()
}

// small makes the peer's buffer small, so that it is felt when it does not read (but
// not smaller than a segment on loopback: such windows open in slow steps).
func small(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetReadBuffer(128 << 10)
}

// fill appends commands until the connection is full, and returns how many it took.
func fill(t testing.TB, c *Conn, msg []byte) (n int) {
	for range 10_000 {
		switch r := c.Append(wire.ClassCommand, msg, nil, nil); r {
		case wire.Accepted:
			n++
		case wire.Full:
			return n
		default:
			t.Fatalf("append: %v", r)
		}
	}
	t.Fatal("never full")
	return 0
}

func TestFullAndWritable(t *testing.T) {
	f := serve(t, nil)
	c := f.dial()
	e := f.session()
	msg := []byte(strings.Repeat("x", 10_000))
	total := 0
	full := func() bool { // until the socket takes no more
		total += fill(t, e.c, msg)
		select {
		case <-e.writable:
			return false
		case <-time.After(100 * time.Millisecond):
			return true
		}
	}
	for !full() {
	}
	e.c.outboxMu.Lock()
	waiting := e.c.box.waiting
	e.c.outboxMu.Unlock()
	if waiting > f.s.o.CommandWindow+len(msg)+maxHead {
		t.Errorf("%d bytes wait", waiting)
	}
	for range total {
		c.expect(string(msg))
	}
	select {
	case <-e.writable:
	case <-time.After(patience):
		t.Fatal("Writable was not called")
	}
	c.write(text("still"))
	c.expect("still")
}

// No wake-up is lost: whenever an append says Full, Writable follows.
func TestNoWritableIsLost(t *testing.T) {
	const senders, each = 4, 3000
	f := serve(t, func(o *Options) { o.CommandWindow = 2000 })
	c := f.dial()
	e := f.session()
	var mu sync.Mutex // as the router's lock of an edge's queue
	left := senders * each
	pump := func() {
		mu.Lock()
		defer mu.Unlock()
		for left > 0 && e.c.Append(wire.ClassCommand, []byte("command"), []byte(strings.Repeat("x", left%300)), nil) == wire.Accepted {
			left--
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-e.writable:
				pump()
			case <-stop:
				return
			}
		}
	})
	pump()
	for range senders * each {
		if op, _ := c.next(); op != ws.OpText {
			t.Fatalf("frame %x", op)
		}
	}
	close(stop)
	wg.Wait()
}

// A peer that does not read: notices up to the bound, then 4429; status is dropped
// early; memory is bounded; others are served.
func TestStuckReader(t *testing.T) {
	f := serve(t, func(o *Options) {
		o.MaxOutbox, o.StatusLimit = 1<<20, 100_000
		o.CloseTimeout = 50 * time.Millisecond
	})
	conn := f.tcp()
	small(conn)
	open(t, conn, nil)
	stuck := f.session()
	other := f.dial()
	msg := []byte(strings.Repeat("x", 20_000))
	var dropped int
	peak := 0
	for i := 0; ; i++ {
		if i > 5000 {
			t.Fatal("the stuck peer is not closed")
		}
		if stuck.c.Append(wire.ClassStatus, msg, nil, nil) == wire.Dropped {
			dropped++
		}
		stuck.c.outboxMu.Lock()
		peak = max(peak, stuck.c.box.waiting)
		stuck.c.outboxMu.Unlock()
		if stuck.c.Append(wire.ClassNotice, msg, nil, nil) == wire.Gone {
			break
		}
	}
	wantReason(t, stuck, reasonTooSlow)
	if peak > 1<<20 || dropped == 0 {
		t.Errorf("%d bytes waited, %d status dropped", peak, dropped)
	}
	other.write(text("served"))
	other.expect("served")
	until(t, "the stuck connection is gone", func() bool { return f.s.Stats().WebSockets == 1 })
	f.wantClosed("too_slow")
}

// One that reads on after it was told off gets whole frames, then 4429.
func TestTooSlowGetsItsCode(t *testing.T) {
	f := serve(t, func(o *Options) { o.MaxOutbox = 1 << 20; o.CloseTimeout = patience })
	conn := f.tcp()
	small(conn)
	c := open(t, conn, nil)
	e := f.session()
	msg := []byte(strings.Repeat("x", 20_000))
	for e.c.Append(wire.ClassNotice, msg, nil, nil) == wire.Accepted {
	}
	c.wantClose(4429) // and every frame before it was whole
}

// All outboxes together are bounded, and what waited is given back.
func TestAllOutboxesTogether(t *testing.T) {
	f := serve(t, func(o *Options) { o.MaxWaiting = 4 << 20; o.CloseTimeout = 50 * time.Millisecond })
	msg := []byte(strings.Repeat("x", 20_000))
	var all []*echo
	for range 4 {
		conn := f.tcp()
		small(conn)
		open(t, conn, nil)
		e := f.session()
		all = append(all, e)
		for sent := 0; sent < 10<<20; sent += len(msg) { // below MaxOutbox
			if e.c.Append(wire.ClassNotice, msg, nil, nil) == wire.Gone {
				break
			}
		}
	}
	until(t, "some are let go", func() bool {
		st := f.s.Stats()
		return st.Closed[closedTooSlow] > 0 && st.WaitingBytes <= f.s.o.MaxWaiting
	})
	for _, e := range all {
		e.c.CloseWith(wire.CloseTooSlow, "")
	}
	until(t, "all is given back", func() bool { return f.s.Stats().WaitingBytes == 0 })
}

// A flood of pings from a peer that does not read grows nothing; the last is answered.
func TestPingFlood(t *testing.T) {
	f := serve(t, nil)
	conn := f.tcp()
	small(conn)
	c := open(t, conn, nil)
	e := f.session()
	var sent atomic.Int64
	go func() {
		var burst []byte
		for i := range 100 {
			burst = append(burst, frame(ws.OpPing, true, []byte(fmt.Sprintf("%0125d", i)))...)
		}
		for range 2000 {
			if _, err := conn.Write(burst); err != nil {
				return
			}
			sent.Add(1)
		}
		_, _ = conn.Write(frame(ws.OpPing, true, []byte("last")))
	}()
	until(t, "the pings are sent", func() bool { return sent.Load() == 2000 })
	e.c.outboxMu.Lock()
	if e.c.box.waiting > pongWindow+maxControl+maxHead {
		t.Errorf("%d bytes wait", e.c.box.waiting)
	}
	e.c.outboxMu.Unlock()
	for {
		op, p := c.next()
		if op != ws.OpPong {
			t.Fatalf("frame %x", op)
		}
		if string(p) == "last" {
			return
		}
	}
}

// A message in and a message out, through sockets, allocates nothing on either side.
func TestEchoAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	f := serve(t, func(o *Options) { o.Tick = time.Hour })
	c := f.dial()
	const n = 10
	burst := bytes.Repeat(text(strings.Repeat("x", 200)), n)
	answer := make([]byte, n*(4+200))
	roundTrip := func() {
		if _, err := c.conn.Write(burst); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c.conn, answer); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(2000, roundTrip); got > 0 {
		t.Errorf("%v allocations for %d messages", got, n)
	}
	e := f.session()
	a, b := burst[:200], []byte(`,"sourceClientId":"backend-1"}`)
	appendOne := func() {
		e.c.Append(wire.ClassNotice, a, b, nil)
		if _, err := io.ReadFull(c.conn, answer[:4+len(a)+len(b)]); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(2000, appendOne); got > 0 {
		t.Errorf("%v allocations for an append from another goroutine", got)
	}
}
