package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sending runs `subway send` against a Gateway.
type sending struct {
	t       *testing.T
	address string
}

func (s sending) send(args string) (stdout, stderr string, code int) {
	s.t.Helper()
	return finish(s.t, nil, append([]string{"send", "--gateway", "http://" + s.address}, strings.Fields(args)...)...)
}

func (s sending) want(code int, text, args string) {
	s.t.Helper()
	stdout, stderr, got := s.send(args)
	if got != code || !strings.Contains(stdout+stderr, text) || strings.Count(stderr, "\n") > 1 || (code != 0) != (stderr != "") {
		s.t.Errorf("send %s: exit code %d, want %d\nstdout: %s\nstderr: %s\nwant %q", args, got, code, stdout, stderr, text)
	}
}

// wantJSON expects one line of JSON and nothing else.
func (s sending) wantJSON(code int, member, value, args string) {
	s.t.Helper()
	stdout, stderr, got := s.send(args + " --json")
	var line map[string]any
	if err := json.Unmarshal([]byte(stdout), &line); err != nil || got != code || strings.Count(stdout, "\n") != 1 || stderr != "" || line[member] != value {
		s.t.Errorf("send %s --json: exit code %d, want %d\nstdout: %s\nstderr: %s\nwant %s %s", args, got, code, stdout, stderr, member, value)
	}
}

// TestSend goes through every way a command can end.
func TestSend(t *testing.T) {
	_, address := startGateway(t)
	quick := startDevice(t, address, "--id", "td-01", "--fail-type", "BREAK", "--fail-code", "E42")
	startDevice(t, address, "--id", "td-02", "--delay", "2s..2s", "--progress", "7")
	startDevice(t, address, "--id", "td-03", "--delay", "1h", "--parallel", "8")
	s := sending{t, address}

	s.want(0, `: {"brightness":80}`, "td-01 SET_BRIGHTNESS value=80 --wait 5s")
	s.want(0, `: {"text":"01"}`, "td-01 SET_TEXT value=01 --wait 5s")
	s.want(0, `: {"text":"a,b"}`, "td-01 SET_TEXT value=a,b other=x,y --wait 5s")
	s.want(0, `: {"list":[1,{"a":null}]}`, `td-01 SET_LIST value=[1,{"a":null}] --wait 5s`)
	s.want(0, " accepted", "td-01 X")
	s.want(0, "mine accepted", "td-01 X --ref mine --priority high --when-offline QUEUE --timeout 5s")
	s.want(5, "DUPLICATE_REQUEST", "td-01 X --ref mine")
	s.want(1, " ms: E42", "td-01 BREAK --wait 5s")
	s.want(3, "TIMEOUT: Command timeout after 50ms", "td-03 X --wait 5s --timeout 50ms")
	s.want(4, "is still DISPATCHED after 100ms", "td-03 X --wait 100ms")
	s.want(5, "TARGET_NOT_FOUND", "td-99 X")
	s.want(5, "INVALID_REQUEST", "td-01 X --callback ftp://nowhere")
	s.want(5, "INVALID_REQUEST", "td-01 X --timeout 48h")

	s.wantJSON(0, "status", "COMPLETED", "td-01 X --wait 5s")
	s.wantJSON(0, "message", "Command accepted for processing", "td-01 X")
	s.wantJSON(1, "status", "FAILED", "td-01 BREAK --wait 5s")
	s.wantJSON(3, "status", "TIMEOUT", "td-03 X --wait 5s --timeout 50ms")
	s.wantJSON(4, "status", "DISPATCHED", "td-03 X --wait 50ms")
	s.wantJSON(5, "code", "TARGET_NOT_FOUND", "td-99 X")

	stdout, _, code := s.send("td-02 PLAY --wait 10s")
	if code != 0 || strings.Count(stdout, "progress ") < 3 || !strings.Contains(stdout, "progress 87\n") {
		t.Errorf("the progress was shown as %s", stdout)
	}
	if l := quick.line("BREAK"); !strings.HasPrefix(l, "td-01 BREAK cmd-") || !strings.Contains(l, " FAILED ") {
		t.Errorf("the device said %s", l)
	}
}

