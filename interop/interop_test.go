package interop

import (
	"strings"
	"syscall"
	"testing"
)

// world is a Gateway with the design note's clients around it.
type world struct {
	t                                                *testing.T
	addr                                             string
	gateway, edge, device, backend, client, receiver *program
	callbacks                                        string
}

// startGateway starts the binary on this address and returns the one it listens on.
func startGateway(t *testing.T, listen string) (*program, string) {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	g := launch(t, path, "gateway", "--listen", listen, "--drain", "1s")
	line := g.hear("its address", func(line string) bool { return strings.HasPrefix(line, "listening on ") })
	return g, strings.TrimPrefix(line, "listening on ")
}

func startWorld(t *testing.T) *world {
	w := &world{t: t}
	w.gateway, w.addr = startGateway(t, "127.0.0.1:0")
	w.edge = launch(t, "node", "node/edge.mjs", "ws://"+w.addr, "edge-001", "100")
	edgeURL := w.edge.event("event", "listening").str("url")
	w.edge.event("event", "connected")
	w.device = launch(t, "node", "node/device.mjs", edgeURL, "td-01")
	w.backend = launch(t, "node", "node/backend.mjs", "ws://"+w.addr+"/ws", "backend-001")
	w.receiver = launch(t, "python3", "python/receiver.py")
	w.client = launch(t, "python3", "python/client.py", "http://"+w.addr)
	w.callbacks = w.receiver.event("event", "listening").str("url") + "/callback/"
	w.backend.event("event", "message", "message.type", "REGISTER_ACK")
	w.device.event("event", "message", "message.type", "REGISTER_ACK")
	w.edge.event("event", "gateway", "message.type", "REGISTER_ACK", "message.clientId", "td-01")
	return w
}

// call has the Python client make a call and returns the answer's body.
func (w *world) call(status float64, name string, arguments object) object {
	w.t.Helper()
	w.client.tell(object{"call": name, "arguments": arguments})
	answer := w.client.event()
	if answer.get("status") != status {
		w.t.Fatalf("%s %v was answered with %v", name, arguments, answer)
	}
	body, _ := answer["body"].(map[string]any)
	return body
}

// send has the client post a command of this type and returns its ref.
func (w *world) send(commandType string, more ...any) string {
	w.t.Helper()
	arguments := object{
		"target_client_id": "td-01", "command": object{"commandType": commandType, "value": 80},
		"callback_url": w.callbacks + "command/{request_ref}",
	}
	for i := 0; i+1 < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	body := w.call(200, "send_command", arguments)
	if body["success"] != true || body["message"] != "Command accepted for processing" {
		w.t.Fatalf("send_command: %v", body)
	}
	return body.str("requestRef")
}

// TestInterop has the note's own clients do what the note shows.
func TestInterop(t *testing.T) {
	need(t)
	w := startWorld(t)
	for _, part := range []struct {
		name string
		run  func(*world)
	}{
		{"a command over HTTP", commandOverHTTP}, {"a failure", failure}, {"progress", progress}, {"cancel", cancel},
		{"a program from the Backend", programFromBackend}, {"a lost link", lostLink}, {"a restart", restart},
		{"a device that left", deviceLeft},
	} {
		t.Log(part.name)
		part.run(w)
	}
}

func commandOverHTTP(w *world) {
	ref := w.send("SET_BRIGHTNESS", "priority", "HIGH", "timeout", 10000)
	got := w.device.event("event", "message", "message.type", "COMMAND", "message.requestRef", ref)
	if got.get("message.command.value") != 80.0 || got.str("message.priority") != "HIGH" || got.get("message.timeout") != 10000.0 {
		w.t.Errorf("the device got %v", got)
	}
	if !strings.HasSuffix(got.str("message.callback"), "/callback/command/{request_ref}") {
		w.t.Errorf("the device got the callback %q", got.str("message.callback"))
	}
	told := w.receiver.event("event", "command", "ref", ref)
	if told.str("data.status") != "COMPLETED" || told.get("data.result.brightness") != 80.0 || told.get("data.executionTime") != 42.0 || told.str("attempt") != "1/3" {
		w.t.Errorf("the callback is %v", told)
	}
	if body := w.call(200, "get_command_status", object{"request_ref": ref}); body.str("status") != "COMPLETED" || body.get("result.brightness") != 80.0 {
		w.t.Errorf("get_command_status: %v", body)
	}
	w.call(409, "cancel_command", object{"request_ref": ref})
	if body := w.call(404, "get_command_status", object{"request_ref": "none"}); body["success"] != false || body.str("error") == "" {
		w.t.Errorf("get_command_status: %v", body)
	}
	if body := w.call(404, "send_command", object{"target_client_id": "device-99", "command": object{"commandType": "HANG"}, "callback_url": w.callbacks}); body.str("error") != "No route found for device device-99" {
		w.t.Errorf("send_command: %v", body)
	}
}

func failure(w *world) {
	ref := w.send("BREAK")
	told := w.receiver.event("event", "command", "ref", ref)
	if told.str("data.status") != "FAILED" || told.str("data.error.code") != "LAMP_BROKEN" {
		w.t.Errorf("the callback is %v", told)
	}
}

