package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

const at Time = 1705744800123456789 // 2024-01-20T10:00:00.123Z

func additions() *Additions {
	return &Additions{Source: []byte("b-1"), Ref: []byte(`r"1`), Priority: PriorityHigh, TimeoutMs: 1000, Now: at}
}

func TestAppendForward(t *testing.T) {
	f := func(msg, want string, a *Additions) {
		t.Helper()
		e := scan(t, msg)
		got := string(e.AppendForward([]byte("#"), a))
		if got != "#"+want {
			t.Errorf("%s\n got %s\nwant #%s", msg, got, want)
		}
		if !e.HasNulls() { // the fast road must say the same
			fast := append([]byte(nil), msg[:e.Close()]...)
			fast = e.AppendAdditions(fast, a)
			if fast = append(fast, msg[e.Close():]...); string(fast) != want {
				t.Errorf("%s inserted\n got %s\nwant %s", msg, fast, want)
			}
		}
		if !json.Valid([]byte(want)) {
			t.Errorf("the case is no JSON: %s", want)
		}
	}
	const all = `"sourceClientId":"b-1","requestRef":"r\"1","priority":"HIGH","timeout":1000,"timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"`
	f(`{"type":"COMMAND"}`, `{"type":"COMMAND",`+all+`}`, additions())
	f(" {\"type\":\"COMMAND\",\"x\":1.50 }\n", " {\"type\":\"COMMAND\",\"x\":1.50 ,"+all+"}\n", additions())
	full := `{"type":"COMMAND","version":"1.0","timestamp":7,"timeout":0,"priority":"LOW","requestRef":"q","sourceClientId":"b"}`
	f(full, full, additions())
	f(`{"type":"COMMAND","timeout":1e3,"x":null,"callback":null,"version":"1.\u0030"}`,
		`{"type":"COMMAND","timeout":1e3,"x":null,"callback":null,"version":"1.\u0030","sourceClientId":"b-1","requestRef":"r\"1","priority":"HIGH","timestamp":"2024-01-20T10:00:00.123Z"}`, additions())
	f(`{"version":null,"timeout": null ,"type":"COMMAND","sourceClientId":null,"requestRef":null,"priority":null,"timestamp":null}`,
		`{"version":"1.0","timeout": 1000 ,"type":"COMMAND","sourceClientId":"b-1","requestRef":"r\"1","priority":"HIGH","timestamp":"2024-01-20T10:00:00.123Z"}`, additions())
	f(`{"type":"COMMAND","pri\u006frity":null,"callback":null}`,
		`{"type":"COMMAND","pri\u006frity":"HIGH","callback":null,"sourceClientId":"b-1","requestRef":"r\"1","timeout":1000,"timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"}`, additions())
	// without a source or a ref there is nothing to put in
	f(`{"type":"COMMAND","requestRef":null}`,
		`{"type":"COMMAND","requestRef":null,"priority":"LOW","timeout":0,"timestamp":"1970-01-01T00:00:00.000Z","version":"1.0"}`, &Additions{})
}

func TestAdditionsAreBounded(t *testing.T) {
	long := []byte(strings.Repeat(`"`, MaxIDBytes))
	a := &Additions{Source: long, Ref: long, TimeoutMs: MaxTimeoutMs, Now: at}
	e := scan(t, `{"type":"COMMAND"}`)
	if n := len(e.AppendAdditions(nil, a)); n > MaxAdditions {
		t.Errorf("%d bytes are added", n)
	}
}

func TestAppendHTTPCommand(t *testing.T) {
	got := string(AppendHTTPCommand(nil, []byte("r"), []byte("td-01"), []byte(`{"commandType":"T","v":1.0}`), PriorityNormal, 30000, []byte(`http://h/?a=1&b="`), true, at))
	want := `{"type":"COMMAND","requestRef":"r","targetClientId":"td-01","command":{"commandType":"T","v":1.0},"priority":"NORMAL","timeout":30000,` +
		`"callback":"http://h/?a=1&b=\"","whenOffline":"QUEUE","timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"}`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	got = string(AppendHTTPCommand(nil, []byte("r"), []byte("td-01"), []byte(`{}`), PriorityLow, 1, nil, false, at))
	want = `{"type":"COMMAND","requestRef":"r","targetClientId":"td-01","command":{},"priority":"LOW","timeout":1,"timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"}`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if e := scan(t, got); e.HasNulls() || e.Type != TypeCommand {
		t.Error("it is no COMMAND")
	}
}
