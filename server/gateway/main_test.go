package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/api/contract"
	"subway/server/gateway"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m, processLifetime...)
}

// processLifetime are goroutines of libraries that live as long as the process.
var processLifetime = []goleak.Option{
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
	goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"),
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// until polls a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// seeded returns a source of random numbers whose seed a failure shows.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// fixture is a Gateway under test, seen through its port alone.
type fixture struct {
	t    testing.TB
	g    *gateway.Gateway // nil where it is another process
	addr string
	http *http.Client
	down sync.Once
	seen *coverage // nil: nobody asks
}

// start starts a Gateway in this process and stops it after the test.
func start(t testing.TB, change func(*gateway.Options)) *fixture {
	t.Helper()
	opt := gateway.Options{
		Listen: "127.0.0.1:0", Loops: 2, OrphanResponses: true,
		Version: gateway.Version{Version: "test", Commit: "0000000"},
	}
	if change != nil {
		change(&opt)
	}
	g, err := gateway.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, g.Addr().String())
	f.g = g
	t.Cleanup(func() {
		f.stop(0)
		select {
		case err := <-g.Failed():
			t.Errorf("the port failed: %v", err)
		default:
		}
	})
	return f
}

func newFixture(t testing.TB, addr string) *fixture {
	f := &fixture{t: t, addr: addr, http: &http.Client{
		Timeout:   2 * patience,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	}}
	t.Cleanup(f.http.CloseIdleConnections)
	return f
}

// stop shuts the Gateway down, once; drain is the time for commands in flight.
func (f *fixture) stop(drain time.Duration) {
	f.down.Do(func() {
		f.http.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		if err := f.g.Shutdown(ctx); err != nil && ctx.Err() == nil {
			f.t.Errorf("Shutdown: %v", err)
		}
	})
}

// answer is an HTTP answer; fields is its body where that is a JSON object.
type answer struct {
	status int
	header http.Header
	body   []byte
	fields map[string]any
}

func (a *answer) get(path string) any    { return lookup(a.fields, path) }
func (a *answer) str(path string) string { s, _ := a.get(path).(string); return s }

// call makes a request, holds the answer against the contract and returns it. headers
// are names and values in turn.
func (f *fixture) call(method, target, body string, headers ...string) *answer {
	f.t.Helper()
	a, err := f.try(method, target, body, headers...)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a
}

// try is call for goroutines other than the test's own.
func (f *fixture) try(method, target, body string, headers ...string) (*answer, error) {
	f.t.Helper()
	req, err := http.NewRequest(method, "http://"+f.addr+target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	contract.Validate(f.t, method, target, resp.StatusCode, resp.Header, b)
	f.covered(method, target, resp.StatusCode)
	a := &answer{status: resp.StatusCode, header: resp.Header, body: b}
	_ = json.Unmarshal(b, &a.fields)
	return a, nil
}

// want is call, and fails unless the answer has this status and, where given, this code.
func (f *fixture) want(status int, code, method, target, body string, headers ...string) *answer {
	f.t.Helper()
	a := f.call(method, target, body, headers...)
	if a.status != status || a.str("code") != code {
		f.t.Errorf("%s %s %.200s: %d %s, want %d %s", method, target, body, a.status, a.body, status, code)
	}
	return a
}

// record reads a command's record.
func (f *fixture) record(ref string) *answer {
	f.t.Helper()
	return f.call("GET", "/api/commands/"+ref, "")
}

// lookup finds a member by names with dots between.
func lookup(fields map[string]any, path string) any {
	name, rest, more := strings.Cut(path, ".")
	if !more {
		return fields[name]
	}
	inner, _ := fields[name].(map[string]any)
	return lookup(inner, rest)
}

// hit is a callback as its receiver read it.
type hit struct {
	path   string
	header http.Header
	body   []byte
	fields map[string]any
}

// receiver takes callbacks and holds each against the contract.
type receiver struct {
	*httptest.Server
	t  testing.TB
	mu sync.Mutex
	// guarded by mu
	hits []hit
	n    int
}

// receive starts a receiver; answer, where given, decides the status of the n-th request.
func receive(t testing.TB, answer func(n int) int) *receiver {
	r := &receiver{t: t}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		contract.ValidateCallback(t, req.Header, body)
		h := hit{path: req.URL.EscapedPath(), header: req.Header, body: body}
		_ = json.Unmarshal(body, &h.fields)
		r.mu.Lock()
		r.hits = append(r.hits, h)
		n := r.n
		r.n++
		r.mu.Unlock()
		if answer != nil {
			w.WriteHeader(answer(n))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// wait waits for n callbacks and returns them.
func (r *receiver) wait(n int) []hit {
	r.t.Helper()
	var hits []hit
	until(r.t, fmt.Sprintf("%d callbacks", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		hits = r.hits
		return len(hits) >= n
	})
	return hits
}
