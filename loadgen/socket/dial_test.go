package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestRefusedHandshakes(t *testing.T) {
	e := start(t, Options{})
	says := func(answer string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answer)
		}
	}
	const right = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"404":              {says("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "404 Not Found"},
		"200 with a body":  {says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "200 OK"},
		"wrong accept":     {says(right + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"), "Sec-WebSocket-Accept"},
		"no accept":        {says(right + "\r\n"), "Sec-WebSocket-Accept"},
		"no HTTP":          {says("SSH-2.0-x\r\n\r\n"), "the answer to the handshake"},
		"half":             {says("HTTP/1.1 101 Switching"), "within its answer"},
		"nothing":          {says(""), "within its answer"},
		"head without end": {says(right + "X: " + strings.Repeat("x", 9000)), "8192 bytes"},
		"many lines":       {says(right + strings.Repeat("X: x\r\n", 2000)), "8192 bytes"},
		"other protocol":   {says(right + "Sec-WebSocket-Protocol: chat\r\n\r\n"), "rotocol"},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, func(conn net.Conn) {
				c.serve(conn)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			})
			p := newParty()
			e.Dial(e.Loops()[0], Target{Address: s.addr}, p)
			err := receive(t, "the end", p.closed)
			if !strings.Contains(err.Error(), c.want) || len(p.opened) > 0 {
				t.Errorf("closed with %v, want %q", err, c.want)
			}
			var refused *RefusedError
			if errors.As(err, &refused) != (c.want[0] <= '4' && c.want[3] == ' ') {
				t.Errorf("%v: a RefusedError is for a status", err)
			}
		})
	}
}

