package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// These tests kill a Gateway with a journal and start another on what it left
// (PROTOCOL.md section 9).

// durable are the options of a Gateway with a journal in small files, so that it makes
// checkpoints and lets go of what is over.
func durable(t testing.TB) childOptions {
	return childOptions{DataDir: t.TempDir(), Segment: 1 << 20, Loops: 2}
}

func dedupeRegister(id string, devices ...string) string {
	return strings.Replace(edgeRegister(id, devices...), `"devices"`, `"capabilities":["dedupe"],"devices"`, 1)
}

// post has a command accepted over HTTP; more are members with a comma before.
func (f *fixture) post(ref, target, more string) {
	f.t.Helper()
	a := f.call("POST", "/api/commands", fmt.Sprintf(`{"target_client_id":%q,"command":{"commandType":"T"},"request_ref":%q%s}`, target, ref, more))
	if a.status != 200 {
		f.t.Fatalf("%s was not accepted: %d %s", ref, a.status, a.body)
	}
}

// final waits for a command's end.
func (f *fixture) final(ref string) *answer {
	f.t.Helper()
	a := f.want(200, "", "GET", "/api/commands/"+ref+"?wait=30000", "")
	if !ended(a.str("status")) {
		f.t.Fatalf("%s has not ended: %s", ref, a.body)
	}
	return a
}

