package contract

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// answer is one HTTP answer of a table.
type answer struct {
	method, target string
	status         int
	media          string
	body           string
	header         []string // name, value, ...
}

func (a *answer) check() error {
	h := make(http.Header)
	if a.media == "" {
		a.media = "application/json"
	}
	h.Set("Content-Type", a.media)
	for i := 0; i+1 < len(a.header); i += 2 {
		h.Add(a.header[i], a.header[i+1])
	}
	return Check(a.method, a.target, a.status, h, []byte(a.body))
}

const record = `"requestRef":"r1","status":"PENDING","targetClientId":"td-01","commandType":"T","priority":"LOW","timeout":1000,"createdAt":"2024-01-20T10:00:00.000Z","updatedAt":"2024-01-20T10:00:00.000Z"`

func TestAnswers(t *testing.T) {
	good := func(a answer) {
		t.Helper()
		if err := a.check(); err != nil {
			t.Errorf("%s %s %d: %v\n%s", a.method, a.target, a.status, err, a.body)
		}
	}
	bad := func(why string, a answer) {
		t.Helper()
		if err := a.check(); err == nil {
			t.Errorf("accepted, although %s: %s %s %d %s", why, a.method, a.target, a.status, a.body)
		}
	}
	get := func(target, body string) answer {
		return answer{method: "GET", target: target, status: 200, body: body}
	}

	accepted := answer{method: "POST", target: "/api/commands?wait=5", status: 200, body: `{"success":true,"requestRef":"r1","message":"Command accepted for processing"}`}
	good(accepted)
	accepted.target = "/api/command"
	good(accepted)
	accepted.header = []string{"Preference-Applied", "wait=5"}
	good(accepted)
	accepted.header[1] = "wait"
	bad("Preference-Applied has no seconds", accepted)
	good(answer{method: "POST", target: "/api/commands", status: 200, body: `{"success":true,` + record + `}`})
	bad("it is neither form", answer{method: "POST", target: "/api/commands", status: 200, body: `{"success":true,"requestRef":"r1"}`})
	bad("it is both forms", answer{method: "POST", target: "/api/commands", status: 200, body: `{"success":true,"message":"Command accepted for processing",` + record + `}`})

	good(get("/api/commands/r1", `{"success":true,`+record+`}`))
	good(get("/api/commands/a%2Fb%3Fc?wait=100", `{"success":true,`+record+`}`))
	bad("success is missing", get("/api/commands/r1", `{`+record+`}`))
	bad("a member is not described", get("/api/commands/r1", `{"success":true,"source":"b",`+record+`}`))
	bad("a member stands twice", get("/api/commands/r1", `{"success":true,"success":true,`+record+`}`))
	bad("an open command has no result", get("/api/commands/r1", `{"success":true,"result":1,`+record+`}`))
	bad("a pending command has no progress", get("/api/commands/r1", `{"success":true,"progress":1,`+record+`}`))
	bad("a time has no milliseconds", get("/api/commands/r1", `{"success":true,`+strings.ReplaceAll(record, ".000Z", "Z")+`}`))
	ended := strings.NewReplacer("PENDING", "TIMEOUT").Replace(record)
	good(get("/api/commands/r1", `{"success":true,`+ended+`,"error":{"code":"CONNECTION_LOST","message":"m","details":{"stage":"PENDING"}}}`))
	bad("a timeout has its error", get("/api/commands/r1", `{"success":true,`+ended+`}`))
	bad("the stage is missing", get("/api/commands/r1", `{"success":true,`+ended+`,"error":{"code":"TIMEOUT","message":"m"}}`))
	good(get("/api/commands", `{"success":true,"commands":[{`+record+`}],"nextCursor":"x"}`))
	bad("a record in a list has no success", get("/api/commands", `{"success":true,"commands":[{"success":true,`+record+`}]}`))
	bad("nextCursor is empty", get("/api/commands", `{"success":true,"commands":[],"nextCursor":""}`))
	bad("null is no list", get("/api/commands", `{"success":true,"commands":null}`))

	good(answer{method: "POST", target: "/api/commands/batch", status: 200, body: `{"success":true,"accepted":0,"rejected":1,"results":[{"targetClientId":"screen-*","error":"e","code":"TARGET_NOT_FOUND"}]}`})
	bad("a result is both", answer{method: "POST", target: "/api/commands/batch", status: 200, body: `{"success":true,"accepted":0,"rejected":1,"results":[{"targetClientId":"td-1","requestRef":"r","error":"e","code":"TARGET_NOT_FOUND"}]}`})
	good(get("/api/traces/r1", `{"requestRef":"r1","startTime":1,"path":[{"node":"b-1","timestamp":1,"action":"send"},{"node":"gateway","timestamp":1,"action":"receive"}],"status":"pending"}`))
	bad("a trace has no success", get("/api/traces/r1", `{"success":true,"requestRef":"r1","startTime":1,"path":[{"node":"b-1","timestamp":1,"action":"send"},{"node":"gateway","timestamp":1,"action":"receive"}],"status":"pending"}`))
	bad("a pending trace has no duration", get("/api/traces/r1", `{"requestRef":"r1","startTime":1,"duration":1,"path":[{"node":"b-1","timestamp":1,"action":"send"},{"node":"gateway","timestamp":1,"action":"receive"}],"status":"pending"}`))
	bad("times are unix ms", get("/api/traces/r1", `{"requestRef":"r1","startTime":1.5,"path":[{"node":"b-1","timestamp":1,"action":"send"},{"node":"gateway","timestamp":1,"action":"receive"}],"status":"pending"}`))

	const device = `{"clientId":"td-01","deviceType":"td","edgeId":"e","connection":"ONLINE","lastSeen":"2024-01-20T10:00:00.000Z","epoch":9007199254740993`
	good(get("/api/devices/td-01", `{"success":true,"device":`+device+`}}`))
	good(get("/api/devices?limit=1", `{"success":true,"devices":[`+device+`,"status":{},"statusAt":"2024-01-20T10:00:00.000Z"}],"nextCursor":"x"}`))
	bad("status comes with statusAt", get("/api/devices/td-01", `{"success":true,"device":`+device+`,"status":{}}}`))
	bad("a single device is no list", get("/api/devices/td-01", `{"success":true,"devices":[`+device+`}]}`))
	good(answer{method: "GET", target: "/metrics", status: 200, media: "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", body: "subway_routes 1\n"})
	bad("metrics are no JSON", get("/metrics", `{}`))
	good(answer{method: "GET", target: "/readyz", status: 503, body: `{"status":"draining","reason":"r"}`})
	bad("503 is not ready", answer{method: "GET", target: "/readyz", status: 503, body: `{"status":"ready","reason":"r"}`})
	good(answer{method: "POST", target: "/api/callbacks/cb-1/retry", status: 202, body: `{"success":true,"id":"cb-1"}`})
	bad("a retry is 202", answer{method: "POST", target: "/api/callbacks/cb-1/retry", status: 200, body: `{"success":true,"id":"cb-1"}`})
}

