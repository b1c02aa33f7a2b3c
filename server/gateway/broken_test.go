package gateway_test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"subway/server/gateway"
)

// TestViolations breaks RFC 6455 in every way: the code of the close frame tells which
// rule it was, and the others are served on.
func TestViolations(t *testing.T) {
	f := start(t, nil)
	edge, other := f.edge("edge-1", "td-01"), f.backend("backend-2")
	unmasked := ws.MustCompileFrame(ws.NewTextFrame([]byte(`{"type":"HEARTBEAT"}`)))
	closeWith := func(code uint16, reason string) []byte {
		return frame(ws.OpClose, true, append(binary.BigEndian.AppendUint16(nil, code), reason...))
	}
	bits := func(b []byte, xor byte) []byte { b[0] ^= xor; return b }
	text := func() []byte { return frame(ws.OpText, true, []byte(`{"type":"HEARTBEAT"}`)) }
	long := func(n uint64) []byte { return append(binary.BigEndian.AppendUint64([]byte{0x81, 0xff}, n), 0, 0, 0, 0) }
	for _, row := range []struct {
		name string
		code int
		sent []byte
	}{
		{"an unmasked frame", 1002, unmasked},
		{"reserved bit 1", 1002, bits(text(), 0x40)},
		{"reserved bit 2", 1002, bits(text(), 0x20)},
		{"reserved bit 3", 1002, bits(text(), 0x10)},
		{"reserved opcode 3", 1002, bits(text(), 0x02)},
		{"reserved opcode 11", 1002, bits(frame(ws.OpPing, true, nil), 0x02)},
		{"a ping in fragments", 1002, frame(ws.OpPing, false, nil)},
		{"a ping of 126 bytes", 1002, frame(ws.OpPing, true, make([]byte, 126))},
		{"a continuation of nothing", 1002, frame(ws.OpContinuation, true, nil)},
		{"a message inside another", 1002, append(frame(ws.OpText, false, []byte("{")), text()...)},
		{"a close body of one byte", 1002, frame(ws.OpClose, true, []byte{3})},
		{"close code 999", 1002, closeWith(999, "")},
		{"close code 1004", 1002, closeWith(1004, "")},
		{"close code 1005", 1002, closeWith(1005, "")},
		{"close code 1006", 1002, closeWith(1006, "")},
		{"close code 1015", 1002, closeWith(1015, "")},
		{"close code 2999", 1002, closeWith(2999, "")},
		{"close code 5000", 1002, closeWith(5000, "")},
		{"a close reason that is not UTF-8", 1002, closeWith(1000, "\xff")},
		{"a length of 5 in 16 bits", 1002, []byte{0x81, 0xfe, 0, 5, 0, 0, 0, 0}},
		{"a length of 5 in 64 bits", 1002, long(5)},
		{"a length over 63 bits", 1002, long(1 << 63)},
		{"a message over 1 MiB", 1009, long(1<<20 + 1)},
		{"a message over 1 MiB in fragments", 1009, append(frame(ws.OpText, false, make([]byte, 1<<20)), frame(ws.OpContinuation, true, []byte("x"))...)},
		{"text that is not UTF-8", 1007, frame(ws.OpText, true, []byte("\xff"))},
		{"a close", 1000, closeWith(1000, "done")},
		{"a close of our own codes", 4000, closeWith(4000, "")},
		{"an empty close", 1000, frame(ws.OpClose, true, nil)},
	} {
		p := f.backend("backend-1")
		_, _ = p.conn.Write(row.sent) // it may be cut before all is taken
		if got := p.closes(); got != row.code {
			t.Errorf("%s: closed with %d, want %d", row.name, got, row.code)
		}
		_ = p.conn.Close()
	}
	other.command("after", "td-01", "")
	edge.expectCommand("after")
	edge.respond("after")
	other.expect("COMMAND_RESPONSE")
	until(t, "no connection is left over", func() bool { return f.metric(`subway_active_connections{node_type="backend"}`) == 1 })
}

// TestFragments: a message may come in pieces with control frames between them.
func TestFragments(t *testing.T) {
	f := start(t, nil)
	p := f.backend("backend-1")
	msg := []byte(`{"type":"HEARTBEAT","x":"` + strings.Repeat("ü", 70_000) + `"}`)
	var sent []byte
	for i, op := 0, ws.OpText; i < len(msg); i, op = i+977, ws.OpContinuation {
		end := min(i+977, len(msg))
		sent = append(sent, frame(op, end == len(msg), msg[i:end])...)
		sent = append(sent, frame(ws.OpPing, true, []byte("p"))...)
	}
	p.write(sent)
	p.expect("HEARTBEAT_ACK")
	p.write(frame(ws.OpText, true, append([]byte(`{"type":"HEARTBEAT","x":"`), []byte(strings.Repeat("x", 1<<20-27)+`"}`)...)))
	p.expect("HEARTBEAT_ACK")
}

