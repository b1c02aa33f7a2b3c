package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// posted is what a scripted server reads of a command.
type posted struct {
	Ref     string `json:"request_ref"`
	Target  string `json:"target_client_id"`
	Command struct {
		Type  string          `json:"commandType"`
		Value json.RawMessage `json:"value"`
	} `json:"command"`
	Callback string   `json:"callback_url"`
	Priority string   `json:"priority"`
	Timeout  int64    `json:"timeout"`
	Offline  string   `json:"when_offline"`
	Commands []posted `json:"commands"`
}

func read(t testing.TB, r *http.Request) (p posted) {
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		t.Errorf("a body that is no JSON: %v", err)
	}
	return p
}

func accept(w http.ResponseWriter, ref string) {
	fmt.Fprintf(w, `{"success":true,"requestRef":%q,"message":"Command accepted for processing"}`, ref)
}

func run(t testing.TB, d time.Duration, o Options) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	res, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestStallShows: a server that answers nobody for 2 s. All that was due meanwhile has to
// show it, though only as many requests as there are workers saw the stall.
func TestStallShows(t *testing.T) {
	const rate, workers, stall = 400, 8, 2 * time.Second
	var begun sync.Once
	var stalled atomic.Pointer[time.Time]
	var n atomic.Int64
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		p := read(t, r)
		if n.Add(1) > rate/2 {
			begun.Do(func() { end := time.Now().Add(stall); stalled.Store(&end) })
			<-time.After(time.Until(*stalled.Load()))
		}
		accept(w, p.Ref)
	})
	var got noted
	o := got.options(s.URL)
	o.Rate, o.Workers = rate, workers
	res := run(t, 4*time.Second, o)
	ls := got.latencies()
	slices.Sort(got.lags)
	t.Logf("ours p50 %v p75 %v p90 %v max %v; vegeta's p50 %v p90 %v; late max %v; %d answers, %d unsent",
		percentile(ls, 0.5), percentile(ls, 0.75), percentile(ls, 0.9), ls[len(ls)-1], res.Metrics.Latencies.P50, res.Metrics.Latencies.P90,
		got.lags[len(got.lags)-1], len(ls), res.Unsent)
	// Half of the run is stall: of 1,600 commands some 800 waited 0 to 2 s, evenly.
	if p75, p90 := percentile(ls, 0.75), percentile(ls, 0.9); p75 < 700*time.Millisecond || p90 < 1300*time.Millisecond || ls[len(ls)-1] < 1900*time.Millisecond {
		t.Error("the stall does not show in the latencies")
	}
	if over := len(ls) - len(slices.DeleteFunc(slices.Clone(ls), func(d time.Duration) bool { return d > time.Second })); over < 300 {
		t.Errorf("%d commands took over 1 s, some 400 should have", over)
	}
	if late := got.lags[len(got.lags)-1]; late < 1900*time.Millisecond {
		t.Errorf("Late was at most %v", late)
	}
	if v := res.Metrics.Latencies.P90; v > time.Second {
		t.Errorf("vegeta's own p90 is %v: the comparison in the documentation is wrong", v)
	}
	if all := uint64(len(ls)) + res.Unsent; all < 4*rate-1 || all > due(res, rate) {
		t.Errorf("%d commands were due, want %d", all, 4*rate)
	}
}

// due is how many commands can have been due at a rate: a busy machine ends a run late.
func due(res *Result, rate float64) uint64 { return uint64(time.Since(res.Began).Seconds()*rate) + 2 }

func TestOpenLoopKeepsItsInstants(t *testing.T) {
	const delay = 20 * time.Millisecond
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		p := read(t, r)
		<-time.After(delay)
		accept(w, p.Ref)
	})
	var got noted
	o := got.options(s.URL)
	o.Rate, o.Workers = 200, 64
	o.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}
	res := run(t, 2*time.Second, o)
	ls := got.latencies()
	t.Logf("p50 %v p99 %v", percentile(ls, 0.5), percentile(ls, 0.99))
	if ls[0] < delay {
		t.Errorf("latencies from %v; the server takes %v", ls[0], delay)
	}
	var at []time.Duration
	for i := range got.answers {
		at = append(at, got.answers[i].Intended.Sub(res.Began))
	}
	slices.Sort(at)
	for i, d := range at {
		if want := time.Duration(i) * 5 * time.Millisecond; d-want > time.Microsecond || want-d > time.Microsecond {
			t.Fatalf("instant %d is %v, want %v", i, d, want)
		}
	}
	if n := uint64(len(at)) + res.Unsent; n < 399 || n > due(res, 200) {
		t.Errorf("%d commands were due in 2 s, %d of them unsent", n, res.Unsent)
	}
}