func ended(status string) bool {
	return slices.Contains([]string{"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}, status)
}

// seal has a command end: a final that was told is on stable storage, and with it what
// was journalled before.
func (f *fixture) seal(edge *party, ref, device string) {
	f.t.Helper()
	f.post(ref, device, "")
	edge.expectCommand(ref)
	edge.respond(ref)
	f.final(ref)
}

// instant reads a time of a record.
func instant(t testing.TB, a *answer, name string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, a.str(name))
	if err != nil {
		t.Fatalf("%s of %s: %v", name, a.body, err)
	}
	return at
}

func passed(t testing.TB, at time.Time) {
	t.Helper()
	until(t, "the time to pass", func() bool { return time.Now().After(at) })
}

// endings has commands of td-01 and td-09, whose edge is away, end in every way.
func endings(f *fixture, edge *party) (refs []string) {
	tell := map[string]string{
		"completed": `{"type":"COMMAND_RESPONSE","requestRef":"completed","status":"SUCCESS","executionTime":42,"result":{ "b" : 1.50,"a":[9007199254740993 ,"\u0041é"]}}`,
		"empty":     `{"type":"COMMAND_RESPONSE","requestRef":"empty","status":"COMPLETED"}`,
		"failed":    `{"type":"COMMAND_RESPONSE","requestRef":"failed","status":"FAILED","result":0,"error":{"code":"E1","message":"it broke","details":{"part":[1, 2]}}}`,
		"word":      `{"type":"COMMAND_RESPONSE","requestRef":"word","status":"NO_IDEA"}`,
		"error":     `{"type":"ERROR","requestRef":"error","code":"DEVICE_BROKEN","message":"it \"broke\"","details":{"x":1e2}}`,
		"cancelled": "",
	}
	for ref, msg := range tell {
		f.post(ref, "td-01", `,"priority":"HIGH"`)
		edge.expectCommand(ref)
		if ref == "completed" || ref == "cancelled" {
			edge.sendf(`{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":{"of" : 9}}`, ref)
			until(f.t, "progress", func() bool { return f.record(ref).str("status") == "IN_PROGRESS" })
		}
		if msg == "" {
			f.want(200, "", "DELETE", "/api/commands/"+ref, "")
			edge.expect("CANCEL")
		} else {
			edge.send(msg)
		}
		refs = append(refs, ref)
	}
	f.post("late", "td-01", `,"timeout":30`)
	edge.expectCommand("late")
	f.post("never", "td-09", `,"timeout":30,"when_offline":"QUEUE"`)
	refs = append(refs, "late", "never")
	for _, ref := range refs {
		f.final(ref)
	}
	return refs
}

// TestKilledRecords: what has ended reads as before, byte for byte, and is a duplicate;
// what has not is there as it was accepted, whether its edge comes back or not, and may
// still be answered and cancelled.
func TestKilledRecords(t *testing.T) {
	o := durable(t)
	p := launch(t, o)
	away := p.edge("edge-9", "td-09")
	_ = away.conn.Close()
	backend, edge := p.backend("backend-1"), p.join(dedupeRegister("edge-1", "td-01"))
	until(t, "edge-9 to be away", func() bool { return p.call("GET", "/api/edges/edge-9", "").str("edge.connection") == "OFFLINE" })
	p.post("http", "td-01", `,"timeout":3600000,"priority":"LOW"`)
	backend.command("ws", "td-01", `,"timeout":7200000,"ack":true`)
	backend.expect("COMMAND_ACK")
	edge.expectCommand("http")
	edge.expectCommand("ws")
	open := map[string]*answer{"http": p.record("http"), "ws": p.record("ws")}
	refs := endings(p.fixture, edge)
	before := map[string][2][]byte{}
	for _, ref := range refs {
		before[ref] = [2][]byte{p.record(ref).body, p.call("GET", "/api/traces/"+ref, "").body}
	}
	p.kill()

	p = launch(t, o)
	for ref, was := range before {
		if a := p.record(ref); !bytes.Equal(a.body, was[0]) {
			t.Errorf("%s reads\n%s, before\n%s", ref, a.body, was[0])
		}
		if a := p.call("GET", "/api/traces/"+ref, ""); !bytes.Equal(a.body, was[1]) {
			t.Errorf("the trace of %s reads\n%s, before\n%s", ref, a.body, was[1])
		}
		p.want(409, "ALREADY_ENDED", "DELETE", "/api/commands/"+ref, "")
		a := p.want(409, "DUPLICATE_REQUEST", "POST", "/api/commands", postTD+`,"request_ref":"`+ref+`"}`)
		if status := p.record(ref).str("status"); a.str("details.status") != status {
			t.Errorf("the duplicate of %s, which is %s: %s", ref, status, a.body)
		}
	}
	for ref, was := range open {
		a := p.record(ref)
		for _, name := range []string{"createdAt", "timeout", "priority", "targetClientId", "commandType", "requestRef"} {
			if a.get(name) != was.get(name) {
				t.Errorf("%s reads %s, before %s", ref, a.body, was.body)
			}
		}
		if a.str("status") != "DISPATCHED" {
			t.Errorf("%s, which the edge had: %s", ref, a.body)
		}
		p.want(409, "DUPLICATE_REQUEST", "POST", "/api/commands", postTD+`,"request_ref":"`+ref+`"}`)
	}
	edge = p.join(dedupeRegister("edge-1", "td-01"))
	edge.expectCommand("http")
	edge.expectCommand("ws")
	edge.respond("http")
	if a := p.final("http"); a.str("status") != "COMPLETED" {
		t.Errorf("answered after the restart: %s", a.body)
	}
	p.want(200, "", "DELETE", "/api/commands/ws", "")
	edge.expect("CANCEL")
	edge.quiet()
}

// TestKilledDeadlines: time goes on while the Gateway is down. What is overdue ends
// within 3 s of the start, the rest at its deadline, also where progress had moved it.
func TestKilledDeadlines(t *testing.T) {
	o := durable(t)
	r := receive(t, nil)
	p := launch(t, o)
	_ = p.edge("edge-9", "td-09").conn.Close()
	edge := p.edge("edge-1", "td-01")
	until(t, "edge-9 to be away", func() bool { return p.call("GET", "/api/edges/edge-9", "").str("edge.connection") == "OFFLINE" })
	p.post("moved", "td-01", `,"timeout":2400`)
	edge.expectCommand("moved")
	passed(t, instant(t, p.record("moved"), "createdAt").Add(1300*time.Millisecond))
	edge.send(`{"type":"PROGRESS_UPDATE","requestRef":"moved","progress":50}`)
	p.seal(edge, "sealed", "td-01")
	p.post("overdue", "td-01", `,"timeout":1000,"callback_url":"`+r.URL+`/cb"`)
	edge.expectCommand("overdue")
	p.post("waiting", "td-09", `,"timeout":1000,"when_offline":"QUEUE"`)
	p.post("ahead", "td-01", `,"timeout":3000`)
	edge.expectCommand("ahead")
	due := instant(t, p.record("waiting"), "createdAt").Add(time.Second)
	p.kill()
	passed(t, due)

	p = launch(t, o)
	for ref, row := range map[string]struct {
		after time.Duration // from acceptance
		stage string
	}{
		"overdue": {1000 * time.Millisecond, "DISPATCHED"},
		"waiting": {1000 * time.Millisecond, "PENDING"},
		"ahead":   {3000 * time.Millisecond, "DISPATCHED"},
		"moved":   {3700 * time.Millisecond, "DISPATCHED IN_PROGRESS"},
	} {
		a := p.final(ref)
		if code := a.str("error.code"); a.str("status") != "TIMEOUT" || code != "TIMEOUT" && code != "CONNECTION_LOST" {
			t.Errorf("%s ended as %s", ref, a.body)
		}
		if stage := a.str("error.details.stage"); !slices.Contains(strings.Fields(row.stage), stage) {
			t.Errorf("%s ended at stage %s, want %s", ref, stage, row.stage)
		}
		at, deadline := instant(t, a, "updatedAt"), instant(t, a, "createdAt").Add(row.after)
		last := deadline.Add(time.Second) // 100 ms, and the machine's own
		if p.up.Add(3 * time.Second).After(last) {
			last = p.up.Add(3 * time.Second)
		}
		if at.Before(deadline.Add(-15*time.Millisecond)) || at.After(last) {
			t.Errorf("%s ended at %v, its deadline was %v, the start at %v", ref, at, deadline, p.up.UTC())
		}
	}
	if h := r.wait(1)[0]; h.fields["status"] != "TIMEOUT" || h.fields["requestRef"] != "overdue" {
		t.Errorf("the callback says %s", h.body)
	}
}

// TestKilledRetention: a restart makes a record no younger.
func TestKilledRetention(t *testing.T) {
	o := durable(t)
	o.Retention = 5 * time.Second
	p := launch(t, o)
	p.seal(p.edge("edge-1", "td-01"), "old", "td-01")
	at := instant(t, p.record("old"), "updatedAt")
	passed(t, at.Add(2*time.Second))
	p.kill()
	p = launch(t, o)
	if a := p.record("old"); a.status != 200 && time.Now().Before(at.Add(o.Retention)) {
		t.Errorf("%d %s", a.status, a.body)
	}
	until(t, "the record to go", func() bool { return p.record("old").status == 404 })
	if gone := time.Now(); gone.Before(at.Add(o.Retention-15*time.Millisecond)) || gone.After(p.up.Add(o.Retention)) {
		t.Errorf("it ended at %v, the start was at %v, it went at %v", at, p.up.UTC(), gone.UTC())
	}
	p.edge("edge-1", "td-01")
	p.post("old", "td-01", "")
}

// TestKilledRoutes: edges and routes are known, OFFLINE, as they were last, until they
// return; a goodbye is remembered.
func TestKilledRoutes(t *testing.T) {
	o := durable(t)
	p := launch(t, o)
	one, two := p.edge("edge-1", "td-01", "td-02", "td-03", "td-04"), p.edge("edge-2", "screen-1")
	p.device("pillar-1")
	one.send(`{"type":"UNREGISTER","clientId":"td-03"}`)
	two.send(`{"type":"REGISTER","clientId":"td-04","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-2"}}`)
	two.expect("REGISTER_ACK")
	one.send(`{"type":"REGISTER","clientId":"td-05","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-1"}}`)
	epoch := one.expect("REGISTER_ACK").get("epoch").(float64)
	p.seal(one, "sealed", "td-01")
	was := p.call("GET", "/api/edges/edge-1", "").get("edge.epoch").(float64)
	p.kill()

	p = launch(t, o)
	for edge, devices := range map[string]float64{"edge-1": 3, "edge-2": 2} {
		a := p.want(200, "", "GET", "/api/edges/"+edge, "")
		if a.str("edge.connection") != "OFFLINE" || a.get("edge.devices") != devices {
			t.Errorf("%s: %s", edge, a.body)
		}
	}
	for device, edge := range map[string]string{"td-01": "edge-1", "td-02": "edge-1", "td-05": "edge-1", "td-04": "edge-2", "screen-1": "edge-2", "pillar-1": "pillar-1"} {
		a := p.want(200, "", "GET", "/api/devices/"+device, "")
		if a.str("device.edgeId") != edge || a.str("device.connection") != "OFFLINE" {
			t.Errorf("%s: %s", device, a.body)
		}
	}
	if a := p.call("GET", "/api/devices", ""); len(a.get("devices").([]any)) != 6 {
		t.Errorf("devices: %s", a.body)
	}
	p.want(404, "TARGET_NOT_FOUND", "POST", "/api/commands", `{"target_client_id":"td-03","command":{"commandType":"T"}}`)
	if a := p.want(503, "EDGE_UNAVAILABLE", "POST", "/api/commands", postTD+`}`); a.str("details.edgeId") != "edge-1" {
		t.Errorf("got %s", a.body)
	}
	p.post("queued", "td-02", `,"when_offline":"QUEUE"`)
	one = p.dial()
	one.send(`{"type":"REGISTER","clientId":"edge-1","clientType":"EDGE"}`)
	if now, _ := one.expect("REGISTER_ACK").get("epoch").(float64); now <= epoch || now <= was {
		t.Errorf("epoch %g after %g and %g", now, epoch, was)
	}
	one.expectCommand("queued")
	if a := p.call("GET", "/api/devices/td-05", ""); a.str("device.connection") != "ONLINE" {
		t.Errorf("after the return: %s", a.body)
	}
}

// handed reads n COMMANDs.
func (p *party) handed(n int) (refs []string) {
	p.t.Helper()
	for range n {
		refs = append(refs, p.expect("COMMAND").str("requestRef"))
	}
	return refs
}

func (p *party) wantHanded(refs ...string) {
	p.t.Helper()
	if got := p.handed(len(refs)); !slices.Equal(got, refs) {
		p.t.Errorf("was handed %v, want %v", got, refs)
	}
	p.quiet()
}

// TestKilledDedupeEdge: an edge that says dedupe gets again, as often as it comes back,
// what it was handed and has not answered, byte for byte and in the order of acceptance,
// and then what waits.
func TestKilledDedupeEdge(t *testing.T) {
	o := durable(t)
	p := launch(t, o)
	backend, edge := p.backend("backend-1"), p.join(dedupeRegister("edge-1", "td-01", "td-02", "td-03"))
	const hour = `,"timeout":3600000`
	sent := map[string][]byte{}
	for i := range 12 {
		ref, device := fmt.Sprintf("r-%d", i), fmt.Sprintf("td-0%d", 1+i%3)
		if priority := []string{"LOW", "HIGH"}[i%2]; i < 6 {
			p.post(ref, device, hour+`,"priority":"`+priority+`"`)
		} else {
			backend.command(ref, device, hour+`,"ack":true,"x" : [1.50, "\u0041"],"priority":"`+priority+`"`)
			backend.expect("COMMAND_ACK")
		}
		sent[ref] = edge.expectCommand(ref).raw
	}
	edge.respond("r-0")
	p.final("r-0")
	edge.respond("r-7")
	backend.expect("COMMAND_RESPONSE")
	p.want(200, "", "DELETE", "/api/commands/r-4", "")
	p.kill()

	p = launch(t, o)
	p.edge("edge-2", "td-03") // takes r-2, r-5, r-8 and r-11 with it
	for _, priority := range []string{"LOW", "NORMAL", "HIGH"} {
		p.post("w-"+priority, "td-01", hour+`,"when_offline":"QUEUE","priority":"`+priority+`"`)
	}
	edge = p.join(dedupeRegister("edge-1", "td-01", "td-02"))
	for _, ref := range []string{"r-1", "r-3", "r-6", "r-9", "r-10"} {
		if m := edge.expect("COMMAND"); !bytes.Equal(m.raw, sent[ref]) {
			t.Errorf("%s was sent as\n%s, then\n%s", ref, sent[ref], m.raw)
		}
	}
	edge.wantHanded("w-HIGH", "w-NORMAL", "w-LOW")
	edge.send(dedupeRegister("edge-1", "td-01", "td-02"))
	edge.expect("REGISTER_ACK")
	edge.quiet()
	edge.respond("r-3")
	p.final("r-3")
	p.kill()

	p = launch(t, o)
	edge = p.join(dedupeRegister("edge-1", "td-01", "td-02"))
	again := []string{"r-1", "r-6", "r-9", "r-10", "w-LOW", "w-NORMAL", "w-HIGH"}
	edge.wantHanded(again...)
	for _, ref := range again {
		edge.respond(ref)
		if a := p.final(ref); a.str("status") != "COMPLETED" {
			t.Errorf("%s: %s", ref, a.body)
		}
	}
	edge.send(`{"type":"COMMAND_RESPONSE","requestRef":"r-2","status":"COMPLETED"}`) // it was sent here
	if a := p.final("r-2"); a.str("status") != "COMPLETED" {
		t.Errorf("r-2: %s", a.body)
	}
}

// TestKilledPlainEdge: an edge that does not say dedupe is never handed a command twice,
// and once what waited for it. What it answers after the restart counts.
func TestKilledPlainEdge(t *testing.T) {
	o := durable(t)
	p := launch(t, o)
	edge := p.edge("edge-1", "td-01", "td-02")
	for _, ref := range []string{"a-0", "a-1", "a-2"} {
		p.post(ref, "td-01", "")
		edge.expectCommand(ref)
	}
	_ = edge.conn.Close()
	until(t, "the edge to be away", func() bool { return p.call("GET", "/api/edges/edge-1", "").str("edge.connection") == "OFFLINE" })
	for _, ref := range []string{"LOW", "NORMAL", "HIGH"} {
		p.post(ref, "td-02", `,"when_offline":"QUEUE","priority":"`+ref+`"`)
	}
	p.kill()

	p = launch(t, o)
	if a := p.record("LOW"); a.str("status") != "PENDING" {
		t.Errorf("what waits: %s", a.body)
	}
	edge = p.edge("edge-1", "td-01", "td-02")
	if got := edge.handed(3); !slices.Equal(got, []string{"HIGH", "NORMAL", "LOW"}) {
		t.Errorf("was handed %v", got)
	}
	p.kill() // at once

	p = launch(t, o)
	other := p.edge("edge-2", "td-09")
	other.respond("a-0")
	other.expectError("FORBIDDEN")
	edge = p.edge("edge-1", "td-01", "td-02")
	edge.quiet()
	for _, ref := range []string{"a-0", "HIGH", "LOW"} {
		edge.respond(ref)
		if a := p.final(ref); a.str("status") != "COMPLETED" {
			t.Errorf("%s: %s", ref, a.body)
		}
	}
	if a := p.record("a-1"); a.str("status") != "DISPATCHED" {
		t.Errorf("a-1: %s", a.body)
	}
}

// listed reads a listing of commands to its end, from a cursor on.
func (f *fixture) listed(cursor string) (refs []string, cursors []string) {
	f.t.Helper()
	for {
		target := "/api/commands?limit=37"
		if cursor != "" {
			target += "&cursor=" + cursor
		}
		var page struct {
			Commands   []struct{ RequestRef string }
			NextCursor string
		}
		if err := json.Unmarshal(f.want(200, "", "GET", target, "").body, &page); err != nil {
			f.t.Fatal(err)
		}
		for _, c := range page.Commands {
			refs = append(refs, c.RequestRef)
		}
		if cursor = page.NextCursor; cursor == "" {
			return refs, cursors
		}
		cursors = append(cursors, cursor)
	}
}

// TestKilledListings: a listing goes on over a restart where it was, new commands stand
// before the old ones.
func TestKilledListings(t *testing.T) {
	o := durable(t)
	p := launch(t, o)
	edge := p.edge("edge-1", "td-01")
	for i := range 120 {
		ref := fmt.Sprintf("r-%d", i)
		if i%3 == 0 {
			p.seal(edge, ref, "td-01")
			continue
		}
		p.post(ref, "td-01", `,"timeout":3600000`)
		edge.expectCommand(ref)
	}
	before, cursors := p.listed("")
	if len(before) != 120 || before[0] != "r-119" || len(cursors) < 2 {
		t.Fatalf("%v", before)
	}
	p.kill()
	for life := range 3 {
		p = launch(t, o)
		if now, _ := p.listed(""); !slices.Equal(now, before) {
			t.Errorf("life %d lists\n%v, before\n%v", life, now, before)
		}
		if rest, _ := p.listed(cursors[1]); !slices.Equal(rest, before[len(before)-len(rest):]) || len(rest) != 120-2*37 {
			t.Errorf("life %d goes on with %v", life, rest)
		}
		ref := fmt.Sprintf("new-%d", life)
		p.seal(p.edge("edge-1", "td-01"), ref, "td-01")
		before = slices.Insert(before, 0, ref)
		p.kill()
	}
}