// TestBeforeRegister: nothing counts before a REGISTER but the REGISTER.
func TestBeforeRegister(t *testing.T) {
	f := start(t, func(o *gateway.Options) { o.RegisterTimeout = 400 * time.Millisecond })
	edge := f.edge("edge-1", "td-01")
	for _, msg := range []string{
		goodWS + `}`, `{"type":"HEARTBEAT"}`, `{"type":"COMMAND_RESPONSE","requestRef":"r","status":"COMPLETED"}`,
		`{"type":"CANCEL","requestRef":"r","targetClientId":"td-01"}`, `{"type":"DEVICE_STATUS","clientId":"td-01","status":{}}`,
		`{"type":"UNREGISTER","clientId":"td-01"}`, `{"type":"ERROR","code":"X","message":"m"}`,
	} {
		p := f.dial()
		p.send(msg)
		p.expectError("NOT_REGISTERED")
		p.send(`{"type":"REGISTER","clientId":"backend-1","clientType":"BACKEND"}`)
		p.expect("REGISTER_ACK")
		_ = p.conn.Close()
	}
	edge.quiet()
	p := f.dial()
	p.write(frame(ws.OpPing, true, nil))
	p.wantClose(4408)
	idle := f.backend("backend-2") // past the time it had
	until(t, "another is late", func() bool { return f.dial().closes() == 4408 })
	idle.quiet()
}

// TestBadRegister: who may say what of whom.
func TestBadRegister(t *testing.T) {
	f := start(t, nil)
	for _, row := range []struct{ msg, code, field string }{
		{`{"type":"REGISTER","clientType":"EDGE"}`, "INVALID_MESSAGE", "clientId"},
		{`{"type":"REGISTER","clientId":"a b","clientType":"EDGE"}`, "INVALID_MESSAGE", "clientId"},
		{`{"type":"REGISTER","clientId":"a"}`, "INVALID_MESSAGE", "clientType"},
		{`{"type":"REGISTER","clientId":"a","clientType":"ROBOT"}`, "INVALID_MESSAGE", "clientType"},
		{`{"type":"REGISTER","clientId":"a","clientType":"EDGE","devices":{}}`, "INVALID_MESSAGE", "devices"},
		{`{"type":"REGISTER","clientId":"a","clientType":"EDGE","devices":["a b"]}`, "INVALID_MESSAGE", "devices"},
		{`{"type":"REGISTER","clientId":"a","clientType":"DEVICE","edgeInfo":{}}`, "INVALID_MESSAGE", "edgeInfo.edgeId"},
		{`{"type":"REGISTER","clientId":"a","clientType":"DEVICE","edgeInfo":{"edgeId":"e","edgeId":"e"}}`, "INVALID_MESSAGE", "edgeInfo.edgeId"},
		{`{"type":"REGISTER","clientId":"a","clientType":"EDGE","version":"3.0"}`, "UNSUPPORTED_VERSION", "version"},
	} {
		p := f.dial()
		p.send(row.msg)
		if m := p.expectError(row.code); m.str("details.field") != row.field {
			t.Errorf("%s: %s, want field %s", row.msg, m.raw, row.field)
		}
		_ = p.conn.Close()
	}
	edge := f.edge("edge-1", "td-01")
	for _, msg := range []string{
		`{"type":"REGISTER","clientId":"edge-2","clientType":"EDGE"}`,
		`{"type":"REGISTER","clientId":"edge-1","clientType":"BACKEND"}`,
		`{"type":"REGISTER","clientId":"td-02","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-2"}}`,
		`{"type":"REGISTER","clientId":"td-02","clientType":"DEVICE"}`,
		`{"type":"DEVICE_STATUS","clientId":"td-02","status":{}}`, goodWS + `}`,
		`{"type":"CANCEL","requestRef":"r","targetClientId":"td-01"}`,
	} {
		edge.send(msg)
		edge.expectError("FORBIDDEN")
	}
	f.want(404, "NOT_FOUND", "GET", "/api/devices/td-02", "")
	f.want(404, "NOT_FOUND", "GET", "/api/edges/edge-2", "")
}

// TestTooManyInvalid: the 100th invalid message in a row closes, a good one between
// them starts the count anew.
func TestTooManyInvalid(t *testing.T) {
	f := start(t, nil)
	p := f.backend("backend-1")
	for range 3 {
		for range 99 {
			p.send(`{"type":"NONE"}`)
			p.expectError("INVALID_MESSAGE")
		}
		p.quiet()
	}
	for range 100 {
		p.send(`{"type":"NONE"}`)
	}
	p.wantClose(4400)
}

// TestHalfHandshake: connections that end, or stay, in the middle of a request head
// leave nothing behind and disturb nobody.
func TestHalfHandshake(t *testing.T) {
	f := start(t, nil)
	half := handshake[:len(handshake)/2]
	for range 50 {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(half))
		_ = conn.Close()
	}
	stays, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stays.Close() }()
	_, _ = stays.Write([]byte(half))
	f.backend("backend-1").quiet()
	until(t, "one waits", func() bool { return f.metric(`subway_connections{kind="waiting"}`) == 1 })
	_, _ = stays.Write([]byte(handshake[len(half):] + string(frame(ws.OpPing, true, []byte("x")))))
	until(t, "it came through", func() bool { return f.metric(`subway_connections{kind="websocket"}`) == 2 })
}

// TestSilentPeer: who sends nothing is lost.
func TestSilentPeer(t *testing.T) {
	f := start(t, func(o *gateway.Options) {
		o.PingInterval, o.SilenceTimeout = 100*time.Millisecond, 700*time.Millisecond
	})
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	m := backend.news("CONNECTION_STATUS", "edge-1", "OFFLINE")
	if m.str("reason") != "heartbeat lost" || m.get("devices") != 1.0 {
		t.Errorf("got %s", m.raw)
	}
	for {
		op, b, err := edge.frame()
		if err != nil {
			t.Fatal(err)
		}
		if op == ws.OpClose {
			if code := binary.BigEndian.Uint16(b); code != 4410 {
				t.Errorf("closed with %d", code)
			}
			return
		}
	}
}
