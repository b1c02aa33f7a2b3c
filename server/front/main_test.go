package front

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"go.uber.org/goleak"

	"subway/core/wire"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m,
		// fasthttp's clock lives as long as the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// echo is a Session that sends back what it gets and notes what happens to it.
type echo struct {
	c          *Conn
	registered atomic.Bool
	invalid    atomic.Int64
	writable   chan struct{}
	closed     chan string
	receive    func(e *echo, msg []byte) // instead of sending back
}

func newEcho(c *Conn) *echo {
	e := &echo{c: c, closed: make(chan string, 2), writable: make(chan struct{}, 1)}
	e.registered.Store(true)
	return e
}

func (e *echo) Receive(msg []byte, _ wire.Time) {
	if e.receive != nil {
		e.receive(e, msg)
		return
	}
	e.c.Append(wire.ClassNotice, msg, nil, nil)
}
func (e *echo) Invalid(wire.Time) {
	e.invalid.Add(1)
	e.c.Append(wire.ClassNotice, []byte("invalid"), nil, nil)
}
func (e *echo) Writable(wire.Time) {
	select {
	case e.writable <- struct{}{}:
	default:
	}
}
func (e *echo) Registered() bool                  { return e.registered.Load() }
func (e *echo) Closed(_ wire.Time, reason string) { e.closed <- reason }

// fixture is a server under test and the sessions it opened.
type fixture struct {
	t        testing.TB
	s        *Server
	sessions chan *echo
	clock    *clock
}

// clock is a clock that tests move forward.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() wire.Time          { return wire.Time(c.now.Load()) }
func (c *clock) Advance(d time.Duration) { c.now.Add(int64(d)) }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// serve starts a server of echoes.
func serve(t testing.TB, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, sessions: make(chan *echo, 4096), clock: &clock{}}
	f.clock.now.Store(int64(1_700_000_000_000_000_000))
	o := Options{Listen: "127.0.0.1:0", Loops: 2, Tick: 500 * time.Microsecond, LingerTimeout: 100 * time.Millisecond, Logger: quiet()}
	o.Open = func(c *Conn, now wire.Time) Session {
		e := newEcho(c)
		select {
		case f.sessions <- e:
		default:
		}
		return e
	}
	if change != nil {
		change(&o)
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	f.s = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	return f
}

// receiving gives every session something to do with its messages.
func receiving(fn func(e *echo, msg []byte)) func(*Options) {
	return func(o *Options) {
		open := o.Open
		o.Open = func(c *Conn, now wire.Time) Session {
			e := open(c, now).(*echo)
			e.receive = fn
			return e
		}
	}
}

func (f *fixture) session() *echo {
	f.t.Helper()
	select {
	case e := <-f.sessions:
		return e
	case <-time.After(patience):
		f.t.Fatal("no session was opened")
	}
	return nil
}

func (f *fixture) tcp() net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.s.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return c
}

const request = "GET /ws HTTP/1.1\r\nHost: gw.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

// client is the peer in a test: a WebSocket client that does only what it is told to.
type client struct {
	t    testing.TB
	conn net.Conn
	br   *bufio.Reader
}

// dial opens a WebSocket; early are bytes that go with the request.
func (f *fixture) dial(early ...byte) *client {
	f.t.Helper()
	return open(f.t, f.tcp(), early)
}

func open(t testing.TB, conn net.Conn, early []byte) *client {
	t.Helper()
	c := &client{t: t, conn: conn, br: bufio.NewReaderSize(conn, 4096)}
	c.write([]byte(request), early)
	r, err := http.ReadResponse(c.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != 101 || r.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("the handshake was answered with %s", r.Status)
	}
	return c
}

func (c *client) write(parts ...[]byte) {
	c.t.Helper()
	if _, err := c.conn.Write(bytes.Join(parts, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// frame builds a masked frame.
func frame(op ws.OpCode, fin bool, payload []byte) []byte {
	f := ws.NewFrame(op, fin, bytes.Clone(payload))
	b, err := ws.CompileFrame(ws.MaskFrameInPlaceWith(f, [4]byte{1, 2, 3, byte(rand.Int())}))
	if err != nil {
		panic(err)
	}
	return b
}

func text(s string) []byte { return frame(ws.OpText, true, []byte(s)) }

func closeBody(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}

// next reads the next frame and checks that a server may send it.
func (c *client) next() (ws.OpCode, []byte) {
	c.t.Helper()
	op, payload, err := c.tryNext()
	if err != nil {
		c.t.Fatal(err)
	}
	return op, payload
}

func (c *client) tryNext() (ws.OpCode, []byte, error) {
	h, err := ws.ReadHeader(c.br)
	if err != nil {
		return 0, nil, err
	}
	if err := ws.CheckHeader(h, ws.StateClientSide); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, h.Length)
	_, err = io.ReadFull(c.br, payload)
	return h.OpCode, payload, err
}

// expect reads a text message, answering pings.
func (c *client) expect(want string) {
	c.t.Helper()
	for {
		op, got := c.next()
		if op == ws.OpPing {
			c.write(frame(ws.OpPong, true, got))
			continue
		}
		if op != ws.OpText || string(got) != want {
			c.t.Fatalf("got frame %x of %d bytes %.60q, want text of %d bytes %.60q", op, len(got), got, len(want), want)
		}
		return
	}
}

// closes reads up to the close frame and returns its code and reason; 1006 where TCP ended without one.
func (c *client) closes() (code int, reason string) {
	c.t.Helper()
	for {
		op, b, err := c.tryNext()
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF || err != nil && strings.Contains(err.Error(), "reset"):
			return 1006, ""
		case err != nil:
			c.t.Fatal(err)
		case op == ws.OpClose && len(b) < 2:
			return 1005, ""
		case op == ws.OpClose:
			return int(binary.BigEndian.Uint16(b)), string(b[2:])
		}
	}
}

func (c *client) wantClose(code int) {
	c.t.Helper()
	if got, reason := c.closes(); got != code {
		c.t.Fatalf("closed with %d %q, want %d", got, reason, code)
	}
}

// wantEOF waits until the server ends TCP.
func (c *client) wantEOF() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.br); err != nil {
		c.t.Fatalf("the connection ended with %v", err)
	}
}

// until polls a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func wantReason(t testing.TB, e *echo, want string) {
	t.Helper()
	select {
	case got := <-e.closed:
		if got != want {
			t.Errorf("closed because %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Error("Closed was not called")
	}
}

// seeded returns a source of random numbers whose seed a failure shows.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// answer sends raw bytes on a new connection and reads one HTTP answer.
func (f *fixture) answer(raw string) (*http.Response, string) {
	f.t.Helper()
	c := f.tcp()
	go func() { _, _ = io.WriteString(c, raw) }()
	return readAnswer(f.t, bufio.NewReader(c), raw)
}

func readAnswer(t testing.TB, br *bufio.Reader, raw string) (*http.Response, string) {
	t.Helper()
	method, _, _ := strings.Cut(raw, " ")
	r, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.80q: %v", raw, err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%.80q: %v", raw, err)
	}
	return r, string(body)
}
