package line

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
	"subway/server/edge/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// door is an edge that a test plays. It takes a REGISTER and notes all else.
type door struct {
	opened   chan *session
	messages chan string
	closed   chan string
	writable chan struct{}
}

type session struct {
	d    *door
	c    local.Conn
	mu   sync.Mutex // found locked: two calls at a time
	reg  bool
	over bool
}

func (d *door) Open(c local.Conn, remote string, _ wire.Time) local.Session {
	s := &session{d: d, c: c}
	d.opened <- s
	return s
}
func (d *door) Now() wire.Time { return wire.Time(time.Now().UnixNano()) }

func (s *session) alone() func() {
	if !s.mu.TryLock() || s.over {
		panic("BUG: a session is called twice at a time, or after Closed")
	}
	return s.mu.Unlock
}

func (s *session) Receive(msg []byte, _ wire.Time) {
	defer s.alone()()
	s.reg = s.reg || bytes.Contains(msg, []byte(`"REGISTER"`))
	s.d.messages <- string(msg)
}

func (s *session) Invalid(wire.Time) {
	defer s.alone()()
	s.d.messages <- "invalid"
}

func (s *session) Writable(wire.Time) {
	defer s.alone()()
	s.d.writable <- struct{}{}
}

func (s *session) Registered() bool { return s.reg }

func (s *session) Closed(_ wire.Time, reason string) {
	defer s.alone()()
	s.over = true
	s.d.closed <- reason
}

func await[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

func start(t testing.TB, opt Options) (*door, *Adapter, string) {
	t.Helper()
	d := &door{make(chan *session, 64), make(chan string, 4096), make(chan string, 64), make(chan struct{}, 64)}
	a, err := NewWith("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := a.Start(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_ = a.Shutdown(ctx)
	})
	return d, a, addr.String()
}

// panel is a device with a bare socket.
type panel struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

func dial(t testing.TB, address string) *panel {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return &panel{c, t, bufio.NewReader(c)}
}

