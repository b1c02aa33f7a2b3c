package front

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

func TestEcho(t *testing.T) {
	f := serve(t, nil)
	c := f.dial()
	for _, n := range []int{0, 1, 125, 126, 127, 128, 65535, 65536, 65537, 1 << 20} {
		s := strings.Repeat("x", n)
		c.write(text(s))
		c.expect(s)
	}
	c.write(frame(ws.OpBinary, true, []byte("binary")))
	c.expect("binary")
	c.write(frame(ws.OpBinary, true, []byte("\xff")), text("after"))
	c.expect("invalid")
	c.expect("after")
	if got := f.session().invalid.Load(); got != 1 {
		t.Errorf("%d invalid messages", got)
	}
	if got := f.s.Stats(); got.PartialBytes != 0 || got.WebSockets != 1 || got.Waiting != 0 {
		t.Errorf("stats %+v", got)
	}
}

func TestSplitAtEveryByte(t *testing.T) {
	f := serve(t, nil)
	c := f.dial()
	b := join(text("first"), frame(ws.OpText, false, []byte("sec")), frame(ws.OpPing, true, []byte("p")), frame(ws.OpContinuation, true, []byte("ond")))
	for cut := 1; cut < len(b); cut++ {
		c.write(b[:cut])
		c.write(b[cut:])
		got := map[string]bool{}
		for range 3 {
			op, p := c.next()
			got[string(rune('0'+op))+string(p)] = true
		}
		if !got["1first"] || !got[":p"] || !got["1second"] {
			t.Fatalf("cut at %d: %v", cut, got)
		}
	}
	for i := range b {
		c.write(b[i : i+1])
	}
	c.expect("first")
}

// Every violation, on the socket: the code, then the end of TCP, and the reason.
func TestViolations(t *testing.T) {
	f := serve(t, func(o *Options) { o.MaxMessage = limit })
	for _, tc := range readings {
		if !strings.HasPrefix(tc.want, "7 ") {
			continue
		}
		c := f.dial()
		c.write(join(text("before"), tc.input, text("not read")))
		c.expect("before")
		code := int(tc.want[2]-'0')*1000 + int(tc.want[5]-'0')
		if got, _ := c.closes(); got != code {
			t.Errorf("%s: closed with %d, want %d", tc.name, got, code)
		}
		c.wantEOF()
		wantReason(t, f.session(), violationText(uint16(code)))
		_ = c.conn.Close()
	}
	until(t, "no connection left", func() bool { return f.s.stats.total.Load() == 0 })
}

func TestOneMebibyteIsTheLimit(t *testing.T) {
	f := serve(t, nil)
	c := f.dial()
	whole := strings.Repeat("x", 1<<20)
	c.write(frame(ws.OpBinary, true, []byte(whole)))
	c.expect(whole)
	c.write(text(whole + "x")[:20])
	c.wantClose(1009)

	c = f.dial()
	for i := range 16 {
		op := ws.OpContinuation
		if i == 0 {
			op = ws.OpText
		}
		c.write(frame(op, false, make([]byte, 65536)))
	}
	c.write(frame(ws.OpContinuation, true, nil))
	c.expect(strings.Repeat("\x00", 1<<20))
}

func TestPings(t *testing.T) {
	f := serve(t, nil)
	c := f.dial()
	var burst []byte
	for i := range 10 {
		burst = append(burst, frame(ws.OpPing, true, []byte{byte(i)})...)
	}
	c.write(burst, frame(ws.OpPong, true, []byte("unasked")))
	for i := range 10 {
		if op, p := c.next(); op != ws.OpPong || !bytes.Equal(p, []byte{byte(i)}) {
			t.Fatalf("pong %d: %x %q", i, op, p)
		}
	}
}

func TestPeerCloses(t *testing.T) {
	f := serve(t, nil)
	for _, tc := range []struct {
		body []byte
		want int
	}{{nil, 1000}, {closeBody(1000, "bye"), 1000}, {closeBody(3001, ""), 3001}, {closeBody(4999, strings.Repeat("r", 123)), 4999}} {
		c := f.dial()
		c.write(text("before"), frame(ws.OpClose, true, tc.body), text("after"))
		c.expect("before")
		c.wantClose(tc.want)
		c.wantEOF()
		wantReason(t, f.session(), reasonPeerClosed)
	}
	c := f.dial()
	e := f.session()
	_ = c.conn.Close()
	wantReason(t, e, reasonPeerClosed)
	if got := e.c.Append(wire.ClassNotice, []byte("x"), nil, nil); got != wire.Gone {
		t.Errorf("Append after the end: %v", got)
	}
	until(t, "no connection left", func() bool { return f.s.stats.total.Load() == 0 })
}

func TestCloseWith(t *testing.T) {
	f := serve(t, func(o *Options) { o.LingerTimeout = time.Hour }) // it ends by the peer's answer
	c := f.dial()
	e := f.session()
	for range 100 {
		e.c.Append(wire.ClassNotice, []byte("queued"), nil, nil)
	}
	e.c.CloseWith(4409, "superseded")
	e.c.CloseWith(4400, "only the first counts")
	if got := e.c.Append(wire.ClassCommand, []byte("x"), nil, nil); got != wire.Gone {
		t.Errorf("Append after CloseWith: %v", got)
	}
	c.write(text("not received"))
	for range 100 {
		c.expect("queued")
	}
	if code, reason := c.closes(); code != 4409 || reason != "superseded" {
		t.Errorf("closed with %d %q", code, reason)
	}
	wantReason(t, e, "superseded")
	c.wantEOF()
	// The peer answers, and what it sent before is thrown away.
	c.write(text("late"), frame(ws.OpClose, true, closeBody(4409, "")))
	until(t, "no connection left", func() bool { return f.s.stats.total.Load() == 0 })
	select {
	case r := <-e.closed:
		t.Errorf("Closed was called again: %s", r)
	default:
	}
}

// CloseWith from inside Receive: the rest of the segment is not received.
func TestCloseWithFromReceive(t *testing.T) {
	n := 0
	f := serve(t, receiving(func(e *echo, _ []byte) {
		n++
		e.c.Append(wire.ClassNotice, []byte("bye"), nil, nil)
		e.c.CloseWith(4400, "enough")
	}))
	c := f.dial()
	c.write(text("one"), text("two"), text("three"))
	c.expect("bye")
	c.wantClose(4400)
	wantReason(t, f.session(), "enough")
	if n != 1 {
		t.Errorf("%d messages were received", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	f := serve(t, func(o *Options) { o.Open = func(*Conn, wire.Time) Session { return nil } })
	c := f.dial(text("early")...)
	c.wantClose(1013)
	c.wantEOF()
}

// A peer that resets the connection leaves nothing behind.
func TestResets(t *testing.T) {
	f := serve(t, withAPI)
	for i := range 200 {
		conn := f.tcp()
		switch i % 4 {
		case 0:
			_, _ = io.WriteString(conn, request)
		case 1:
			_, _ = io.WriteString(conn, request+string(text("x"))[:3])
		case 2:
			_, _ = io.WriteString(conn, get[:len(get)-2])
		case 3:
			_, _ = io.WriteString(conn, get)
		}
		_ = conn.(interface{ SetLinger(int) error }).SetLinger(0)
		_ = conn.Close()
	}
	until(t, "no connection left", func() bool {
		st := f.s.Stats()
		return f.s.stats.total.Load() == 0 && st.Waiting == 0 && st.HTTP == 0 && st.WebSockets == 0 && st.PartialBytes == 0
	})
	c := f.dial()
	c.write(text("alive"))
	c.expect("alive")
}
