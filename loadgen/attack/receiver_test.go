package attack

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// heard keeps what a Receiver got.
type heard struct {
	mu  sync.Mutex
	all []Callback
}

func (h *heard) got(c *Callback) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := *c
	d.Body, d.Result, d.Progress = bytes.Clone(c.Body), bytes.Clone(c.Result), bytes.Clone(c.Progress)
	h.all = append(h.all, d)
}

func (h *heard) seen() []Callback {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

func receive(t testing.TB, o ReceiverOptions) *Receiver {
	t.Helper()
	r, err := Receive(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// post sends one callback as a gateway does, on a connection of its own.
func post(t testing.TB, url, attempt, body string) (status int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Callback-Id", "cb-1")
	req.Header.Set("X-Callback-Attempt", attempt)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestReceiverReads(t *testing.T) {
	var h heard
	r := receive(t, ReceiverOptions{Got: h.got, Answer: func(customer string, c *Callback) (int, time.Duration) {
		if customer == "broken" {
			return 503, 0
		}
		return 204, 0
	}})
	url := strings.Replace(r.CallbackURL("metro a"), "{request_ref}", "cmd%2F1", 1)
	const body = `{"requestRef":"cmd/1","status":"COMPLETED","result":{"b": 80},"type":"COMMAND_RESPONSE","targetClientId":"td-01"}`
	before := time.Now()
	if status := post(t, url, "2/3", body); status != 204 {
		t.Errorf("answered with %d", status)
	}
	until(t, "the first", func() bool { return len(h.seen()) == 1 })
	if status := post(t, r.URL()+"/cb/broken/cmd-2", "1/3", `{"requestRef":"cmd-2","status":"IN_PROGRESS","type":"PROGRESS_UPDATE","progress":40}`); status != 503 {
		t.Errorf("answered with %d", status)
	}
	until(t, "the second", func() bool { return len(h.seen()) == 2 }) // the order is kept for one ref only
	post(t, r.URL()+"/cb/a/", "1/3", `{"requestRef":"cmd-3","status":"TIMEOUT","type":"ERROR","error":{"code":"TIMEOUT"}}`)
	until(t, "three callbacks", func() bool { return len(h.seen()) == 3 })
	all := h.seen()
	if c := all[0]; c.Customer != "metro a" || c.Ref != "cmd/1" || c.Type != "COMMAND_RESPONSE" || c.Status != "COMPLETED" || c.Target != "td-01" ||
		string(c.Result) != `{"b": 80}` || string(c.Body) != body || c.ID != "cb-1" || c.Attempt != 2 || c.Attempts != 3 ||
		c.Arrived.Before(before) || c.Answered != 204 || !c.Confirmed || c.Err != nil {
		t.Errorf("got %+v", c)
	}
	if c := all[1]; c.Customer != "broken" || string(c.Progress) != "40" || c.Answered != 503 || c.Confirmed || c.Err != nil {
		t.Errorf("got %+v", c)
	}
	if c := all[2]; c.Code != "TIMEOUT" || !c.Confirmed || c.Err != nil {
		t.Errorf("got %+v", c)
	}
}

func TestReceiverNamesWhatIsWrong(t *testing.T) {
	const good = `{"requestRef":"cmd-1","status":"COMPLETED","type":"COMMAND_RESPONSE"}`
	for _, c := range []struct{ path, attempt, body, word string }{
		{"/cb/a/cmd-2", "1/3", good, "under the path"},
		{"/cb/a/cmd-1", "4/3", good, "X-Callback-Attempt"},
		{"/cb/a/cmd-1", "", good, "X-Callback-Attempt"},
		{"/cb/a/cmd-1", "1/3", `{"status":"COMPLETED"}`, "requestRef"},
		{"/cb/a/cmd-1", "1/3", `{"requestRef":`, "contract"},
		{"/cb/a/cmd-1", "1/3", `[]`, "contract"},
		{"/other", "1/3", good, "/other"},
		{"/cb//cmd-1", "1/3", good, "/cb//"},
	} {
		var h heard
		r := receive(t, ReceiverOptions{Got: h.got})
		if status := post(t, r.URL()+c.path, c.attempt, c.body); status != 400 {
			t.Errorf("%+v was answered with %d", c, status)
		}
		until(t, "the callback", func() bool { return len(h.seen()) == 1 })
		if got := h.seen()[0]; got.Err == nil || !strings.Contains(got.Err.Error(), c.word) || got.Confirmed {
			t.Errorf("%+v: %v", c, got.Err)
		}
	}
}

// raw is a connection on which callbacks are sent byte by byte.
type raw struct {
	t testing.TB
	*net.TCPConn
	in *bufio.Reader
}

func dial(t testing.TB, r *Receiver) *raw {
	c, err := net.Dial("tcp", r.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &raw{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

func callbackText(ref string, n int) string {
	body := fmt.Sprintf(`{"requestRef":%q,"status":"IN_PROGRESS","type":"PROGRESS_UPDATE","progress":%d}`, ref, n)
	return fmt.Sprintf("POST /cb/a/%s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"X-Callback-Id: cb-%s-%d\r\nX-Callback-Attempt: 1/3\r\n\r\n%s", ref, len(body), ref, n, body)
}

func (c *raw) send(ref string, n int) {
	if _, err := c.Write([]byte(callbackText(ref, n))); err != nil {
		c.t.Error(err)
	}
}

func (c *raw) answer() int {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Error(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestSenderGaveUp: the sender closes while its answer is delayed. It cannot have read
// the answer, so a repeat is no fault of its.
func TestSenderGaveUp(t *testing.T) {
	var h heard
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := receive(t, ReceiverOptions{Got: h.got, Answer: func(string, *Callback) (int, time.Duration) {
		close(asked)
		<-goOn
		return 200, 10 * time.Millisecond
	}})
	c := dial(t, r)
	c.send("cmd-1", 1)
	<-asked
	c.Close()
	close(goOn)
	until(t, "the callback", func() bool { return len(h.seen()) == 1 })
	if got := h.seen()[0]; got.Confirmed || got.Answered != 200 || got.Ref != "cmd-1" {
		t.Errorf("got %+v", got)
	}
}

// TestCallbacksOfARefComeInOrder: as a gateway does, each callback of a ref is sent when
// the one before was answered, on any of several connections; Got must keep that order.
func TestCallbacksOfARefComeInOrder(t *testing.T) {
	const refs, steps = 8, 200
	var h heard
	r := receive(t, ReceiverOptions{Got: h.got})
	var wg sync.WaitGroup
	for i := range refs {
		a, b := dial(t, r), dial(t, r)
		wg.Go(func() {
			for n := range steps {
				a.send(fmt.Sprint("cmd-", i), n)
				if status := a.answer(); status != 200 {
					t.Errorf("answered with %d", status)
					return
				}
				a, b = b, a
			}
		})
	}
	wg.Wait()
	until(t, "all callbacks", func() bool { return len(h.seen()) == refs*steps })
	next := map[string]int{}
	for _, c := range h.seen() {
		if string(c.Progress) != fmt.Sprint(next[c.Ref]) || !c.Confirmed {
			t.Fatalf("%s: step %s, want %d; %+v", c.Ref, c.Progress, next[c.Ref], c)
		}
		next[c.Ref]++
	}
}

// TestPipelined: the answer to each is written by itself, also when several came at once.
func TestPipelined(t *testing.T) {
	const n = 50
	var h heard
	r := receive(t, ReceiverOptions{Got: h.got})
	c := dial(t, r)
	var text strings.Builder
	for i := range n {
		text.WriteString(callbackText("cmd-1", i))
	}
	if _, err := c.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	for range n {
		if status := c.answer(); status != 200 {
			t.Fatalf("answered with %d", status)
		}
	}
	until(t, "all callbacks", func() bool { return len(h.seen()) == n })
	for i, got := range h.seen() {
		if string(got.Progress) != fmt.Sprint(i) || !got.Confirmed {
			t.Fatalf("callback %d: %+v", i, got)
		}
	}
}

func TestReceiverBounds(t *testing.T) {
	var h heard
	r := receive(t, ReceiverOptions{Got: h.got, MaxConns: 1})
	c := dial(t, r)
	if _, err := fmt.Fprintf(c, "POST /cb/a/x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", maxCallback+1); err != nil {
		t.Fatal(err)
	}
	if status := c.answer(); status != 413 {
		t.Errorf("a body too long was answered with %d", status)
	}
	if r.Broken() != 1 || len(h.seen()) != 0 {
		t.Errorf("%d broken, %d callbacks", r.Broken(), len(h.seen()))
	}
	until(t, "a free place", func() bool {
		c = dial(t, r)
		c.send("cmd-1", 0)
		return c.answer() == 200
	})
	rejected := r.Rejected()
	if status := dial(t, r).answer(); status != 503 {
		t.Errorf("one connection too many was answered with %d", status)
	}
	if r.Rejected() != rejected+1 {
		t.Errorf("%d rejected, want one more than %d", r.Rejected(), rejected)
	}
}

// TestCloseEndsDelays: a delayed answer does not hold Close, and is not confirmed.
func TestCloseEndsDelays(t *testing.T) {
	var h heard
	asked := make(chan struct{})
	r := receive(t, ReceiverOptions{Got: h.got, Answer: func(string, *Callback) (int, time.Duration) {
		close(asked)
		return 200, time.Hour
	}})
	dial(t, r).send("cmd-1", 1)
	<-asked
	begun := time.Now()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("Close took %v", took)
	}
	until(t, "its callback is told", func() bool { return len(h.seen()) > 0 }) // fasthttp may close it after Close has counted it
	if got := h.seen(); len(got) != 1 || got[0].Confirmed {
		t.Errorf("got %+v", got)
	}
}
