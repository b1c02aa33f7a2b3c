package wire

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestHTTPCommand(t *testing.T) {
	var c HTTPCommand
	var s Scratch
	parse := func(body string) {
		t.Helper()
		wantFault(t, body, ParseHTTPCommand([]byte(body), 64, &c, &s), "", "")
	}
	parse(` {"target_client_id":"td-01","command":{"commandType":"T","v":1.0}} `)
	if string(c.Target) != "td-01" || string(c.CommandType) != "T" || string(c.CommandRaw) != `{"commandType":"T","v":1.0}` || c.Ref != nil || c.Callback != nil || c.Source != nil ||
		c.Priority != PriorityNormal || c.TimeoutMs != 30000 || c.Queue || c.Ack || c.TargetField != "target_client_id" || c.CallbackField != "callback_url" || c.RefField != "request_ref" {
		t.Errorf("defaults: %+v", c)
	}
	snake := `{"target_client_id":"td-\u0031","command":{"commandType":"T"},"callback_url":"http://h/","priority":"HIGH","timeout":1e3,"request_ref":"r","when_offline":"QUEUE"}`
	camel := `{"targetClientId":"td-1","command":{"commandType":"T"},"callbackUrl":"http:\/\/h/","priority":"HIGH","timeout":1000.0,"requestRef":"\u0072","whenOffline":"QUEUE"}`
	for _, body := range []string{snake, camel} {
		parse(body)
		if string(c.Target) != "td-1" || string(c.Callback) != "http://h/" || c.Priority != PriorityHigh || c.TimeoutMs != 1000 || string(c.Ref) != "r" || !c.Queue {
			t.Errorf("%s: %+v", body, c)
		}
	}
	if c.TargetField != "targetClientId" || c.CallbackField != "callbackUrl" || c.RefField != "requestRef" {
		t.Errorf("fields: %+v", c)
	}
	parse(`{"targetClientId":"a","command":{"commandType":"T"},"callback_url":null,"priority":null,"timeout":null,"request_ref":null,"when_offline":null,"ack":7,"x":1,"x":2,"commands":7,"targets":1,"targets":2}`)
	if c.Callback != nil || c.Ref != nil || c.TimeoutMs != 30000 || c.Priority != PriorityNormal || c.Queue {
		t.Errorf("nulls: %+v", c)
	}
	parse(`{"target_client_id":"a","command":{"commandType":"T","deep":` + nested(62) + `}}`)
}

func TestHTTPCommandFaults(t *testing.T) {
	var c HTTPCommand
	var s Scratch
	f := func(body, field string) {
		t.Helper()
		wantFault(t, body, ParseHTTPCommand([]byte(body), 64, &c, &s), "INVALID_REQUEST", field)
	}
	for _, body := range []string{"", "[]", "null", "7", `"x"`, "{", `{"a":1}}`, "{}{}", `{"target_client_id":"` + "\xff" + `"}`, "{\"x\":\"\t\"}", nested(400_000), strings.Repeat("[", 400_000),
		`{"target_client_id":"a","command":{"commandType":"T","deep":` + nested(63) + `}}`} {
		f(body, "")
	}
	f(`{}`, "target_client_id")
	const cmd = `"command":{"commandType":"T"}`
	f(`{`+cmd+`}`, "target_client_id")
	for _, v := range []string{`null`, `7`, `""`, `"a b"`, `"td-*"`} {
		f(`{"target_client_id":`+v+`,`+cmd+`}`, "target_client_id")
		f(`{"targetClientId":`+v+`,`+cmd+`}`, "targetClientId")
	}
	const dev = `"target_client_id":"td-01"`
	f(`{`+dev+`}`, "command")
	for _, v := range []string{`null`, `"T"`, `[]`, `7`} {
		f(`{`+dev+`,"command":`+v+`}`, "command")
	}
	for _, v := range []string{`{}`, `{"commandType":""}`, `{"commandType":7}`, `{"commandType":null}`, `{"commandType":"A","commandType":"B"}`, `{"command\u0054ype":"A","commandType":"A"}`} {
		f(`{`+dev+`,"command":`+v+`}`, "command.commandType")
	}
	const good = `{` + dev + `,` + cmd + `,`
	for _, v := range []string{`-1`, `1.5`, `"100"`, `86400001`, `true`, `[]`, `1e400`} {
		f(good+`"timeout":`+v+`}`, "timeout")
	}
	for _, v := range []string{`"URGENT"`, `"high"`, `7`} {
		f(good+`"priority":`+v+`}`, "priority")
	}
	for _, v := range []string{`"a b"`, `"` + strings.Repeat("r", 129) + `"`, `"` + strings.Repeat(`\u0072`, 200) + `"`, `7`, `"café"`, `""`, `{}`} {
		f(good+`"request_ref":`+v+`}`, "request_ref")
		f(good+`"requestRef":`+v+`}`, "requestRef")
	}
	for _, v := range []string{`"queue"`, `7`, `""`, `true`} {
		f(good+`"when_offline":`+v+`}`, "when_offline")
		f(good+`"whenOffline":`+v+`}`, "whenOffline")
	}
	for _, v := range []string{`""`, `7`, `{}`} {
		f(good+`"callback_url":`+v+`}`, "callback_url")
		f(good+`"callbackUrl":`+v+`}`, "callbackUrl")
	}
	for name, members := range map[string]string{
		"target_client_id": `"target_client_id":"b"`, "targetClientId": `"targetClientId":"b"`, "command": `"command":{"commandType":"U"}`, "priority": `"priority":"LOW","priority":"LOW"`,
		"timeout": `"timeout":5,"timeout":null`, "request_ref": `"request_ref":"a","request_ref":"b"`, "requestRef": `"request_ref":"a","requestRef":"a"`,
		"callbackUrl": `"callback_url":"u","callbackUrl":"u"`, "whenOffline": `"when_offline":"QUEUE","when\u004fffline":null`,
	} {
		f(good+members+`}`, name)
	}
}

