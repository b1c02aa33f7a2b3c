package mqtt

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
	"subway/server/edge/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// door is an edge that a test plays. It takes a REGISTER, unless told not to, and notes
// all else.
type door struct {
	opened   chan *session
	messages chan string
	closed   chan string
	writable chan struct{}
	refuse   atomic.Pointer[string] // the ERROR that answers REGISTER; nil: REGISTER_ACK
}

type session struct {
	d    *door
	c    local.Conn
	mu   sync.Mutex // found locked: two calls at a time
	reg  bool
	over bool
}

func (d *door) Open(c local.Conn, _ string, _ wire.Time) local.Session { return &session{d: d, c: c} }
func (d *door) Now() wire.Time                                         { return wire.Time(time.Now().UnixNano()) }

func (s *session) alone() func() {
	if !s.mu.TryLock() || s.over {
		panic("BUG: a session is called twice at a time, or after Closed")
	}
	return s.mu.Unlock
}

func (s *session) Receive(msg []byte, _ wire.Time) {
	defer s.alone()()
	s.d.messages <- string(msg)
	if !bytes.Contains(msg, []byte(`"REGISTER"`)) {
		return
	}
	if no := s.d.refuse.Load(); no != nil {
		s.c.Append(wire.ClassNotice, []byte(*no), nil, nil)
		return
	}
	s.reg = true
	s.c.Append(wire.ClassNotice, []byte(`{"type":"REGISTER_ACK"}`), nil, nil)
	s.d.opened <- s
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

// command sends one as soon as there is room.
func (s *session) command(t testing.TB, msg string) {
	t.Helper()
	for {
		switch r := s.c.Append(wire.ClassCommand, []byte(msg), nil, nil); r {
		case wire.Accepted:
			return
		case wire.Full:
			await(t, "room", s.d.writable)
		default:
			t.Fatalf("a command: %v", r)
		}
	}
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

// hears waits for a message that holds all of the parts.
func (d *door) hears(t testing.TB, parts ...string) {
	t.Helper()
	got := await(t, strings.Join(parts, " "), d.messages)
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Fatalf("got %s, want %q", got, parts)
		}
	}
}

func start(t testing.TB, opt Options) (*door, *Adapter, string) {
	t.Helper()
	d := &door{opened: make(chan *session, 64), messages: make(chan string, 4096), closed: make(chan string, 64), writable: make(chan struct{}, 64)}
	a, address := startAt(t, opt, d)
	return d, a, address
}

// startAt starts an adapter before a door.
func startAt(t testing.TB, opt Options, d local.Door) (*Adapter, string) {
	t.Helper()
	a, err := NewWith("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := a.Start(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.Shutdown(ctx)
	})
	return a, addr.String()
}

// mosquitto makes a command line of a real client; where there is none, the test is
// skipped, but not in CI.
func mosquitto(t *testing.T, name, address, version string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not here; it is in Debian's mosquitto-clients", name)
		}
		t.Skipf("%s is not here; it is in Debian's mosquitto-clients", name)
	}
	host, port, _ := strings.Cut(address, ":")
	return exec.Command(path, append([]string{"-h", host, "-p", port, "-V", version}, args...)...)
}
