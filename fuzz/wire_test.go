// Package fuzz holds the fuzz targets of the whole tree, with their corpora.
// Each compares with a dumb second reading that shares no code with ours:
//
//	go test ./fuzz -fuzz FuzzMessage -fuzztime 1m
package fuzz

import (
	"bytes"
	"encoding/json"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"subway/core/wire"
)

// member is a top-level member as encoding/json reads it.
type member struct {
	name     string
	raw      string
	off, end int
}

// read is the oracle for JSON: the top-level members of an object that is at
// most maxDepth deep.
func read(msg []byte, maxDepth int) (members []member, ok bool) {
	if !json.Valid(msg) || !strings.HasPrefix(strings.TrimLeft(string(msg), " \t\r\n"), "{") || depth(msg) > maxDepth {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(msg))
	dec.Token()
	for dec.More() {
		name, _ := dec.Token()
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return nil, false
		}
		end := int(dec.InputOffset())
		members = append(members, member{name.(string), string(raw), end - len(raw), end})
	}
	return members, true
}

// depth counts the levels of valid JSON.
func depth(msg []byte) (most int) {
	level, inString := 0, false
	for i := 0; i < len(msg); i++ {
		switch c := msg[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			level++
			most = max(most, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return most
}

func text(raw string) (s string, ok bool) {
	return s, strings.HasPrefix(raw, `"`) && json.Unmarshal([]byte(raw), &s) == nil
}

// names is PROTOCOL.md section 3 once more, in words.
var names = map[string]string{
	"REGISTER":          "clientId clientType edgeInfo deviceInfo token devices capabilities",
	"UNREGISTER":        "clientId",
	"COMMAND":           "targetClientId sourceClientId command priority timeout callback whenOffline ack",
	"COMMAND_RESPONSE":  "status result executionTime error callback sourceClientId",
	"PROGRESS_UPDATE":   "progress stage message callback sourceClientId",
	"CANCEL":            "targetClientId",
	"DEVICE_STATUS":     "clientId status",
	"HEARTBEAT":         "",
	"ERROR":             "code message details",
	"REGISTER_ACK":      "clientId clientType status sessionId epoch heartbeatInterval",
	"COMMAND_ACK":       "targetClientId status",
	"CONNECTION_STATUS": "clientId clientType edgeId status reason lastSeen devices",
	"HEARTBEAT_ACK":     "",
}

var (
	versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	majorOne    = regexp.MustCompile(`^0*1\.`)
	refForm     = regexp.MustCompile(`^[!-~]{1,128}$`)
	numberForm  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

func count(members []member, name string) (n int, last string) {
	for _, m := range members {
		if m.name == name {
			n, last = n+1, m.raw
		}
	}
	return n, last
}

// inside counts a member of the object that is a member's value.
func inside(members []member, outer, name string) int {
	_, raw := count(members, outer)
	in, _ := read([]byte(raw), 1<<20)
	n, _ := count(in, name)
	return n
}

// judge is the oracle for Scan's rules: the codes and fields of all the faults
// that a message has, of which Scan tells one.
func judge(members []member) (kind string, faults []string) {
	_, raw := count(members, "type")
	kind, _ = text(raw)
	named, known := names[kind]
	if !known {
		return "", []string{"INVALID_MESSAGE type"}
	}
	for _, name := range strings.Fields("type version timestamp requestRef " + named) {
		if n, _ := count(members, name); n > 1 {
			faults = append(faults, "INVALID_MESSAGE "+name)
		}
	}
	if kind == "COMMAND" && inside(members, "command", "commandType") > 1 {
		faults = append(faults, "INVALID_MESSAGE command.commandType")
	}
	if kind == "REGISTER" && inside(members, "edgeInfo", "edgeId") > 1 {
		faults = append(faults, "INVALID_MESSAGE edgeInfo.edgeId")
	}
	if n, raw := count(members, "version"); n > 0 && raw != "null" {
		v, ok := text(raw)
		switch {
		case !ok || !versionForm.MatchString(v):
			faults = append(faults, "INVALID_MESSAGE version")
		case !majorOne.MatchString(v):
			faults = append(faults, "UNSUPPORTED_VERSION version")
		}
	}
	if n, raw := count(members, "requestRef"); n > 0 && raw != "null" {
		if v, ok := text(raw); !ok || !refForm.MatchString(v) {
			faults = append(faults, "INVALID_MESSAGE requestRef")
		}
	}
	return kind, faults
}

var messages = []string{
	`{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-001","edgeVersion":"1.3.0"},"deviceInfo":{"model":"P3"},"version":"1.0"}`,
	`{"type":"REGISTER","clientId":"e","clientType":"EDGE","devices":["td-01",{"clientId":"td-02","deviceInfo":{}}],"capabilities":["dedupe"],"token":"t"}`,
	`{"type":"COMMAND","requestRef":"cmd-1","targetClientId":"td-01","sourceClientId":"b","command":{"commandType":"T","value":80},"priority":"NORMAL","timeout":3e4,"callback":"http://h/cb","timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"}`,
	`{"type":"COMMAND","requestRef":null,"targetClientId":"td-01","sourceClientId":null,"command":{"commandType":"T"},"priority":null,"timeout":null,"whenOffline":"QUEUE","ack":true,"timestamp":null,"version":null}`,
	`{"t\u0079pe":"COMM\u0041ND","command":{"commandType":"A","commandType":"B"},"priority":"LOW","priority":"LOW"}`,
	`{"type":"COMMAND_RESPONSE","requestRef":"r","status":"FAILED","result":[1,-2.5e+3,true,null,"\ud83d\ude00"],"error":{"code":"A"},"executionTime":42}`,
	` { "type" : "PROGRESS_UPDATE" , "requestRef" : "r" , "progress" : 33.3 } `,
	`{"type":"CANCEL","requestRef":"r","targetClientId":"td-01","version":"2.0"}`,
	`{"type":"DEVICE_STATUS","clientId":"td-01","status":{"temp":36.50}}`,
	`{"type":"ERROR","code":"A","message":"m","details":{"a":[[[[]]]]},"requestRef":"a b"}`,
	`{"type":"HEARTBEAT","x":"\x00"}`, `{"type":"HEARTBEAT","version":"1.9","requestRef":"` + strings.Repeat(`\u0072`, 128) + `"}`, `[]`, `{`, ``,
	`{"type":"HEARTBEAT","x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`,
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		var e wire.Envelope
		e.Scan([]byte(messages[len(msg)%len(messages)]), wire.DefaultMaxDepth) // what it learns must not matter
		if len(msg)%3 > 0 {
			msg = append(msg[:len(msg):len(msg)], strings.Repeat(" ", 64)...) // a short message is read in another way
		}
		fault, _ := e.Scan(msg, wire.DefaultMaxDepth).(*wire.Fault)
		members, ok := read(msg, wire.DefaultMaxDepth)
		if !ok {
			if fault == nil || fault.Field != "" || e.Ref(nil) != nil {
				t.Fatalf("no JSON object, yet %v, requestRef %q", fault, e.Ref(nil))
			}
			return
		}
		kind, faults := judge(members)
		switch {
		case fault == nil && len(faults) > 0:
			t.Fatalf("passed, want one of %q", faults)
		case fault != nil && !slices.Contains(faults, fault.Code.String()+" "+fault.Field):
			t.Fatalf("%v, field %q, want one of %q", fault, fault.Field, faults)
		}
		n, raw := count(members, "requestRef")
		want, _ := text(raw)
		if n != 1 || !refForm.MatchString(want) {
			want = ""
		}
		if string(e.Ref(nil)) != want {
			t.Fatalf("requestRef %q, want %q", e.Ref(nil), want)
		}
		if fault == nil {
			sameMembers(t, &e, kind, members)
			readAll(&e)
		}
	})
}

// sameMembers compares what Scan found with the oracle's members.
func sameMembers(t *testing.T, e *wire.Envelope, kind string, members []member) {
	if e.Type.String() != kind || e.Msg[e.Close()] != '}' || strings.TrimRight(string(e.Msg[e.Close():]), " \t\r\n") != "}" {
		t.Fatalf("type %v, want %s; closes at %d", e.Type, kind, e.Close())
	}
	for m := wire.Member(0); m.Name() != ""; m++ {
		n, raw := count(members, m.Name())
		v := e.Value(m)
		if (n > 0) != (v.Kind != wire.KindAbsent) || n > 0 && string(e.Msg[v.Off:v.End]) != raw {
			t.Fatalf("%s: %+v, want %s", m.Name(), v, raw)
		}
		if n > 0 && e.Has(m) != (raw != "null") {
			t.Fatalf("%s: Has %v", m.Name(), e.Has(m))
		}
		want, isText := text(raw)
		if got, ok := e.Str(m, nil); ok != isText || utf8.ValidString(raw) && string(got) != want {
			t.Fatalf("%s: %q, want %q", m.Name(), got, want)
		}
	}
}

// readAll reads the message as each of the types: none may panic.
func readAll(e *wire.Envelope) {
	var s wire.Scratch
	e.Command(new(wire.Command), &s)
	e.Cancel(new(wire.Cancel), &s)
	e.Response(new(wire.Response), &s)
	e.Progress(new(wire.Progress), &s)
	e.DeviceStatus(new(wire.DeviceStatus), &s)
	e.ErrorMessage(new(wire.ErrorMessage), &s)
	e.ClientID(&s)
	e.EdgeVersion(nil)
	n, r := 0, new(wire.Register)
	fault := e.Register(r, &s)
	each := e.EachDevice(func(_, _ []byte) bool { n++; return true })
	if fault == nil && (each != nil || r.HasDevices && n != r.DeviceCount) {
		panic("Register passed what EachDevice does not")
	}
}

func FuzzForward(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m), uint8(1), int64(30000), int64(1705744800123456789))
	}
	f.Fuzz(func(t *testing.T, msg []byte, p uint8, timeoutMs, now int64) {
		var e wire.Envelope
		if e.Scan(msg, wire.DefaultMaxDepth) != nil || e.Type != wire.TypeCommand {
			return
		}
		a := wire.Additions{Source: []byte("backend-1"), Ref: []byte(`cmd-"\1`), Priority: wire.Priority(p % 3), TimeoutMs: timeoutMs, Now: wire.Time(now)}
		values := map[string]string{
			"sourceClientId": `"backend-1"`, "requestRef": `"cmd-\"\\1"`, "priority": `"` + a.Priority.String() + `"`,
			"timeout": new(big.Int).SetInt64(timeoutMs).String(), "timestamp": `"` + string(wire.AppendTime(nil, a.Now)) + `"`, "version": `"1.0"`,
		}
		out := e.AppendForward(nil, &a)
		members, _ := read(msg, wire.DefaultMaxDepth)
		var want []byte // the message with its nulls replaced, without its end
		at := 0
		for _, m := range members {
			if v, ours := values[m.name]; ours && m.raw == "null" {
				want = append(append(want, msg[at:m.off]...), v...)
				at = m.end
			}
		}
		want = append(want, msg[at:e.Close()]...)
		if !bytes.HasPrefix(out, want) || !bytes.HasSuffix(out, msg[e.Close():]) {
			t.Fatalf("not as it came: %q became %q", msg, out)
		}
		got, ok := read(out, wire.DefaultMaxDepth)
		if !ok {
			t.Fatalf("no JSON: %q", out)
		}
		for name, v := range values {
			n, raw := count(got, name)
			before, was := count(members, name)
			if n != 1 || before == 0 && raw != v || before == 1 && was != "null" && raw != was {
				t.Fatalf("%s stands %d times, %s, was %s", name, n, raw, was)
			}
		}
		if !e.HasNulls() {
			fast := append(e.AppendAdditions(bytes.Clone(msg[:e.Close()]), &a), msg[e.Close():]...)
			if !bytes.Equal(fast, out) {
				t.Fatalf("inserted: %q, forwarded: %q", fast, out)
			}
		}
	})
}

