package drive

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"subway/bench/peers"
)

// startSubway builds and starts the gateway itself.
func startSubway(t *testing.T) *peers.Process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "subway")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/subway")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return start(t, peers.Peer{Name: "gateway", Argv: []string{binary, "gateway", "--listen", "{addr}"}})
}

// TestModes carries each mode through with the gateway, every answer checked.
func TestModes(t *testing.T) {
	s := startSubway(t)
	cfg := small(s, ProtoSubway)
	mustRun(t, cfg)
	empty := cfg
	empty.Payload = 0
	mustRun(t, empty)

	batch := cfg
	batch.HTTP, batch.Batch, batch.Count = true, 7, 3000 // 3000 is no multiple of 7: a part of a batch is sent too
	if res := mustRun(t, batch); res.Mode != "batch" || res.Commands != 3000 {
		t.Errorf("%s, %d commands", res.Mode, res.Commands)
	}

	callback := cfg
	callback.HTTP, callback.Callback, callback.Count = true, true, 500
	if res := mustRun(t, callback); res.Mode != "callback" || res.Before == nil || res.CPUPerCommand <= res.Before.CPUPerCommand {
		t.Errorf("a callback costs nothing: %+v", res.Before)
	}

	routes := cfg
	routes.Grow = 5000
	if res := mustRun(t, routes); res.Mode != "routes" || res.Before == nil || res.BytesPerRoute < 20 || res.BytesPerRoute > 2000 {
		t.Errorf("%f bytes per route", res.BytesPerRoute)
	}

	stuck := cfg
	stuck.Stuck = true
	res := mustRun(t, stuck)
	if res.Mode != "stuck" || res.Before == nil || res.StuckRefused < 100 || res.StuckRefused >= res.StuckSent {
		t.Errorf("%d of %d refused", res.StuckRefused, res.StuckSent)
	}
}

