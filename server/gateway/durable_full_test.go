package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a disk that has room for three segments of the journal.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=200m"); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("a small disk cannot be mounted: %v", err)
		}
		t.Skipf("a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// stuff takes all that is left of a disk; the file returned gives it back when removed.
func stuff(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; size /= 16 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return ballast
}

// big is most of a message.
var big = strings.Repeat("x", 900<<10)

// crowd has an edge of its own answer commands with large results, which a journal must
// keep, until a command is refused. It calls meanwhile now and then.
func crowd(f *fixture, meanwhile func()) (ref string, refused *answer) {
	f.t.Helper()
	edge, err := f.joinLean(edgeRegister("edge-2", "td-09"))
	if err != nil {
		f.t.Fatal(err)
	}
	over, answered := make(chan struct{}), atomic.Int64{}
	go func() {
		defer close(over)
		for {
			msg, err := edge.read()
			if err == nil {
				edge.addf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":"%s"}`, member(msg, "requestRef"), big)
				err = edge.flush()
				answered.Add(1)
			}
			if err != nil {
				return
			}
		}
	}()
	f.t.Cleanup(func() { _ = edge.conn.Close(); <-over })
	hasty := newFixture(f.t, f.addr)
	hasty.http.Timeout = 2 * time.Second
	for i := range 250 {
		meanwhile()
		ref = fmt.Sprintf("crowd-%d", i)
		a, err := hasty.try("POST", "/api/commands", `{"target_client_id":"td-09","request_ref":"`+ref+`","command":{"commandType":"T"}}`)
		if err != nil {
			continue // it came before the disk was seen to be full, and its answer is held back
		}
		if a.status != 200 {
			return ref, a
		}
		until(f.t, "an answer", func() bool { return answered.Load() > int64(i)-1 })
	}
	f.t.Fatal("the disk is never full")
	return "", nil
}

// TestJournalFull: with no room for records new commands are refused, and what is known
// can be read. What ends meanwhile, by an answer, a cancel or its deadline, is told when
// there is room again, without a restart.
func TestJournalFull(t *testing.T) {
	dir := smallDisk(t)
	o := childOptions{DataDir: filepath.Join(dir, "gateway"), Loops: 2}
	r := receive(t, nil)
	p := launch(t, o)
	backend, edge := p.backend("backend-1"), p.edge("edge-1", "td-01")
	p.seal(edge, "old", "td-01")
	old := p.record("old").body
	for ref, timeout := range map[string]int{"large": 3600000, "small": 3600000, "cancelled": 3600000, "late": 4000, "open": 3600000} {
		p.post(ref, "td-01", fmt.Sprintf(`,"timeout":%d,"callback_url":"%s/cb"`, timeout, r.URL))
		edge.expectCommand(ref)
	}
	backend.command("told", "td-01", `,"timeout":3600000`)
	edge.expectCommand("told")
	ballast := stuff(t, dir)
	ref, a := crowd(p.fixture, func() { edge.send(`{"type":"PROGRESS_UPDATE","requestRef":"late","progress":1}`) })
	if a.status != 503 || a.str("code") != "OVERLOADED" || a.get("details.retryAfter") == nil {
		t.Fatalf("refused with %d %s", a.status, a.body)
	}
	ready := p.call("GET", "/readyz", "")
	if ready.status != 503 || !regexp.MustCompile(`(?i)space|disk|storage|journal`).MatchString(ready.str("reason")) {
		t.Errorf("readyz: %d %s", ready.status, ready.body)
	}
	p.want(200, "", "GET", "/healthz", "")
	edge.sendf(`{"type":"COMMAND_RESPONSE","requestRef":"large","status":"COMPLETED","result":%q}`, big)
	edge.send(`{"type":"COMMAND_RESPONSE","requestRef":"small","status":"FAILED","error":{"code":"E","message":"m"}}`)
	edge.respond("told")
	if a := p.call("DELETE", "/api/commands/cancelled", ""); a.status != 503 || a.str("code") != "OVERLOADED" {
		t.Errorf("DELETE: %d %s", a.status, a.body)
	}
	p.want(503, "OVERLOADED", "POST", "/api/commands", postTD+`,"request_ref":"new"}`)
	backend.command("new", "td-01", "")
	if m := backend.expectError("OVERLOADED"); m.str("requestRef") != "new" {
		t.Errorf("over WebSocket: %s", m.raw)
	}
	if now := p.record("old").body; !bytes.Equal(now, old) {
		t.Errorf("old reads %s, before %s", now, old)
	}
	p.want(409, "DUPLICATE_REQUEST", "POST", "/api/commands", postTD+`,"request_ref":"old"}`)
	batch := func(ref string) string { return `{"commands":[` + postTD + `,"request_ref":"` + ref + `"}]}` }
	if a := p.want(200, "", "POST", "/api/commands/batch", batch("old")); !bytes.Contains(a.body, []byte("DUPLICATE_REQUEST")) {
		t.Errorf("a repeated ref in a batch: %s", a.body)
	}
	hasty := newFixture(t, p.addr)
	hasty.http.Timeout = time.Second
	if a, err := hasty.try("POST", "/api/commands/batch", batch("small")); err == nil {
		t.Errorf("a batch is told of an end that is not stored: %d %s", a.status, a.body)
	}
	backend.command("old", "td-01", "")
	backend.send(`{"type":"HEARTBEAT"}`)
	if m := backend.next(); m.str("code") == "DUPLICATE_REQUEST" {
		backend.expect("HEARTBEAT_ACK")
	} else {
		t.Errorf("a repeated ref was not answered over WebSocket, but %s", m.raw)
	}
	held := map[string]string{"large": "COMPLETED", "small": "FAILED", "cancelled": "CANCELLED", "late": "TIMEOUT"}
	if a := p.record("late"); ended(a.str("status")) {
		t.Errorf("late is told: %.200s", a.body)
	}
	backend.quiet()
	if n := len(finals(r)); n != 0 {
		t.Errorf("%d callbacks", n)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	until(t, "what waited for the Backend", func() bool { return backend.next().str("type") == "COMMAND_RESPONSE" })
	for ref, state := range held {
		if a := p.final(ref); a.str("status") != state {
			t.Errorf("%s with room again: %.200s", ref, a.body)
		}
	}
	until(t, "the callbacks", func() bool { return len(finals(r)) >= len(held) })
	until(t, "readiness", func() bool { return p.call("GET", "/readyz", "").status == 200 })
	p.want(404, "COMMAND_NOT_FOUND", "GET", "/api/commands/"+ref, "") // what was refused
	edge.expect("CANCEL")
	p.seal(edge, "new", "td-01")
	ballast = stuff(t, dir)
	p.kill()

	if p = spawn(t, o); p.listens() {
		p.end()
	} else if p.doomed = true; !strings.Contains(p.line, "no space") {
		t.Errorf("with no room at the start it says %q", p.line)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p = launch(t, o)
	held["new"], held["told"], held["open"], held["old"] = "COMPLETED", "COMPLETED", "DISPATCHED", "COMPLETED"
	for ref, state := range held {
		if a := p.record(ref); a.str("status") != state {
			t.Errorf("%s after a restart: %.200s", ref, a.body)
		}
	}
	edge = p.edge("edge-1", "td-01")
	edge.respond("open")
	if a := p.final("open"); a.str("status") != "COMPLETED" {
		t.Errorf("open: %s", a.body)
	}
}

// TestJournalFullForLong: peers for whom something is held back are not taken for lost,
// and get it in the end.
func TestJournalFullForLong(t *testing.T) {
	dir := smallDisk(t)
	o := childOptions{DataDir: filepath.Join(dir, "gateway"), Loops: 2, Ping: 500 * time.Millisecond, Silence: 4 * time.Second}
	p := launch(t, o)
	backend, edge := p.backend("backend-1"), p.edge("edge-1", "td-01")
	backend.command("told", "td-01", `,"timeout":3600000`)
	edge.expectCommand("told")
	stop, news := make(chan struct{}), make(chan string, 2)
	var listening sync.WaitGroup
	listen := func(who string, p *party) {
		listening.Go(func() { // and answers pings
			for {
				m, err := p.try()
				switch {
				case err != nil && closed(stop):
					return
				case err != nil:
					news <- who + ": " + err.Error()
					return
				case m.str("type") == "COMMAND_RESPONSE":
					news <- "told"
				}
			}
		})
	}
	listen("the edge", edge)
	listen("the Backend", backend)
	defer listening.Wait()
	defer func() { close(stop); _ = backend.conn.Close(); _ = edge.conn.Close() }()
	ballast := stuff(t, dir)
	crowd(p.fixture, func() {})
	edge.respond("told")
	select {
	case what := <-news:
		t.Fatalf("while there is no room: %s", what)
	case <-time.After(2 * o.Silence):
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if a := p.final("told"); a.str("status") != "COMPLETED" {
		t.Errorf("with room again: %s", a.body)
	}
	select {
	case what := <-news:
		if what != "told" {
			t.Error(what)
		}
	case <-time.After(patience):
		t.Error("the Backend was never told")
	}
}

// finals are the callbacks that came of final states.
func finals(r *receiver) (hits []hit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.hits {
		if h.fields["status"] != "IN_PROGRESS" {
			hits = append(hits, h)
		}
	}
	return hits
}
