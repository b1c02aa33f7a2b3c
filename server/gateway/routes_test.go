package gateway_test

import (
	"strings"
	"testing"

	"subway/server/gateway"
)

// TestForeignAnswers: an answer counts only from where the command went, or from where
// its device is now; from elsewhere it changes nothing.
func TestForeignAnswers(t *testing.T) {
	f := start(t, nil)
	backend := f.backend("backend-1")
	edge, foreign, direct := f.edge("edge-1", "td-01"), f.edge("edge-2", "td-02"), f.device("pillar-1")
	backend.command("r-1", "td-01", "")
	edge.expectCommand("r-1")
	for _, p := range []*party{foreign, direct, backend} {
		for _, msg := range []string{
			`{"type":"COMMAND_RESPONSE","requestRef":"r-1","status":"COMPLETED"}`,
			`{"type":"PROGRESS_UPDATE","requestRef":"r-1","progress":50}`,
			`{"type":"ERROR","requestRef":"r-1","code":"DEVICE_NOT_FOUND","message":"m"}`,
		} {
			p.send(msg)
			if m := p.expectError("FORBIDDEN"); m.str("requestRef") != "r-1" {
				t.Errorf("got %s", m.raw)
			}
		}
	}
	if a := f.record("r-1"); a.str("status") != "DISPATCHED" {
		t.Errorf("a foreign answer counted: %s", a.body)
	}
	// The device moves: its new edge may answer as well.
	foreign.send(`{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-2"}}`)
	foreign.expect("REGISTER_ACK")
	edge.send(`{"type":"UNREGISTER","clientId":"td-01"}`)
	edge.expectError("FORBIDDEN")
	foreign.sendf(`{"type":"PROGRESS_UPDATE","requestRef":"r-1","progress":50}`)
	backend.expect("PROGRESS_UPDATE")
	edge.respond("r-1")
	backend.expect("COMMAND_RESPONSE")
	foreign.respond("r-1")
	foreign.quiet()
	if late := f.metric("subway_late_responses_total"); late != 1 {
		t.Errorf("%g late answers, want 1", late)
	}
	backend.quiet()
}

// TestUsedRefs: a ref is used up by the command that was accepted, while it is in flight
// and when it has ended, and also while the edge is away; a refusal uses up none.
func TestUsedRefs(t *testing.T) {
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	again := func(status string) {
		t.Helper()
		backend.command("r-1", "td-01", "")
		if m := backend.expectError("DUPLICATE_REQUEST"); m.str("details.status") != status || m.str("requestRef") != "r-1" {
			t.Errorf("got %s, want status %s", m.raw, status)
		}
		a := f.want(409, "DUPLICATE_REQUEST", "POST", "/api/commands", postTD+`,"request_ref":"r-1"}`)
		if a.str("details.status") != status || a.str("requestRef") != "r-1" {
			t.Errorf("got %s, want status %s", a.body, status)
		}
	}
	backend.command("r-1", "td-99", "")
	backend.expectError("TARGET_NOT_FOUND")
	backend.command("r-1", "td-01", "")
	edge.expectCommand("r-1")
	again("DISPATCHED")
	edge.sendf(`{"type":"PROGRESS_UPDATE","requestRef":"r-1","progress":0}`)
	backend.expect("PROGRESS_UPDATE")
	again("IN_PROGRESS")
	edge.quiet() // none of these reached it
	edge.respond("r-1")
	backend.expect("COMMAND_RESPONSE")
	again("COMPLETED")
	backend.send(`{"type":"CANCEL","requestRef":"r-1","targetClientId":"td-01"}`)
	if m := backend.expectError("ALREADY_ENDED"); m.str("requestRef") != "r-1" {
		t.Errorf("got %s", m.raw)
	}
	_ = edge.conn.Close()
	backend.news("CONNECTION_STATUS", "edge-1", "OFFLINE")
	again("COMPLETED")
	backend.command("r-2", "td-01", "")
	if m := backend.expectError("EDGE_UNAVAILABLE"); m.str("details.edgeId") != "edge-1" {
		t.Errorf("got %s", m.raw)
	}
	backend.command("r-2", "td-01", `,"whenOffline":"QUEUE"`)
	backend.command("r-2", "td-01", "")
	if m := backend.expectError("DUPLICATE_REQUEST"); m.str("details.status") != "PENDING" {
		t.Errorf("got %s", m.raw)
	}
}

// TestTakeover: the newer connection of an id wins and the older is closed with 4409.
func TestTakeover(t *testing.T) {
	f := start(t, nil)
	backend := f.backend("backend-1")
	old := f.edge("edge-1", "td-01")
	backend.news("CONNECTION_STATUS", "edge-1", "ONLINE")
	backend.command("r-1", "td-01", "")
	old.expectCommand("r-1")
	edge := f.join(`{"type":"REGISTER","clientId":"edge-1","clientType":"EDGE"}`)
	old.wantClose(4409)
	backend.command("r-2", "td-01", "")
	edge.expectCommand("r-2")
	edge.respond("r-1") // in flight to the edge, whichever its connection
	edge.respond("r-2")
	for range 2 {
		backend.expect("COMMAND_RESPONSE")
	}
	device := f.device("pillar-1")
	f.device("pillar-1").quiet()
	device.wantClose(4409)
	f.backend("backend-1").quiet()
	backend.wantClose(4409)
	if len(backend.status) != 1 { // pillar-1 came; that a session took over is no change
		t.Errorf("%d changes were told, want 1", len(backend.status))
	}
}

