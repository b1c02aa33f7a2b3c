package device

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const waiting = "/api/commands?wait=8000"

func commandBody(command string) string {
	return `{"target_client_id":"td-01","command":` + command + `}`
}

// TestCommands runs commands through a real Gateway.
func TestCommands(t *testing.T) {
	ws, api := realGateway(t)
	start(t, Options{Behaviour: Behaviour{FailTypes: []string{"BREAK"}, FailCode: "E42"}}, ws)
	for _, c := range []struct{ command, status, result string }{
		{`{"commandType":"SET_BRIGHTNESS","value":80}`, "COMPLETED", `{"brightness":80}`},
		{`{"commandType":"SET_SCREEN_POWER","value":{"on":true}}`, "COMPLETED", `{"screenPower":{"on":true}}`},
		{`{"commandType":"SET_BRIGHTNESS","value":"` + strings.Repeat("x", 5000) + `"}`, "COMPLETED", `{"ok":true}`},
		{`{"commandType":"SET_VOLUME","Value":1}`, "COMPLETED", `{"ok":true}`},
		{`{"commandType":"SET_","value":1}`, "COMPLETED", `{"ok":true}`},
		{`{"commandType":"REBOOT","force":true}`, "COMPLETED", `{"ok":true}`},
		{`{"commandType":"BREAK"}`, "FAILED", `null`},
	} {
		got := call(t, "POST", api+waiting, commandBody(c.command))
		if got["status"] != c.status || text(t, got["result"]) != c.result {
			t.Errorf("%.60s became %.200s", c.command, text(t, got))
		}
		if _, measured := got["executionTime"].(float64); !measured {
			t.Errorf("%.60s: executionTime is %v", c.command, got["executionTime"])
		}
		if c.status == "FAILED" && got["error"].(map[string]any)["code"] != "E42" {
			t.Errorf("%s failed with %v", c.command, got["error"])
		}
	}
	got := call(t, "POST", api+waiting, commandBody(`{"commandType":"GET_STATUS"}`))
	if s := text(t, got["result"]); !strings.Contains(s, `"settings":{"brightness":80,"screenPower":{"on":true}}`) || !strings.Contains(s, `"online":true`) {
		t.Errorf("the status is %s", s)
	}
}

// TestDelayAndProgress takes its time and tells of it.
func TestDelayAndProgress(t *testing.T) {
	ws, api := realGateway(t)
	_, reports, _ := start(t, Options{Behaviour: Behaviour{DelayMin: 60 * time.Millisecond, DelayMax: 90 * time.Millisecond, Progress: 3}}, ws)
	got := call(t, "POST", api+waiting, commandBody(`{"commandType":"PLAY"}`))
	if took := got["executionTime"].(float64); got["status"] != "COMPLETED" || took < 60 {
		t.Errorf("ended as %s", text(t, got))
	}
	if got["progress"] != 75.0 {
		t.Errorf("the last progress is %v", got["progress"])
	}
	if r := await(t, "a report", reports); r.Outcome != Completed || r.Took < 60*time.Millisecond || string(r.Result) != `{"ok":true}` || r.CommandType != "PLAY" {
		t.Errorf("reported %+v", r)
	}
}

