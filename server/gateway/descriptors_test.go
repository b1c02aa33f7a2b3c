package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// shed opens connections and returns those that the Gateway keeps, and how many it
// closed at once. A kept one has come through the handshake.
func (f *fixture) shed(n int) (kept []*party, closed int) {
	f.t.Helper()
	for range n {
		p, err := f.tryDial()
		switch {
		case err == nil:
			kept = append(kept, p)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
			closed++
		default:
			f.t.Fatal(err)
		}
	}
	return kept, closed
}

// works sends a command from one to the other.
func works(backend, edge *party, ref string) {
	backend.t.Helper()
	backend.command(ref, "td-01", "")
	edge.expectCommand(ref)
	edge.respond(ref)
	backend.expect("COMMAND_RESPONSE")
}

// askOften opens connections, each with a request whose answer nobody reads, and then
// closes them all.
func (f *fixture) askOften(n int) {
	f.t.Helper()
	for range n {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			f.t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, head("GET", "/api/devices"))
	}
}

// TestNoDescriptors: with all descriptors in use new connections are closed at once,
// those that are there work, HTTP is answered where it has a connection, and when some
// go others may come.
func TestNoDescriptors(t *testing.T) {
	f, pid := startChild(t, childOptions{MaxFiles: 256})
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	f.want(200, "", "GET", "/healthz", "") // this connection stays
	for round := range 3 {
		kept, closed := f.shed(400)
		if closed == 0 || len(kept) < 100 {
			t.Fatalf("%d connections kept, %d closed", len(kept), closed)
		}
		works(backend, edge, fmt.Sprintf("full-%d", round))
		f.want(200, "", "GET", "/healthz", "")
		for _, p := range kept {
			_ = p.conn.Close()
		}
		f.askOften(400)
		works(backend, edge, fmt.Sprintf("asked-%d", round))
		until(t, "there is room again", func() bool { return f.metric(`subway_connections{kind="websocket"}`) == 2 })
		if round == 0 {
			t.Logf("of 400 connections under a limit of 256 descriptors %d were kept; %g were shed", len(kept), f.metric("subway_connections_shed_total"))
		}
		newcomer := f.backend("backend-2")
		works(newcomer, edge, fmt.Sprintf("again-%d", round))
		_ = newcomer.conn.Close()
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the Gateway's process: %v", err)
	}
}

// TestCallbacksLeaveDescriptors: many receivers that take a connection and say nothing
// cannot take the descriptors that the port needs.
func TestCallbacksLeaveDescriptors(t *testing.T) {
	f, _ := startChild(t, childOptions{MaxFiles: 256})
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	f.want(200, "", "GET", "/healthz", "")
	const receivers = 300
	for i := range receivers {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.1.%d.%d:0", i/200, 1+i%200))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		ref := fmt.Sprintf("r-%d", i)
		backend.command(ref, "td-01", `,"callback":"http://`+ln.Addr().String()+`/"`)
		edge.expectCommand(ref)
		edge.respond(ref)
		backend.expect("COMMAND_RESPONSE")
	}
	held := time.Now()
	until(t, "connections to receivers are open", func() bool {
		return f.metric("process_open_fds") > 100 || time.Since(held) > time.Second
	})
	t.Logf("%g descriptors open", f.metric("process_open_fds"))
	for round := range 3 {
		kept, _ := f.shed(200)
		works(backend, edge, fmt.Sprintf("full-%d", round))
		for _, p := range kept {
			_ = p.conn.Close()
		}
	}
	until(t, "a newcomer is taken", func() bool {
		p, err := f.tryDial()
		if err == nil {
			_ = p.conn.Close()
		}
		return err == nil
	})
	works(backend, edge, "still")
}
