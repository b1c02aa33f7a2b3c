package wire

import (
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	var c Command
	var s Scratch
	e := scan(t, `{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"}}`)
	wantFault(t, "the shortest COMMAND", e.Command(&c, &s), "", "")
	if string(c.Target) != "td-01" || string(c.CommandType) != "T" || c.Ref != nil || c.Source != nil || c.Callback != nil ||
		c.Priority != PriorityNormal || c.TimeoutMs != 30000 || c.Queue || c.Ack {
		t.Errorf("defaults: %+v", c)
	}
	e = scan(t, `{"type":"COMMAND","requestRef":"\u0063md","targetClientId":"\u0074d-01","sourceClientId":"b\u002d1","command":{"commandType":"\u0054"},
		"priority":"\u0048IGH","timeout":864e5,"callback":"http:\/\/h/","whenOffline":"QU\u0045UE","ack":true}`)
	wantFault(t, "escapes", e.Command(&c, &s), "", "")
	if string(c.Target) != "td-01" || string(c.CommandType) != "T" || string(c.Ref) != "cmd" || string(c.Source) != "b-1" || string(c.Callback) != "http://h/" ||
		c.Priority != PriorityHigh || c.TimeoutMs != 86_400_000 || !c.Queue || !c.Ack {
		t.Errorf("escapes: %+v", c)
	}
	e = scan(t, `{"type":"COMMAND","requestRef":null,"targetClientId":"a","sourceClientId":null,"command":{"commandType":"T"},"priority":null,
		"timeout":null,"callback":null,"whenOffline":null,"ack":null}`)
	wantFault(t, "nulls", e.Command(&c, &s), "", "")
	if c.Ref != nil || c.Source != nil || c.Callback != nil || c.Priority != PriorityNormal || c.TimeoutMs != 30000 || c.Queue || c.Ack {
		t.Errorf("nulls: %+v", c)
	}
}

func TestCommandFaults(t *testing.T) {
	f := func(members, field string) {
		t.Helper()
		var c Command
		var s Scratch
		e := scan(t, `{"type":"COMMAND",`+members+`}`)
		code := "INVALID_MESSAGE"
		if field == "" {
			code = ""
		}
		wantFault(t, members, e.Command(&c, &s), code, field)
	}
	const good = `"targetClientId":"td-01","command":{"commandType":"T"},`
	f(`"command":{"commandType":"T"}`, "targetClientId")
	for _, id := range []string{`null`, `7`, `""`, `"a b"`, `"td-*"`, `["a"]`, `"é"`, `"a\n"`, `"` + strings.Repeat("a", 129) + `"`, `"` + strings.Repeat(`\u0061`, 129) + `"`} {
		f(`"targetClientId":`+id+`,"command":{"commandType":"T"}`, "targetClientId")
	}
	f(`"targetClientId":"`+strings.Repeat("a", 128)+`","command":{"commandType":"T"}`, "")
	f(`"targetClientId":"td-01"`, "command")
	for _, v := range []string{`null`, `"T"`, `["T"]`, `7`, `true`} {
		f(`"targetClientId":"td-01","command":`+v, "command")
	}
	for _, v := range []string{`{}`, `{"commandType":null}`, `{"commandType":""}`, `{"commandType":7}`, `{"CommandType":"T"}`, `{"x":{"commandType":"T"}}`} {
		f(`"targetClientId":"td-01","command":`+v, "command.commandType")
	}
	for _, v := range []string{`-1`, `1.5`, `0.5`, `"1000"`, `86400001`, `8.64e8`, `true`, `[1]`, `1e20`, `1e400`, `1e-3`, `15e-1`, `1000.5`} {
		f(good+`"timeout":`+v, "timeout")
	}
	for _, v := range []string{`0`, `0.0`, `-0`, `1`, `1e3`, `1000.0`, `8.64e7`} {
		f(good+`"timeout":`+v, "")
	}
	for _, v := range []string{`"URGENT"`, `"high"`, `""`, `7`, `["HIGH"]`, `"HIGH "`} {
		f(good+`"priority":`+v, "priority")
	}
	for _, v := range []string{`"queue"`, `"DROP"`, `""`, `1`, `true`, `["QUEUE"]`} {
		f(good+`"whenOffline":`+v, "whenOffline")
	}
	for _, v := range []string{`""`, `1`, `{}`} {
		f(good+`"callback":`+v, "callback")
	}
	for _, v := range []string{`"true"`, `1`, `0`, `{}`} {
		f(good+`"ack":`+v, "ack")
	}
	f(good+`"ack":false,"whenOffline":"REJECT","priority":"LOW"`, "")
	f(good+`"sourceClientId":7`, "sourceClientId")
	f(good+`"sourceClientId":"no id"`, "") // whose it is, is for the router to judge
}

func TestCancel(t *testing.T) {
	f := func(members, ref, target, field string) {
		t.Helper()
		var c Cancel
		var s Scratch
		fault := scan(t, `{"type":"CANCEL"`+members+`}`).Cancel(&c, &s)
		code := ""
		if field != "" {
			code = "INVALID_MESSAGE"
		}
		wantFault(t, members, fault, code, field)
		if fault == nil && (string(c.Ref) != ref || string(c.Target) != target) {
			t.Errorf("%s: %q %q", members, c.Ref, c.Target)
		}
	}
	f(`,"requestRef":"r","targetClientId":"td-01"`, "r", "td-01", "")
	f(`,"requestRef":"r"`, "r", "", "")
	f(`,"requestRef":"r","targetClientId":null`, "r", "", "")
	f(``, "", "", "requestRef")
	f(`,"requestRef":null`, "", "", "requestRef")
	f(`,"requestRef":"r","targetClientId":"a b"`, "", "", "targetClientId")
}

func TestPriority(t *testing.T) {
	for _, p := range []Priority{PriorityLow, PriorityNormal, PriorityHigh} {
		if got, ok := ParsePriority([]byte(p.String())); got != p || !ok {
			t.Errorf("%v is read as %v, %v", p, got, ok)
		}
	}
	if _, ok := ParsePriority([]byte("low")); ok {
		t.Error("low is read")
	}
}

func TestScratchIsBounded(t *testing.T) {
	var s Scratch
	var c Command
	big := strings.Repeat(`\n`, maxScratch+1)
	e := scan(t, `{"type":"COMMAND","targetClientId":"\u0061","command":{"commandType":"`+big+`"},"callback":"\u0062"}`)
	wantFault(t, "a long commandType", e.Command(&c, &s), "", "")
	if string(c.Target) != "a" || len(c.CommandType) != maxScratch+1 || string(c.Callback) != "b" {
		t.Error("strings were lost when the scratch grew")
	}
	if s.reset(); cap(s.buf) > maxScratch {
		t.Errorf("the scratch keeps %d bytes", cap(s.buf))
	}
}