func FuzzHTTPBody(f *testing.F) {
	for _, b := range []string{
		`{"target_client_id":"td-01","command":{"commandType":"T"},"callback_url":"http://h/","priority":"HIGH","timeout":1e3,"request_ref":"r","when_offline":"QUEUE"}`,
		`{"targetClientId":"td-01","command":{"command\u0054ype":"T","commandType":"T"},"callbackUrl":null,"requestRef":"a b","whenOffline":"REJECT"}`,
		`{"commands":[{"target_client_id":"a","command":{"commandType":"T"}},7]}`,
		`{"command":{"commandType":"T"},"targets":["td-01","td-*","\u0061"],"timeout":0}`,
		`{"commands":[],"targets":[]}`, `{}`, `[]`, ``, "{\"targetClientId\":\"\xff\"}",
	} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c wire.HTTPCommand
		var s wire.Scratch
		fault := wire.ParseHTTPCommand(body, wire.DefaultMaxDepth, &c, &s)
		members, ok := read(body, wire.DefaultMaxDepth)
		if ok = ok && utf8.Valid(body); !ok && fault == nil {
			t.Fatalf("passed what is no JSON object")
		}
		if fault != nil && (fault.Code != wire.CodeInvalidRequest || (fault.Field == "") == ok) {
			t.Fatalf("%v, field %q", fault, fault.Field)
		}
		if fault == nil {
			sameCommand(t, &c, members)
		}
		sameBatch(t, body, ok)
	})
}

