package gateway_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"subway/api"
	"subway/server/gateway"
)

// TestContract takes from a Gateway every answer that its description promises; each is
// held against the description where it is read.
func TestContract(t *testing.T) {
	seen := newCoverage(t)
	f := start(t, nil)
	f.seen = seen
	p := populate(f)
	t.Run("plain", func(t *testing.T) { testPlain(f) })
	t.Run("commands", func(t *testing.T) { testCommandAnswers(f, p) })
	t.Run("batch", func(t *testing.T) { testBatchAnswers(f, p) })
	t.Run("lists", func(t *testing.T) { testListAnswers(f) })
	t.Run("callbacks", func(t *testing.T) { testCallbackAnswers(f, p) })
	t.Run("handshake", func(t *testing.T) { testHandshakeAnswers(f) })
	t.Run("transport", func(t *testing.T) { testTransportAnswers(f) })
	t.Run("rate", func(t *testing.T) { testRateAnswers(t, seen) })
	t.Run("full", func(t *testing.T) { testFullAnswers(t, seen) })
	t.Run("draining", func(t *testing.T) { testDrainingAnswers(t, seen) })
	for _, key := range seen.missing() {
		t.Errorf("never seen: %s", key)
	}
}

// parties are who is connected while the API is called.
type parties struct {
	backend, edge, direct *party
}

func populate(f *fixture) parties {
	p := parties{backend: f.backend("backend-001")}
	p.edge = f.join(`{"type":"REGISTER","clientId":"edge-001","clientType":"EDGE","edgeInfo":{"edgeId":"edge-001","edgeVersion":"1.3.0"},` +
		`"devices":["td-01",{"clientId":"screen-05","deviceInfo":{"model":"P3"}}],"capabilities":["dedupe"]}`)
	p.direct = f.device("pillar-100")
	away := f.edge("edge-002", "td-09")
	away.send(`{"type":"DEVICE_STATUS","clientId":"td-09","status":{"lamp":"on"}}`)
	p.backend.news("DEVICE_STATUS", "td-09", "")
	_ = away.conn.Close()
	p.backend.news("CONNECTION_STATUS", "edge-002", "OFFLINE")
	return p
}

func testPlain(f *fixture) {
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/version", "/openapi.json", "/asyncapi.yaml"} {
		f.want(200, "", "GET", path, "")
		f.want(200, "", "HEAD", path, "")
		f.want(405, "METHOD_NOT_ALLOWED", "POST", path, "{}")
	}
	for _, name := range api.SchemaNames() {
		f.want(200, "", "GET", "/schemas/"+name, "")
	}
	f.want(404, "NOT_FOUND", "GET", "/schemas/none.json", "")
	for _, path := range []string{"/none", "/api", "/api/", "/api/commands/a/b", "/schemas/", "//", "/api//commands"} {
		f.want(404, "NOT_FOUND", "GET", path, "")
	}
	f.want(405, "METHOD_NOT_ALLOWED", "PUT", "/api/commands", "{}")
	f.want(405, "METHOD_NOT_ALLOWED", "GET", "/api/command", "")
	f.want(405, "METHOD_NOT_ALLOWED", "DELETE", "/api/commands", "")
	f.want(405, "METHOD_NOT_ALLOWED", "GET", "/api/callbacks/x/retry", "")
}

const postTD = `{"target_client_id":"td-01","command":{"commandType":"T"}`

