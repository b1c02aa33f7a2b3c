package front

import (
	"net"
	"slices"
	"testing"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

// closings lists what was counted, a name for each WebSocket that ended.
func (f *fixture) closings() (names []string) {
	for i, n := range f.s.Stats().Closed {
		for range n {
			names = append(names, CloseReason(i).String())
		}
	}
	return names
}

// wantClosed checks what has been counted, in the order of the reasons.
func (f *fixture) wantClosed(want ...string) {
	f.t.Helper()
	if got := f.closings(); !slices.Equal(got, want) {
		f.t.Errorf("counted %q, want %q", got, want)
	}
}

// Every WebSocket that ends is counted once, for the reason it ended for.
func TestClosedByReason(t *testing.T) {
	closeWith := func(code uint16) func(*client, *echo) {
		return func(c *client, e *echo) { e.c.CloseWith(code, "") }
	}
	send := func(b []byte) func(*client, *echo) {
		return func(c *client, e *echo) { c.write(b) }
	}
	for _, tc := range []struct {
		want string
		end  func(*client, *echo)
	}{
		{"normal", closeWith(wire.CloseNormal)},
		{"going_away", closeWith(wire.CloseGoingAway)},
		{"protocol_error", send([]byte{0xff, 0x80, 0, 0, 0, 0})},
		{"invalid_data", send(text("\xff"))},
		{"too_big", send(text(string(make([]byte, limit+1))))},
		{"try_again", closeWith(wire.CloseTryAgain)},
		{"invalid_messages", closeWith(wire.CloseInvalid)},
		{"unregistered", closeWith(wire.CloseUnregistered)},
		{"superseded", closeWith(wire.CloseSuperseded)},
		{"silent", closeWith(wire.CloseSilent)},
		{"too_slow", closeWith(wire.CloseTooSlow)},
		{"other", closeWith(wire.CloseForbidden)},
		{"peer_closed", send(frame(ws.OpClose, true, closeBody(wire.CloseTooSlow, "")))}, // its code is its own affair
		{"peer_closed", func(c *client, _ *echo) { _ = c.conn.Close() }},
		{"lost", func(c *client, _ *echo) {
			_ = c.conn.(*net.TCPConn).SetLinger(0)
			_ = c.conn.Close()
		}},
		{"superseded", func(c *client, e *echo) { // only the first counts
			e.c.CloseWith(wire.CloseSuperseded, "")
			e.c.CloseWith(wire.CloseSilent, "")
			c.wantClose(4409)
			c.write(frame(ws.OpClose, true, closeBody(4409, "")))
		}},
	} {
		t.Run(tc.want, func(t *testing.T) {
			f := serve(t, func(o *Options) { o.MaxMessage = limit })
			c, e := f.dial(), f.session()
			tc.end(c, e)
			until(t, "it is gone", func() bool { return f.s.stats.total.Load() == 0 })
			f.wantClosed(tc.want)
		})
	}
}

// One that Open refuses was a WebSocket; what never became one is not counted.
func TestClosedCountsWebSockets(t *testing.T) {
	f := serve(t, func(o *Options) {
		o.HTTP, o.Open = api, func(*Conn, wire.Time) Session { return nil }
	})
	f.dial().wantClose(1013)
	_, _ = f.answer(get)
	_, _ = f.answer(refusals[0].raw)
	silent := f.tcp()
	until(t, "one waits", func() bool { return f.s.Stats().Waiting > 0 })
	_ = silent.Close()
	until(t, "none waits", func() bool { return f.s.Stats().Waiting == 0 })
	f.wantClosed("try_again")
}

func TestCloseReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for i := range (Stats{}).Closed {
		name := CloseReason(i).String()
		if name == "" || seen[name] {
			t.Errorf("reason %d is called %q", i, name)
		}
		seen[name] = true
	}
	if got := numCloseReasons.String(); got != "other" {
		t.Errorf("one that does not exist is called %q", got)
	}
}
