package attack

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binary is the real gateway's program, built once.
var binary string

// processLifetime is a goroutine of fasthttp that lives as long as the process.
var processLifetime = goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "subway-attack")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "subway")
	if out, err := exec.Command("go", "build", "-o", binary, "subway/cmd/subway").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if err := goleak.Find(processLifetime); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// until polls a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// scripted starts a server.
func scripted(t testing.TB, answer http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

// noted keeps the answers and lags of a run.
type noted struct {
	mu      sync.Mutex
	asked   int
	answers []Answer
	lags    []time.Duration
}

// options sends commands with refs cmd-0, cmd-1, ... and notes what comes of them.
func (n *noted) options(url string) Options {
	return Options{
		URL: url,
		Next: func(_ time.Time, c *Command) {
			n.mu.Lock()
			defer n.mu.Unlock()
			c.Ref, c.Target, c.Type = fmt.Sprintf("cmd-%d", n.asked), "td-01", "SHOW"
			n.asked++
		},
		Done: func(a *Answer) {
			n.mu.Lock()
			defer n.mu.Unlock()
			b := *a
			b.Result = slices.Clone(a.Result)
			n.answers = append(n.answers, b)
		},
		Late: func(d time.Duration) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.lags = append(n.lags, d)
		},
	}
}

func (n *noted) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.answers)
}

// latencies returns those of all answers, sorted.
func (n *noted) latencies() []time.Duration {
	var ds []time.Duration
	for i := range n.answers {
		ds = append(ds, n.answers[i].Latency())
	}
	slices.Sort(ds)
	return ds
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