// TestGoodbye: an edge that says so is closed with 1000 and its routes go at once; what
// is in flight ends at its deadline.
func TestGoodbye(t *testing.T) {
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01", "td-02")
	edge.send(`{"type":"UNREGISTER","clientId":"td-02"}`)
	backend.news("CONNECTION_STATUS", "td-02", "OFFLINE")
	backend.command("gone", "td-02", "")
	backend.expectError("TARGET_NOT_FOUND")
	edge.send(`{"type":"UNREGISTER","clientId":"td-02"}`) // has no route: does nothing
	backend.command("r-1", "td-01", `,"timeout":300`)
	edge.expectCommand("r-1")
	edge.send(`{"type":"UNREGISTER","clientId":"edge-1"}`)
	edge.wantClose(1000)
	m := backend.news("CONNECTION_STATUS", "edge-1", "OFFLINE")
	if m.str("reason") != "goodbye" {
		t.Errorf("got %s", m.raw)
	}
	backend.command("gone", "td-01", "")
	backend.expectError("TARGET_NOT_FOUND")
	m = backend.expectError("CONNECTION_LOST")
	if m.str("requestRef") != "r-1" || m.str("details.stage") != "DISPATCHED" {
		t.Errorf("got %s", m.raw)
	}
	if a := f.record("r-1"); a.str("status") != "TIMEOUT" || a.str("error.code") != "CONNECTION_LOST" {
		t.Errorf("got %s", a.body)
	}
}

// TestDedupeReplay: an edge that said dedupe gets again what was in flight, then what
// waits, by priority; REGISTER_ACK comes first.
func TestDedupeReplay(t *testing.T) {
	f := start(t, nil)
	backend := f.backend("backend-1")
	register := strings.Replace(edgeRegister("edge-1", "td-01"), `"devices"`, `"capabilities":["dedupe"],"devices"`, 1)
	edge := f.join(register)
	for _, ref := range []string{"a", "b"} {
		backend.command(ref, "td-01", "")
		edge.expectCommand(ref)
	}
	_ = edge.conn.Close()
	backend.news("CONNECTION_STATUS", "edge-1", "OFFLINE")
	backend.command("low", "td-01", `,"priority":"LOW","whenOffline":"QUEUE","ack":true`)
	backend.command("high", "td-01", `,"priority":"HIGH","whenOffline":"QUEUE","ack":true`)
	backend.expect("COMMAND_ACK")
	backend.expect("COMMAND_ACK")
	edge = f.join(register)
	for _, ref := range []string{"a", "b", "high", "low"} {
		edge.expectCommand(ref)
	}
	for _, ref := range []string{"a", "b", "high", "low"} {
		edge.respond(ref)
		if m := backend.expect("COMMAND_RESPONSE"); m.str("requestRef") != ref {
			t.Errorf("got %s, want %s", m.raw, ref)
		}
	}
}

// TestSecondChannel: a Backend's command with a callback is told over both ways, progress
// first and the final notice last.
func TestSecondChannel(t *testing.T) {
	f := start(t, nil)
	r := receive(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	backend.send(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"PROGRAM"},"callback":"` + r.URL + `/cb/{request_ref}"}`)
	m := edge.expect("COMMAND")
	ref := m.str("requestRef")
	if ack := backend.expect("COMMAND_ACK"); ack.str("requestRef") != ref {
		t.Errorf("acknowledged as %s, sent as %s", ack.raw, m.raw)
	}
	for n := range 3 {
		edge.sendf(`{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":%d,"stage":"DOWNLOADING"}`, ref, n*10)
		backend.expect("PROGRESS_UPDATE")
	}
	edge.sendf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"SUCCESS","result":{"a" : 1e2}}`, ref)
	backend.expect("COMMAND_RESPONSE")
	hits := r.wait(4)
	for n, h := range hits[:3] {
		if h.fields["progress"] != float64(n*10) || h.fields["status"] != "IN_PROGRESS" {
			t.Errorf("callback %d: %s", n, h.body)
		}
	}
	last := hits[3]
	if last.fields["status"] != "SUCCESS" || !strings.Contains(string(last.body), `{"a" : 1e2}`) || last.path != "/cb/"+ref {
		t.Errorf("the final callback: %s %s", last.path, last.body)
	}
	until(t, "the callback's state", func() bool { return f.record(ref).str("callback.state") == "DELIVERED" })
}

// TestOrphans: an answer to a command that is not known is passed on where it says
// itself to whom.
func TestOrphans(t *testing.T) {
	r := receive(t, nil)
	orphan := `{"type":"COMMAND_RESPONSE","requestRef":"lost","status":"COMPLETED","result":{"n":1},"sourceClientId":"backend-1","callback":"` + r.URL + `"}`
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	edge.send(`{"type":"COMMAND_RESPONSE","requestRef":"lost","status":"COMPLETED"}`)
	edge.send(`{"type":"ERROR","requestRef":"lost","code":"X","message":"m"}`)
	edge.quiet()
	edge.send(orphan)
	if m := backend.expect("COMMAND_RESPONSE"); string(m.raw) != orphan {
		t.Errorf("got %s, want %s", m.raw, orphan)
	}
	r.wait(1)
	backend.send(orphan)
	backend.expectError("FORBIDDEN")
	edge.send(strings.Replace(orphan, r.URL, "http://169.254.169.254/", 1))
	backend.expect("COMMAND_RESPONSE")
	if n := f.metric("subway_orphan_responses_total"); n != 2 {
		t.Errorf("%g orphans, want 2", n)
	}
	off := start(t, func(o *gateway.Options) { o.OrphanResponses = false })
	backend, edge = off.backend("backend-1"), off.edge("edge-1", "td-01")
	edge.send(orphan)
	edge.quiet()
	backend.quiet()
	if n := len(r.wait(1)); n != 1 {
		t.Errorf("%d callbacks, want 1", n)
	}
}