func TestDialErrors(t *testing.T) {
	e := start(t, Options{})
	silent := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	_ = free.Close()
	for name, c := range map[string]struct {
		target Target
		is     error
		says   string
	}{
		"nobody listens": {Target{Address: nobody}, syscall.ECONNREFUSED, ""},
		"never answers":  {Target{Address: silent.addr, Timeout: 50 * time.Millisecond}, context.DeadlineExceeded, "time limit"},
		"strange source": {Target{Address: silent.addr, Source: netip.MustParseAddr("192.0.2.1")}, syscall.EADDRNOTAVAIL, "more source addresses"},
		"no address":     {Target{Address: "nonsense"}, nil, "missing port"},
		"bad path":       {Target{Address: silent.addr, Path: "/%zz"}, nil, "invalid URL escape"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParty()
			e.Dial(e.Loops()[0], c.target, p)
			err := receive(t, "the end", p.closed)
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("closed with %v, want %v, %q", err, c.is, c.says)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	err := explain(&net.OpError{Op: "dial", Err: syscall.EMFILE})
	if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
	if err := explain(io.EOF); err != io.EOF {
		t.Error(err)
	}
}

// TestRequest looks at the handshake as net/http reads it.
func TestRequest(t *testing.T) {
	e := start(t, Options{})
	requests := make(chan *http.Request, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		http.Error(w, "no", http.StatusForbidden)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	p := newParty()
	e.Dial(e.Loops()[0], Target{
		Address: ln.Addr().String(), Path: "/ws?a=b", Host: "gw.example", Header: http.Header{"Authorization": {"Bearer x"}},
	}, p)
	var refused *RefusedError
	if err := receive(t, "the end", p.closed); !errors.As(err, &refused) || refused.Status != 403 {
		t.Errorf("closed with %v", err)
	}
	r := receive(t, "a request", requests)
	got := fmt.Sprint(r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"), r.Header.Get("Upgrade"), r.Header.Get("Sec-WebSocket-Protocol"), r.Header.Get("Sec-WebSocket-Version"))
	if want := fmt.Sprint("GET", "/ws?a=b", "gw.example", "Bearer x", "websocket", "subway.v1", "13"); got != want {
		t.Errorf("the request is %q, want %q", got, want)
	}
	_ = srv.Close()
	<-served
}

// TestGivenUpBeforeOpen closes and aborts connections that do not stand yet.
func TestGivenUpBeforeOpen(t *testing.T) {
	e := start(t, Options{})
	release := make(chan struct{})
	s := listen(t, func(conn net.Conn) {
		<-release
		upgrade(echo)(conn)
	})
	for _, give := range []func(*Conn){(*Conn).Abort, func(c *Conn) { c.Close(1000, "") }} {
		for _, addr := range []string{s.addr, "127.0.0.1:1"} {
			p := newParty()
			do(t, e.Loops()[0], func() { // on the loop: a dial that fails is told only after this
				c := e.Dial(e.Loops()[0], Target{Address: addr}, p)
				c.Send([]byte("dropped"))
				give(c)
			})
			if addr == s.addr {
				release <- struct{}{}
			}
			if err := receive(t, "the end", p.closed); !errors.Is(err, ErrAborted) || len(p.opened) > 0 {
				t.Errorf("closed with %v, opened %d times", err, len(p.opened))
			}
		}
	}
}

func TestDialsAreBounded(t *testing.T) {
	const dials = 4
	e := start(t, Options{Dials: dials})
	var mu sync.Mutex
	var at, most int
	step := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		at += by
		most = max(most, at)
	}
	s := listen(t, func(conn net.Conn) {
		step(1)
		buf := make([]byte, 4096)
		_, _ = conn.Read(buf)
		step(-1)
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
	})
	closed := make(chan error, 200)
	for range cap(closed) {
		e.Dial(e.Loops()[0], Target{Address: s.addr}, &callback{close: func(_ *Conn, err error) { closed <- err }})
	}
	for range cap(closed) {
		var refused *RefusedError
		if err := receive(t, "the end", closed); !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	if most > dials {
		t.Errorf("%d handshakes at a time, want at most %d", most, dials)
	}

	until(t, "the last dials are over", func() bool { // a Close is called before its dial makes room
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.dialing == 0
	})
	e.mu.Lock() // as if a million waited
	e.dialing, e.queue = dials, make([]*Conn, maxQueued)
	e.mu.Unlock()
	p := newParty()
	e.Dial(e.Loops()[0], Target{Address: s.addr}, p)
	if err := receive(t, "the end", p.closed); !errors.Is(err, ErrDialsFull) {
		t.Errorf("closed with %v", err)
	}
	e.mu.Lock()
	e.dialing, e.queue = 0, nil
	e.mu.Unlock()
}

func TestManyConnectionsFromTwoSources(t *testing.T) {
	const n = 2000
	if got, _, err := RaiseFileLimit(3*n + 500); got < 3*n+500 {
		t.Skipf("%d open files: %v", got, err)
	}
	e := start(t, Options{Loops: 2})
	var mu sync.Mutex
	from := map[string]int{}
	s := listen(t, upgrade(func(conn net.Conn) {
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		mu.Lock()
		from[host]++
		mu.Unlock()
		echo(conn)
	}))
	sources := Sources(2)
	echoed, closed := make(chan string, n), make(chan error, n)
	for i := range n {
		p := &party{opened: make(chan *Conn, 1), messages: echoed, closed: closed}
		p.onOpen = func(c *Conn) { c.Send(fmt.Append(nil, c.LocalAddr().(*net.TCPAddr).IP)) }
		e.Dial(e.Loops()[i%2], Target{Address: s.addr, Source: sources[i%2]}, p)
	}
	got := map[string]int{}
	for range n {
		select {
		case host := <-echoed:
			got[host]++
		case err := <-closed:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatalf("only %v are there", got)
		}
	}
	mu.Lock()
	for _, a := range sources {
		if from[a.String()] != n/2 || got[a.String()] != n/2 {
			t.Errorf("the server saw %v, the connections say %v", from, got)
		}
	}
	mu.Unlock()
	e.Stop()
	for range n {
		if err := receive(t, "the end", closed); !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
	}
}

func TestSources(t *testing.T) {
	all := Sources(1000)
	if len(all) != 254 || all[0].String() != "127.0.0.2" || all[253].String() != "127.0.0.255" || len(Sources(-1)) != 0 {
		t.Errorf("%d addresses: %v", len(all), all)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	for _, a := range []netip.Addr{all[0], all[253]} {
		conn, err := (&Target{Address: ln.Addr().String(), Source: a}).dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}

func TestRaiseFileLimit(t *testing.T) {
	now, raised, err := RaiseFileLimit(1)
	if now < 1 || raised || err != nil {
		t.Errorf("%d, %v, %v for a limit that stands", now, raised, err)
	}
	const absurd = 1 << 40 // beyond fs.nr_open, whoever asks
	got, raised, err := RaiseFileLimit(absurd)
	if err == nil || got >= absurd || got < now || raised != (got > now) || !strings.Contains(err.Error(), "open files") {
		t.Errorf("%d (from %d), %v, %v", got, now, raised, err)
	}
}
