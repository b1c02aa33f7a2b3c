package wire

import (
	"strings"
	"testing"
)

func TestScanFindsMembers(t *testing.T) {
	e := scan(t, ` { "timeout" : 1e3 , "requestRef":"\u0063md-1","x":{"type":"ERROR"},"command": {"a":{"commandType":"no"},"commandType":"S\u0045T"} ,
		"priority":null,"t\u0079pe":"COMM\u0041ND","ack":true,"callback":""} `)
	if e.Type != TypeCommand {
		t.Errorf("Type = %v", e.Type)
	}
	f := func(m Member, kind Kind, raw string) {
		t.Helper()
		if v := e.Value(m); v.Kind != kind {
			t.Errorf("%s: kind %d, want %d", m.Name(), v.Kind, kind)
		}
		if got := string(e.Raw(m)); got != raw {
			t.Errorf("Raw(%s) = %s, want %s", m.Name(), got, raw)
		}
		if e.Has(m) != (raw != "") {
			t.Errorf("Has(%s) = %v", m.Name(), e.Has(m))
		}
	}
	f(MemberTimeout, KindNumber, "1e3")
	f(MemberRequestRef, KindString, `"\u0063md-1"`)
	f(MemberCommand, KindObject, `{"a":{"commandType":"no"},"commandType":"S\u0045T"}`)
	f(MemberPriority, KindNull, "")
	f(MemberType, KindString, `"COMM\u0041ND"`)
	f(MemberAck, KindBool, "true")
	f(MemberCallback, KindString, `""`)
	f(MemberTargetClientID, KindAbsent, "")
	f(numMembers, KindAbsent, "")
	f(255, KindAbsent, "")

	scratch := make([]byte, 0, 64)
	if s, ok := e.Str(MemberRequestRef, scratch); !ok || string(s) != "cmd-1" || &s[0] != &scratch[:1][0] {
		t.Errorf("Str(requestRef) = %q, %v, or not in scratch", s, ok)
	}
	if s, ok := e.Str(MemberTimeout, scratch); ok {
		t.Errorf("Str(timeout) = %q", s)
	}
	if s, ok := e.CommandType(nil); !ok || string(s) != "SET" {
		t.Errorf("CommandType = %q, %v", s, ok)
	}
	if v := e.CommandTypeValue(); !v.Escaped || string(v.raw(e.Msg)) != `"S\u0045T"` {
		t.Errorf("CommandTypeValue = %+v", v)
	}
	if _, ok := e.EdgeID(nil); ok || e.EdgeIDValue().Kind != KindAbsent {
		t.Error("an edgeId in a COMMAND")
	}
	if e.Close() != strings.LastIndexByte(string(e.Msg), '}') {
		t.Errorf("Close = %d", e.Close())
	}
	if s, ok := e.Str(MemberCallback, nil); !ok || s == nil || len(s) != 0 {
		t.Errorf("Str of an empty string = %v, %v", s, ok)
	}
}

func TestScanResets(t *testing.T) {
	e := scan(t, `{"type":"REGISTER","requestRef":"r","edgeInfo":{"edgeId":"e","edgeVersion":"1"},"devices":null}`)
	if id, ok := e.EdgeID(nil); !ok || string(id) != "e" {
		t.Errorf("EdgeID = %q", id)
	}
	if v, ok := e.EdgeVersion(nil); !ok || string(v) != "1" || e.EdgeVersionValue().Kind != KindString {
		t.Errorf("EdgeVersion = %q", v)
	}
	if err := e.Scan([]byte(`{"type":"HEARTBEAT"}`), 64); err != nil {
		t.Fatal(err)
	}
	if _, ok := e.EdgeID(nil); ok || e.Ref(nil) != nil || e.Value(MemberDevices).Kind != KindAbsent || e.Has(MemberEdgeInfo) {
		t.Error("members of the message before are still there")
	}
	if err := e.Scan([]byte(`{"type":"HEARTBEAT","requestRef":"r"`), 64); err == nil || e.Ref(nil) != nil || e.Has(MemberType) || e.Close() != 0 || e.Type != TypeUnknown {
		t.Error("members of a message that is no JSON")
	}
}