// sameCommand compares a body that passed with the oracle's members, and with
// the COMMAND that is made of it.
func sameCommand(t *testing.T, c *wire.HTTPCommand, members []member) {
	for _, two := range [][2]string{{"target_client_id", "targetClientId"}, {"command"}, {"callback_url", "callbackUrl"}, {"priority"}, {"timeout"},
		{"request_ref", "requestRef"}, {"when_offline", "whenOffline"}} {
		a, _ := count(members, two[0])
		b := 0
		if two[1] != "" {
			b, _ = count(members, two[1])
		}
		if a+b > 1 {
			t.Fatalf("%q stand %d times", two, a+b)
		}
	}
	if inside(members, "command", "commandType") != 1 {
		t.Fatal("commandType")
	}
	ref := c.Ref
	if ref == nil {
		ref = []byte("made")
	}
	msg := wire.AppendHTTPCommand(nil, ref, c.Target, c.CommandRaw, c.Priority, c.TimeoutMs, c.Callback, c.Queue, 1)
	var e wire.Envelope
	var back wire.Command
	var s wire.Scratch
	if err := e.Scan(msg, wire.DefaultMaxDepth); err != nil || e.HasNulls() {
		t.Fatalf("%q: %v", msg, err)
	}
	if f := e.Command(&back, &s); f != nil {
		t.Fatalf("%q: %v", msg, f)
	}
	if !bytes.Equal(back.Target, c.Target) || !bytes.Equal(back.CommandType, c.CommandType) || !bytes.Equal(back.Callback, c.Callback) || !bytes.Equal(back.Ref, ref) ||
		back.Priority != c.Priority || back.TimeoutMs != c.TimeoutMs || back.Queue != c.Queue {
		t.Fatalf("%+v became %+v", c.Command, back)
	}
}

