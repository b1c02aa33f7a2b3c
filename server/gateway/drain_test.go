package gateway_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestDrain: from Shutdown on nothing new is taken and what is in flight may end; its
// callbacks are made, connections are closed with 1001, and nothing is left running.
func TestDrain(t *testing.T) {
	here := goleak.IgnoreCurrent()
	r := receive(t, nil)
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	const n = 50
	for i := range n {
		ref := fmt.Sprintf("r-%d", i)
		backend.command(ref, "td-01", `,"callback":"`+r.URL+`"`)
		edge.expectCommand(ref)
	}
	down := make(chan time.Time)
	go func() { f.stop(patience); down <- time.Now() }()
	until(t, "draining", func() bool { return f.call("GET", "/readyz", "").status == 503 })
	f.want(200, "", "GET", "/healthz", "")
	f.want(503, "GATEWAY_UNAVAILABLE", "POST", "/api/commands", postTD+`}`)
	backend.command("late", "td-01", "")
	if m := backend.expectError("GATEWAY_UNAVAILABLE"); m.str("requestRef") != "late" {
		t.Errorf("got %s", m.raw)
	}
	comer := f.edge("edge-2", "td-02") // may still come, and answer
	comer.quiet()
	_ = comer.conn.Close()
	for i := range n {
		edge.respond(fmt.Sprintf("r-%d", i))
		backend.expect("COMMAND_RESPONSE")
	}
	ended := time.Now()
	edge.wantClose(1001)
	backend.wantClose(1001)
	_ = backend.conn.Close()
	_ = edge.conn.Close()
	if took := (<-down).Sub(ended); took > 10*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if hits := r.wait(n); len(hits) != n {
		t.Errorf("%d callbacks, want %d", len(hits), n)
	}
	if conn, err := net.Dial("tcp", f.addr); err == nil {
		_ = conn.Close()
		t.Error("the port still takes connections")
	}
	r.Close()
	f.http.CloseIdleConnections()
	goleak.VerifyNone(t, append(processLifetime, here)...)
}

// TestDrainEnds: what does not end in its time is left; who waits for it is answered.
func TestDrainEnds(t *testing.T) {
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	backend.command("r-1", "td-01", "")
	edge.expectCommand("r-1")
	waited := make(chan *answer, 1)
	go func() {
		a, err := f.try("GET", "/api/commands/r-1?wait=60000", "")
		if err != nil {
			t.Errorf("the waiting request: %v", err)
		}
		waited <- a
	}()
	until(t, "the request waits", func() bool { return f.metric(`subway_connections{kind="http"}`) >= 2 })
	began := time.Now()
	done := make(chan struct{})
	go func() { f.stop(300 * time.Millisecond); close(done) }()
	backend.wantClose(1001)
	edge.wantClose(1001)
	_ = backend.conn.Close()
	_ = edge.conn.Close()
	<-done
	if took := time.Since(began); took < 300*time.Millisecond || took > 10*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if a := <-waited; a != nil && (a.status != 200 || a.str("status") != "DISPATCHED") {
		t.Errorf("the waiting request: %d %s", a.status, a.body)
	}
}

// TestDrainOfNothing: where nothing is in flight the end is quick, also with peers that
// say nothing more.
func TestDrainOfNothing(t *testing.T) {
	f := start(t, nil)
	p := f.backend("backend-1")
	f.want(200, "", "GET", "/healthz", "")
	idle, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	closed := make(chan int)
	go func() { closed <- p.closes(); _ = p.conn.Close() }()
	began := time.Now()
	f.stop(patience)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if code := <-closed; code != 1001 {
		t.Errorf("closed with %d", code)
	}
}
