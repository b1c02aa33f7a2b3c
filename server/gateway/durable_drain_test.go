package gateway_test

import (
	"testing"
	"time"
)

// TestDrainLeavesTheRest: a Gateway that is told to end gives what is in flight its time,
// refuses what is new, and what has not ended by then is there at the next start, with
// nothing told of it meanwhile (PROTOCOL.md section 9).
func TestDrainLeavesTheRest(t *testing.T) {
	o := durable(t)
	o.Drain = 3 * time.Second
	p := launch(t, o)
	edge := p.join(dedupeRegister("edge-1", "td-01"))
	const hour = `,"timeout":3600000`
	for _, ref := range []string{"ends", "stays"} {
		p.post(ref, "td-01", hour)
		edge.expectCommand(ref)
	}
	plain := p.edge("edge-2", "td-02")
	p.post("once", "td-02", hour)
	plain.expectCommand("once")
	_ = p.stdin.Close()
	until(t, "the drain begins", func() bool {
		a, err := p.try("GET", "/readyz", "")
		return err == nil && a.status == 503
	})
	p.want(503, "GATEWAY_UNAVAILABLE", "POST", "/api/commands", `{"targetClientId":"td-01","requestRef":"new","command":{"commandType":"T"}}`)
	edge.respond("ends")
	if a := p.final("ends"); a.str("status") != "COMPLETED" {
		t.Errorf("ends: %s", a.body)
	}
	edge.wantClose(1001)
	plain.wantClose(1001)
	p.end()

	p = launch(t, o)
	for ref, want := range map[string]string{"ends": "COMPLETED", "stays": "DISPATCHED", "once": "DISPATCHED"} {
		if a := p.call("GET", "/api/commands/"+ref, ""); a.str("status") != want {
			t.Errorf("%s is %s after the restart", ref, a.body)
		}
	}
	p.want(404, "COMMAND_NOT_FOUND", "GET", "/api/commands/new", "")
	edge = p.join(dedupeRegister("edge-1", "td-01"))
	edge.wantHanded("stays")
	edge.respond("stays")
	plain = p.edge("edge-2", "td-02")
	plain.quiet()
	plain.respond("once")
	for _, ref := range []string{"stays", "once"} {
		if a := p.final(ref); a.str("status") != "COMPLETED" {
			t.Errorf("%s: %s", ref, a.body)
		}
	}
}
