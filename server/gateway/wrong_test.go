package gateway_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gobwas/ws"
)

// wrong is one thing that goes wrong with a command, over WebSocket and over HTTP.
type wrong struct {
	name   string
	ws     string // the message; "": none goes this way
	http   string // the body of POST /api/commands; "": likewise
	code   string // "": it is accepted. Over HTTP INVALID_MESSAGE reads INVALID_REQUEST
	status int    // its HTTP status
	field  string // details.field over WebSocket, "": none
	snake  string // details.field over HTTP where it differs
	ref    bool   // the ERROR carries the requestRef "r"
}

const (
	goodWS   = `{"type":"COMMAND","requestRef":"r","targetClientId":"td-01","command":{"commandType":"T"}`
	goodHTTP = `{"requestRef":"r","targetClientId":"td-01","command":{"commandType":"T"}`
)

// both makes a row whose members are the same over either way.
func both(name, members, code string, status int, field string) wrong {
	return wrong{name: name, ws: goodWS + members + `}`, http: goodHTTP + members + `}`, code: code, status: status, field: field, ref: code != ""}
}

// target makes a row with another target.
func target(name, value, code string, status int, field string) wrong {
	w := both(name, "", code, status, field)
	w.ws = strings.Replace(w.ws, `"td-01"`, value, 1)
	w.http = strings.Replace(w.http, `"td-01"`, value, 1)
	return w
}

func without(w wrong, member, field, snake string) wrong {
	w.ws, w.http = strings.Replace(w.ws, member, "", 1), strings.Replace(w.http, member, "", 1)
	w.field, w.snake = field, snake
	return w
}

// broken makes a row that is no JSON object at all, or no UTF-8.
func broken(name, raw string) wrong {
	return wrong{name: name, ws: raw, http: raw, code: "INVALID_MESSAGE", status: 400}
}

func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