// TestProgressInOrder sees each update before the answer.
func TestProgressInOrder(t *testing.T) {
	p := listen(t)
	start(t, Options{Behaviour: Behaviour{Progress: 4}}, p.url)
	await(t, "REGISTER", p.messages)
	p.say(`{"type":"COMMAND","requestRef":"r1","targetClientId":"td-01","command":{"commandType":"PLAY"}}`)
	for _, want := range []string{`"progress":20,`, `"progress":40,`, `"progress":60,`, `"progress":80,`, `"status":"COMPLETED"`} {
		if got := await(t, want, p.messages); !strings.Contains(got, want) || !strings.Contains(got, `"requestRef":"r1"`) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestCancel stops a command that runs and one that waits.
func TestCancel(t *testing.T) {
	ws, api := realGateway(t)
	_, reports, _ := start(t, Options{Behaviour: Behaviour{DelayMin: time.Hour}}, ws)
	runs := call(t, "POST", api+"/api/commands", commandBody(`{"commandType":"PLAY"}`))["requestRef"].(string)
	waits := call(t, "POST", api+"/api/commands", commandBody(`{"commandType":"PLAY"}`))["requestRef"].(string)
	for _, ref := range []string{waits, runs} {
		if got := call(t, "DELETE", api+"/api/commands/"+ref, ""); got["status"] != "CANCELLED" {
			t.Errorf("the cancel was answered with %v", got)
		}
	}
	for _, want := range []string{runs, waits} {
		if r := await(t, "a report", reports); r.Outcome != Cancelled || r.Ref != want {
			t.Errorf("reported %+v, want %s cancelled", r, want)
		}
	}
}

// TestRepeated is answered again and executed once.
func TestRepeated(t *testing.T) {
	p := listen(t)
	_, reports, _ := start(t, Options{}, p.url)
	await(t, "REGISTER", p.messages)
	const command = `{"type":"COMMAND","requestRef":"r1","targetClientId":"td-01","command":{"commandType":"SET_X","value":%d}}`
	p.say(fmt.Sprintf(command, 1))
	first := await(t, "an answer", p.messages)
	if r := await(t, "a report", reports); r.Outcome != Completed {
		t.Errorf("reported %+v", r)
	}
	p.say(fmt.Sprintf(command, 2))
	if again := await(t, "the answer again", p.messages); again != first || !strings.Contains(again, `{"x":1}`) {
		t.Errorf("answered %s, then %s", first, again)
	}
	if r := await(t, "a report", reports); r.Outcome != Repeated {
		t.Errorf("reported %+v", r)
	}
}

// TestRefusals says what is wrong with what it cannot do.
func TestRefusals(t *testing.T) {
	p := listen(t)
	_, reports, _ := start(t, Options{Behaviour: Behaviour{DelayMin: time.Hour, Queue: 1}}, p.url)
	await(t, "REGISTER", p.messages)
	for _, c := range []struct{ message, want string }{
		{`{"type":"COMMAND","requestRef":"a","targetClientId":"td-02","command":{"commandType":"X"}}`, `"code":"DEVICE_NOT_FOUND"`},
		{`{"type":"COMMAND","requestRef":"b","targetClientId":"td-01","command":{}}`, `"field":"command.commandType"`},
		{`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"X"}}`, `"field":"requestRef"`},
		{`{"type":"COMMAND","requestRef":"c","version":"2.0","targetClientId":"td-01","command":{"commandType":"X"}}`, `"code":"UNSUPPORTED_VERSION"`},
		{`{"type":"CANCEL"}`, `"field":"requestRef"`},
		{`nonsense`, `"code":"INVALID_MESSAGE"`},
	} {
		p.say(c.message)
		if got := await(t, c.want, p.messages); !strings.Contains(got, c.want) {
			t.Errorf("%s was answered with %s", c.message, got)
		}
	}
	p.say(`{"type":"CANCEL","requestRef":"nobody knows"}`) // a ref cannot hold spaces
	await(t, "a refusal", p.messages)
	p.say(`{"type":"CANCEL","requestRef":"unknown"}`)
	p.say(`{"type":"ERROR","code":"GATEWAY_UNAVAILABLE","message":"later"}`)
	for i := range 3 { // one runs, one waits, one is too many; the first may be taken up late
		p.say(fmt.Sprintf(`{"type":"COMMAND","requestRef":"q%d","targetClientId":"td-01","command":{"commandType":"X"}}`, i))
	}
	if got := await(t, "OVERLOADED", p.messages); !strings.Contains(got, `"code":"OVERLOADED"`) {
		t.Errorf("a full queue was answered with %s", got)
	}
	if r := await(t, "a report", reports); r.Outcome != Overloaded {
		t.Errorf("reported %+v", r)
	}
}

// TestAnswerAfterReconnect keeps an answer that finds no connection.
func TestAnswerAfterReconnect(t *testing.T) {
	p := listen(t)
	d, _, _ := start(t, Options{Schedule: quick, Behaviour: Behaviour{DelayMin: 50 * time.Millisecond}}, p.url)
	await(t, "REGISTER", p.messages)
	p.say(`{"type":"COMMAND","requestRef":"r1","targetClientId":"td-01","command":{"commandType":"X"}}`)
	until(t, "the command is known", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.memory.known) == 1
	})
	p.hangUp(1001)
	if got := await(t, "REGISTER again", p.messages); !strings.Contains(got, `"REGISTER"`) {
		t.Errorf("got %s", got)
	}
	if got := await(t, "the answer", p.messages); !strings.Contains(got, `"COMMAND_RESPONSE"`) || !strings.Contains(got, `"r1"`) {
		t.Errorf("got %s", got)
	}
}

