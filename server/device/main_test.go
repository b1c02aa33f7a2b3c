package device

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
	"subway/server/front"
	"subway/server/gateway"
	"subway/server/uplink"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// gnet's worker pool and fasthttp's clock live as long as the process.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// A port that is closed as soon as it was opened: its event loop ends before it confirms.
		goleak.IgnoreAnyFunction("subway/server/front.(*loop).enrollWaker.func1"),
	)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

func await[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// start runs a device until the test ends, or until stop is called.
func start(t testing.TB, opt Options, url string) (d *Device, reports chan Report, stop func()) {
	t.Helper()
	reports = make(chan Report, 4096)
	opt.URLs, opt.Report = []string{url}, func(r Report) { reports <- r }
	if opt.ID == "" {
		opt.ID = "td-01"
	}
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	await(t, "the registration", d.Registered())
	return d, reports, stop
}

// realGateway starts a Gateway, and returns its WebSocket and its HTTP address.
func realGateway(t testing.TB) (ws, api string) {
	t.Helper()
	g, err := gateway.Start(gateway.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return "ws://" + g.Addr().String() + "/ws", "http://" + g.Addr().String()
}

// call makes a request and decodes its answer.
func call(t testing.TB, method, url, body string) (answer map[string]any) {
	t.Helper()
	q, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := fresh.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatalf("%s %s: %s", method, url, b)
	}
	return answer
}

// text encodes a value for a comparison.
func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// port is a real port whose sessions a test plays: it can say what no Gateway would.
type port struct {
	url string

	mu       sync.Mutex
	conn     *front.Conn // guarded by mu: the newest
	messages chan string
}

func listen(t testing.TB) *port {
	t.Helper()
	p := &port{messages: make(chan string, 4096)}
	s, err := front.Listen(front.Options{
		Listen: "127.0.0.1:0", Loops: 1,
		Clock: func() wire.Time { return wire.Time(time.Now().UnixNano()) },
		Open: func(c *front.Conn, _ wire.Time) front.Session {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.conn = c
			return &session{p, c}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	p.url = "ws://" + s.Addr().String() + "/ws"
	return p
}

// say sends a message to the device.
func (p *port) say(msg string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.Append(wire.ClassNotice, []byte(msg), nil, nil)
}

func (p *port) hangUp(code uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.CloseWith(code, "")
}

type session struct {
	p *port
	c *front.Conn
}

func (s *session) Receive(msg []byte, _ wire.Time) {
	if strings.Contains(string(msg), `"REGISTER"`) {
		s.c.Append(wire.ClassNotice, []byte(`{"type":"REGISTER_ACK","clientId":"td-01","clientType":"DEVICE","status":"REGISTERED"}`), nil, nil)
	}
	s.p.messages <- string(msg)
}
func (*session) Invalid(wire.Time)        {}
func (*session) Writable(wire.Time)       {}
func (*session) Registered() bool         { return true }
func (*session) Closed(wire.Time, string) {}

// quick is a schedule without patience.
var quick = uplink.Schedule{First: time.Millisecond, GoingAway: time.Millisecond}