func TestRateChangesWhileRunning(t *testing.T) {
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) { accept(w, read(t, r).Ref) })
	var got noted
	o := got.options(s.URL)
	o.Rate, o.Workers = 0.001, 8 // the first at once, the next in 1,000 s
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if a.SetRate(1) == nil {
		t.Error("SetRate before Run was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *Result)
	go func() {
		res, err := a.Run(ctx)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	until(t, "the first command", func() bool { return got.count() == 1 })
	if err := a.SetRate(500); err != nil {
		t.Fatal(err)
	}
	until(t, "a hundred at 500/s", func() bool { return got.count() >= 100 })
	if err := errors.Join(a.SetRate(0)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []float64{-1, 1e9} {
		if a.SetRate(bad) == nil {
			t.Errorf("rate %v was taken", bad)
		}
	}
	cancel() // while the pacer has nothing to wait for
	res := <-ended
	if n := int(res.Metrics.Requests); n != len(got.answers) || n < 100 || n > 400 {
		t.Errorf("vegeta counts %d, we %d", n, len(got.answers))
	}
	if _, err := a.Run(t.Context()); err == nil {
		t.Error("a second Run was made")
	}
}

func TestClosedLoop(t *testing.T) {
	const workers = 5
	var now, most atomic.Int64
	full := make(chan struct{})
	var once sync.Once
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		p := read(t, r)
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == workers {
			once.Do(func() { close(full) })
		}
		select {
		case <-full:
		case <-time.After(patience):
		}
		accept(w, p.Ref)
	})
	var got noted
	o := got.options(s.URL)
	o.Workers = workers
	res := run(t, 300*time.Millisecond, o)
	if most.Load() != workers {
		t.Errorf("%d requests at a time, want %d", most.Load(), workers)
	}
	if len(got.answers) != got.asked || got.asked < workers || res.Unsent != 0 {
		t.Errorf("%d asked, %d answered, %d unsent", got.asked, len(got.answers), res.Unsent)
	}
	checkReports(t, res)
}

func checkReports(t *testing.T, res *Result) {
	var text, js, hdr bytes.Buffer
	if err := errors.Join(res.WriteText(&text), res.WriteJSON(&js), res.WriteHDR(&hdr)); err != nil {
		t.Fatal(err)
	}
	var v struct{ Requests int }
	if err := json.Unmarshal(js.Bytes(), &v); err != nil || v.Requests == 0 {
		t.Errorf("JSON report: %v, %s", err, js.Bytes())
	}
	if !strings.Contains(text.String(), "200:") || !strings.HasPrefix(hdr.String(), "Value(ms)") {
		t.Errorf("reports: %s\n%s", &text, &hdr)
	}
}

// TestOutcomes: one of each kind of answer, by the command's value.
func TestOutcomes(t *testing.T) {
	long := strings.Repeat("x", maxAnswer+1)
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		p := read(t, r)
		switch p.Command.Type {
		case "DONE":
			fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"COMPLETED","result":%s}`, p.Ref, p.Command.Value)
		case "OPEN":
			fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"DISPATCHED"}`, p.Ref)
		case "FAILED":
			fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"FAILED","error":{"code":"LAMP_BROKEN","message":"m"}}`, p.Ref)
		case "REFUSED":
			w.WriteHeader(503)
			fmt.Fprint(w, `{"success":false,"error":"full","code":"OVERLOADED","details":{"retryAfter":1}}`)
		case "PROXY":
			w.WriteHeader(502)
			fmt.Fprint(w, `<html>Bad gateway</html>`)
		case "FOREIGN":
			fmt.Fprint(w, `{"success":true,"requestRef":"cmd-other","status":"COMPLETED"}`)
		case "NULL":
			fmt.Fprint(w, `null`)
		case "LONG":
			_, _ = io.WriteString(w, long)
		case "SLOW":
			<-r.Context().Done()
		case "CUT":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"success":`)
		case "REDIRECT":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "GONE":
			panic(http.ErrAbortHandler)
		}
	})
	want := map[string]struct {
		http                int
		accepted            bool
		status, code, cause string
	}{
		"DONE":     {200, true, "COMPLETED", "", ""},
		"OPEN":     {200, true, "DISPATCHED", "", ""},
		"FAILED":   {200, true, "FAILED", "LAMP_BROKEN", ""},
		"REFUSED":  {503, false, "", "OVERLOADED", ""},
		"PROXY":    {502, false, "", "", "answer not understood"},
		"FOREIGN":  {200, false, "", "", "answer not understood"},
		"NULL":     {200, false, "", "", "answer not understood"},
		"LONG":     {0, false, "", "", "answer too long"},
		"SLOW":     {0, false, "", "", "timeout"},
		"CUT":      {0, false, "", "", "connection closed"},
		"REDIRECT": {307, false, "", "", "answer not understood"},
		"GONE":     {0, false, "", "", "connection closed"},
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got noted
	o := got.options(s.URL)
	o.Workers, o.Wait, o.Timeout = 1, time.Millisecond, 3*time.Second // only SLOW is to meet it
	next, kinds := 0, map[string]string{}
	o.Next = func(_ time.Time, c *Command) {
		name := names[next%len(names)]
		c.Ref, c.Type, c.Target = fmt.Sprintf("cmd-%d", next), name, "td-01"
		c.Value = []byte(`{"text": "a<b>&\u00e9é"}`)
		kinds[c.Ref] = name
		if next++; next == len(names) {
			cancel()
		}
	}
	res, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range got.answers {
		name := kinds[a.Ref]
		seen[name] = true
		w := want[name]
		if a.HTTP != w.http || a.Accepted != w.accepted || a.Status != w.status || a.Code != w.code || Cause(a.Err) != w.cause || a.Unsent {
			t.Errorf("%s: %+v, cause %q", name, a, Cause(a.Err))
		}
		if name == "DONE" && string(a.Result) != `{"text": "a<b>&\u00e9é"}` {
			t.Errorf("the result is %s", a.Result)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d kinds seen of %d", len(seen), len(want))
	}
	for _, text := range res.Metrics.Errors {
		if strings.Contains(text, "127.0.0.1:") && !strings.HasPrefix(text, `Post "`) || strings.Contains(text, "->") {
			t.Errorf("an error text that grows the set: %s", text)
		}
	}
}

func TestBatch(t *testing.T) {
	var n atomic.Int64
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		p := read(t, r)
		if r.URL.Path != "/api/commands/batch" || len(p.Commands) != 3 {
			t.Errorf("%s with %d commands", r.URL, len(p.Commands))
			return
		}
		c := p.Commands
		switch n.Add(1) {
		case 1:
			fmt.Fprintf(w, `{"success":true,"accepted":2,"rejected":1,"results":[{"targetClientId":%q,"requestRef":%q},`+
				`{"targetClientId":%q,"error":"No route","code":"TARGET_NOT_FOUND"},{"targetClientId":%q,"requestRef":%q}]}`,
				c[0].Target, c[0].Ref, c[1].Target, c[2].Target, c[2].Ref)
		case 2: // a gateway that mixes refs up
			fmt.Fprintf(w, `{"success":true,"accepted":3,"rejected":0,"results":[{"targetClientId":"td-01","requestRef":%q},`+
				`{"targetClientId":"td-01","requestRef":%q},{"targetClientId":"td-02","requestRef":%q}]}`, c[1].Ref, c[0].Ref, c[2].Ref)
		case 3:
			fmt.Fprintf(w, `{"success":true,"accepted":1,"rejected":0,"results":[{"targetClientId":"td-01","requestRef":%q}]}`, c[0].Ref)
		default:
			w.WriteHeader(429)
			fmt.Fprint(w, `{"success":false,"error":"slow down","code":"RATE_LIMITED"}`)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got noted
	o := got.options(s.URL)
	o.Workers, o.Batch = 1, 3
	next := o.Next
	o.Next = func(at time.Time, c *Command) {
		next(at, c)
		if got.asked == 12 {
			cancel()
		}
	}
	if _, err := Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, a := range got.answers[:12] {
		said = append(said, fmt.Sprintf("%v/%s/%s", a.Accepted, a.Code, Cause(a.Err)))
	}
	const bad = "false//answer not understood"
	want := []string{"true//", "false/TARGET_NOT_FOUND/", "true//", bad, bad, bad, bad, bad, bad,
		"false/RATE_LIMITED/", "false/RATE_LIMITED/", "false/RATE_LIMITED/"}
	if !slices.Equal(said, want) {
		t.Errorf("got  %q\nwant %q", said, want)
	}
}

// TestServerDies: with requests under way the server goes. Each command still has one
// outcome, and those that found nobody are told from those that may have arrived.
func TestServerDies(t *testing.T) {
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) { accept(w, read(t, r).Ref) })
	var got noted
	o := got.options(s.URL)
	o.Rate, o.Workers = 1000, 32
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := Run(ctx, o); err != nil {
			t.Error(err)
		}
	}()
	until(t, "answers", func() bool { return got.count() > 100 })
	s.Listener.Close()
	s.CloseClientConnections()
	until(t, "refusals", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return len(got.answers) > 0 && got.answers[len(got.answers)-1].Unsent
	})
	cancel()
	<-ended
	refs := map[string]bool{}
	for _, a := range got.answers {
		if refs[a.Ref] {
			t.Fatalf("%s has two outcomes", a.Ref)
		}
		refs[a.Ref] = true
		if a.Unsent != (Cause(a.Err) == "connection refused") || a.Accepted != (a.Err == nil) {
			t.Errorf("%+v, cause %q", a, Cause(a.Err))
		}
	}
	if len(refs) != got.asked {
		t.Errorf("%d asked, %d outcomes", got.asked, len(refs))
	}
}

