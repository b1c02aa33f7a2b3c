package socket

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

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

// receive waits for a value.
func receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
	}
	return v
}

// seeded returns a source of random numbers whose seed a failure shows.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func start(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// server accepts on loopback and gives each connection to a goroutine.
type server struct {
	addr string
	ln   net.Listener
	work sync.WaitGroup
	mu   sync.Mutex
	open map[net.Conn]bool
}

// listen starts a server that gives each TCP connection to serve, and closes it after.
func listen(t testing.TB, serve func(net.Conn)) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: ln.Addr().String(), ln: ln, open: map[net.Conn]bool{}}
	s.work.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[conn] = true
			s.mu.Unlock()
			s.work.Go(func() {
				serve(conn)
				s.mu.Lock()
				delete(s.open, conn)
				s.mu.Unlock()
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	_ = s.ln.Close()
	s.mu.Lock()
	for conn := range s.open {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// upgrade serves WebSockets: it answers the handshake and hands over.
func upgrade(serve func(net.Conn)) func(net.Conn) {
	u := ws.Upgrader{Protocol: func(p []byte) bool { return string(p) == "subway.v1" }}
	return func(conn net.Conn) {
		if h, err := u.Upgrade(conn); err == nil && h.Protocol == "subway.v1" {
			serve(conn)
		}
	}
}

// echo sends every text back. It allocates only as messages grow.
func echo(conn net.Conn) {
	in, out := make([]byte, 0, 64<<10), []byte(nil)
	for {
		if len(in) == cap(in) {
			in = append(in, 0)[:len(in)]
		}
		n, err := conn.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in, out = in[:len(in)+n], out[:0]
		used := 0
		for {
			op, payload, size := unmasked(in[used:])
			if size == 0 {
				break
			}
			used += size
			if op == ws.OpClose {
				_, _ = conn.Write(appendPlain(out, op, true, payload))
				return
			}
			out = appendPlain(out, op, true, payload)
		}
		in = in[:copy(in, in[used:])]
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// unmasked cuts a client's frame from the front of b; size 0: it is not whole. It is
// written apart from the code under test.
func unmasked(b []byte) (op ws.OpCode, payload []byte, size int) {
	if len(b) < 2 {
		return 0, nil, 0
	}
	n, at := int(b[1]&0x7f), 2
	switch {
	case n == 126 && len(b) >= 4:
		n, at = int(binary.BigEndian.Uint16(b[2:])), 4
	case n == 127 && len(b) >= 10:
		n, at = int(binary.BigEndian.Uint64(b[2:])), 10
	case n >= 126:
		return 0, nil, 0
	}
	if b[1]&0x80 == 0 || b[0]&0xf0 != 0x80 {
		panic("a client's frame without a mask, without FIN or with a reserved bit")
	}
	if len(b) < at+4+n {
		return 0, nil, 0
	}
	payload = b[at+4 : at+4+n]
	for i := range payload {
		payload[i] ^= b[at+i&3]
	}
	return ws.OpCode(b[0] & 15), payload, at + 4 + n
}

// appendPlain appends a server's frame.
func appendPlain(out []byte, op ws.OpCode, fin bool, payload []byte) []byte {
	first := byte(op)
	if fin {
		first |= 0x80
	}
	out = append(out, first)
	switch n := len(payload); {
	case n < 126:
		out = append(out, byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 127), uint64(n))
	}
	return append(out, payload...)
}

func plain(op ws.OpCode, payload string) []byte { return appendPlain(nil, op, true, []byte(payload)) }

// next reads one frame of a client; its payload is a copy.
func next(conn net.Conn) (op ws.OpCode, payload []byte, err error) {
	var b []byte
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(conn, one); err != nil {
			return 0, nil, err
		}
		b = append(b, one[0])
		if op, payload, size := unmasked(append([]byte(nil), b...)); size > 0 {
			return op, payload, nil
		}
	}
}

// party is a Handler made of functions; a test gives those it needs. What it is told goes
// to channels as well.
type party struct {
	onOpen    func(c *Conn)
	onMessage func(c *Conn, msg []byte)
	opened    chan *Conn
	closed    chan error
	messages  chan string // where onMessage is nil
}

func newParty() *party {
	return &party{opened: make(chan *Conn, 1), closed: make(chan error, 2), messages: make(chan string, 1024)}
}

func (p *party) Open(c *Conn) {
	if p.onOpen != nil {
		p.onOpen(c)
	}
	p.opened <- c
}

func (p *party) Message(c *Conn, msg []byte) {
	if p.onMessage != nil {
		p.onMessage(c, msg)
		return
	}
	p.messages <- string(msg)
}

func (p *party) Close(_ *Conn, err error) { p.closed <- err }

// dial opens a connection on the first loop.
func dial(t testing.TB, e *Engine, addr string, p *party) *Conn {
	t.Helper()
	e.Dial(e.Loops()[0], Target{Address: addr}, p)
	select {
	case c := <-p.opened:
		return c
	case err := <-p.closed:
		t.Fatalf("closed instead of opened: %v", err)
	case <-time.After(patience):
		t.Fatal("not opened")
	}
	return nil
}

// do runs f on the connection's loop and waits for it.
func do(t testing.TB, l *Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if err := l.Do(func() { f(); close(done) }); err != nil {
		t.Fatal(err)
	}
	receive(t, "a call on the loop", done)
}

// descriptors counts the open files of the process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