func wrongCommands() []wrong {
	const invalid = "INVALID_MESSAGE"
	rows := []wrong{
		target("no route", `"td-99"`, "TARGET_NOT_FOUND", 404, ""),
		target("the edge is away", `"td-09"`, "EDGE_UNAVAILABLE", 503, ""),
		target("id with a space", `"td 01"`, invalid, 400, "targetClientId"),
		target("id with a slash", `"td/01"`, invalid, 400, "targetClientId"),
		target("id with a letter that is not ASCII", `"tд-01"`, invalid, 400, "targetClientId"),
		target("id with a NUL", `"td-01\u0000"`, invalid, 400, "targetClientId"),
		target("id that is empty", `""`, invalid, 400, "targetClientId"),
		target("id of 129 bytes", `"`+strings.Repeat("a", 129)+`"`, invalid, 400, "targetClientId"),
		target("id that is a number", `1`, invalid, 400, "targetClientId"),
		target("id in escapes", `"\u0074d-0\u0031"`, "", 200, ""),
		without(both("no target", "", invalid, 400, ""), `"targetClientId":"td-01",`, "targetClientId", "target_client_id"),
		without(both("no command", "", invalid, 400, ""), `,"command":{"commandType":"T"}`, "command", "command"),
		without(both("no commandType", "", invalid, 400, ""), `"commandType":"T"`, "command.commandType", "command.commandType"),

		broken("truncated", goodWS),
		broken("truncated in a string", `{"type":"COMMA`),
		broken("trailing bytes", goodWS+`}x`),
		broken("two objects", goodWS+`}`+goodWS+`}`),
		broken("an array", `[`+goodWS+`}]`),
		broken("null", `null`),
		broken("white space alone", ` `),
		broken("depth 10,000", `{"type":"COMMAND","a":`+nested(10_000)+`}`),
		broken("arrays 10,000 deep", `{"type":"COMMAND","a":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+`}`),
		broken("10,000 open arrays", strings.Repeat("[", 10_000)),
		broken("a NUL between members", "{\x00\"type\":\"COMMAND\"}"),
		broken("a NUL in a string", `{"type":"COMMAND","a":"`+"\x00"+`"}`),
		broken("a number with a leading zero", goodWS+`,"a":01}`),
		broken("a comma too many", goodWS+`,}`),
		broken("a bad escape", goodWS+`,"a":"\x"}`),
		broken("NaN", goodWS+`,"a":NaN}`),

		both("depth 64", `,"payload":`+nested(63), "", 200, ""),
		broken("depth 65", goodWS+`,"payload":`+nested(64)+`}`),
		both("lone surrogates", `,"payload":"\ud800 \udfff \udc00\ud800"`, "", 200, ""),
		both("a NUL in escapes", `,"payload":"\u0000"`, "", 200, ""),
		both("numbers beyond any type", `,"payload":[1e400,-0,123456789012345678901234567890]`, "", 200, ""),
		both("a stranger twice", `,"x":1,"x":2`, "", 200, ""),
		both("members that are null", `,"priority":null,"timeout":null,"whenOffline":null`, "", 200, ""),

		both("target twice", `,"targetClientId":"td-01"`, invalid, 400, "targetClientId"),
		both("command twice", `,"command":{"commandType":"T"}`, invalid, 400, "command"),
		both("timeout twice", `,"timeout":1000,"timeout":1000`, invalid, 400, "timeout"),
		both("a member twice, once in escapes", `,"timeout":1000,"\u0074imeout":1000`, invalid, 400, "timeout"),
		{name: "ref twice", ws: goodWS + `,"requestRef":"r"}`, http: goodHTTP + `,"requestRef":"r"}`, code: invalid, status: 400, field: "requestRef"},
		{name: "both spellings", http: goodHTTP + `,"target_client_id":"td-01"}`, code: invalid, status: 400, snake: "target_client_id"},
		{name: "type twice", ws: goodWS + `,"type":"COMMAND"}`, code: invalid, field: "type", ref: true},
		{name: "commandType twice", ws: strings.Replace(goodWS, `"T"`, `"T","commandType":"T"`, 1) + `}`,
			http: strings.Replace(goodHTTP, `"T"`, `"T","commandType":"T"`, 1) + `}`, code: invalid, status: 400, field: "command.commandType", ref: true},

		{name: "no type", ws: `{"requestRef":"r"}`, code: invalid, field: "type", ref: true},
		{name: "unknown type", ws: `{"type":"NONE","requestRef":"r"}`, code: invalid, field: "type", ref: true},
		{name: "type in small letters", ws: `{"type":"command","requestRef":"r"}`, code: invalid, field: "type", ref: true},
		{name: "a type that the Gateway sends", ws: `{"type":"COMMAND_ACK","requestRef":"r"}`, code: invalid, field: "type", ref: true},
		{name: "version 2.0", ws: goodWS + `,"version":"2.0"}`, code: "UNSUPPORTED_VERSION", field: "version", ref: true},
		{name: "version 0.9", ws: goodWS + `,"version":"0.9"}`, code: "UNSUPPORTED_VERSION", field: "version", ref: true},
		{name: "version 1.7", ws: goodWS + `,"version":"1.7"}`},
		{name: "version one", ws: goodWS + `,"version":"one"}`, code: invalid, field: "version", ref: true},
		{name: "version 1", ws: goodWS + `,"version":1}`, code: invalid, field: "version", ref: true},
		{name: "another's sourceClientId", ws: goodWS + `,"sourceClientId":"backend-9"}`, code: "FORBIDDEN", ref: true},
		{name: "its own sourceClientId", ws: goodWS + `,"sourceClientId":"backend-1"}`},
		{name: "a ref with a space", ws: strings.Replace(goodWS, `"r"`, `"r r"`, 1) + `}`,
			http: strings.Replace(goodHTTP, `"r"`, `"r r"`, 1) + `}`, code: invalid, status: 400, field: "requestRef"},
		{name: "a ref with a NUL", ws: strings.Replace(goodWS, `"r"`, `"r\u0000"`, 1) + `}`,
			http: strings.Replace(goodHTTP, `"r"`, `"r\u0000"`, 1) + `}`, code: invalid, status: 400, field: "requestRef"},
		{name: "CANCEL of nothing", ws: `{"type":"CANCEL","requestRef":"r","targetClientId":"td-01"}`, code: "COMMAND_NOT_FOUND", ref: true},
		{name: "an answer from a Backend", ws: `{"type":"COMMAND_RESPONSE","requestRef":"r","status":"COMPLETED"}`, code: "FORBIDDEN", ref: true},
		{name: "progress from a Backend", ws: `{"type":"PROGRESS_UPDATE","requestRef":"r","progress":1}`, code: "FORBIDDEN", ref: true},
		{name: "invalid UTF-8 in a body", http: goodHTTP + `,"a":"` + "\xff" + `"}`, code: invalid, status: 400},
		{name: "an empty command", http: `{}`, code: invalid, status: 400, snake: "target_client_id"},

		both("a callback that is no URL", `,"callback":"nowhere","callbackUrl":"nowhere"`, invalid, 400, "callback"),
		both("a callback to a cloud's metadata", `,"callback":"http://169.254.169.254/","callbackUrl":"http://169.254.169.254/"`, invalid, 400, "callback"),
		both("the same in disguise", `,"callback":"http://0xa9fea9fe/","callbackUrl":"http://0xa9fea9fe/"`, invalid, 400, "callback"),
		both("a callback by another scheme", `,"callback":"file:///etc/passwd","callbackUrl":"file:///etc/passwd"`, invalid, 400, "callback"),
		both("a callback with a line break", `,"callback":"http://127.0.0.1/\r\nX: y","callbackUrl":"http://127.0.0.1/\r\nX: y"`, invalid, 400, "callback"),
		both("a callback that is no string", `,"callback":1,"callbackUrl":1`, invalid, 400, "callback"),
	}
	for i := range rows {
		if rows[i].field == "callback" {
			rows[i].snake = "callbackUrl"
		}
	}
	for _, bad := range []string{"-1", "1.5", "1e18", `"1000"`, "86400001", "true", "1e-1", "99999999999999999999", "{}"} {
		rows = append(rows, both("timeout "+bad, `,"timeout":`+bad, invalid, 400, "timeout"))
	}
	for _, good := range []string{"0", "null", "1e4", "1000.0", "86400000", "100e2"} {
		rows = append(rows, both("timeout "+good, `,"timeout":`+good, "", 200, ""))
	}
	for _, bad := range []string{`"URGENT"`, `"high"`, "1"} {
		rows = append(rows, both("priority "+bad, `,"priority":`+bad, invalid, 400, "priority"))
	}
	return append(rows, both("whenOffline", `,"whenOffline":"WAIT"`, invalid, 400, "whenOffline"))
}

// TestWrongCommands sends every kind of bad command over either way: each is refused
// with its code, the connection stays, nothing reaches the edge, and the requestRef
// "r" is not used up: those that are good, between them, are accepted.
func TestWrongCommands(t *testing.T) {
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	away := f.edge("edge-2", "td-09")
	_ = away.conn.Close()
	backend.news("CONNECTION_STATUS", "edge-2", "OFFLINE")
	n := 0
	for _, row := range wrongCommands() {
		if row.ws != "" {
			n++
			row.overWebSocket(t, backend, edge, n)
		}
		if row.http != "" {
			n++
			row.overHTTP(t, f, edge, n)
		}
	}
	edge.quiet()
}

// numbered gives a good command a requestRef of its own.
func numbered(msg string, n int) (string, string) {
	ref := "good-" + strconv.Itoa(n)
	return strings.Replace(msg, `"requestRef":"r"`, `"requestRef":"`+ref+`"`, 1), ref
}

func (w *wrong) overWebSocket(t *testing.T, backend, edge *party, n int) {
	t.Helper()
	msg, ref := w.ws, "r"
	if w.code == "" {
		msg, ref = numbered(msg, n)
	}
	backend.send(msg)
	if w.code == "" {
		edge.expectCommand(ref)
		edge.respond(ref)
		backend.expect("COMMAND_RESPONSE")
		return
	}
	m := backend.expect("ERROR")
	if m.str("code") != w.code || m.str("details.field") != w.field || (m.str("requestRef") == "r") != w.ref {
		t.Errorf("%s: got %s, want %s, field %q, ref %t", w.name, m.raw, w.code, w.field, w.ref)
	}
	backend.quiet()
}

func (w *wrong) overHTTP(t *testing.T, f *fixture, edge *party, n int) {
	t.Helper()
	body, ref := w.http, "r"
	if w.code == "" {
		body, ref = numbered(body, n)
	}
	code := strings.Replace(w.code, "INVALID_MESSAGE", "INVALID_REQUEST", 1)
	field := w.field
	if w.snake != "" {
		field = w.snake
	}
	a := f.call("POST", "/api/commands", body)
	if w.code == "" {
		if a.status != 200 {
			t.Errorf("%s over HTTP: %d %s", w.name, a.status, a.body)
			return
		}
		edge.expectCommand(ref)
		edge.respond(ref)
		return
	}
	if a.status != w.status || a.str("code") != code || a.str("details.field") != field {
		t.Errorf("%s over HTTP: %d %s, want %d %s, field %q", w.name, a.status, a.body, w.status, code, field)
	}
}

// TestInvalidUTF8 tells text from binary: the one closes, the other is a bad message.
func TestInvalidUTF8(t *testing.T) {
	f := start(t, nil)
	f.edge("edge-1", "td-01")
	backend := f.backend("backend-1")
	for _, bad := range []string{"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"} {
		backend.write(frame(ws.OpBinary, true, []byte(`{"type":"HEARTBEAT","a":"`+bad+`"}`)))
		backend.expectError("INVALID_MESSAGE")
	}
	backend.write(frame(ws.OpBinary, true, []byte(`{"type":"HEARTBEAT"}`)))
	backend.expect("HEARTBEAT_ACK")
	backend.write(frame(ws.OpText, true, []byte(`{"type":"HEARTBEAT","a":"`+"\xff"+`"}`)))
	backend.wantClose(1007)
}
