package mqtt

import (
	"bytes"
	"strings"
	"testing"
)

// versions are those that are spoken here, as mosquitto names them.
var versions = []string{"mqttv311", "mqttv5"}

// TestMosquittoCommand receives commands with mosquitto_sub and answers with
// mosquitto_pub, which is another connection of the same device.
func TestMosquittoCommand(t *testing.T) {
	for _, version := range versions {
		for _, qos := range []string{"0", "1", "2"} {
			t.Run(version+" QoS "+qos, func(t *testing.T) {
				d, _, address := start(t, Options{})
				var out bytes.Buffer
				sub := mosquitto(t, "mosquitto_sub", address, version, "-i", "td-01", "-t", "subway/td-01/command", "-q", qos, "-C", "3")
				sub.Stdout = &out
				if err := sub.Start(); err != nil {
					t.Fatal(err)
				}
				d.hears(t, `"type":"REGISTER"`, `"clientId":"td-01"`, `"clientType":"DEVICE"`)
				s := await(t, "a session", d.opened)
				for _, msg := range []string{`{"type":"COMMAND","n":1}`, `{"type":"COMMAND","n":2}`, `{"type":"COMMAND","n":3}`} {
					s.command(t, msg)
				}
				if err := sub.Wait(); err != nil {
					t.Error(err)
				}
				if got := out.String(); got != "{\"type\":\"COMMAND\",\"n\":1}\n{\"type\":\"COMMAND\",\"n\":2}\n{\"type\":\"COMMAND\",\"n\":3}\n" {
					t.Errorf("the device got %q", got)
				}
				if reason := await(t, "the end", d.closed); reason != "peer closed" {
					t.Errorf("closed for %s", reason)
				}
				for topic, want := range map[string]string{
					"response": `{"requestRef":"r1","status":"COMPLETED","type":"COMMAND_RESPONSE"}`,
					"progress": `{"requestRef":"r1","progress":40,"type":"PROGRESS_UPDATE"}`,
					"status":   `{"type":"DEVICE_STATUS","clientId":"td-01","status":{"lit":true}}`,
				} {
					payload := map[string]string{"response": `{"requestRef":"r1","status":"COMPLETED"}`, "progress": `{"requestRef":"r1","progress":40}`, "status": `{"lit":true}`}[topic]
					pub := mosquitto(t, "mosquitto_pub", address, version, "-i", "td-01", "-t", "subway/td-01/"+topic, "-q", qos, "-r", "-m", payload)
					if b, err := pub.CombinedOutput(); err != nil {
						t.Errorf("%v: %s", err, b)
					}
					d.hears(t, `"REGISTER"`)
					await(t, "a session", d.opened)
					d.hears(t, want)
					await(t, "the end", d.closed)
				}
			})
		}
	}
}

// TestMosquittoWill is told when the device is lost, and only then.
func TestMosquittoWill(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			d, _, address := start(t, Options{})
			sub := mosquitto(t, "mosquitto_sub", address, version, "-i", "td-01", "-t", "subway/td-01/command",
				"--will-topic", "subway/td-01/status", "--will-payload", `{"online":false}`, "--will-retain", "--will-qos", "1")
			if err := sub.Start(); err != nil {
				t.Fatal(err)
			}
			d.hears(t, `"REGISTER"`)
			_ = sub.Process.Kill()
			_ = sub.Wait()
			d.hears(t, `{"type":"DEVICE_STATUS","clientId":"td-01","status":{"online":false}}`)
			if reason := await(t, "the end", d.closed); reason != "lost" {
				t.Errorf("closed for %s", reason)
			}
		})
	}
}

// TestMosquittoForbidden keeps a device to its own topics, and who is none away.
func TestMosquittoForbidden(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			d, _, address := start(t, Options{})
			for _, args := range [][]string{
				{"mosquitto_sub", "-i", "td-01", "-t", "subway/td-02/command", "-q", "1"},
				{"mosquitto_sub", "-i", "td-01", "-t", "subway/+/command"},
				{"mosquitto_sub", "-i", "td-01", "-t", "#"},
				{"mosquitto_sub", "-i", "td-01", "-t", "$SYS/#"},
			} {
				b, _ := mosquitto(t, args[0], address, version, append(args[1:], "-W", "5")...).CombinedOutput()
				if !strings.Contains(string(b), "denied") {
					t.Errorf("%q: %s", args, b)
				}
				d.hears(t, `"REGISTER"`)
				await(t, "the end", d.closed)
			}
			for _, topic := range []string{"subway/td-02/response", "subway/td-01/command", "subway/td-01/x", "x"} {
				b, _ := mosquitto(t, "mosquitto_pub", address, version, "-i", "td-01", "-t", topic, "-q", "1", "-m", "{}").CombinedOutput()
				d.hears(t, `"REGISTER"`)
				await(t, "the end", d.closed)
				if version == "mqttv5" && !strings.Contains(string(b), "authorized") {
					t.Errorf("%s: %s", topic, b)
				}
			}
			for _, id := range []string{"not/valid", "a b", strings.Repeat("x", 129)} {
				b, err := mosquitto(t, "mosquitto_pub", address, version, "-i", id, "-t", "subway/"+id+"/status", "-m", "{}").CombinedOutput()
				if err == nil {
					t.Errorf("%s is let in: %s", id, b)
				}
			}
			select {
			case m := <-d.messages:
				t.Errorf("the edge got %s", m)
			default:
			}
		})
	}
}