func sameBatch(t *testing.T, body []byte, ok bool) {
	var b wire.HTTPBatch
	var s wire.Scratch
	fault := wire.ParseHTTPBatch(body, wire.DefaultMaxDepth, &b, &s)
	if fault != nil {
		if fault.Code != wire.CodeInvalidRequest || (fault.Field == "") == ok {
			t.Fatalf("%v, field %q", fault, fault.Field)
		}
		return
	}
	if !ok {
		t.Fatal("a batch that is no JSON object")
	}
	n := 0
	var c, alone wire.HTTPCommand
	var s2 wire.Scratch
	b.EachItem(&c, &s, func(item []byte, fault *wire.Fault) bool {
		n++
		if !json.Valid(item) {
			t.Fatalf("item %q", item)
		}
		if f := wire.ParseHTTPCommand(item, wire.DefaultMaxDepth-2, &alone, &s2); !reflect.DeepEqual(f, fault) || !reflect.DeepEqual(c, alone) {
			t.Fatalf("item %q: %v and %v, %+v and %+v", item, fault, f, c, alone)
		}
		return true
	})
	b.EachTarget(func([]byte) bool { n++; return true })
	if n != b.Count {
		t.Fatalf("%d items, Count %d", n, b.Count)
	}
}

func FuzzInteger(f *testing.F) {
	for _, s := range []string{"1000", "1000.0", "1e3", "20000e-1", "-5", "1.5", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "0.001e3", "1e400", "01", "0e9", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := wire.ParseInteger([]byte(s))
		if !numberForm.MatchString(s) {
			if _, isNumber := wire.ParseNumber([]byte(s)); ok || isNumber {
				t.Fatalf("%q is a number: %d", s, v)
			}
			return
		}
		if i := strings.IndexAny(s, "eE"); len(s) > 1000 || i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > 3 {
			return // too much for the oracle
		}
		want, _ := new(big.Rat).SetString(s)
		if fits := want.IsInt() && want.Num().IsInt64(); ok != fits || ok && v != want.Num().Int64() {
			t.Fatalf("%q: %d, %v, want %v", s, v, ok, want)
		}
		float, finite := wire.ParseNumber([]byte(s))
		if exact, _ := want.Float64(); finite && float != exact {
			t.Fatalf("%q: %v, want %v", s, float, exact)
		}
	})
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\\n\x00</é😀", "\xff\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := wire.AppendString(nil, s)
		if !bytes.Equal(out, wire.AppendString(nil, []byte(s))) {
			t.Fatal("string and bytes differ")
		}
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != string([]rune(s)) {
			t.Fatalf("%q became %s, read %q, %v", s, out, back, err)
		}
	})
}
