package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

func TestEchoInOrder(t *testing.T) {
	const conns, each = 50, 200
	e := start(t, Options{Loops: 2})
	s := listen(t, upgrade(echo))
	rng := seeded(t)
	var parties []*party
	for i := range conns {
		var sizes [each]int
		for j := range sizes {
			sizes[j] = rng.IntN(300)
		}
		sizes[rng.IntN(each)] = 1 << (10 + rng.IntN(10))
		p, got := newParty(), 0
		message := func(n int) []byte { return fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", sizes[n])) }
		p.onOpen = func(c *Conn) {
			for n := range each / 2 {
				c.Send(message(n))
			}
		}
		p.onMessage = func(c *Conn, msg []byte) {
			if !bytes.Equal(msg, message(got)) {
				c.Abort()
				return
			}
			if sent := got + each/2; sent < each {
				c.Send(message(sent))
			}
			if got++; got == each {
				c.Close(1000, "")
			}
		}
		parties = append(parties, p)
		e.Dial(e.Loops()[i%2], Target{Address: s.addr}, p)
	}
	for i, p := range parties {
		var closed *CloseError
		if err := receive(t, "the end", p.closed); !errors.As(err, &closed) || closed.Code != 1000 || closed.Remote {
			t.Errorf("connection %d ended with %v", i, err)
		}
	}
}

func TestSendsOfARoundLeaveInOneWrite(t *testing.T) {
	e := start(t, Options{})
	conns := make(chan net.Conn, 1)
	s := listen(t, upgrade(func(conn net.Conn) {
		conns <- conn
		_, _ = io.Copy(io.Discard, conn)
	}))
	c := dial(t, e, s.addr, newParty())
	conn := receive(t, "the server's end", conns)
	bytesIn, before := segments(t, conn)
	do(t, c.Loop(), func() {
		for range 100 {
			c.Send(make([]byte, 100))
		}
		if want := 100 * (2 + 4 + 100); c.Waiting() != want {
			t.Errorf("%d bytes wait before the end of the round, want %d", c.Waiting(), want)
		}
	})
	var got uint64
	var after uint32
	until(t, "100 messages", func() bool {
		got, after = segments(t, conn)
		return got-bytesIn == 100*(2+4+100)
	})
	if after-before != 1 {
		t.Errorf("100 messages of one round came in %d segments, want 1", after-before)
	}
}

// segments is how many bytes and data segments a connection has received.
func segments(t *testing.T, conn net.Conn) (received uint64, in uint32) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			received, in = info.Bytes_received, info.Data_segs_in
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return received, in
}

// A peer that pings and never reads gets pongs until some wait, and no more.
func TestPingsOfOneThatDoesNotRead(t *testing.T) {
	e := start(t, Options{})
	sent, release := make(chan error, 1), make(chan struct{})
	deaf := listen(t, upgrade(func(c net.Conn) {
		var err error
		ping := bytes.Repeat(ws.MustCompileFrame(ws.NewPingFrame(make([]byte, 125))), 1000)
		for range 300 { // 38 MB of pongs: more than the kernel takes
			if _, err = c.Write(ping); err != nil {
				break
			}
		}
		sent <- err
		<-release
	}))
	defer close(release)
	c := dial(t, e, deaf.addr, newParty())
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	waiting := 0
	do(t, c.Loop(), func() { waiting = c.Waiting() })
	if waiting < pongRoom || waiting > pongRoom+200 {
		t.Errorf("%d bytes wait, want little more than %d", waiting, pongRoom)
	}
}

func TestOutboxFull(t *testing.T) {
	e := start(t, Options{MaxOutbox: 1 << 20})
	release := make(chan struct{})
	deaf := listen(t, upgrade(func(net.Conn) { <-release }))
	defer close(release)
	s := listen(t, upgrade(echo))

	slow, quick := newParty(), newParty()
	c, other := dial(t, e, deaf.addr, slow), dial(t, e, s.addr, quick)
	most, msg := 0, make([]byte, 32<<10)
	for i := 0; ; i++ {
		over := false
		do(t, c.Loop(), func() {
			c.Send(msg)
			most = max(most, c.Waiting())
			other.Send(fmt.Append(nil, i))
		})
		if got := receive(t, "the other's echo", quick.messages); got != fmt.Sprint(i) {
			t.Fatalf("the other got %q for %d", got, i)
		}
		select {
		case err := <-slow.closed:
			if over = true; !errors.Is(err, ErrOutboxFull) {
				t.Errorf("closed with %v", err)
			}
		default:
		}
		if over {
			break
		}
		if i == 10_000 {
			t.Fatal("300 MB were taken for a peer that does not read")
		}
	}
	if limit := 1<<20 + 64<<10; most > limit {
		t.Errorf("%d bytes waited, the limit is %d", most, 1<<20)
	}
	do(t, c.Loop(), func() {
		if c.Waiting() != 0 || c.LocalAddr() != nil {
			t.Error("a connection that is gone has bytes or an address")
		}
		c.Send(msg)
		c.Close(1000, "")
		c.Abort()
	})
}