func TestHTTPBatchOfItems(t *testing.T) {
	var b HTTPBatch
	var s Scratch
	body := `{"commands":[ {"target_client_id":"a","command":{"commandType":"T"}} , 7,{"target_client_id":"b","command":{"commandType":"T","d":` + nested(60) + `}} ],"command":"ignored"}`
	wantFault(t, body, ParseHTTPBatch([]byte(body), 64, &b, &s), "", "")
	if !b.ByItems || b.Count != 3 {
		t.Errorf("%+v", b)
	}
	var c HTTPCommand
	var items []string
	b.EachItem(&c, &s, func(item []byte, f *Fault) bool {
		code := "ok"
		if f != nil {
			code = f.Code.String()
		}
		items = append(items, fmt.Sprintf("%s %.21s %s", code, item, c.Target))
		return true
	})
	if got := strings.Join(items, "|"); got != `ok {"target_client_id":" a|INVALID_REQUEST 7 |ok {"target_client_id":" b` {
		t.Errorf("items: %s", got)
	}
	n := 0
	b.EachItem(&c, &s, func([]byte, *Fault) bool { n++; return false })
	b.EachTarget(func([]byte) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d calls", n)
	}
	body = `{"commands":[]}`
	wantFault(t, body, ParseHTTPBatch([]byte(body), 64, &b, &s), "", "")
	if !b.ByItems || b.Count != 0 {
		t.Errorf("%+v", b)
	}
}

