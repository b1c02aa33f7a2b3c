package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// request makes one HTTP request on a connection of its own.
func request(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	q, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := fresh.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// curl runs a line that was printed to be pasted, or does what it says where there is no
// curl.
func curl(t *testing.T, line string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		b, err := exec.Command("sh", "-c", line).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return string(b)
	}
	quoted := strings.Split(line, "'")
	if len(quoted) < 6 {
		t.Fatalf("%s has no URL, header and body in quotes", line)
	}
	_, body := request(t, "POST", quoted[1], quoted[5])
	return body
}

// TestUp prints a line that works, has ten devices, and ends in order.
func TestUp(t *testing.T) {
	p := start(t, nil, "up", "--listen", "127.0.0.1:0")
	address := strings.TrimPrefix(p.line("listening on "), "listening on ")
	if got := curl(t, strings.TrimSpace(p.line("curl", "commandType"))); !strings.Contains(got, `"status":"COMPLETED"`) || !strings.Contains(got, `"result":{"brightness":80}`) {
		t.Errorf("the printed line was answered with %s", got)
	}
	fields := strings.Fields(p.line("subway send "))
	if stdout, stderr, code := finish(t, nil, fields[1:]...); code != 0 || !strings.Contains(stdout, "COMPLETED") {
		t.Errorf("the printed send: exit code %d, %s%s", code, stdout, stderr)
	}
	_, body := request(t, "GET", "http://"+address+"/api/devices?status=ONLINE", "")
	if n := strings.Count(body, `"clientId"`); n != 10 {
		t.Errorf("%d devices are online: %s", n, body)
	}
	// one of each kind: WebSocket, MQTT and lines at the Edge, and one at the Gateway
	for id, edge := range map[string]string{"td-01": "edge-01", "screen-01": "edge-01", "pillar-01": "edge-01", "td-02": "td-02"} {
		if !strings.Contains(body, `"clientId":"`+id+`","deviceType":"`+id[:len(id)-3]+`","edgeId":"`+edge+`"`) {
			t.Errorf("%s is not at %s: %s", id, edge, body)
		}
		if stdout, stderr, code := finish(t, nil, "send", "--gateway", "http://"+address, id, "PLAY", "--wait", "5s"); code != 0 || !strings.Contains(stdout, "COMPLETED") {
			t.Errorf("%s: exit code %d, %s%s", id, code, stdout, stderr)
		}
	}
	p.line("td-01 SET_BRIGHTNESS", "COMPLETED")
	p.signal(syscall.SIGINT)
	if code := p.ends(); code != 0 || p.stderr() != "" {
		t.Errorf("exit code %d, stderr %s", code, p.stderr())
	}
}

// TestUpDrains lets a command that runs come to its end.
func TestUpDrains(t *testing.T) {
	p := start(t, nil, "up", "--listen", "127.0.0.1:0", "--devices", "2", "--json")
	address := strings.TrimPrefix(p.line("listening on "), "listening on ")
	p.line("curl", "/api/devices")
	if status, body := request(t, "POST", "http://"+address+"/api/commands", `{"target_client_id":"screen-01","command":{"commandType":"PLAY"},"request_ref":"r1"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	p.signal(syscall.SIGTERM)
	var report struct{ Device, RequestRef, Outcome string }
	if err := json.Unmarshal([]byte(p.line("r1")), &report); err != nil || report.Outcome != "COMPLETED" || report.Device != "screen-01" {
		t.Errorf("reported %+v, %v", report, err)
	}
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, p.stderr())
	}
}

// TestSecondSignal does not wait for the drain.
func TestSecondSignal(t *testing.T) {
	g, address := startGateway(t, "--drain", "1h")
	startDevice(t, address, "--id", "td-01", "--delay", "1h")
	if _, _, code := finish(t, nil, "send", "--gateway", "http://"+address, "td-01", "X", "--timeout", "2h"); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	g.signal(syscall.SIGTERM)
	until(t, "the Gateway drains", func() bool {
		status, _ := request(t, "GET", "http://"+address+"/readyz", "")
		return status == 503
	})
	select {
	case <-g.done:
		t.Fatal("the Gateway did not drain")
	default:
	}
	g.signal(syscall.SIGTERM)
	if code := g.ends(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// TestGatewayEnds in order at one signal.
func TestGatewayEnds(t *testing.T) {
	g, _ := startGateway(t)
	g.signal(syscall.SIGTERM)
	if code := g.ends(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, g.stderr())
	}
}

// TestDevice reports in JSON, says goodbye, and finds the next of several addresses.
func TestDevice(t *testing.T) {
	_, address := startGateway(t)
	d := startDevice(t, "127.0.0.1:1/nowhere", "--connect", "ws://"+address+"/ws", "--id", "td-01", "--count", "2", "--id-prefix", "led", "--json")
	until(t, "all have registered", func() bool {
		_, body := request(t, "GET", "http://"+address+"/api/devices?status=ONLINE", "")
		return strings.Count(body, `"clientId"`) == 3
	})
	finish(t, nil, "send", "--gateway", "http://"+address, "led-02", "GET_STATUS", "--ref", "r1")
	var report struct {
		Device, RequestRef, CommandType, Outcome string
		Result                                   struct{ Online bool }
	}
	l := d.line("led-02")
	if err := json.Unmarshal([]byte(l), &report); err != nil || report.RequestRef != "r1" || report.CommandType != "GET_STATUS" || report.Outcome != "COMPLETED" || !report.Result.Online {
		t.Errorf("reported %s: %v", l, err)
	}
	d.signal(syscall.SIGTERM)
	if code := d.ends(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, d.stderr())
	}
	if _, body := request(t, "GET", "http://"+address+"/api/devices?status=ONLINE", ""); strings.Contains(body, `"clientId"`) {
		t.Errorf("after the goodbye these are online: %s", body)
	}
}

// TestDeviceWaits for a Gateway that is not there, and ends when told to.
func TestDeviceWaits(t *testing.T) {
	d := start(t, nil, "device", "--id", "td-01", "--connect", "ws://127.0.0.1:1/ws")
	d.logged("connection refused")
	d.signal(syscall.SIGTERM)
	if code := d.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
