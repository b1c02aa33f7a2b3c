package wire

import "testing"

func TestResponse(t *testing.T) {
	var r Response
	var s Scratch
	e := scan(t, `{"type":"COMMAND_RESPONSE","requestRef":"cmd\u002d1","status":"\u0043OMPLETED","result":{"a":1,"a":2},"executionTime":42,"callback":"http://h/","sourceClientId":"b"}`)
	wantFault(t, "completed", e.Response(&r, &s), "", "")
	if string(r.Ref) != "cmd-1" || string(r.Status) != "COMPLETED" || !r.Completed || string(r.ResultRaw) != `{"a":1,"a":2}` || string(r.ExecutionTimeRaw) != "42" ||
		string(r.Callback) != "http://h/" || string(r.Source) != "b" || r.ErrorRaw != nil || r.ErrorCode != nil {
		t.Errorf("completed: %+v", r)
	}
	e = scan(t, `{"type":"COMMAND_RESPONSE","requestRef":"r","status":"ODD","error":{"code":"A","x":{"code":7},"c\u006fde":"B\u0042","message":"m"},"result":null,"executionTime":null,"callback":"","sourceClientId":null}`)
	wantFault(t, "failed", e.Response(&r, &s), "", "")
	if r.Completed || string(r.Status) != "ODD" || string(r.ErrorCode) != "BB" || len(r.ErrorRaw) == 0 || r.ResultRaw != nil || r.ExecutionTimeRaw != nil || r.Callback != nil || r.Source != nil {
		t.Errorf("failed: %+v", r)
	}
	for status, completed := range map[string]bool{"COMPLETED": true, "SUCCESS": true, "FAILED": false, "": false, "completed": false} {
		e = scan(t, `{"type":"COMMAND_RESPONSE","requestRef":"r","status":"`+status+`","error":{"code":7}}`)
		wantFault(t, status, e.Response(&r, &s), "", "")
		if r.Completed != completed || r.ErrorCode != nil {
			t.Errorf("%s: %+v", status, r)
		}
	}
}

// f(members, field) for the messages of this file.
func faultsOf(t *testing.T, head string, read func(*Envelope) *Fault) func(members, field string) {
	return func(members, field string) {
		t.Helper()
		code := "INVALID_MESSAGE"
		if field == "" {
			code = ""
		}
		wantFault(t, members, read(scan(t, head+members+"}")), code, field)
	}
}

func TestResponseFaults(t *testing.T) {
	var r Response
	var s Scratch
	f := faultsOf(t, `{"type":"COMMAND_RESPONSE"`, func(e *Envelope) *Fault { return e.Response(&r, &s) })
	f(`,"status":"COMPLETED"`, "requestRef")
	const good = `,"requestRef":"r","status":"FAILED"`
	for _, v := range []string{`null`, `7`, `{}`, `true`} {
		f(`,"requestRef":"r","status":`+v, "status")
	}
	f(`,"requestRef":"r"`, "status")
	f(good+`,"error":"x"`, "error")
	f(good+`,"error":[]`, "error")
	f(good+`,"executionTime":"42"`, "executionTime")
	f(good+`,"callback":7`, "callback")
	f(good+`,"sourceClientId":7`, "sourceClientId")
}

func TestProgress(t *testing.T) {
	var p Progress
	var s Scratch
	f := faultsOf(t, `{"type":"PROGRESS_UPDATE"`, func(e *Envelope) *Fault { return e.Progress(&p, &s) })
	f(`,"progress":1`, "requestRef")
	f(`,"requestRef":"r"`, "progress")
	for _, v := range []string{"null", "-1", "101", "100.01", "-0.5", `"40"`, "[40]", "true", "1e400", "-1e400", "1e3"} {
		f(`,"requestRef":"r","progress":`+v, "progress")
	}
	for _, v := range []string{"0", "-0", "100", "33.3", "1e2", "1e-400", "{}", `{"percent":250}`} {
		f(`,"requestRef":"r","progress":`+v, "")
		if string(p.ProgressRaw) != v || string(p.Ref) != "r" {
			t.Errorf("progress %s: %+v", v, p)
		}
	}
	f(`,"requestRef":"r","progress":1,"callback":7`, "callback")
	f(`,"requestRef":"r","progress":1,"callback":"u","sourceClientId":"b","stage":7`, "")
	if string(p.Callback) != "u" || string(p.Source) != "b" {
		t.Errorf("%+v", p)
	}
}

func TestDeviceStatus(t *testing.T) {
	var d DeviceStatus
	var s Scratch
	f := faultsOf(t, `{"type":"DEVICE_STATUS"`, func(e *Envelope) *Fault { return e.DeviceStatus(&d, &s) })
	f(`,"status":{}`, "clientId")
	f(`,"clientId":"a b","status":{}`, "clientId")
	f(`,"clientId":"a"`, "status")
	f(`,"clientId":"a","status":null`, "status")
	f(`,"clientId":"a","status":"ONLINE"`, "status")
	f(`,"clientId":"a","status":{"temp":36.50}`, "")
	if string(d.ClientID) != "a" || string(d.StatusRaw) != `{"temp":36.50}` {
		t.Errorf("%+v", d)
	}
}

func TestErrorMessage(t *testing.T) {
	var m ErrorMessage
	var s Scratch
	f := faultsOf(t, `{"type":"ERROR"`, func(e *Envelope) *Fault { return e.ErrorMessage(&m, &s) })
	f(`,"message":"x"`, "code")
	f(`,"code":null`, "code")
	f(`,"code":7`, "code")
	f(`,"code":"A","message":7`, "message")
	f(`,"code":"A"`, "")
	if m.Ref != nil || m.Message != nil || m.DetailsRaw != nil {
		t.Errorf("%+v", m)
	}
	f(`,"code":"A","message":"m\u0021","details":{"a":1},"requestRef":"r"`, "")
	if string(m.Code) != "A" || string(m.Message) != "m!" || string(m.DetailsRaw) != `{"a":1}` || string(m.Ref) != "r" {
		t.Errorf("%+v", m)
	}
}