func testCommandAnswers(f *fixture, p parties) {
	a := f.want(200, "", "POST", "/api/commands", postTD+`,"callback_url":null,"priority":null}`)
	ref := a.str("requestRef")
	m := p.edge.expectCommand(ref)
	if m.get("sourceClientId") != nil || m.str("priority") != "NORMAL" {
		f.t.Errorf("the edge got %s", m.raw)
	}
	f.want(200, "", "GET", "/api/commands/"+ref, "")
	f.want(200, "", "GET", "/api/traces/"+ref, "")
	p.edge.sendf(`{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":{"done":3,"of":9}}`, ref)
	p.edge.sendf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"COMPLETED","result":[1,2],"executionTime":42}`, ref)
	if a = f.want(200, "", "GET", "/api/commands/"+ref+"?wait=60000", ""); a.str("status") != "COMPLETED" {
		f.t.Errorf("after the response: %s", a.body)
	}
	f.want(200, "", "HEAD", "/api/commands/"+ref, "")
	f.want(200, "", "GET", "/api/traces/"+ref, "")
	f.want(409, "ALREADY_ENDED", "DELETE", "/api/commands/"+ref, "")
	f.want(409, "DUPLICATE_REQUEST", "POST", "/api/commands", postTD+`,"request_ref":"`+ref+`"}`)
	f.want(404, "COMMAND_NOT_FOUND", "GET", "/api/commands/none", "")
	f.want(404, "COMMAND_NOT_FOUND", "DELETE", "/api/commands/none", "")
	f.want(404, "COMMAND_NOT_FOUND", "GET", "/api/traces/none", "")
	f.want(404, "TARGET_NOT_FOUND", "POST", "/api/commands", `{"target_client_id":"none","command":{"commandType":"T"}}`)
	f.want(503, "EDGE_UNAVAILABLE", "POST", "/api/commands", `{"target_client_id":"td-09","command":{"commandType":"T"}}`)
	f.want(400, "INVALID_REQUEST", "POST", "/api/commands?wait=x", postTD+`}`)
	f.want(400, "INVALID_REQUEST", "GET", "/api/commands/"+ref+"?wait=-1", "")

	a = f.want(200, "", "POST", "/api/command?wait=20", `{"targetClientId":"td-09","command":{"commandType":"T"},"whenOffline":"QUEUE","requestRef":"a/../b?%"}`)
	if a.str("status") != "PENDING" {
		f.t.Errorf("after its wait: %s", a.body)
	}
	f.want(404, "TARGET_NOT_FOUND", "POST", "/api/command", `{"target_client_id":"none","command":{"commandType":"T"}}`)
	f.want(503, "EDGE_UNAVAILABLE", "POST", "/api/command", `{"target_client_id":"td-09","command":{"commandType":"T"}}`)
	f.want(409, "DUPLICATE_REQUEST", "POST", "/api/command", `{"target_client_id":"td-09","command":{"commandType":"T"},"request_ref":"a/../b?%"}`)
	f.want(200, "", "DELETE", "/api/commands/a%2F..%2Fb%3F%25", "")
	if a = f.want(200, "", "GET", "/api/commands/a%2F..%2Fb%3F%25", ""); a.str("error.details.stage") != "PENDING" {
		f.t.Errorf("cancelled before it left: %s", a.body)
	}
	testEnds(f, p)
}

// testEnds has commands end in every way and reads the record and the trace of each.
func testEnds(f *fixture, p parties) {
	post := func(more string) string {
		a := f.want(200, "", "POST", "/api/commands", `{"target_client_id":"pillar-100","command":{"commandType":"T"}`+more+`}`, "Prefer", "wait=0")
		ref := a.str("requestRef")
		if p.direct.expectCommand(ref); a.header.Get("Preference-Applied") != "wait=0" {
			f.t.Errorf("Preference-Applied: %q", a.header.Get("Preference-Applied"))
		}
		return ref
	}
	end := func(ref, status, code string) {
		a := f.want(200, "", "GET", "/api/commands/"+ref, "", "Prefer", "respond-async, wait=10")
		if a.str("status") != status || a.str("error.code") != code {
			f.t.Errorf("ended %s %s: %s", status, code, a.body)
		}
		f.want(200, "", "GET", "/api/traces/"+ref, "")
	}
	ref := post(`,"timeout":30`)
	end(ref, "TIMEOUT", "TIMEOUT")
	ref = post("")
	p.direct.sendf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"FAILED","error":{"code":"LAMP_BROKEN","message":"m","details":{"n":1}}}`, ref)
	end(ref, "FAILED", "LAMP_BROKEN")
	ref = post("")
	p.direct.sendf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"ODD WORD"}`, ref)
	end(ref, "FAILED", "")
	ref = post("")
	p.direct.sendf(`{"type":"ERROR","requestRef":%q,"code":"DEVICE_NOT_FOUND","message":"gone"}`, ref)
	end(ref, "FAILED", "DEVICE_NOT_FOUND")
	ref = post("")
	p.direct.sendf(`{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":40}`, ref)
	until(f.t, "progress", func() bool { return f.record(ref).str("status") == "IN_PROGRESS" })
	f.want(200, "", "GET", "/api/traces/"+ref, "")
	f.want(200, "", "DELETE", "/api/commands/"+ref, "")
	p.direct.expect("CANCEL")
	end(ref, "CANCELLED", "CANCELLED")
}