// TestUnsent is sent after the next registration.
func TestUnsent(t *testing.T) {
	p := listen(t)
	d, err := New(Options{ID: "td-01", URLs: []string{p.url}})
	if err != nil {
		t.Fatal(err)
	}
	e := d.memory.begin("r1")
	if !d.answer(e, []byte(`{"type":"COMMAND_RESPONSE"}`)) || !e.unsent {
		t.Fatal("an answer without a connection is not kept")
	}
	ctx := t.Context()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	t.Cleanup(func() { <-done })
	await(t, "REGISTER", p.messages)
	if got := await(t, "the answer", p.messages); got != `{"type":"COMMAND_RESPONSE"}` {
		t.Errorf("got %s", got)
	}
}

// TestStatusAndGoodbye tells its status and leaves in order.
func TestStatusAndGoodbye(t *testing.T) {
	ws, api := realGateway(t)
	_, _, stop := start(t, Options{Behaviour: Behaviour{StatusInterval: 10 * time.Millisecond}}, ws)
	until(t, "the status is known", func() bool {
		d := call(t, "GET", api+"/api/devices/td-01", "")["device"].(map[string]any)
		return d["status"] != nil && d["connection"] == "ONLINE"
	})
	stop()
	if got := call(t, "GET", api+"/api/devices/td-01", ""); strings.Contains(text(t, got), "ONLINE") {
		t.Errorf("after the goodbye the device is %s", text(t, got))
	}
}

// TestParallel runs several commands at the same time.
func TestParallel(t *testing.T) {
	p := listen(t)
	_, _, _ = start(t, Options{Behaviour: Behaviour{DelayMin: 500 * time.Millisecond, Parallel: 8}}, p.url)
	await(t, "REGISTER", p.messages)
	began := time.Now()
	for i := range 8 {
		p.say(fmt.Sprintf(`{"type":"COMMAND","requestRef":"r%d","targetClientId":"td-01","command":{"commandType":"X"}}`, i))
	}
	for range 8 {
		await(t, "an answer", p.messages)
	}
	if took := time.Since(began); took > 3500*time.Millisecond { // 4 s one after the other
		t.Errorf("8 commands of 500 ms took %v", took)
	}
}

// TestFailRate is about the share that was asked for.
func TestFailRate(t *testing.T) {
	b, failed := Behaviour{FailRate: 0.3}, 0
	for range 10_000 {
		if b.fails("X") {
			failed++
		}
	}
	if failed < 2700 || failed > 3300 {
		t.Errorf("%d of 10000 failed, want 3000", failed)
	}
}

// TestMemoryIsBounded lets the oldest answers go.
func TestMemoryIsBounded(t *testing.T) {
	var m memory
	for i := range 10 * maxAnswers {
		m.end(m.begin(fmt.Sprint("r", i)), []byte("answer"))
	}
	if len(m.known) != maxAnswers || len(m.ended) != maxAnswers || m.known["r0"] != nil || m.known[fmt.Sprint("r", 10*maxAnswers-1)] == nil {
		t.Errorf("%d refs are known, %d ended", len(m.known), len(m.ended))
	}
	for i := range 64 {
		m.end(m.begin(fmt.Sprint("big", i)), make([]byte, maxBytes/8))
	}
	if m.bytes > maxBytes {
		t.Errorf("%d bytes are kept", m.bytes)
	}
	if m.cancel("big63") || m.cancel("unknown") {
		t.Error("an ended command was cancelled")
	}
}

// TestOptions are checked before anything starts.
func TestOptions(t *testing.T) {
	good := Options{ID: "td-01", URLs: []string{"ws://127.0.0.1:1"}}
	for name, spoil := range map[string]func(*Options){
		"id":       func(o *Options) { o.ID = "a b" },
		"url":      func(o *Options) { o.URLs = []string{"http://x"} },
		"no url":   func(o *Options) { o.URLs = nil },
		"delay":    func(o *Options) { o.DelayMin = -1 },
		"rate":     func(o *Options) { o.FailRate = 1.1 },
		"progress": func(o *Options) { o.Progress = 1001 },
		"parallel": func(o *Options) { o.Parallel = -1 },
		"queue":    func(o *Options) { o.Queue = -1 },
		"interval": func(o *Options) { o.StatusInterval = time.Millisecond },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

// until polls a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
