package uplink

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"go.uber.org/goleak"

	"subway/server/gateway"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet's worker pool and fasthttp's clock live as long as the process.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// peer is the server's end of a connection: it does only what a test tells it to.
type peer struct {
	sock net.Conn
	br   *bufio.Reader
}

// accept answers the handshake on a socket.
func accept(sock net.Conn) (*peer, error) {
	if _, err := ws.Upgrade(sock); err != nil {
		return nil, err
	}
	return &peer{sock: sock, br: bufio.NewReader(sock)}, nil
}

// frame reads the next frame; a client's frames are masked.
func (p *peer) frame() (ws.Header, []byte, error) {
	h, err := ws.ReadHeader(p.br)
	if err != nil {
		return h, nil, err
	}
	b := make([]byte, h.Length)
	_, err = io.ReadFull(p.br, b)
	ws.Cipher(b, h.Mask, 0)
	return h, b, err
}

func (p *peer) send(op ws.OpCode, fin bool, payload string) error {
	return ws.WriteFrame(p.sock, ws.NewFrame(op, fin, []byte(payload)))
}

func (p *peer) text(s string) error { return p.send(ws.OpText, true, s) }

func (p *peer) close(code uint16, reason string) error {
	return p.send(ws.OpClose, true, string(binary.BigEndian.AppendUint16(nil, code))+reason)
}

// server listens on loopback and gives each connection that shook hands to serve.
func server(t testing.TB, serve func(*peer)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			sock, err := l.Accept()
			if err != nil {
				return
			}
			_ = sock.SetDeadline(time.Now().Add(3 * patience))
			if p, err := accept(sock); err == nil {
				serve(p)
			}
			_ = sock.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return "ws://" + l.Addr().String() + "/ws"
}

// realGateway starts a Gateway on loopback.
func realGateway(t testing.TB) (url string, g *gateway.Gateway) {
	t.Helper()
	g, err := gateway.Start(gateway.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	return "ws://" + g.Addr().String() + "/ws", g
}

func stopGateway(t testing.TB, g *gateway.Gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func dial(t testing.TB, url string, opt Options) *Conn {
	t.Helper()
	c, err := Dial(context.Background(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serving runs Serve, and delivers copies of the messages and how it ended.
func serving(c *Conn) (messages chan string, ended chan *Closed) {
	messages, ended = make(chan string, 4096), make(chan *Closed, 1)
	go func() { ended <- c.Serve(func(b []byte) { messages <- string(b) }) }()
	return messages, ended
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