func testBatchAnswers(f *fixture, p parties) {
	a := f.want(200, "", "POST", "/api/commands/batch", `{"commands":[`+postTD+`,"request_ref":"b-1"},`+postTD+`,"request_ref":"b-1"},`+
		`{"target_client_id":"td-09","command":{"commandType":"T"}},{"command":{}},7,{"target_client_id":"none","command":{"commandType":"T"}}]}`)
	if a.get("accepted") != 1.0 || a.get("rejected") != 5.0 {
		f.t.Errorf("batch of items: %s", a.body)
	}
	p.edge.expectCommand("b-1")
	p.edge.respond("b-1")
	a = f.want(200, "", "POST", "/api/commands/batch", `{"targets":["td-*","td-01","none-*","x y"],"command":{"commandType":"T"}}`)
	if a.get("accepted") != 1.0 || a.get("rejected") != 3.0 {
		f.t.Errorf("batch of targets: %s", a.body)
	}
	p.edge.expect("COMMAND")
	f.want(400, "INVALID_REQUEST", "POST", "/api/commands/batch", `{"commands":[`+strings.Repeat(postTD+`},`, 1000)+postTD+`}]}`)
	f.want(400, "INVALID_REQUEST", "POST", "/api/commands/batch", `{"targets":["td-01"],"command":{"commandType":"T"},"request_ref":"r"}`)
	f.want(400, "INVALID_REQUEST", "POST", "/api/commands/batch", `{"commands":{}}`)
	f.want(200, "", "POST", "/api/commands/batch", `{"commands":[]}`)
	f.want(405, "METHOD_NOT_ALLOWED", "PUT", "/api/commands/batch", "{}")
	p.edge.quiet()
}

func testListAnswers(f *fixture) {
	for _, path := range []string{"/api/commands", "/api/devices", "/api/edges", "/api/callbacks"} {
		f.want(200, "", "GET", path, "")
		f.want(200, "", "HEAD", path, "")
		f.want(200, "", "GET", path+"?limit=100000&unknown=1", "")
		for _, query := range []string{"limit=0", "limit=-1", "limit=x", "limit="} {
			f.want(400, "INVALID_REQUEST", "GET", path+"?"+query, "")
		}
		pages(f, path)
	}
	f.want(200, "", "GET", "/api/commands?status=COMPLETED&target=td-01", "")
	f.want(400, "INVALID_REQUEST", "GET", "/api/commands?status=DONE", "")
	f.want(400, "INVALID_REQUEST", "GET", "/api/commands?cursor=!", "")
	f.want(200, "", "GET", "/api/devices?type=td&edge=edge-001&status=ONLINE", "")
	f.want(400, "INVALID_REQUEST", "GET", "/api/devices?status=AWAKE", "")
	f.want(200, "", "GET", "/api/edges?status=OFFLINE", "")
	f.want(400, "INVALID_REQUEST", "GET", "/api/callbacks?state=alive", "")
	for _, id := range []string{"td-01", "screen-05", "td-09", "pillar-100"} {
		f.want(200, "", "GET", "/api/devices/"+id, "")
	}
	f.want(404, "NOT_FOUND", "GET", "/api/devices/none", "")
	f.want(200, "", "GET", "/api/edges/edge-001", "")
	f.want(200, "", "GET", "/api/edges/edge-002", "")
	f.want(404, "NOT_FOUND", "GET", "/api/edges/none", "")
	f.want(404, "NOT_FOUND", "GET", "/api/edges/pillar-100", "")
}

// pages reads a list one item at a time and as a whole: the same comes out.
func pages(f *fixture, path string) {
	members := map[string]string{"/api/commands": "commands", "/api/devices": "devices", "/api/edges": "edges", "/api/callbacks": "callbacks"}
	all := f.want(200, "", "GET", path+"?limit=1000", "")
	want, _ := all.get(members[path]).([]any)
	got, cursor := 0, ""
	for range len(want) + 2 {
		a := f.want(200, "", "GET", path+"?limit=1"+cursor, "")
		items, _ := a.get(members[path]).([]any)
		got += len(items)
		if a.get("nextCursor") == nil {
			break
		}
		cursor = "&cursor=" + a.str("nextCursor")
	}
	if got != len(want) {
		f.t.Errorf("%s: %d items one by one, %d at once", path, got, len(want))
	}
}

func testCallbackAnswers(f *fixture, p parties) {
	r := receive(f.t, func(n int) int { return []int{404, 204}[min(n, 1)] })
	p.backend.command("cb-1", "td-01", `,"callback":"`+r.URL+`/a"`)
	p.edge.expectCommand("cb-1")
	p.edge.respond("cb-1")
	p.backend.expect("COMMAND_RESPONSE")
	r.wait(1)
	until(f.t, "a dead letter", func() bool { return f.record("cb-1").str("callback.state") == "DEAD" })
	a := f.want(200, "", "GET", "/api/callbacks?state=dead", "")
	dead, _ := a.get("callbacks").([]any)
	if len(dead) != 1 {
		f.t.Fatalf("dead letters: %s", a.body)
	}
	id, _ := dead[0].(map[string]any)["id"].(string)
	f.want(202, "", "POST", "/api/callbacks/"+id+"/retry", "")
	hits := r.wait(2)
	if a, b := hits[0].header, hits[1].header; a.Get("X-Callback-Id") != b.Get("X-Callback-Id") || b.Get("X-Callback-Attempt") != "1/3" {
		f.t.Errorf("the series %v is not %v again", b, a)
	}
	until(f.t, "delivery", func() bool { return f.record("cb-1").str("callback.state") == "DELIVERED" })
	f.want(404, "NOT_FOUND", "POST", "/api/callbacks/"+id+"/retry", "")
}