func (p *panel) say(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *panel) line() string {
	p.t.Helper()
	s, err := p.br.ReadString('\n')
	if err != nil {
		p.t.Fatalf("instead of a line: %q, %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

// ends reads to the end and returns the last line.
func (p *panel) ends() string {
	p.t.Helper()
	b, err := io.ReadAll(p.br)
	if err != nil {
		p.t.Fatalf("no orderly end: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	return lines[len(lines)-1]
}

const register = `{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE"}`

// registered is a panel that has registered, and its session.
func registered(t testing.TB, d *door, address string) (*panel, *session) {
	t.Helper()
	p := dial(t, address)
	p.say(register + "\n")
	s := await(t, "a session", d.opened)
	await(t, "REGISTER", d.messages)
	return p, s
}

// TestLines goes both ways, with all that may stand around them.
func TestLines(t *testing.T) {
	d, _, address := start(t, Options{})
	p, s := registered(t, d, address)
	long := `{"x":"` + strings.Repeat("é", 100_000) + `"}`
	p.say("{\"a\":1}\r\n\n\r\n{\"b\"")
	p.say(":2}\n" + long + "\n\xff\n{\"c\":3}\n")
	for _, want := range []string{`{"a":1}`, `{"b":2}`, long, "invalid", `{"c":3}`} {
		if got := await(t, want, d.messages); got != want {
			t.Fatalf("got %.40q, want %.40q", got, want)
		}
	}
	if r := s.c.Append(wire.ClassCommand, []byte("{\"x\":\r\n1"), []byte(`,"y":2`), []byte("}")); r != wire.Accepted {
		t.Errorf("a command: %v", r)
	}
	if got := p.line(); got != `{"x":  1,"y":2}` {
		t.Errorf("the device got %q", got)
	}
	s.c.CloseWith(wire.CloseSuperseded, "superseded")
	s.c.CloseWith(wire.CloseGoingAway, "late")
	if got := p.ends(); !strings.Contains(got, `"code":"FORBIDDEN","message":"superseded","details":{"closeCode":4409}`) {
		t.Errorf("the last line is %s", got)
	}
	if reason := await(t, "the end", d.closed); reason != "4409" {
		t.Errorf("closed for %s", reason)
	}
	if r := s.c.Append(wire.ClassNotice, nil, nil, nil); r != wire.Gone {
		t.Errorf("after the end: %v", r)
	}
}

// TestGoodbyes of the device: what is queued may still be read.
func TestGoodbyes(t *testing.T) {
	d, _, address := start(t, Options{})
	p, s := registered(t, d, address)
	s.c.Append(wire.ClassNotice, []byte("{}"), nil, nil)
	_ = p.Conn.(*net.TCPConn).CloseWrite()
	if reason := await(t, "the end", d.closed); reason != "peer closed" {
		t.Errorf("closed for %s", reason)
	}
	if got := p.ends(); got != "{}" {
		t.Errorf("the device got %q", got)
	}
	p, _ = registered(t, d, address)
	_ = p.Conn.(*net.TCPConn).SetLinger(0)
	_ = p.Close()
	if reason := await(t, "the end", d.closed); reason != "lost" {
		t.Errorf("closed for %s", reason)
	}
	p, s = registered(t, d, address)
	s.c.CloseWith(wire.CloseNormal, "goodbye")
	if got := p.ends(); got != "" {
		t.Errorf("a goodbye was answered with %q", got)
	}
	await(t, "the end", d.closed)
}

// TestDeadlines close what does not keep to them, and say so.
func TestDeadlines(t *testing.T) {
	const soon = 60 * time.Millisecond
	for name, c := range map[string]struct {
		opt  Options
		say  string
		code int
	}{
		"unregistered": {Options{RegisterTimeout: soon}, "{}\n{}\n", 4408},
		"silent":       {Options{Silence: soon}, register + "\n", 4410},
		"slow":         {Options{SlowAfter: soon}, register + "\n{", 4429},
		"slow at once": {Options{SlowAfter: soon}, "{", 4429},
		"too long":     {Options{MaxLine: 100}, strings.Repeat("x", 101) + "\n", 1009},
		"no end":       {Options{MaxLine: 8000}, strings.Repeat("x", 20_000), 1009},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, address := start(t, c.opt)
			p := dial(t, address)
			p.say(c.say)
			if got := p.ends(); !strings.Contains(got, fmt.Sprintf(`"details":{"closeCode":%d}`, c.code)) {
				t.Errorf("the last line is %q", got)
			}
			if reason := await(t, "the end", d.closed); reason != fmt.Sprint(c.code) {
				t.Errorf("closed for %s", reason)
			}
		})
	}
}

// TestEmptyLinesKeep a connection that has nothing to say.
func TestEmptyLinesKeep(t *testing.T) {
	d, _, address := start(t, Options{Silence: 100 * time.Millisecond})
	p, _ := registered(t, d, address)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 15 {
		<-tick.C
		p.say("\n")
	}
	select {
	case reason := <-d.closed:
		t.Errorf("closed for %s", reason)
	default:
	}
}

// TestSlowDevice bounds what waits, and goes on when the device reads again.
func TestSlowDevice(t *testing.T) {
	d, _, address := start(t, Options{Outbox: 8 << 20})
	p, s := registered(t, d, address)
	_ = p.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	msg := bytes.Repeat([]byte("x"), 10_000)
	sent := 0
	for s.c.Append(wire.ClassCommand, msg, nil, nil) == wire.Accepted {
		if sent++; sent > 10_000 {
			t.Fatal("what waits has no bound")
		}
	}
	for range sent {
		if got := p.line(); got != string(msg) {
			t.Fatalf("got %.40q", got)
		}
	}
	await(t, "room", d.writable)
	if r := s.c.Append(wire.ClassCommand, msg, nil, nil); r != wire.Accepted {
		t.Errorf("after there was room: %v", r)
	}
}

// TestStalled closes for a device that never reads, and drops its status.
func TestStalled(t *testing.T) {
	d, _, address := start(t, Options{Outbox: 2 << 20, StallTimeout: time.Second})
	_, s := registered(t, d, address)
	msg, dropped := bytes.Repeat([]byte("x"), 100_000), false
	for n := 0; ; n++ {
		dropped = dropped || s.c.Append(wire.ClassStatus, []byte("{}"), nil, nil) == wire.Dropped
		if s.c.Append(wire.ClassNotice, msg, nil, nil) == wire.Gone {
			break
		}
		if n > 1000 {
			t.Fatal("what waits has no bound")
		}
	}
	if !dropped {
		t.Error("no status was dropped")
	}
	if reason := await(t, "the end", d.closed); reason != "4429" && reason != "lost" {
		t.Errorf("closed for %s", reason)
	}
}

// TestCrowd closes who is too many, and all at the end.
func TestCrowd(t *testing.T) {
	d, a, address := start(t, Options{MaxConnections: 2})
	p, _ := registered(t, d, address)
	registered(t, d, address)
	if got := dial(t, address).ends(); got != "" {
		t.Errorf("the third got %q", got)
	}
	go func() { _ = a.Shutdown(context.Background()) }()
	if got := p.ends(); !strings.Contains(got, `"code":"GATEWAY_UNAVAILABLE"`) || !strings.Contains(got, `"closeCode":1001`) {
		t.Errorf("the last line is %s", got)
	}
	_ = p.Close()
	await(t, "an end", d.closed)
}

func TestAddress(t *testing.T) {
	if _, err := New("nonsense"); err == nil {
		t.Error("an address without a port passes")
	}
	_, _, taken := start(t, Options{})
	a, err := New(taken)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Start(nil); err == nil {
		t.Error("an address that is taken passes")
	}
	if err := a.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestAppendAllocates nothing once the buffers have grown.
func TestAppendAllocates(t *testing.T) {
	var o outbox
	o.init(1 << 20)
	msg := bytes.Repeat([]byte("x"), 200)
	if n := testing.AllocsPerRun(1000, func() {
		for range 8 {
			o.append(wire.ClassCommand, msg, msg, msg)
		}
		b, _ := o.take()
		o.giveBack(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAppend queues commands of 200 bytes that leave 64 at a time.
func BenchmarkAppend(b *testing.B) {
	var o outbox
	o.init(1 << 20)
	msg := bytes.Repeat([]byte("x"), 200)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		o.append(wire.ClassCommand, msg, nil, nil)
		if n%64 == 63 {
			taken, _ := o.take()
			o.giveBack(taken)
		}
	}
}
