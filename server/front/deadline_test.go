package front

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

// timed starts a server whose time the test moves.
func timed(t *testing.T, change func(*Options)) *fixture {
	var c clock
	c.now.Store(1_700_000_000_000_000_000)
	f := serve(t, func(o *Options) {
		o.Clock = c.Now
		o.StallTimeout = time.Hour // acknowledgements take real time
		if change != nil {
			change(o)
		}
	})
	f.clock = &c
	return f
}

// advance moves time in steps that the loops can follow, so that they see each.
func (f *fixture) advance(d time.Duration, seen func() bool) {
	f.t.Helper()
	step := 250 * time.Millisecond
	if seen == nil {
		step = 5 * time.Second
	}
	for ; d > 0; d -= step {
		f.clock.Advance(min(step, d))
		f.settle()
		if seen != nil && seen() {
			return
		}
	}
}

// settle waits until every loop has looked over its deadlines at the present instant.
func (f *fixture) settle() {
	f.t.Helper()
	for _, l := range f.s.loops {
		before := l.looks.Load()
		until(f.t, "the deadlines are looked over", func() bool { return l.looks.Load() >= before+3 })
	}
}

// send writes and waits until the server has read it.
func (f *fixture) send(c *client, e *echo, b []byte) {
	f.t.Helper()
	f.clock.Advance(1)
	c.write(b)
	until(f.t, "the bytes are read", func() bool { return wire.Time(e.c.lastSeen.Load()) == f.clock.Now() })
}

func (e *echo) ended() bool { return len(e.closed) > 0 }

// since advances until the session ends and returns how long that took.
func (f *fixture) since(e *echo, most time.Duration) time.Duration {
	f.t.Helper()
	start := f.clock.Now()
	f.advance(most, e.ended)
	if !e.ended() {
		f.t.Fatalf("not closed after %v", most)
	}
	return time.Duration(f.clock.Now() - start)
}

func within(t *testing.T, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("after %v, want %v to %v", got, low, high)
	}
}

func TestNotRegisteredInTime(t *testing.T) {
	f := timed(t, nil)
	c := f.dial()
	e := f.session()
	e.registered.Store(false)
	f.advance(5*time.Second, nil)
	c.write(frame(ws.OpPing, true, nil), text("a message")) // these do not put it off
	c.next()
	c.expect("a message")
	within(t, 5*time.Second+f.since(e, 10*time.Second), 10*time.Second, 11*time.Second)
	c.wantClose(4408)
	wantReason(t, e, reasonUnregistered)
}

func TestRegisteredStays(t *testing.T) {
	f := timed(t, nil)
	c := f.dial()
	e := f.session()
	f.advance(30*time.Second, nil)
	c.write(text("x"))
	c.expect("x") // after a ping
	if e.ended() {
		t.Error("closed")
	}
}

func TestSilentPeer(t *testing.T) {
	f := timed(t, nil)
	c := f.dial()
	e := f.session()
	within(t, f.since(e, 100*time.Second), 60*time.Second, 65*time.Second)
	for range 1 { // it was asked, once: what waits is not asked again
		if op, _ := c.next(); op != ws.OpPing {
			t.Errorf("frame %x, want a ping", op)
		}
	}
	c.wantClose(4410)
	wantReason(t, e, reasonSilent)
	f.wantClosed("silent")
}

// Any byte is life: here one of a header every 50 s.
func TestAnyByteIsLife(t *testing.T) {
	f := timed(t, func(o *Options) { o.SlowTimeout = time.Hour })
	c := f.dial()
	e := f.session()
	b := text("slowly")
	for i := range b {
		f.advance(50*time.Second, nil)
		f.send(c, e, b[i:i+1])
	}
	c.expect("slowly")
	if e.ended() {
		t.Error("closed")
	}
}

func TestSlowMessage(t *testing.T) {
	f := timed(t, nil)
	c := f.dial()
	e := f.session()
	b := text(strings.Repeat("x", 100_000))
	feed := func(n int) { // a second's worth
		f.send(c, e, b[:n])
		b = b[n:]
		f.advance(time.Second, nil)
	}
	for range 40 {
		feed(1500)
	}
	if e.ended() {
		t.Fatal("closed although it was fast enough")
	}
	// From 60 kB after 40 s on 512 B a second: below the line after about 39 s more.
	secs := 0
	for ; !e.ended() && secs < 60; secs++ {
		feed(512)
	}
	within(t, time.Duration(secs)*time.Second, 35*time.Second, 45*time.Second)
	c.wantClose(4429)
	wantReason(t, e, reasonTooSlow)
}