// TestAnyCuts sends a stream of messages, fragments and pings, cut into segments at
// random, the first of them with the answer to the handshake.
func TestAnyCuts(t *testing.T) {
	e := start(t, Options{})
	rng := seeded(t)
	for range 30 {
		var stream []byte
		var want, pings []string
		for i := range 20 {
			msg := fmt.Sprint(i, strings.Repeat("é", rng.IntN(1<<rng.IntN(15))))
			want = append(want, msg)
			op, rest := ws.OpText, []byte(msg)
			if rng.IntN(2) == 0 {
				op = ws.OpBinary
			}
			for rng.IntN(3) > 0 {
				n := rng.IntN(len(rest) + 1)
				stream = appendPlain(stream, op, false, rest[:n])
				op, rest = ws.OpContinuation, rest[n:]
				if rng.IntN(2) == 0 {
					pings = append(pings, fmt.Sprint("ping", len(pings)))
					stream = append(stream, plain(ws.OpPing, pings[len(pings)-1])...)
				}
			}
			stream = appendPlain(stream, op, true, rest)
		}
		stream = append(stream, plain(ws.OpPong, "unasked")...)
		first := rng.IntN(200)
		cuts := []int{first}
		for at := first; at < len(stream); {
			at = min(at+1+rng.IntN(1<<rng.IntN(17)), len(stream))
			cuts = append(cuts, at)
		}
		s := listen(t, func(conn net.Conn) {
			both := &pair{conn: conn}
			if _, err := ws.Upgrade(both); err != nil {
				return
			}
			_, _ = conn.Write(append(both.answer, stream[:first]...))
			for i, at := range cuts[1:] {
				_, _ = conn.Write(stream[cuts[i]:at])
			}
			for _, p := range pings {
				if op, payload, err := next(conn); op != ws.OpPong || string(payload) != p || err != nil {
					t.Errorf("a frame %v %q (%v), want a pong %q", op, payload, err, p)
				}
			}
			_, _ = conn.Write(plain(ws.OpText, "end"))
			_, _, _ = next(conn)
		})
		p := newParty()
		c := dial(t, e, s.addr, p)
		for i, want := range append(want, "end") {
			if got := receive(t, "a message", p.messages); got != want {
				t.Fatalf("message %d has %d bytes, want %d: %.40q", i, len(got), len(want), got)
			}
		}
		do(t, c.Loop(), c.Abort)
		s.stop()
	}
}

// pair reads from a connection and keeps what is written.
type pair struct {
	conn   net.Conn
	answer []byte
}

func (p *pair) Read(b []byte) (int, error) { return p.conn.Read(b) }
func (p *pair) Write(b []byte) (int, error) {
	p.answer = append(p.answer, b...)
	return len(b), nil
}