func testHandshakeAnswers(f *fixture) {
	lines := func(drop string, more ...string) []string {
		var all []string
		for _, h := range []string{"Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"} {
			if drop == "" || !strings.HasPrefix(h, drop) {
				all = append(all, h)
			}
		}
		return append(all, more...)
	}
	for _, path := range []string{"/", "/ws"} {
		f.wantRaw(101, head("GET", path, lines("")...))
		f.wantRaw(426, head("GET", path, lines("Sec-WebSocket-Version")...))
		f.wantRaw(426, head("GET", path, lines("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8")...))
		f.wantRaw(400, head("GET", path, lines("Sec-WebSocket-Key")...))
		f.wantRaw(403, head("GET", path, lines("", "Origin: http://elsewhere.example")...))
	}
	f.want(404, "NOT_FOUND", "GET", "/ws", "")
}

// testTransportAnswers has every operation refused before its path is looked at.
func testTransportAnswers(f *fixture) {
	f.seen.operations(func(method, _, path string) {
		f.wantRaw(400, head(method, path, contentLength(3), "Transfer-Encoding: chunked")+"0\r\n\r\n")
		f.wantRaw(413, head(method, path, contentLength(1<<20+1)))
		if method == "POST" {
			f.wantRaw(413, head(method, path, "Transfer-Encoding: chunked")+"100001\r\n"+strings.Repeat(" ", 1<<20+1)+"\r\n0\r\n\r\n")
		}
		f.wantRaw(431, head(method, path, "X-Filler: "+strings.Repeat("x", 9000)))
	})
}

func testRateAnswers(t *testing.T, seen *coverage) {
	f := start(t, func(o *gateway.Options) { o.RatePerSecond = 0.001 })
	f.edge("edge-001", "td-01")
	f.want(200, "", "POST", "/api/commands", postTD+`}`)
	f.seen = seen
	f.want(429, "RATE_LIMITED", "POST", "/api/commands", postTD+`}`)
	f.want(429, "RATE_LIMITED", "POST", "/api/command", postTD+`}`)
	f.want(429, "RATE_LIMITED", "POST", "/api/commands/batch", `{"commands":[`+postTD+`}]}`)
	f.want(429, "RATE_LIMITED", "POST", "/api/commands/batch", `{"targets":["td-*"],"command":{"commandType":"T"}}`)
	f.want(200, "", "GET", "/api/commands", "")
	backend := f.backend("backend-001") // a rate of its own
	backend.command("r-1", "td-01", `,"ack":true`)
	backend.expect("COMMAND_ACK")
	backend.command("r-2", "td-01", "")
	backend.expectError("RATE_LIMITED")
}

// testFullAnswers has every operation refused because there are too many connections.
func testFullAnswers(t *testing.T, seen *coverage) {
	f := start(t, func(o *gateway.Options) { o.MaxConnections = 256 })
	f.seen = seen
	for range 64 {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte(head("GET", "/healthz"))); err != nil {
			t.Fatal(err)
		}
		if r, _ := f.rawAnswer(bufio.NewReader(conn), "GET /healthz"); r.StatusCode != 200 {
			t.Fatal(r.Status)
		}
	}
	seen.operations(func(method, _, path string) {
		f.wantRaw(503, head(method, path, contentLength(0)))
	})
}

func testDrainingAnswers(t *testing.T, seen *coverage) {
	f := start(t, nil)
	f.seen = seen
	edge := f.edge("edge-001", "td-01")
	f.want(200, "", "POST", "/api/commands", postTD+`,"request_ref":"last"}`)
	edge.expectCommand("last")
	done := make(chan struct{})
	go func() { f.stop(patience); close(done) }()
	until(t, "draining", func() bool { return f.call("GET", "/readyz", "").status == 503 })
	f.want(503, "GATEWAY_UNAVAILABLE", "POST", "/api/commands", postTD+`}`)
	f.want(503, "GATEWAY_UNAVAILABLE", "POST", "/api/command", postTD+`}`)
	f.want(503, "GATEWAY_UNAVAILABLE", "POST", "/api/commands/batch", `{"targets":["td-01"],"command":{"commandType":"T"}}`)
	f.want(200, "", "GET", "/api/commands/last", "")
	edge.respond("last")
	edge.wantClose(1001)
	<-done
}