func TestRefusals(t *testing.T) {
	// f: this error is what the document says; with another code, form, media type or a member more it is not.
	f := func(method, target string, status int, code, more string, header ...string) {
		t.Helper()
		a := answer{method: method, target: target, status: status, header: header, body: `{"success":false,"error":"e","code":"` + code + `"` + more + `}`}
		if err := a.check(); err != nil {
			t.Errorf("%s %s %d %s: %v", method, target, status, code, err)
		}
		for _, change := range [][2]string{{code, "NOPE"}, {`"success":false`, `"success":true`}, {`"error":"e",`, ``}, {`{`, `{"x-own":1,`}, {`{`, `[{`}, {`"error":`, `"error":"e","error":`}} {
			b := a
			b.body = strings.Replace(a.body, change[0], change[1], 1)
			if b.check() == nil {
				t.Errorf("accepted: %s %s %d %s", method, target, status, b.body)
			}
		}
		a.media = "text/plain"
		if a.check() == nil {
			t.Errorf("accepted as text/plain: %s %s %d", method, target, status)
		}
	}
	f("POST", "/api/commands", 400, "INVALID_REQUEST", `,"details":{"field":"command.commandType"},"requestRef":"r"`)
	f("POST", "/api/commands", 404, "TARGET_NOT_FOUND", `,"details":{"targetClientId":"d","reason":"No route found for device d"}`)
	f("POST", "/api/commands", 409, "DUPLICATE_REQUEST", `,"details":{"status":"PENDING"},"requestRef":"r"`)
	f("POST", "/api/commands", 503, "EDGE_UNAVAILABLE", `,"details":{"edgeId":"e","lastSeen":"2024-01-20T10:00:00.000Z","retryAfter":5}`)
	f("POST", "/api/commands", 503, "OVERLOADED", `,"details":{"retryAfter":5}`)
	f("POST", "/api/command", 503, "GATEWAY_UNAVAILABLE", `,"details":{"service":"gateway","lastSeen":"2024-01-20T10:00:00.000Z","retryAfter":5}`)
	f("POST", "/api/commands", 413, "PAYLOAD_TOO_LARGE", ``)
	f("POST", "/api/commands", 429, "RATE_LIMITED", `,"details":{"retryAfter":5}`)
	f("GET", "/api/commands/r", 404, "COMMAND_NOT_FOUND", `,"requestRef":"r"`)
	f("DELETE", "/api/commands/r", 409, "ALREADY_ENDED", `,"requestRef":"r"`)
	f("GET", "/api/traces/r", 404, "COMMAND_NOT_FOUND", `,"requestRef":"r"`)
	f("GET", "/api/devices/d", 404, "NOT_FOUND", ``)
	f("GET", "/api/devices", 401, "UNAUTHORIZED", ``)
	f("GET", "/api/devices", 500, "INTERNAL", ``)
	f("GET", "/api/devices", 431, "INVALID_REQUEST", ``)
	f("GET", "/", 426, "INVALID_REQUEST", ``, "Sec-WebSocket-Version", "13")
	// What is in no document.
	f("GET", "/api/nope", 404, "NOT_FOUND", ``)
	f("GET", "/api/commands/a/b/c", 404, "NOT_FOUND", ``)
	f("GET", "//etc/passwd", 404, "NOT_FOUND", ``)
	f("GET", "/ws", 426, "INVALID_REQUEST", ``, "Sec-WebSocket-Version", "13")
	f("PUT", "/api/commands", 405, "METHOD_NOT_ALLOWED", ``, "Allow", "GET, HEAD, POST")
	f("BREW", "/healthz", 405, "METHOD_NOT_ALLOWED", ``, "Allow", "GET", "Allow", "HEAD")
	f("GET", "/api/commands/batch", 405, "METHOD_NOT_ALLOWED", ``, "Allow", "POST")
	f("GET", "/api/commands/batch", 404, "COMMAND_NOT_FOUND", `,"requestRef":"batch"`)
}

