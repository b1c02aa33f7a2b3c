package loadgen_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// few are the flags of a small run.
func few(url string, more ...string) []string {
	return append([]string{
		"loadgen", "steady", "--gateway", url, "--edges", "4", "--devices", "5", "--backends", "2", "--rate", "300",
		"--payload", "50", "--timeout", "500ms", "--warmup", "0s", "--seed", "1",
	}, more...)
}

// The exit code tells a gateway that keeps its word from one that does not.
func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		fault string
		code  int
		text  string
	}{
		{"", 0, "The books balance"},
		{"end twice", 1, "ended twice"},
	} {
		p := start(t, few(newScripted(t, tc.fault).URL, "--time", "1s")...)
		if code := p.ends(); code != tc.code || !strings.Contains(p.out.String(), tc.text) {
			t.Errorf("%q: exit code %d, want %d and %q\n%s%s", tc.fault, code, tc.code, tc.text, p.out.String(), p.stderr())
		}
	}
}

// What is no gateway is said to be none, at once.
func TestNoGateway(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>Welcome</html>"))
	}))
	defer site.Close()
	draining := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(`{"version":"1"}`))
	}))
	defer draining.Close()
	for _, url := range []string{"http://127.0.0.1:1", site.URL, draining.URL, noHTTP(t)} {
		p := start(t, few(url, "--time", "1s")...)
		if code := p.ends(); code != 2 || !strings.Contains(p.stderr(), "no gateway to drive") || p.out.Len() > 0 {
			t.Errorf("%s: exit code %d\n%s%s", url, code, p.out.String(), p.stderr())
		}
	}
}

// noHTTP listens and speaks something else.
func noHTTP(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int32
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail ready\r\n"))
			c.Close()
			served.Add(1)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
		if served.Load() == 0 {
			t.Error("nobody asked")
		}
	})
	return "http://" + l.Addr().String()
}

// A gateway that is killed under load and stays away ends the run in bounded time, when
// the scenario says: the commands nobody can tell of are counted and named.
func TestGatewayGone(t *testing.T) {
	gateway, url := startGateway(t)
	p := start(t, few(url, "--time", "2s", "--delay", "200ms")...)
	p.says("in flight")
	killed := time.Now()
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	code := p.ends()
	text := p.out.String() + p.stderr()
	for _, part := range []string{"could not be asked", "lost", "connections were lost", "the books do not balance"} {
		if code != 1 || !strings.Contains(text, part) {
			t.Errorf("exit code %d, want 1 and %q\n%s", code, part, text)
		}
	}
	// 2 s of sending, 500 ms and 5 s for what is open, 3 s for goodbyes.
	if took := time.Since(killed); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A gateway that goes away in an orderly way and stays away is no better.
func TestGatewayStopped(t *testing.T) {
	gateway, url := startGateway(t)
	p := start(t, few(url, "--time", "3s", "--delay", "200ms")...)
	p.says("in flight")
	if err := gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// What is in flight is drained: the books may balance but for the commands that could not
	// be sent, which are in no book. Nobody may be left hanging.
	if code := p.ends(); code > 1 || !strings.Contains(p.out.String(), "commands were due while their Backend was not connected") {
		t.Errorf("exit code %d\n%s%s", code, p.out.String(), p.stderr())
	}
}

// Ctrl-C in the middle: it sends no more, waits for what is in flight, and its books are right.
func TestInterrupted(t *testing.T) {
	_, url := startGateway(t)
	p := start(t, few(url, "--time", "60s", "--delay", "200ms")...)
	p.says("in flight")
	p.signal(syscall.SIGINT)
	code, text := p.ends(), p.out.String()
	if code != 0 || !strings.Contains(text, "The books balance") || !strings.Contains(text, "interrupted") {
		t.Errorf("exit code %d\n%s%s", code, text, p.stderr())
	}
}