func TestViolations(t *testing.T) {
	e := start(t, Options{MaxMessage: 1000})
	text := func(b ...byte) string { return string(b) }
	for _, c := range []struct {
		name, send string
		code       uint16
		rule       string // of a ProtocolError; empty: ErrTooBig
	}{
		{"masked", text(0x81, 0x81, 1, 2, 3, 4, 5), 1002, "mask"},
		{"reserved bit", text(0xc1, 0), 1002, "rsv"},
		{"reserved opcode", text(0x83, 0), 1002, "reserved"},
		{"reserved control opcode", text(0x8b, 0), 1002, "reserved"},
		{"long ping", text(0x89, 126, 0, 126), 1002, "control frame"},
		{"ping in parts", text(0x09, 0), 1002, "control frame"},
		{"continuation of nothing", text(0x80, 0), 1002, "continuation"},
		{"message in a message", text(0x01, 0, 0x81, 0), 1002, "continuation"},
		{"short in 16 bits", text(0x81, 126, 0, 125), 1002, "minimal"},
		{"short in 64 bits", text(0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff), 1002, "minimal"},
		{"64 bits", text(0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0), 1002, "63 bits"},
		{"text of no UTF-8", text(0x81, 1, 0xff), 1007, "UTF-8"},
		{"close of one byte", text(0x88, 1, 3), 1002, "half a code"},
		{"close code", text(0x88, 2, 3, 0xed), 1002, "close code"},
		{"close code 5000", text(0x88, 2, 0x13, 0x88), 1002, "close code"},
		{"close reason", text(0x88, 3, 3, 0xe8, 0xff), 1002, "close reason"},
		{"too big", text(0x81, 126, 0x03, 0xe9), 1009, ""},
		{"too big in parts", text(0x01, 100) + strings.Repeat("x", 100) + text(0x80, 126, 0x03, 0x85), 1009, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := make(chan []byte, 1)
			s := listen(t, upgrade(func(conn net.Conn) {
				_, _ = io.WriteString(conn, c.send)
				_, payload, err := next(conn)
				if _, after := conn.Read(make([]byte, 1)); err != nil || after == nil {
					t.Errorf("no close frame (%v), or more behind it", err)
				}
				told <- payload
			}))
			p := newParty()
			e.Dial(e.Loops()[0], Target{Address: s.addr}, p)
			err := receive(t, "the end", p.closed)
			var broken *ProtocolError
			if errors.As(err, &broken) != (c.rule != "") || errors.Is(err, ErrTooBig) != (c.rule == "") {
				t.Errorf("closed with %v", err)
			} else if broken != nil && !strings.Contains(broken.Rule, c.rule) {
				t.Errorf("the rule is %q, want one of %q", broken.Rule, c.rule)
			}
			if got := receive(t, "a close frame", told); len(got) != 2 || binary.BigEndian.Uint16(got) != c.code {
				t.Errorf("the server was told %v, want %d", got, c.code)
			}
		})
	}
}