func TestEveryNameIsRead(t *testing.T) {
	for m := range numMembers {
		if got := parseMember([]byte(m.Name())); got != m || m.Name() == "" || len(m.Name()) > longestName {
			t.Errorf("member %d %q is read as %d", m, m.Name(), got)
		}
		if got := parseMember([]byte(strings.ToUpper(m.Name()))); got != numMembers {
			t.Errorf("%q in upper case is read as %d", m.Name(), got)
		}
	}
	for ty := TypeUnknown + 1; ty < numTypes; ty++ {
		if got := parseType([]byte(ty.String())); got != ty {
			t.Errorf("type %d %q is read as %d", ty, ty, got)
		}
		if e := scan(t, `{"type":"`+ty.String()+`"}`); e.Type != ty {
			t.Errorf("Scan reads %v as %v", ty, e.Type)
		}
		if ty.ToGateway() != (ty <= TypeError) {
			t.Errorf("ToGateway(%v) = %v", ty, ty.ToGateway())
		}
	}
	if TypeUnknown.ToGateway() || Type(200).String() != "UNKNOWN" || Member(200).Name() != "" {
		t.Error("what is out of range")
	}
	if numMembers > 64 {
		t.Error("more members than bits")
	}
}

func TestScanWantsAKnownType(t *testing.T) {
	for _, msg := range []string{
		`{}`, ` { } `, `{"type":null}`, `{"type":7}`, `{"type":"NOPE"}`, `{"type":""}`, `{"type":"heartbeat"}`, `{"type":["HEARTBEAT"]}`, `{"type":{"a":1}}`,
		`{"type":"HEARTBEAT "}`, `{"Type":"HEARTBEAT"}`, `{"x":{"type":"HEARTBEAT"}}`, `{"type":"UNKNOWN"}`, `{"type":"\ud800"}`, `{"type":"HEARTBEAT\u0000"}`,
		`{"type":"` + strings.Repeat(`\u0041`, 100_000) + `"}`, `{"typ\u0065\u0000":"HEARTBEAT"}`,
	} {
		wantFault(t, msg, scanFault(msg), "INVALID_MESSAGE", "type")
	}
}

func TestScanTwice(t *testing.T) {
	f := func(msg, field string) {
		t.Helper()
		code := ""
		if field != "" {
			code = "INVALID_MESSAGE"
		}
		wantFault(t, msg, scanFault(msg), code, field)
	}
	for ty := TypeUnknown + 1; ty < numTypes; ty++ {
		for m := range numMembers {
			field := ""
			if named[ty]>>m&1 != 0 {
				field = m.Name()
			}
			head, twice := `"type":"`+ty.String()+`"`, `"`+m.Name()+`":null,"`+m.Name()+`":{}`
			if m == MemberType {
				twice = head
			}
			f("{"+head+","+twice+"}", field)
			f("{"+twice+","+head+"}", field)
		}
	}
	f(`{"type":"COMMAND","t\u0079pe":"COMMAND"}`, "type")
	f(`{"targetClient\u0049d":"a","type":"COMMAND","targetClientId":"b"}`, "targetClientId")
	f(`{"type":"COMMAND","x":1,"x":2,"Timeout":1,"Timeout":2}`, "")
	f(`{"type":"COMMAND","command":{"commandType":"A","commandType":"B"}}`, "command.commandType")
	f(`{"type":"COMMAND","command":{"commandType":null,"x":1,"command\u0054ype":"A"}}`, "command.commandType")
	f(`{"type":"COMMAND","command":{"commandType":"A","k":{"commandType":"B","commandType":"C"},"v":1,"v":2,"edgeId":1,"edgeId":2}}`, "")
	f(`{"type":"REGISTER","command":{"commandType":"A","commandType":"B"}}`, "")
	f(`{"type":"REGISTER","edgeInfo":{"edgeId":"A","edgeId":"A"}}`, "edgeInfo.edgeId")
	f(`{"type":"REGISTER","edgeInfo":{"edgeVersion":"A","edgeVersion":"B","edgeId":"A"}}`, "")
	f(`{"type":"COMMAND","edgeInfo":{"edgeId":"A","edgeId":"B"}}`, "")
}