func TestHTTPBatchOfTargets(t *testing.T) {
	var b HTTPBatch
	var s Scratch
	body := `{"command":{"commandType":"T","x":1},"targets":["td-01","td-*", "\u0061 b"],"priority":"LOW","timeout":5,"callbackUrl":"u","when_offline":"QUEUE","request_ref":null,"commands":null}`
	wantFault(t, body, ParseHTTPBatch([]byte(body), 64, &b, &s), "", "")
	c := b.Command
	if b.ByItems || b.Count != 3 || string(c.CommandRaw) != `{"commandType":"T","x":1}` || c.Priority != PriorityLow || c.TimeoutMs != 5 || string(c.Callback) != "u" || !c.Queue || c.Target != nil {
		t.Errorf("%+v", b)
	}
	var got []string
	b.EachTarget(func(target []byte) bool { got = append(got, string(target)); return true })
	b.EachItem(new(HTTPCommand), &s, func([]byte, *Fault) bool { t.Error("an item"); return false })
	if strings.Join(got, "|") != "td-01|td-*|a b" {
		t.Errorf("targets: %q", got)
	}
	n := 0
	b.EachTarget(func([]byte) bool { n++; return false })
	if n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestHTTPBatchFaults(t *testing.T) {
	var b HTTPBatch
	var s Scratch
	f := func(body, field string) {
		t.Helper()
		wantFault(t, body, ParseHTTPBatch([]byte(body), 64, &b, &s), "INVALID_REQUEST", field)
	}
	f(`[]`, "")
	f(`{"commands":[`, "")
	f(`{}`, "commands")
	f(`{"commands":null,"targets":null}`, "commands")
	f(`{"commands":{}}`, "commands")
	f(`{"commands":"x"}`, "commands")
	f(`{"commands":[],"commands":[]}`, "commands")
	f(`{"commands":[],"targets":[]}`, "commands")
	const cmd = `"command":{"commandType":"T"}`
	f(`{`+cmd+`}`, "targets")
	f(`{"targets":["a"]}`, "command")
	f(`{"targets":["a"],"command":{}}`, "command.commandType")
	f(`{"targets":"a",`+cmd+`}`, "targets")
	f(`{"targets":["a",7],`+cmd+`}`, "targets")
	f(`{"targets":["a"],"targets":["a"],`+cmd+`}`, "targets")
	f(`{"targets":["a"],`+cmd+`,"request_ref":"r"}`, "request_ref")
	f(`{"targets":["a"],`+cmd+`,"requestRef":"r"}`, "requestRef")
	f(`{"targets":["a"],`+cmd+`,"timeout":-1}`, "timeout")
	f(`{"targets":["a"],`+cmd+`,"priority":"LOW","priority":"LOW"}`, "priority")
	f(`{"commands":[{"deep":`+nested(62)+`}]}`, "")
	for _, list := range []string{`[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `[1}`, `[{]`, `[{}`, `["a]`, `[01]`} {
		f(`{"commands":`+list, "")
		f(`{"commands":`+list+`}`, "")
	}
}

// An item of a batch is read as the body of a single command is, with two levels less.
func TestHTTPBatchItemsAreCommands(t *testing.T) {
	items := []string{
		`{}`, `[]`, ` 7 `, `null`, `"x"`, `{"target_client_id":"td-1"}`, `{"target_client_id":"td 1","command":{"commandType":"T"}}`,
		`{"target_client_id":"td-1","command":{"commandType":"T"}}`, ` { "targetClientId" : "td-1" , "command" : {"commandType":"T"} } `,
		`{"target_client_id":"\u0074d-1","command":{"commandType":"\u0054","commandType":"T"}}`, `{"target_client_id":"a","targetClientId":"a","command":{"commandType":"T"}}`,
		`{"target_client_id":"td-1","command":{"commandType":"T"},"commands":[1],"targets":7,"timeout":5,"request_ref":"r","callbackUrl":"u","when_offline":"QUEUE","priority":"HIGH"}`,
		`{"target_client_id":"td-1","command":{"commandType":"T","d":` + nested(60) + `}}`, `[` + nested(61) + `]`,
	}
	body := []byte(`{"commands":[` + strings.Join(items, ",") + `]}`)
	var b HTTPBatch
	var s, s2 Scratch
	wantFault(t, string(body), ParseHTTPBatch(body, 64, &b, &s), "", "")
	var got, want HTTPCommand
	n := 0
	b.EachItem(&got, &s, func(item []byte, f *Fault) bool {
		if string(item) != strings.TrimSpace(items[n]) {
			t.Errorf("item %d is %s", n, item)
		}
		f2 := ParseHTTPCommand(item, 62, &want, &s2)
		if !reflect.DeepEqual(f, f2) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v and %v, %+v and %+v", item, f, f2, got, want)
		}
		n++
		return true
	})
	if n != len(items) || b.Count != n {
		t.Errorf("%d items, Count %d", n, b.Count)
	}
}

func TestHTTPMemberNames(t *testing.T) {
	for m, names := range httpNames {
		for i, name := range names {
			got, camel := parseHTTPMember([]byte(name), numHTTPMembers-1)
			if got != httpMember(m) || camel != (i == 1 && names[0] != names[1]) {
				t.Errorf("%s: %d, %v", name, got, camel)
			}
		}
	}
	for _, name := range []string{"", "Command", "commands", "targets"} {
		if m, _ := parseHTTPMember([]byte(name), httpWhenOffline); m != numHTTPMembers {
			t.Errorf("%q: %d", name, m)
		}
	}
}