// TestSendCancelled hears of a cancel while it waits.
func TestSendCancelled(t *testing.T) {
	_, address := startGateway(t)
	startDevice(t, address, "--id", "td-01", "--delay", "1h")
	p := start(t, nil, "send", "--gateway", "http://"+address, "td-01", "X", "--ref", "r1", "--wait", "1h")
	p.line("r1 accepted")
	if status, body := request(t, "DELETE", "http://"+address+"/api/commands/r1", ""); status != 200 {
		t.Fatalf("the cancel was answered with %d %s", status, body)
	}
	if code := p.ends(); code != 1 || !strings.Contains(p.stderr(), "CANCELLED") {
		t.Errorf("exit code %d, stderr %s", code, p.stderr())
	}
}

// TestSendEdgeUnavailable is refused while a device that was there is away.
func TestSendEdgeUnavailable(t *testing.T) {
	_, address := startGateway(t)
	d := startDevice(t, address, "--id", "td-01")
	d.signal(syscall.SIGKILL)
	d.ends()
	s := sending{t, address}
	until(t, "the device is away", func() bool {
		_, _, code := s.send("td-01 X")
		return code == exitRefused
	})
	s.want(5, "EDGE_UNAVAILABLE", "td-01 X --wait 5s")
	s.want(3, "it never left the Gateway", "td-01 X --when-offline QUEUE --wait 5s --timeout 50ms")
}

// TestMembers become JSON where they are JSON.
func TestMembers(t *testing.T) {
	for pair, want := range map[string]string{
		"a=1": `,"a":1`, "a=-1.5e3": `,"a":-1.5e3`, "a=01": `,"a":"01"`, "a=true": `,"a":true`, "a=True": `,"a":"True"`, "a=null": `,"a":null`,
		"a=": `,"a":""`, "a==": `,"a":"="`, `a="x"`: `,"a":"x"`, `a={"b":[1]}`: `,"a":{"b":[1]}`, `a={b}`: `,"a":"{b}"`, `"=x`: `,"\"":"x"`,
		"a=line\nbreak": `,"a":"line\nbreak"`,
	} {
		got, err := appendMembers(nil, []string{pair})
		if err != nil || string(got) != want {
			t.Errorf("%s became %s, %v; want %s", pair, got, err, want)
		}
	}
}

// TestOneLine keeps others from steering the terminal.
func TestOneLine(t *testing.T) {
	if got := oneLine(" a\nb\x1b[2J\u009b \n"); got != "a; b\ufffd[2J\ufffd" {
		t.Errorf("got %q", got)
	}
}

// TestDelayRange reads a time or two.
func TestDelayRange(t *testing.T) {
	var r delayRange
	if err := r.UnmarshalText([]byte("200ms..1s")); err != nil || r.min != 200*time.Millisecond || r.max != time.Second {
		t.Errorf("got %v, %v", r, err)
	}
	if err := r.UnmarshalText([]byte("5s")); err != nil || r.min != 5*time.Second || r.max != r.min {
		t.Errorf("got %v, %v", r, err)
	}
}

// TestSendGatewayGone: the Gateway ends while it is asked for an accepted command's end.
func TestSendGatewayGone(t *testing.T) {
	gateway, address := startGateway(t)
	startDevice(t, address, "--id", "td-01", "--delay", "60s")
	p := start(t, nil, "send", "td-01", "X", "--wait", "40s", "--gateway", "http://"+address)
	p.line("accepted")
	gateway.signal(syscall.SIGKILL)
	if code := p.ends(); code != exitOpen {
		t.Errorf("exit code %d, want %d: %s", code, exitOpen, p.stderr())
	}
	if text := p.stderr(); !strings.Contains(text, "its end is not known") || strings.Contains(text, "fasthttp") {
		t.Errorf("stderr: %s", text)
	}
}