func TestScanVersion(t *testing.T) {
	f := func(version, code string) {
		t.Helper()
		field := ""
		if code != "" {
			field = "version"
		}
		wantFault(t, version, scanFault(`{"type":"HEARTBEAT","version":`+version+`}`), code, field)
	}
	for _, v := range []string{`null`, `"1.0"`, `"1.9"`, `"1.123456789012345678901234567890123456789012"`, `"\u0031.0"`, `"01.0"`} {
		f(v, "")
	}
	for _, v := range []string{`"2.0"`, `"0.9"`, `"10.0"`, `"11.0"`, `"99999999999999999999999999.0"`} {
		f(v, "UNSUPPORTED_VERSION")
	}
	for _, v := range []string{`1`, `1.0`, `true`, `["1.0"]`, `{}`, `"abc"`, `""`, `"1"`, `"1."`, `".0"`, `"."`, `"1.0.0"`, `"v1.0"`, `" 1.0"`, `"1.0 "`, `"-1.0"`, `"1,0"`, `"１.0"`} {
		f(v, "INVALID_MESSAGE")
	}
}

func TestScanRef(t *testing.T) {
	f := func(members, code, field, ref string) {
		t.Helper()
		var e Envelope
		msg := `{"type":"HEARTBEAT",` + members + `}`
		fault, _ := e.Scan([]byte(msg), 64).(*Fault)
		wantFault(t, msg, fault, code, field)
		if got := string(e.Ref(nil)); got != ref {
			t.Errorf("%s: Ref = %q, want %q", msg, got, ref)
		}
		if s, _ := e.Str(MemberRequestRef, nil); string(s) != ref {
			t.Errorf("%s: Str(requestRef) = %q, want %q", msg, s, ref)
		}
	}
	long := strings.Repeat("r", 128)
	f(`"requestRef":"cmd-1"`, "", "", "cmd-1")
	f(`"requestRef":null`, "", "", "")
	f(`"requestRef":"`+long+`"`, "", "", long)
	f(`"requestRef":"`+strings.Repeat(`\u0072`, 128)+`"`, "", "", long)
	f(`"requestRef":"\"\\\/!~"`, "", "", `"\/!~`)
	for _, bad := range []string{`""`, `7`, `true`, `{}`, `["r"]`, `"a b"`, `"a\u0000"`, `"é"`, `"\u00e9"`, `"\u007f"`, `"` + long + `r"`, `"` + strings.Repeat(`\u0072`, 129) + `"`, `"\ud800"`} {
		f(`"requestRef":`+bad, "INVALID_MESSAGE", "requestRef", "")
	}
	// another fault comes first; the ref that it answers is told if it is one
	f(`"requestRef":"r","version":"2.0"`, "UNSUPPORTED_VERSION", "version", "r")
	f(`"requestRef":"r","version":7`, "INVALID_MESSAGE", "version", "r")
	f(`"requestRef":"a b","version":7`, "INVALID_MESSAGE", "version", "")
	f(`"requestRef":"r","type":"X"`, "INVALID_MESSAGE", "type", "r")
	f(`"requestRef":"r","timestamp":1,"timestamp":2`, "INVALID_MESSAGE", "timestamp", "r")
	f(`"requestRef":"r","requestRef":"r"`, "INVALID_MESSAGE", "requestRef", "")
	f(`"requestRef":"r","requestRef":null,"version":3`, "INVALID_MESSAGE", "requestRef", "")
}