// TestControlWithinTheLargestMessage sends a message of exactly the limit with a ping in it.
func TestControlWithinTheLargestMessage(t *testing.T) {
	e := start(t, Options{MaxMessage: 1000})
	s := listen(t, upgrade(func(conn net.Conn) {
		b := appendPlain(nil, ws.OpText, false, bytes.Repeat([]byte("a"), 999))
		b = append(append(b, plain(ws.OpPing, strings.Repeat("p", 125))...), plain(ws.OpContinuation, "b")...)
		_, _ = conn.Write(b)
		_, _, _ = next(conn)
	}))
	p := newParty()
	dial(t, e, s.addr, p)
	if got := receive(t, "the message", p.messages); got != strings.Repeat("a", 999)+"b" {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestServerCloses(t *testing.T) {
	e := start(t, Options{})
	for _, c := range []struct {
		body, answer string
		want         CloseError
	}{
		{"", "", CloseError{1005, "", true}},
		{"\x03\xe8", "\x03\xe8", CloseError{1000, "", true}},
		{"\x03\xf5later", "\x03\xf5", CloseError{1013, "later", true}},
		{"\x11\x39superseded", "\x11\x39", CloseError{4409, "superseded", true}},
	} {
		answer, end := make(chan string, 1), make(chan error, 1)
		s := listen(t, upgrade(func(conn net.Conn) {
			b := append(plain(ws.OpText, "last"), plain(ws.OpClose, c.body)...)
			_, _ = conn.Write(append(b, plain(ws.OpText, "never read")...))
			op, payload, err := next(conn)
			answer <- fmt.Sprint(op == ws.OpClose, string(payload), err)
			// The server is the one that ends TCP: until then the client does not.
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, err = conn.Read(make([]byte, 1))
			end <- err
		}))
		p := newParty()
		dial(t, e, s.addr, p)
		var got *CloseError
		if err := receive(t, "the end", p.closed); !errors.As(err, &got) || *got != c.want {
			t.Errorf("%q: closed with %v, want %v", c.body, err, &c.want)
		}
		if got, want := receive(t, "an answer", answer), fmt.Sprint(true, c.answer, nil); got != want {
			t.Errorf("%q was answered with %q, want %q", c.body, got, want)
		}
		if err := receive(t, "a look", end); !errors.Is(err, syscall.EAGAIN) && !isTimeout(err) {
			t.Errorf("the client ended TCP first: %v", err)
		}
		if len(p.messages) != 1 || len(p.closed) != 0 {
			t.Errorf("%d messages and %d more ends were told", len(p.messages), len(p.closed))
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestClientCloses(t *testing.T) {
	e := start(t, Options{})
	told := make(chan string, 1)
	s := listen(t, upgrade(func(conn net.Conn) {
		_, payload, _ := next(conn)
		_, goodbye, _ := next(conn)
		told <- string(payload) + string(goodbye)
		_, _ = conn.Write(plain(ws.OpText, "still on its way"))
		_, _ = conn.Write(plain(ws.OpClose, "\x03\xe8bye"))
	}))
	p := newParty()
	c := dial(t, e, s.addr, p)
	do(t, c.Loop(), func() {
		c.Send([]byte("last"))
		c.Close(4001, strings.Repeat("ü", 100))
		c.Send([]byte("too late"))
		c.Close(4002, "")
	})
	if got, want := receive(t, "a goodbye", told), "last\x0f\xa1"+strings.Repeat("ü", 61); got != want {
		t.Errorf("the server was told %q, want %q", got, want)
	}
	var got *CloseError
	if err := receive(t, "the end", p.closed); !errors.As(err, &got) || *got != (CloseError{1000, "bye", false}) {
		t.Errorf("closed with %v", err)
	}
	if got := receive(t, "what was on its way", p.messages); got != "still on its way" {
		t.Errorf("got %q", got)
	}
}

// TestGoodbyeIsBounded closes towards servers that never answer, or never end TCP.
func TestGoodbyeIsBounded(t *testing.T) {
	e := start(t, Options{Goodbye: 50 * time.Millisecond})
	release := make(chan struct{})
	for _, answers := range []bool{false, true} {
		s := listen(t, upgrade(func(conn net.Conn) {
			if _, _, err := next(conn); answers && err == nil {
				_, _ = conn.Write(plain(ws.OpClose, "\x03\xe8"))
			}
			<-release
		}))
		p := newParty()
		c := dial(t, e, s.addr, p)
		do(t, c.Loop(), func() { c.Close(1000, "") })
		err := receive(t, "the end", p.closed)
		var closed *CloseError
		if errors.As(err, &closed) != answers || !answers && !strings.Contains(err.Error(), "did not answer") {
			t.Errorf("answers=%v: closed with %v", answers, err)
		}
	}
	close(release)
}

func TestAbortIsAReset(t *testing.T) {
	e := start(t, Options{})
	ends := make(chan error, 1)
	s := listen(t, upgrade(func(conn net.Conn) {
		_, err := io.Copy(io.Discard, conn)
		ends <- err
	}))
	p := newParty()
	c := dial(t, e, s.addr, p)
	do(t, c.Loop(), c.Abort)
	if err := receive(t, "the end", p.closed); !errors.Is(err, ErrAborted) {
		t.Errorf("closed with %v", err)
	}
	if err := receive(t, "the server's end", ends); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v", err)
	}

	p = newParty() // within Open, and from there for the first message
	p.onOpen = func(c *Conn) { c.Abort() }
	e.Dial(e.Loops()[0], Target{Address: s.addr}, p)
	if err := receive(t, "the end", p.closed); !errors.Is(err, ErrAborted) {
		t.Errorf("closed with %v", err)
	}
	if err := receive(t, "the server's end", ends); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v", err)
	}
}

// TestServerVanishes ends TCP without a goodbye, by a FIN and by a reset.
func TestServerVanishes(t *testing.T) {
	e := start(t, Options{})
	var hard atomic.Bool
	s := listen(t, upgrade(func(conn net.Conn) {
		if hard.Load() {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
	}))
	for _, want := range []error{io.ErrUnexpectedEOF, syscall.ECONNRESET} {
		p := newParty()
		e.Dial(e.Loops()[0], Target{Address: s.addr}, p)
		if err := receive(t, "the end", p.closed); !errors.Is(err, want) {
			t.Errorf("closed with %v, want %v", err, want)
		}
		hard.Store(true)
	}
}

// TestSendInClose sends on another connection when one ends, and on none that is to come.
func TestSendInClose(t *testing.T) {
	e := start(t, Options{})
	s := listen(t, upgrade(echo))
	other := newParty()
	c := dial(t, e, s.addr, other)
	gone := listen(t, upgrade(func(conn net.Conn) {}))
	p := &callback{close: func(*Conn, error) { c.Send([]byte("the other ended")) }}
	e.Dial(e.Loops()[0], Target{Address: gone.addr}, p)
	if got := receive(t, "an echo", other.messages); got != "the other ended" {
		t.Errorf("got %q", got)
	}
}

// callback is a Handler that cares about the end only.
type callback struct{ close func(*Conn, error) }

func (callback) Open(*Conn)                 {}
func (callback) Message(*Conn, []byte)      {}
func (h callback) Close(c *Conn, err error) { h.close(c, err) }
