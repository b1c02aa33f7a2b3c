package router

import (
	"reflect"
	"testing"
)

// TestWorkForgets: nothing of a message stays with what it was worked on with.
func TestWorkForgets(t *testing.T) {
	r := newRouter(Limits{}, notices{})
	backend := party(r, newConn(deaf), registerBackend("backend-1"), t0)
	edge := party(r, newConn(deaf), registerEdge("edge-1", true, "td-1"), t0)
	w := new(work)
	for _, m := range []struct {
		s   *Session
		msg string
	}{
		{edge, registerEdge("edge-1", true, "td-1", "td-2")},
		{edge, `{"type":"REGISTER","clientId":7,"clientType":"EDGE"}`},
		{backend, commandTo("r1", "td-1", `,"callback":"http://example/cb"`)},
		{backend, commandTo("r2", "td-1", "")},
		{backend, commandTo("r2", "td-1", `,"timeout":-1`)},
		{edge, `{"type":"PROGRESS_UPDATE","requestRef":"r1","progress":5}`},
		{edge, `{"type":"COMMAND_RESPONSE","requestRef":"r1","status":"COMPLETED","result":{"a":1}}`},
		{edge, `{"type":"ERROR","requestRef":"r2","code":"C","message":"m"}`},
	} {
		m.s.receive(w, []byte(m.msg), t0)
		w.forget()
		for name, x := range map[string]any{"message": w.env.Msg, "command": w.command, "register": w.register,
			"response": w.response, "progress": w.progress, "failure": w.failure, "note": w.note} {
			if !reflect.ValueOf(x).IsZero() {
				t.Errorf("after %s the %s holds %v", m.msg, name, x)
			}
		}
	}
	for _, ref := range []string{"r1", "r2"} {
		if rec := r.Record([]byte(ref)); rec == nil || rec.Status == "PENDING" || rec.Status == "DISPATCHED" {
			t.Errorf("%s: %v", ref, rec)
		}
	}
}
