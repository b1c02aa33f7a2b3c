package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// startGateway starts the real program and returns its URL; it is killed with the test.
func startGateway(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(binary, "gateway", "--listen", "127.0.0.1:0", "--drain", "1s", "--log-level", "error")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUBWAY_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // or it has ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the gateway said %q, %v", line, err)
	}
	return cmd, "http://" + address
}

// startDevice registers a device that answers each command with its value as the result,
// after one progress update; a command of type FAIL fails, one of type HANG is ignored.
func startDevice(t *testing.T, gateway, id string) {
	t.Helper()
	conn, _, _, err := ws.Dial(t.Context(), "ws"+strings.TrimPrefix(gateway, "http")+"/ws")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	say := func(v map[string]any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return wsutil.WriteClientText(conn, text)
	}
	if err := say(map[string]any{"type": "REGISTER", "clientId": id, "clientType": "DEVICE"}); err != nil {
		t.Fatal(err)
	}
	if text, err := wsutil.ReadServerText(conn); err != nil || !strings.Contains(string(text), "REGISTER_ACK") {
		t.Fatalf("REGISTER was answered with %s, %v", text, err)
	}
	wg.Go(func() { serveDevice(conn, say) })
}

// serveDevice ends with the connection.
func serveDevice(conn net.Conn, say func(map[string]any) error) {
	for {
		text, err := wsutil.ReadServerText(conn)
		if err != nil {
			return
		}
		var m struct {
			Type, RequestRef string
			Command          struct {
				CommandType string
				Value       json.RawMessage
			}
		}
		if json.Unmarshal(text, &m) != nil || m.Type != "COMMAND" || m.Command.CommandType == "HANG" {
			continue
		}
		done := map[string]any{"type": "COMMAND_RESPONSE", "requestRef": m.RequestRef, "status": "COMPLETED", "result": m.Command.Value}
		if m.Command.CommandType == "FAIL" {
			done["status"], done["error"] = "FAILED", map[string]any{"code": "LAMP_BROKEN", "message": "m"}
		}
		step := map[string]any{"type": "PROGRESS_UPDATE", "requestRef": m.RequestRef, "progress": 50}
		if say(step) != nil || say(done) != nil {
			return
		}
	}
}

// TestGatewayWithWait drives the real gateway: results come back byte for byte in the
// answers, and what Status says afterwards is the same.
func TestGatewayWithWait(t *testing.T) {
	_, url := startGateway(t)
	startDevice(t, url, "td-01")
	if h, err := Probe(t.Context(), url); err != nil || !h.Ready || h.Version == "" {
		t.Fatalf("%+v, %v", h, err)
	}
	var got noted
	o := got.options(url)
	next := o.Next
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	values := make(map[string]string)
	o.Rate, o.Workers, o.Wait = 300, 32, 5*time.Second
	var mu sync.Mutex // guards values and rnd
	rnd := rand.New(rand.NewPCG(seed, 1))
	o.Next = func(at time.Time, c *Command) {
		next(at, c)
		mu.Lock()
		defer mu.Unlock()
		switch rnd.IntN(10) {
		case 0:
			c.Type = "FAIL"
		case 1:
			c.Target = "td-99"
		}
		v := fmt.Sprintf(`{"n":%d,"text":"äö<>"}`, rnd.Uint64())
		values[c.Ref], c.Value = c.Type+v, []byte(v)
	}
	res := run(t, 2*time.Second, o)
	if len(got.answers) != got.asked || got.asked < 300 {
		t.Errorf("%d asked, %d answered", got.asked, len(got.answers))
	}
	asker, err := NewAsker(url, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Close()
	for _, a := range got.answers {
		sent := values[a.Ref]
		status, code, found, err := asker.Status(t.Context(), a.Ref)
		switch {
		case err != nil || a.Err != nil:
			t.Fatalf("%+v; Status: %v", a, err)
		case a.Target == "td-99":
			if a.Accepted || a.HTTP != 404 || a.Code != "TARGET_NOT_FOUND" || found {
				t.Errorf("%+v, found %v", a, found)
			}
		case strings.HasPrefix(sent, "FAIL"):
			if !a.Accepted || a.Status != "FAILED" || a.Code != "LAMP_BROKEN" || status != "FAILED" || code != "LAMP_BROKEN" {
				t.Errorf("%+v; Status: %q %q", a, status, code)
			}
		case !a.Accepted || a.Status != "COMPLETED" || "SHOW"+unescaped(a.Result) != sent || status != "COMPLETED" || !found:
			t.Errorf("%+v, sent %s; Status: %q", a, sent, status)
		}
	}
	ls := got.latencies()
	t.Logf("%d commands, p50 %v, p99 %v, %d unsent", len(ls), percentile(ls, 0.5), percentile(ls, 0.99), res.Unsent)
	s, err := Scrape(t.Context(), url)
	if err != nil || !s.CPUSeconds.Known || s.CPUSeconds.V <= 0 || !s.Mallocs.Known || s.Routes != (Value{1, true}) || s.ByKind["device"] != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// unescaped undoes what the test's device does to a value: encoding/json escapes < and >.
func unescaped(b []byte) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(b))
}

