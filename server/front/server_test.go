package front

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"subway/core/wire"
)

func TestListen(t *testing.T) {
	f := serve(t, nil)
	if _, err := Listen(Options{Listen: f.s.Addr().String(), Logger: quiet()}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(Options{Listen: l.Addr().String(), Logger: quiet()}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port of another in use: %v", err)
	}
	for _, bad := range []string{"", "nowhere", "127.0.0.1:99999", "127.0.0.1", "192.0.2.1:0"} {
		if s, err := Listen(Options{Listen: bad, Logger: quiet()}); err == nil {
			t.Errorf("%q: listens on %v", bad, s.Addr())
		}
	}
}

// A port can be had again at once after a shutdown, though its connections linger.
func TestListenAgain(t *testing.T) {
	f := serve(t, nil)
	f.dial()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_ = f.s.Shutdown(ctx)
	addr := f.s.Addr().String()
	g := serve(t, func(o *Options) { o.Listen = addr })
	if g.s.Addr().String() != addr {
		t.Errorf("listens on %v, want %v", g.s.Addr(), addr)
	}
	g.dial()
}

func TestListenOnAllAddresses(t *testing.T) {
	for _, listen := range []string{":0", "0.0.0.0:0", "[::1]:0", "localhost:0"} {
		f := serve(t, func(o *Options) { o.Listen = listen })
		_, port, _ := net.SplitHostPort(f.s.Addr().String())
		host := "127.0.0.1"
		if strings.HasPrefix(listen, "[") {
			host = "::1"
		}
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Errorf("%s: %v", listen, err)
			continue
		}
		c := open(t, conn, text("x"))
		c.expect("x")
		_ = conn.Close()
	}
}

func TestMaxConns(t *testing.T) {
	f := serve(t, func(o *Options) { o.MaxConns = 3; o.HTTP = api })
	f.dial()
	f.dial()
	_, _ = f.answer(get)
	beyond := f.tcp()
	if b, err := io.ReadAll(beyond); len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	if st := f.s.Stats(); st.Shed != 1 || st.WebSockets != 2 || st.HTTP != 1 {
		t.Errorf("stats %+v", st)
	}
}

func TestMaxHTTP(t *testing.T) {
	f := serve(t, func(o *Options) { o.MaxHTTP = 1; o.HTTP = api })
	first := f.tcp()
	_, _ = io.WriteString(first, get)
	readAnswer(t, bufio.NewReader(first), get)
	r, body := f.answer(get)
	if r.StatusCode != 503 || !strings.Contains(body, "OVERLOADED") {
		t.Errorf("got %s %s", r.Status, body)
	}
	f.dial()
}

func TestShutdown(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := serve(t, func(o *Options) {
		o.HTTP = func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) == "/slow" {
				close(entered)
				<-leave
			}
			ctx.SetBodyString("done")
		}
	})
	idle, busy, fresh := f.tcp(), f.tcp(), f.tcp()
	idleReader := bufio.NewReader(idle)
	_, _ = io.WriteString(idle, get)
	readAnswer(t, idleReader, get)
	_, _ = io.WriteString(busy, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	until(t, "all are there", func() bool { st := f.s.Stats(); return st.Waiting == 1 && st.HTTP == 2 })
	ws, e := f.dial(), f.session()

	f.s.CloseAll(wire.CloseGoingAway, "going down")
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ended <- f.s.Shutdown(ctx)
	}()
	ws.wantClose(1001)
	wantReason(t, e, "going down")
	_ = ws.conn.Close()
	for name, r := range map[string]io.Reader{"idle": idleReader, "fresh": fresh} {
		if b, err := io.ReadAll(r); len(b) != 0 || err != nil {
			t.Errorf("the %s connection ended with %q, %v", name, b, err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("Shutdown did not wait for the answer: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(leave)
	r, body := readAnswer(t, bufio.NewReader(busy), get)
	if r.StatusCode != 200 || body != "done" || !r.Close {
		t.Errorf("got %s %q, close %v", r.Status, body, r.Close)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	select {
	case err := <-f.s.Failed():
		t.Errorf("Failed: %v", err)
	default:
	}
}

func TestShutdownCuts(t *testing.T) {
	f := serve(t, func(o *Options) {
		o.HTTP = func(ctx *fasthttp.RequestCtx) { _, _ = ctx.Conn().Read(make([]byte, 1)) } // until it is cut
	})
	ws, e := f.dial(), f.session()
	busy := f.tcp()
	_, _ = io.WriteString(busy, get)
	until(t, "it is busy", func() bool { return f.s.Stats().HTTP == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := f.s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	wantReason(t, e, reasonGoing)
	f.wantClosed("going_away")
	ws.wantClose(1006)
	if st := f.s.Stats(); st.WebSockets != 0 || st.HTTP != 0 || f.s.stats.total.Load() != 0 {
		t.Errorf("stats %+v", st)
	}
	if err := f.s.Shutdown(context.Background()); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
	f.s.CloseAll(1001, "again") // harmless
	if e.c.Append(wire.ClassNotice, nil, nil, nil) != wire.Gone {
		t.Error("a message was taken after the end")
	}
}

func TestShutdownOfUnused(t *testing.T) {
	f := serve(t, nil)
	if err := f.s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
