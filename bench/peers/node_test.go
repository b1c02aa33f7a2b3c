package peers

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// party is a client of the Node gateway.
type party struct {
	*websocket.Conn
	t *testing.T
}

func join(t *testing.T, s *Process, register string) party {
	t.Helper()
	c, _, err := websocket.DefaultDialer.Dial("ws://"+s.Addr.String()+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	p := party{c, t}
	p.say(register)
	p.hear(`"REGISTER_ACK"`)
	return p
}

func (p party) say(message string) {
	p.t.Helper()
	if err := p.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

// hear reads the next message, which must hold all parts.
func (p party) hear(parts ...string) string {
	p.t.Helper()
	_, message, err := p.ReadMessage()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(string(message), part) {
			p.t.Fatalf("%s, without %s", message, part)
		}
	}
	return string(message)
}

// TestNodeGateway goes through what the load does not: progress, a timeout, a device without a route, and callbacks in order with
// one that is tried again.
func TestNodeGateway(t *testing.T) {
	p, err := Node("node")
	if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), p, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	edge := join(t, s, `{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-001"}}`)
	backend := join(t, s, `{"type":"REGISTER","clientId":"backend-001","clientType":"BACKEND"}`)

	backend.say(`{"type":"COMMAND","requestRef":"a","targetClientId":"td-01","command":{"commandType":"X"}}`)
	edge.hear(`"requestRef":"a"`, `"sourceClientId":"backend-001"`)
	edge.say(`{"type":"PROGRESS_UPDATE","requestRef":"a","progress":40}`)
	backend.hear(`"PROGRESS_UPDATE"`, `"progress":40`)
	edge.say(`{"type":"COMMAND_RESPONSE","requestRef":"a","status":"COMPLETED","result":{"v":1}}`)
	backend.hear(`"COMMAND_RESPONSE"`, `"result":{"v":1}`)

	backend.say(`{"type":"COMMAND","requestRef":"b","targetClientId":"td-01","timeout":50,"command":{"commandType":"X"}}`)
	edge.hear(`"requestRef":"b"`)
	backend.hear(`"TIMEOUT"`, `"requestRef":"b"`, `after 50ms`)
	backend.say(`{"type":"COMMAND","requestRef":"c","targetClientId":"td-99","command":{"commandType":"X"}}`)
	backend.hear(`"TARGET_NOT_FOUND"`, `"requestRef":"c"`)

	testNodeCallback(t, s, edge)
}

func testNodeCallback(t *testing.T, s *Process, edge party) {
	type notice struct{ Type, RequestRef, Status, attempt string }
	notices := make(chan notice, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := notice{attempt: r.Header.Get("X-Callback-Attempt")}
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		if n.attempt == "1/3" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		notices <- n
	}))
	defer receiver.Close()
	answer, err := http.Post("http://"+s.Addr.String()+"/api/commands", "application/json",
		strings.NewReader(`{"target_client_id":"td-01","command":{"commandType":"X"},"request_ref":"d","callback_url":"`+receiver.URL+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	edge.hear(`"requestRef":"d"`)
	edge.say(`{"type":"COMMAND_RESPONSE","requestRef":"d","status":"COMPLETED","result":{}}`)
	for _, want := range []notice{{"COMMAND_RESPONSE", "d", "COMPLETED", "1/3"}, {"COMMAND_RESPONSE", "d", "COMPLETED", "2/3"}} {
		select {
		case got := <-notices:
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no callback")
		}
	}
}
