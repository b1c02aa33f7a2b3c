package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// startEdge starts an Edge with its adapters and returns their addresses.
func startEdge(t *testing.T, gateway string) (p *process, mqtt, line string) {
	t.Helper()
	p = start(t, nil, "edge", "--id", "edge-001", "--gateway", "ws://"+gateway+"/ws", "--data-dir", t.TempDir(),
		"--adapter", "mqtt=127.0.0.1:0", "--adapter", "line=127.0.0.1:0")
	found := map[string]string{}
	for len(found) < 2 {
		name, address, ok := strings.Cut(p.line(" on "), " on ")
		if ok && (name == "mqtt" || name == "line") {
			found[name] = address
		}
	}
	return p, found["mqtt"], found["line"]
}

func isOnline(t *testing.T, address, id string) bool {
	t.Helper()
	_, body := request(t, "GET", "http://"+address+"/api/devices/"+id, "")
	return strings.Contains(body, `"connection":"ONLINE"`)
}

// TestAdapters runs devices of ours as processes of their own.
func TestAdapters(t *testing.T) {
	_, address := startGateway(t)
	e, mqtt, line := startEdge(t, address)
	for id, url := range map[string]string{"mq-01": "mqtt://" + mqtt, "ln-01": "tcp://" + line} {
		d := start(t, nil, "device", "--id", id, "--connect", url)
		d.logged("registered")
		until(t, "it is online", func() bool { return isOnline(t, address, id) })
		if stdout, stderr, code := finish(t, nil, "send", "--gateway", "http://"+address, id, "SET_BRIGHTNESS", "value=80", "--wait", "5s"); code != 0 || !strings.Contains(stdout, `{"brightness":80}`) {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		d.signal(syscall.SIGTERM)
		if code := d.ends(); code != 0 {
			t.Errorf("exit code %d, %s", code, d.stderr())
		}
		until(t, "it is offline", func() bool { return !isOnline(t, address, id) })
	}
	e.signal(syscall.SIGTERM)
	if code := e.ends(); code != 0 {
		t.Errorf("exit code %d, %s", code, e.stderr())
	}
}

// TestMosquitto is a device of two shell commands.
func TestMosquitto(t *testing.T) {
	for _, name := range []string{"mosquitto_sub", "mosquitto_pub"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not here; it is in Debian's mosquitto-clients", name)
			}
			t.Skipf("%s is not here; it is in Debian's mosquitto-clients", name)
		}
	}
	_, address := startGateway(t)
	_, mqtt, _ := startEdge(t, address)
	host, port, _ := strings.Cut(mqtt, ":")
	for _, version := range []string{"mqttv311", "mqttv5"} {
		common := []string{"-h", host, "-p", port, "-V", version, "-i", "td-01", "-q", "1"}
		sub := exec.Command("mosquitto_sub", append(common, "-t", "subway/td-01/command", "-C", "1")...)
		var got strings.Builder
		sub.Stdout = &got
		if err := sub.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "it is online", func() bool { return isOnline(t, address, "td-01") })
		body := fmt.Sprintf(`{"target_client_id":"td-01","request_ref":%q,"command":{"commandType":"PLAY"}}`, version)
		if status, answer := request(t, "POST", "http://"+address+"/api/commands", body); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		if err := sub.Wait(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.String(), `"requestRef":"`+version+`"`) || !strings.Contains(got.String(), `"type":"COMMAND"`) {
			t.Errorf("the device got %s", got.String())
		}
		response := fmt.Sprintf(`{"requestRef":%q,"status":"COMPLETED","result":{"played":1}}`, version)
		if b, err := exec.Command("mosquitto_pub", append(common, "-t", "subway/td-01/response", "-m", response)...).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, b)
		}
		if _, answer := request(t, "GET", "http://"+address+"/api/commands/"+version+"?wait=5000", ""); !strings.Contains(answer, `"status":"COMPLETED"`) || !strings.Contains(answer, `"result":{"played":1}`) {
			t.Errorf("the command is %s", answer)
		}
		// a device that has left has no status any more: this one stays while its stdin is open
		pub := exec.Command("mosquitto_pub", append(common, "-t", "subway/td-01/status", "-l")...)
		lines, err := pub.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := pub.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(lines, "{\"lit\":%q}\n", version)
		until(t, "its status is known", func() bool {
			_, answer := request(t, "GET", "http://"+address+"/api/devices/td-01", "")
			return strings.Contains(answer, fmt.Sprintf(`"status":{"lit":%q}`, version))
		})
		_ = lines.Close()
		if err := pub.Wait(); err != nil {
			t.Error(err)
		}
	}
}