func TestConnect(t *testing.T) {
	s := startSubway(t)
	res, err := Connect(Config{Addr: s.Addr, PID: s.PID, Proto: ProtoSubway, Conns: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *res)
	if res.CPUPerConn <= 0 || res.RSSPerConn < 100 || res.P50 <= 0 || res.P99 < res.P50 || res.ConnsPerSecond <= 0 {
		t.Errorf("%+v", *res)
	}
	for _, bad := range []Config{
		{Addr: s.Addr, PID: s.PID, Proto: ProtoFloor, Conns: 1000},
		{Addr: s.Addr, PID: s.PID, Proto: ProtoSubway, Conns: 100},
		{Addr: netip.MustParseAddrPort("192.0.2.1:1"), PID: s.PID, Proto: ProtoSubway, Conns: 1000},
	} {
		if _, err := Connect(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestFilesAreChecked(t *testing.T) {
	if err := checkFiles(100); err != nil {
		t.Error(err)
	}
	if err := checkFiles(1 << 40); err == nil {
		t.Error("more connections than any limit were taken")
	}
}

// TestNodeModes is the same for the modes that the Node gateway is measured in.
func TestNodeModes(t *testing.T) {
	p, err := peers.Node("../peers/node")
	s := start(t, installed(t, p, err))
	cfg := small(s, ProtoSubway)
	cfg.HTTP, cfg.Batch = true, 100
	mustRun(t, cfg)
	cfg.Batch, cfg.Callback, cfg.Count = 0, true, 300
	mustRun(t, cfg)
	cfg.HTTP, cfg.Callback, cfg.Grow = false, false, 500
	mustRun(t, cfg)
	if _, err := Connect(Config{Addr: s.Addr, PID: s.PID, Proto: ProtoSubway, Conns: 300}); err != nil {
		t.Error(err)
	}
}

// newHTTP returns a run whose sources have no socket.
func newHTTP(t *testing.T, batch int) *run {
	t.Helper()
	r, _, _ := newBench(ProtoSubway)
	r.cfg.HTTP, r.cfg.Batch, r.issuing = true, batch, false
	r.books = []ledger{newLedger(max(1, batch))}
	return r
}

func answerOf(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(body), body)
}

// TestWrongBatchesAreSeen: results that are missing, refused or in another order.
func TestWrongBatchesAreSeen(t *testing.T) {
	f := func(name string, failed int64, answer func(refs []string) string) {
		t.Helper()
		r := newHTTP(t, 3)
		h := newBatcher(r, 0)
		h.conn = &conn{loop: r.loop}
		r.sources = []source{h}
		for range 3 {
			r.open(0, 0)
		}
		head, body, size, err := cutAnswer(h.conn.out)
		if err != nil || size != len(h.conn.out) || !bytes.HasPrefix(head, []byte("POST /api/commands/batch ")) {
			t.Fatalf("%q: %d of %d, %v", head, size, len(h.conn.out), err)
		}
		var refs []string
		for part := range strings.SplitSeq(string(body), `"request_ref":"`) {
			if strings.HasPrefix(part, "cmd-") {
				refs = append(refs, part[:refSize])
			}
		}
		if _, err := h.read(h.conn, answerOf(answer(refs))); err != nil {
			t.Fatal(err)
		}
		if r.result.Failed != failed || r.result.Commands != 3-failed || r.settled != 3 {
			t.Errorf("%s: %+v", name, r.result)
		}
	}
	result := func(ref string) string { return fmt.Sprintf(`{"targetClientId":"td","requestRef":"%s"}`, ref) }
	f("right", 0, func(r []string) string {
		return fmt.Sprintf(`{"success":true,"accepted":3,"rejected":0,"results":[%s,%s,%s]}`, result(r[0]), result(r[1]), result(r[2]))
	})
	f("one too few", 3, func(r []string) string {
		return fmt.Sprintf(`{"success":true,"accepted":2,"rejected":1,"results":[%s,%s,{"error":"x"}]}`, result(r[0]), result(r[1]))
	})
	f("another order", 2, func(r []string) string {
		return fmt.Sprintf(`{"success":true,"accepted":3,"rejected":0,"results":[%s,%s,%s]}`, result(r[0]), result(r[2]), result(r[1]))
	})
	f("nothing", 3, func([]string) string { return `{}` })
}

// TestWrongCallbacksAreSeen: one that comes twice, for nobody, or with other bytes; one that comes before the answer is right.
func TestWrongCallbacksAreSeen(t *testing.T) {
	r := newHTTP(t, 0)
	h := &caller{run: r, ref: newRef(r.number, 0), request: newTemplate(r.postRequest("")), wantsCallback: true, conn: &conn{loop: r.loop}}
	r.sources = []source{h}
	v := &receiver{run: r}
	notice := func(result []byte) []byte {
		body := fmt.Sprintf(`{"requestRef":"%s","status":"COMPLETED","result":{"data":%s}}`, h.ref, result)
		return fmt.Appendf(nil, "POST /callback HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	f := func(name string, request []byte, want Result) {
		t.Helper()
		c := &conn{loop: r.loop}
		if used, err := v.read(c, request); err != nil || used != len(request) || !bytes.Equal(c.out, received) {
			t.Fatalf("%d of %d, %v, %q", used, len(request), err, c.out)
		}
		if got := r.result; got.Commands != want.Commands || got.Stray != want.Stray || got.Corrupt != want.Corrupt {
			t.Errorf("%s: %+v", name, got)
		}
		r.result = Result{}
	}
	r.open(0, int64(time.Millisecond))
	f("before the answer", notice(r.payload), Result{})
	h.answer([]byte("HTTP/1.1 200 OK\r\n"), h.ref)
	if r.result.Commands != 1 {
		t.Errorf("%+v", r.result)
	}
	r.result = Result{}
	f("again", notice(r.payload), Result{Stray: 1})
	r.open(0, int64(time.Millisecond))
	h.answer([]byte("HTTP/1.1 200 OK\r\n"), h.ref)
	f("other bytes", notice([]byte(`"x"`)), Result{Commands: 1, Corrupt: 1})
	f("for nobody", []byte("POST /callback HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"), Result{Stray: 1})
}
