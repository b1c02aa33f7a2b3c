package front

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"subway/core/wire"
)

// wantGoing reads the answer to a handshake that comes too late.
func wantGoing(t *testing.T, br *bufio.Reader) {
	t.Helper()
	r, body := readAnswer(t, br, request)
	if r.StatusCode != 503 || !r.Close || r.Header.Get("Content-Type") != "application/json" ||
		!strings.Contains(body, `"code":"GATEWAY_UNAVAILABLE","details":{"service":"gateway"`) {
		t.Errorf("got %s %v %s", r.Status, r.Header, body)
	}
}

// Who was closed is not let in again, and readiness can still be asked for.
func TestStopAccepting(t *testing.T) {
	f := serve(t, withAPI)
	ws, e := f.dial(), f.session()
	old := f.tcp()
	oldReader := bufio.NewReader(old)
	ask := func() {
		t.Helper()
		_, _ = io.WriteString(old, get)
		if r, _ := readAnswer(t, oldReader, get); r.StatusCode != 200 || r.Close {
			t.Errorf("an old connection: %s, close %v", r.Status, r.Close)
		}
		if r, _ := f.answer(get); r.StatusCode != 200 || r.Close {
			t.Errorf("a new connection: %s, close %v", r.Status, r.Close)
		}
	}
	ask()

	f.s.StopAccepting()
	ask()
	ws.write(text("still here"))
	ws.expect("still here")
	f.s.CloseAll(wire.CloseGoingAway, "going down")
	ws.wantClose(1001)
	wantReason(t, e, "going down")
	again := f.tcp()
	_, _ = io.WriteString(again, request)
	wantGoing(t, bufio.NewReader(again))
	ask()
	_, _ = io.WriteString(old, request)
	wantGoing(t, oldReader)
	if n := len(f.sessions); n != 0 {
		t.Errorf("%d sessions were opened", n)
	}
}

// A handshake that was found good on its HTTP connection, but has not reached its loop
// when that closes everything, is not forgotten there.
func TestStopAcceptingOnTheWayBack(t *testing.T) {
	held, hold := make(chan struct{}), make(chan struct{})
	f := serve(t, func(o *Options) {
		o.HTTP, o.Loops = api, 1
		receiving(func(*echo, []byte) {
			close(held)
			<-hold // the whole loop
		})(o)
	})
	conn := f.tcp()
	br := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, get)
	readAnswer(t, br, get)
	holder := f.dial()
	f.session()
	holder.write(text("hold"))
	<-held
	_, _ = io.WriteString(conn, get+request)
	readAnswer(t, br, get) // is sent when the handshake behind it was looked at

	f.s.StopAccepting()
	f.s.CloseAll(wire.CloseGoingAway, "going down")
	close(hold)
	holder.wantClose(1001)
	wantGoing(t, br)
	if rest, err := io.ReadAll(br); len(rest) != 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	_, _ = holder.conn.Close(), conn.Close()
	until(t, "no connection left", func() bool { return f.s.stats.total.Load() == 0 })
	f.wantClosed("going_away") // the holder; the other never was one
	if st := f.s.Stats(); st.WebSockets != 0 || st.HTTP != 0 || len(f.sessions) != 0 {
		t.Errorf("stats %+v, %d sessions", st, len(f.sessions))
	}
}