func TestMessageThatStops(t *testing.T) {
	f := timed(t, nil)
	for _, b := range [][]byte{text("x")[:1], text("x")[:6], frame(ws.OpText, false, []byte("x")), frame(ws.OpPing, true, []byte("p"))[:6]} {
		c := f.dial()
		e := f.session()
		f.send(c, e, b)
		within(t, f.since(e, 40*time.Second), 30*time.Second, 32*time.Second)
		c.wantClose(4429)
	}
}

func TestStalledReader(t *testing.T) {
	f := timed(t, func(o *Options) {
		o.PingInterval, o.SilenceTimeout, o.StallTimeout = time.Hour, time.Hour, 30*time.Second
	})
	conn := f.tcp()
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	open(t, conn, nil)
	e := f.session()
	// All of it fits the kernels' buffers, more than the peer's takes and less than ours
	// does: nothing waits in the outbox, and still the peer does not get on.
	e.c.Append(wire.ClassNotice, []byte(strings.Repeat("x", 120_000)), nil, nil)
	until(t, "the socket has it", func() bool {
		e.c.outboxMu.Lock()
		defer e.c.outboxMu.Unlock()
		return e.c.box.waiting == 0
	})
	// The kernels go on moving data for some real time while ours runs fast.
	within(t, f.since(e, 120*time.Second), 29*time.Second, 100*time.Second)
	wantReason(t, e, reasonTooSlow)
}

// One that reads slowly but steadily stays.
func TestSlowReaderStays(t *testing.T) {
	f := timed(t, func(o *Options) {
		o.PingInterval, o.SilenceTimeout, o.StallTimeout = time.Hour, time.Hour, 100*time.Second
	})
	conn := f.tcp()
	small(conn)
	c := open(t, conn, nil)
	e := f.session()
	msg := strings.Repeat("x", 100_000)
	const n = 30
	for range n {
		e.c.Append(wire.ClassNotice, []byte(msg), nil, nil)
	}
	for range n {
		f.advance(10*time.Second, nil)
		c.expect(msg)
	}
	if e.ended() {
		t.Error("closed")
	}
}

func TestSlowHead(t *testing.T) {
	f := timed(t, nil)
	silent, slow := f.tcp(), f.tcp()
	_, _ = io.WriteString(slow, "GET / HTTP/1.1\r\nHost: ")
	until(t, "both are there", func() bool { return f.s.Stats().Waiting == 2 })
	f.advance(5*time.Second, nil)
	_, _ = io.WriteString(slow, "a\r\n") // does not put it off
	f.advance(11*time.Second, nil)       // the second may have been counted just before its clock was read
	if b, err := io.ReadAll(silent); len(b) != 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || r.StatusCode != 408 {
		t.Errorf("%v, %v", r, err)
	}
}

// After the process was held up for long, those whose bytes wait in their sockets
// are read before anybody is taken for silent.
func TestHeldUp(t *testing.T) {
	hold := make(chan struct{})
	f := timed(t, func(o *Options) {
		o.Loops, o.Tick = 1, 20*time.Millisecond
		receiving(func(e *echo, msg []byte) {
			if string(msg) == "hold" {
				<-hold // the whole loop
			}
			e.c.Append(wire.ClassNotice, msg, nil, nil)
		})(o)
	})
	holder, c := f.dial(), f.dial()
	f.session()
	e := f.session()
	l := f.s.loops[0]
	look := func() {
		before := l.looks.Load()
		f.clock.Advance(f.s.o.Tick)
		until(t, "the deadlines are looked over", func() bool { return l.looks.Load() > before })
	}
	look()
	holder.write(text("hold"))
	f.clock.Advance(2 * time.Minute)
	held := time.Now()
	until(t, "the tick is over, before the bytes come", func() bool { return time.Since(held) > (restTicks+1)*f.s.o.Tick })
	c.write(text("alive"))
	close(hold)
	holder.expect("hold")
	c.expect("alive")
	look()
	look()
	look()
	if e.ended() {
		t.Error("closed")
	}
}

// A peer that never answers our close is cut.
func TestLingerEnds(t *testing.T) {
	f := timed(t, func(o *Options) { o.LingerTimeout = 5 * time.Second })
	c := f.dial()
	e := f.session()
	e.c.CloseWith(wire.CloseSuperseded, "superseded")
	c.wantClose(4409)
	c.wantEOF()
	f.advance(4*time.Second, nil)
	if f.s.Stats().WebSockets != 1 {
		t.Error("cut too early")
	}
	f.advance(2*time.Second, nil)
	until(t, "it is gone", func() bool { return f.s.Stats().WebSockets == 0 })
}