// TestGatewayCallsBack posts batches whose ends come by callback. Each command's
// callbacks come in order and once, but for the customer that refuses the first attempt.
func TestGatewayCallsBack(t *testing.T) {
	_, url := startGateway(t)
	startDevice(t, url, "td-01")
	var h heard
	r := receive(t, ReceiverOptions{Got: h.got, Answer: func(customer string, c *Callback) (int, time.Duration) {
		if customer == "b" && c.Attempt == 1 && c.Type == "COMMAND_RESPONSE" {
			return 503, time.Millisecond
		}
		return 200, 0
	}})
	var got noted
	o := got.options(url)
	next := o.Next
	o.Rate, o.Workers, o.Batch = 100, 8, 5
	o.Next = func(at time.Time, c *Command) {
		next(at, c)
		c.Value, c.Callback = []byte(`"`+c.Ref+`"`), r.CallbackURL("a")
		if strings.HasSuffix(c.Ref, "7") {
			c.Callback = r.CallbackURL("b")
		}
	}
	run(t, time.Second, o)
	for _, a := range got.answers {
		if !a.Accepted || a.Err != nil {
			t.Fatalf("%+v", a)
		}
	}
	finals := func() (n int) {
		for _, c := range h.seen() {
			if c.Type == "COMMAND_RESPONSE" && c.Confirmed {
				n++
			}
		}
		return n
	}
	until(t, "all final callbacks", func() bool { return finals() >= len(got.answers) })
	checkCallbacks(t, h.seen(), len(got.answers))
}

func checkCallbacks(t *testing.T, all []Callback, commands int) {
	type history struct{ progress, refused, confirmed int }
	refs := map[string]*history{}
	for _, c := range all {
		f := refs[c.Ref]
		if f == nil {
			f = &history{}
			refs[c.Ref] = f
		}
		switch {
		case c.Err != nil || f.confirmed > 0:
			t.Errorf("after the end, or malformed: %+v", c)
		case c.Type == "PROGRESS_UPDATE":
			f.progress++
			if f.refused > 0 || !c.Confirmed || string(c.Progress) != "50" {
				t.Errorf("progress: %+v", c)
			}
		case string(c.Result) != `"`+c.Ref+`"` || c.Status != "COMPLETED" || c.Target != "td-01":
			t.Errorf("%+v", c)
		case c.Confirmed:
			f.confirmed++
			if c.Attempt != f.refused+1 || c.Customer == "b" && f.refused != 1 {
				t.Errorf("attempt %d after %d refusals", c.Attempt, f.refused)
			}
		default:
			f.refused++
		}
	}
	if len(refs) != commands {
		t.Errorf("callbacks for %d commands of %d", len(refs), commands)
	}
}

// TestGatewayEnds: SIGTERM while commands are under way. Every command has an outcome:
// taken, refused as the gateway goes down, or nobody there.
func TestGatewayEnds(t *testing.T) {
	cmd, url := startGateway(t)
	startDevice(t, url, "td-01")
	var got noted
	o := got.options(url)
	o.Rate, o.Workers, o.Wait = 200, 16, time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := Run(ctx, o); err != nil {
			t.Error(err)
		}
	}()
	until(t, "answers", func() bool { return got.count() > 50 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "nobody there", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return got.answers[len(got.answers)-1].Unsent
	})
	cancel()
	<-ended
	kinds := map[string]int{}
	for _, a := range got.answers {
		kinds[fmt.Sprintf("%v %d %s %s %s", a.Accepted, a.HTTP, a.Status, a.Code, Cause(a.Err))]++
		if a.Accepted != (a.HTTP == 200) || a.HTTP != 200 && a.Code == "" && a.Err == nil {
			t.Errorf("%+v", a)
		}
	}
	t.Log(kinds)
	if len(got.answers) != got.asked || kinds["true 200 COMPLETED  "] < 50 {
		t.Errorf("%d asked, %d outcomes: %v", got.asked, len(got.answers), kinds)
	}
}
