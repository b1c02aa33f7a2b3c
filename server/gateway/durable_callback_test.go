package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"subway/api/contract"
)

// moody is a receiver that is ill first and well later: what begins with /busy is told to
// come again in an hour, /hung gets no answer, /gone a 410, all else a 200.
type moody struct {
	*receiver
	well atomic.Bool
	let  chan struct{} // closed: nobody hangs any more
}

func receiveMoody(t testing.TB) *moody {
	m := &moody{receiver: &receiver{t: t}, let: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m.take(req)
		if m.well.Load() {
			return
		}
		switch mood, _, _ := strings.Cut(req.URL.Path[1:], "-"); mood {
		case "busy":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "hung":
			<-m.let
		case "gone":
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// take notes a callback and holds it against the contract.
func (m *moody) take(req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	contract.ValidateCallback(m.t, req.Header, body)
	h := hit{path: req.URL.Path, header: req.Header, body: body}
	_ = json.Unmarshal(body, &h.fields)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hits = append(m.hits, h)
}

// heal makes it well; those who hang lose their connections.
func (m *moody) heal() {
	m.well.Store(true)
	close(m.let)
}

// at lists what came to a path.
func (m *moody) at(path string) (hits []hit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.hits {
		if h.path == path {
			hits = append(hits, h)
		}
	}
	return hits
}

// waitAt waits for n callbacks to a path; all must be the same notice.
func (m *moody) waitAt(path string, n int) []hit {
	m.t.Helper()
	until(m.t, "a callback to "+path, func() bool { return len(m.at(path)) >= n })
	hits := m.at(path)
	for _, h := range hits[1:] {
		if h.header.Get("X-Callback-Id") != hits[0].header.Get("X-Callback-Id") || !bytes.Equal(h.body, hits[0].body) {
			m.t.Errorf("%s got %q %s, then %q %s", path, hits[0].header["X-Callback-Id"], hits[0].body, h.header["X-Callback-Id"], h.body)
		}
	}
	return hits
}

// callback waits for the callback of a command to be in a state.
func (f *fixture) callback(ref, state string) {
	f.t.Helper()
	until(f.t, "the callback of "+ref+" to be "+state, func() bool { return f.record(ref).str("callback.state") == state })
}

// TestKilledCallbacks: what was not confirmed is made after the restart, under the same
// X-Callback-Id; what was confirmed is not; a dead letter is one still.
func TestKilledCallbacks(t *testing.T) {
	o, r := durable(t), receiveMoody(t)
	p := launch(t, o)
	edge := p.edge("edge-1", "td-01")
	for _, ref := range []string{"fine", "busy", "hung", "gone"} {
		p.post(ref, "td-01", `,"callback_url":"`+r.URL+"/"+ref+`"`)
		edge.expectCommand(ref)
		edge.sendf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"COMPLETED","executionTime":7,"result":{ "of" :[1.0,"\u0041"]}}`, ref)
		r.waitAt("/"+ref, 1)
	}
	p.post("busy-cancelled", "td-01", `,"callback_url":"`+r.URL+`/busy-cancelled"`)
	edge.expectCommand("busy-cancelled")
	p.want(200, "", "DELETE", "/api/commands/busy-cancelled", "")
	edge.expect("CANCEL")
	p.post("hung-late", "td-01", `,"timeout":20,"callback_url":"`+r.URL+`/hung-late"`)
	edge.expectCommand("hung-late")
	r.waitAt("/busy-cancelled", 1)
	r.waitAt("/hung-late", 1)
	p.callback("fine", "DELIVERED")
	p.callback("gone", "DEAD")
	until(t, "busy to have been tried", func() bool { return p.record("busy").get("callback.attempts") == 1.0 })
	p.post("open", "td-01", `,"timeout":3600000,"callback_url":"`+r.URL+`/open"`)
	edge.expectCommand("open")
	p.seal(edge, "sealed", "td-01")
	p.kill()
	r.heal()

	p = launch(t, o)
	for ref, state := range map[string]string{"fine": "DELIVERED", "gone": "DEAD"} {
		if a := p.record(ref); a.str("callback.state") != state {
			t.Errorf("%s after the restart: %s", ref, a.body)
		}
	}
	for ref, status := range map[string]string{"busy": "COMPLETED", "hung": "COMPLETED", "busy-cancelled": "CANCELLED", "hung-late": "TIMEOUT"} {
		if h := r.waitAt("/"+ref, 2)[1]; h.fields["status"] != status || h.fields["requestRef"] != ref {
			t.Errorf("%s was called back as %s", ref, h.body)
		}
		p.callback(ref, "DELIVERED")
	}
	dead := p.want(200, "", "GET", "/api/callbacks?state=dead", "")
	letters, _ := dead.get("callbacks").([]any)
	if len(letters) != 1 {
		t.Fatalf("dead letters: %s", dead.body)
	}
	letter := letters[0].(map[string]any)
	if id := r.at("/gone")[0].header.Get("X-Callback-Id"); letter["id"] != id || letter["requestRef"] != "gone" || letter["url"] != r.URL+"/gone" {
		t.Errorf("the letter of %s: %s", id, dead.body)
	}
	p.want(202, "", "POST", "/api/callbacks/"+letter["id"].(string)+"/retry", "")
	if h := r.waitAt("/gone", 2)[1]; h.header.Get("X-Callback-Attempt") != "1/3" {
		t.Errorf("sent again as attempt %s", h.header.Get("X-Callback-Attempt"))
	}
	p.callback("gone", "DELIVERED")
	edge = p.edge("edge-1", "td-01")
	edge.respond("open")
	r.waitAt("/open", 1)
	p.callback("open", "DELIVERED")
	p.seal(edge, "sealed-too", "td-01")
	p.kill()

	p = launch(t, o)
	for _, ref := range []string{"fine", "busy", "hung", "gone", "open", "busy-cancelled", "hung-late"} {
		if a := p.record(ref); a.str("callback.state") != "DELIVERED" {
			t.Errorf("%s after the second restart: %s", ref, a.body)
		}
	}
	if a := p.call("GET", "/api/callbacks?state=dead", ""); len(a.get("callbacks").([]any)) != 0 {
		t.Errorf("dead letters after all were sent: %s", a.body)
	}
	edge = p.edge("edge-1", "td-01")
	p.post("last", "td-01", `,"callback_url":"`+r.URL+`/last"`)
	edge.expectCommand("last")
	edge.respond("last")
	p.callback("last", "DELIVERED")
	ids := map[string]string{}
	for path, n := range map[string]int{"/fine": 1, "/busy": 2, "/hung": 2, "/gone": 2, "/open": 1, "/last": 1, "/busy-cancelled": 2, "/hung-late": 2} {
		hits := r.waitAt(path, 1)
		if len(hits) != n {
			t.Errorf("%d callbacks to %s, want %d", len(hits), path, n)
		}
		id := hits[0].header.Get("X-Callback-Id")
		if ids[id] != "" {
			t.Errorf("%s and %s have one id, %s", path, ids[id], id)
		}
		ids[id] = path
	}
}

// TestKilledBetweenAttempts: killed again and again before anybody confirms, a callback
// keeps its id, and dies in the end as it would have without.
func TestKilledBetweenAttempts(t *testing.T) {
	o := durable(t)
	r := receive(t, func(int) int { return 500 })
	p := launch(t, o)
	edge := p.edge("edge-1", "td-01")
	p.post("r", "td-01", `,"callback_url":"`+r.URL+`/{request_ref}"`)
	edge.expectCommand("r")
	edge.respond("r")
	for life := range 2 {
		r.wait(life + 1)
		p.kill()
		p = launch(t, o)
		if a := p.record("r"); a.str("status") != "COMPLETED" || a.str("callback.state") != "PENDING" {
			t.Errorf("life %d: %s", life, a.body)
		}
	}
	p.callback("r", "DEAD")
	p.seal(p.edge("edge-1", "td-01"), "sealed", "td-01")
	p.kill()
	p = launch(t, o)
	if a := p.record("r"); a.str("callback.state") != "DEAD" {
		t.Errorf("after it died: %s", a.body)
	}
	a := p.call("GET", "/api/callbacks?state=dead", "")
	hits := r.wait(3)
	id := hits[0].header.Get("X-Callback-Id")
	if !strings.Contains(string(a.body), `"`+id+`"`) {
		t.Errorf("dead letters: %s, want %s", a.body, id)
	}
	for _, h := range hits {
		if h.header.Get("X-Callback-Id") != id || h.path != "/r" {
			t.Errorf("callback %q to %s, the first was %s", h.header["X-Callback-Id"], h.path, id)
		}
	}
}