func TestBodyOfACommand(t *testing.T) {
	c := Command{Ref: "cmd-1", Target: "td-\"01", Type: "SHOW", Value: []byte(`{"a": [1]}`), Priority: "HIGH", TimeoutMs: 1500,
		Callback: "http://h/cb/x/{request_ref}", WhenOffline: "QUEUE"}
	const want = `{"target_client_id":"td-\"01","command":{"commandType":"SHOW","value":{"a": [1]}},"request_ref":"cmd-1",` +
		`"callback_url":"http://h/cb/x/{request_ref}","priority":"HIGH","timeout":1500,"when_offline":"QUEUE"}`
	if got := string(appendRequest(nil, []Command{c})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const small = `{"target_client_id":"t","command":{"commandType":"S"}}`
	two := []Command{{Target: "t", Type: "S"}, {Target: "t", Type: "S"}}
	if got := string(appendRequest(nil, two)); got != `{"commands":[`+small+`,`+small+`]}` {
		t.Errorf("a batch is %s", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	var n noted
	good := n.options("http://127.0.0.1:1/")
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Options){
		"no URL":         func(o *Options) { o.URL = "" },
		"a path":         func(o *Options) { o.URL += "api" },
		"a scheme":       func(o *Options) { o.URL = "ws://127.0.0.1:1" },
		"no Next":        func(o *Options) { o.Next = nil },
		"workers":        func(o *Options) { o.Workers = maxWorkers + 1 },
		"negative rate":  func(o *Options) { o.Rate = -1 },
		"rate":           func(o *Options) { o.Rate = 2 * maxRate },
		"batch":          func(o *Options) { o.Batch = maxBatch + 1 },
		"batch and wait": func(o *Options) { o.Batch, o.Wait = 2, time.Second },
		"wait":           func(o *Options) { o.Wait = 2 * time.Minute },
		"wait in us":     func(o *Options) { o.Wait = time.Microsecond },
		"timeout":        func(o *Options) { o.Wait, o.Timeout = time.Second, time.Second },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}