func TestRefusalsThatAreNone(t *testing.T) {
	f := func(why string, a answer) {
		t.Helper()
		if a.check() == nil {
			t.Errorf("accepted, although %s", why)
		}
	}
	const notFound = `{"success":false,"error":"e","code":"NOT_FOUND"}`
	const notAllowed = `{"success":false,"error":"e","code":"METHOD_NOT_ALLOWED"}`
	f("the list of devices is always there", answer{method: "GET", target: "/api/devices", status: 404, body: notFound})
	f("no such status", answer{method: "GET", target: "/healthz", status: 418, body: notFound})
	f("a path of no document has no 200", answer{method: "GET", target: "/nope", status: 200, body: `{}`})
	f("Allow is missing", answer{method: "PUT", target: "/healthz", status: 405, body: notAllowed})
	f("Allow lacks POST", answer{method: "PUT", target: "/api/commands", status: 405, body: notAllowed, header: []string{"Allow", "GET"}})
	f("GET is allowed", answer{method: "GET", target: "/healthz", status: 405, body: notAllowed, header: []string{"Allow", "GET"}})
	f("a method of no document has no 200", answer{method: "PUT", target: "/healthz", status: 200, body: `{"status":"ok"}`})
	f("the version that is spoken is missing", answer{method: "GET", target: "/", status: 426, body: `{"success":false,"error":"e","code":"INVALID_REQUEST"}`})
}

func TestHead(t *testing.T) {
	for _, c := range []struct {
		a  answer
		ok bool
	}{
		{answer{method: "HEAD", target: "/healthz", status: 200}, true},
		{answer{method: "HEAD", target: "/api/nope", status: 404}, true},
		{answer{method: "HEAD", target: "/healthz", status: 200, body: `{"status":"ok"}`}, false},
		{answer{method: "HEAD", target: "/healthz", status: 200, media: "text/html"}, false},
		{answer{method: "HEAD", target: "/api/callbacks/x/retry", status: 202}, false},
	} {
		if err := c.a.check(); (err == nil) != c.ok {
			t.Errorf("HEAD %s %d: %v", c.a.target, c.a.status, err)
		}
	}
}

// TestExamples sends each example of the document through Check, as it stands and spoiled.
func TestExamples(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, item := range doc.Paths.Map() {
		target := strings.NewReplacer("{ref}", "r1", "{id}", "x", "{name}", "command.json").Replace(path)
		for method, op := range item.Operations() {
			for word, ref := range op.Responses.Map() {
				status, err := strconv.Atoi(word)
				if err != nil {
					status = http.StatusRequestTimeout // default
				}
				for media, m := range ref.Value.Content {
					for name, x := range m.Examples {
						n++
						checkExample(t, method+" "+path+" "+word+" "+name, answer{method: method, target: target, status: status, media: media, header: needed(ref.Value)}, x.Value.Value)
					}
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("%d examples", n)
	}
}

// needed are the headers that a response must have, with their examples.
func needed(r *openapi3.Response) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if name == "Sec-WebSocket-Version" {
			out = append(out, name, "13")
		}
	}
	return out
}

func checkExample(t *testing.T, where string, a answer, value any) {
	t.Helper()
	if text, ok := value.(string); ok {
		a.body = text
		if err := a.check(); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		return
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	a.body = string(raw)
	if err := a.check(); err != nil {
		t.Errorf("%s: %v", where, err)
	}
	if strings.HasPrefix(a.target, "/openapi") || strings.HasPrefix(a.target, "/schemas") {
		return // open
	}
	a.body = `{"x-own":1,` + string(raw[1:])
	if a.check() == nil {
		t.Errorf("%s: a member that is not described is accepted", where)
	}
}

func BenchmarkCheck(b *testing.B) {
	h := http.Header{"Content-Type": {"application/json"}}
	body := []byte(`{"success":true,` + record + `}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := Check("GET", "/api/commands/r1", 200, h, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckMessage(b *testing.B) {
	raw := []byte(`{"type":"COMMAND_ACK",` + ref + `,"targetClientId":"td-01","status":"PENDING",` + now + `}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckMessage(FromGateway, raw); err != nil {
			b.Fatal(err)
		}
	}
}