func progress(w *world) {
	ref := w.send("PROGRAM", "callback_url", w.callbacks+"progress/{request_ref}")
	for n := 1; n <= 3; n++ {
		if told := w.receiver.event("event", "progress", "ref", ref); told.str("data.status") != "IN_PROGRESS" || told.get("data.progress") != float64(25*n) {
			w.t.Errorf("callback %d is %v", n, told)
		}
	}
	if told := w.receiver.event("event", "progress", "ref", ref); told.str("data.status") != "SUCCESS" || told.get("data.result.played") != true {
		w.t.Errorf("the last callback is %v", told)
	}
	if body := w.call(200, "get_command_status", object{"request_ref": ref}); body.str("status") != "COMPLETED" || body.get("progress") != 75.0 {
		w.t.Errorf("get_command_status: %v", body)
	}
}

func cancel(w *world) {
	ref := w.send("HANG")
	w.device.event("event", "message", "message.type", "COMMAND", "message.requestRef", ref)
	if body := w.call(200, "cancel_command", object{"request_ref": ref}); body["success"] != true || body.str("status") != "CANCELLED" {
		w.t.Errorf("cancel_command: %v", body)
	}
	w.device.event("event", "message", "message.type", "CANCEL", "message.requestRef", ref)
	if told := w.receiver.event("event", "command", "ref", ref); told.str("data.status") != "CANCELLED" || told.str("data.error.details.stage") != "DISPATCHED" {
		w.t.Errorf("the callback is %v", told)
	}
}

// programFromBackend is the note's second channel: told to the Backend and, by callback,
// to EUDI.
func programFromBackend(w *world) {
	const ref = "cmd-1705744800000-k3j9x0q2a"
	w.backend.tell(object{
		"type": "COMMAND", "requestRef": ref, "targetClientId": "td-01", "priority": "NORMAL", "timeout": 30000,
		"command": object{"commandType": "PROGRAM", "programId": "p-17"}, "callback": w.callbacks + "command/" + ref,
	})
	if got := w.device.event("event", "message", "message.requestRef", ref); got.str("message.sourceClientId") != "backend-001" || got.str("message.command.programId") != "p-17" {
		w.t.Errorf("the device got %v", got)
	}
	for _, stage := range []string{"DOWNLOADING", "INSTALLING", "DEPLOYING"} {
		if told := w.backend.event("message.type", "PROGRESS_UPDATE", "message.requestRef", ref); told.str("message.stage") != stage || told["isBinary"] != false {
			w.t.Errorf("%s: the Backend was told %v", stage, told)
		}
		w.receiver.event("event", "command", "ref", ref, "data.status", "IN_PROGRESS")
	}
	w.backend.event("message.type", "COMMAND_RESPONSE", "message.requestRef", ref, "message.result.programId", "p-17")
	w.receiver.event("event", "command", "ref", ref, "data.status", "SUCCESS", "data.type", "COMMAND_RESPONSE")
}

// again waits until the Edge is there again with its device, which then does a command.
func (w *world) again() {
	w.edge.event("event", "connected")
	w.edge.event("event", "gateway", "message.type", "REGISTER_ACK", "message.clientId", "td-01")
	ref := w.send("SET_BRIGHTNESS")
	w.receiver.event("event", "command", "ref", ref, "data.status", "COMPLETED")
}

// lostLink: the Edge comes back by itself and registers its devices again.
func lostLink(w *world) {
	w.edge.tell(object{"do": "drop link"})
	w.edge.event("event", "disconnected")
	w.backend.event("message.type", "CONNECTION_STATUS", "message.clientId", "edge-001", "message.status", "OFFLINE")
	w.backend.event("message.type", "CONNECTION_STATUS", "message.clientId", "edge-001", "message.status", "ONLINE")
	w.again()
}

// restart: the Gateway goes, with 1001, and comes back; the Edge tries until it has it.
func restart(w *world) {
	if err := w.gateway.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	left := w.edge.event("event", "disconnected")
	if left.get("code") != 1001.0 {
		w.t.Errorf("the Edge was left with %v", left)
	}
	<-w.gateway.ended
	if err := w.gateway.cmd.Wait(); err != nil {
		w.t.Errorf("the Gateway ended with %v", err)
	}
	w.gateway, _ = startGateway(w.t, w.addr)
	w.again()
}

// deviceLeft: the note's Edge says DEVICE_NOT_FOUND without a ref, which ends nothing;
// with one the command fails.
func deviceLeft(w *world) {
	w.device.end()
	w.edge.event("event", "device left", "id", "td-01")
	ref := w.send("HANG", "timeout", 300)
	if told := w.receiver.event("event", "command", "ref", ref); told.str("data.status") != "TIMEOUT" || told.str("data.error.message") != "Command timeout after 300ms" {
		w.t.Errorf("the callback is %v", told)
	}
	w.edge.tell(object{"do": "errors carry ref"})
	ref = w.send("HANG")
	if told := w.receiver.event("event", "command", "ref", ref); told.str("data.status") != "FAILED" || told.str("data.error.code") != "DEVICE_NOT_FOUND" {
		w.t.Errorf("the callback is %v", told)
	}
}
