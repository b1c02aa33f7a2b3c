package edge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"subway/core/wire"
	"subway/server/edge/local"
)

// quiet is a device's connection without a socket.
type quiet struct{ got chan string }

func (q *quiet) Append(class wire.Class, a, _, _ []byte) wire.Result {
	if class == wire.ClassCommand && q.got != nil {
		at := strings.Index(string(a), `"requestRef":"`) + len(`"requestRef":"`)
		q.got <- string(a[at : at+strings.IndexByte(string(a[at:]), '"')])
	}
	return wire.Accepted
}
func (q *quiet) CloseWith(uint16, string) {}

// crowd registers n devices.
func crowd(tb testing.TB, e *Edge, n int) []local.Session {
	tb.Helper()
	all := make([]local.Session, n)
	for i := range all {
		all[i] = e.Open(&quiet{}, "test", e.Now())
		all[i].Receive(fmt.Appendf(nil, `{"type":"REGISTER","clientId":"td-%05d","clientType":"DEVICE","deviceInfo":{"model":"P3","firmware":"2.1"}}`, i), e.Now())
		if !all[i].Registered() {
			tb.Fatalf("device %d was not registered", i)
		}
	}
	return all
}

// registered is how long it takes from a loss of the link, which is tried again at once,
// until the Gateway has all devices again.
func registered(tb testing.TB, e *Edge, x *proxy, gateway string, n int) time.Duration {
	tb.Helper()
	e.mu.Lock()
	gen := e.up.gen
	e.mu.Unlock()
	x.cut()
	var began time.Time
	until(tb, "the link", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if began.IsZero() && !e.up.registered {
			began = time.Now()
		}
		return e.up.gen > gen && e.up.registered
	})
	until(tb, "the devices", func() bool {
		s := httpGet(gateway, "/api/edges/edge-1")
		return strings.Contains(s, fmt.Sprintf(`"devices":%d,`, n)) && strings.Contains(s, `"ONLINE"`)
	})
	if began.IsZero() {
		began = time.Now() // too quick to be seen
	}
	return time.Since(began)
}

// TestFiveThousand registers 5,000 devices again in one message and within a second.
func TestFiveThousand(t *testing.T) {
	st := newStation(t)
	e := startEdge(t, options("edge-1", t.TempDir(), st.url()))
	l := st.accept()
	crowd(t, e, 5000)
	l.cut()
	l = st.accept()
	if m := l.expect("REGISTER", ""); len(m.Devices) != 5000 {
		t.Errorf("%d devices in the first message", len(m.Devices))
	}
	l.command("td-04999", "r1", "")
	l.send(`{"type":"HEARTBEAT"}`)
	l.expect("HEARTBEAT_ACK", "")
	if n := l.count("REGISTER", ""); n != 0 {
		t.Errorf("%d more messages", n)
	}

	g := startGateway(t)
	x := newProxy(t, g.Addr().String())
	opt := options("edge-1", t.TempDir(), x.url())
	opt.Schedule.First = time.Millisecond
	e2 := startEdge(t, opt)
	until(t, "the link", e2.isUp)
	crowd(t, e2, 5000)
	if took := registered(t, e2, x, g.Addr().String(), 5000); took > time.Second {
		t.Errorf("it took %v", took)
	} else {
		t.Log(took)
	}
}

// BenchmarkReconnect5000 is the time from the loss of the link to 5,000 routes at a real
// Gateway, in one frame.
func BenchmarkReconnect5000(b *testing.B) {
	g := startGateway(b)
	x := newProxy(b, g.Addr().String())
	opt := options("edge-1", b.TempDir(), x.url())
	opt.Schedule.First = time.Millisecond
	e := startEdge(b, opt)
	until(b, "the link", e.isUp)
	crowd(b, e, 5000)
	e.mu.Lock()
	size := len(e.appendSnapshot(nil, e.now()))
	e.mu.Unlock()
	for b.Loop() {
		registered(b, e, x, g.Addr().String(), 5000)
	}
	b.ReportMetric(float64(size), "bytes/frame")
}

// BenchmarkCommand is a command and its answer through a real edge between a scripted
// Gateway and a device without a socket, with every ref on disk before the hand-over.
func BenchmarkCommand(b *testing.B) {
	for _, window := range []int{1, 64} {
		b.Run(fmt.Sprintf("window %d", window), func(b *testing.B) {
			st := newStation(b)
			e := startEdge(b, options("edge-1", b.TempDir(), st.url()))
			l := st.accept()
			got := make(chan string, window)
			const devices = 8
			sessions := make([]local.Session, devices)
			for i := range sessions {
				sessions[i] = e.Open(&quiet{got: got}, "test", e.Now())
				sessions[i].Receive(fmt.Appendf(nil, `{"type":"REGISTER","clientId":"td-%d","clientType":"DEVICE"}`, i), e.Now())
			}
			until(b, "the link", e.isUp)
			b.ReportAllocs()
			b.ResetTimer()
			sent := 0
			for ; sent < min(window, b.N); sent++ {
				l.command(fmt.Sprintf("td-%d", sent%devices), fmt.Sprintf("%d-%d", sent, sent%devices), "")
			}
			for range b.N {
				ref := <-got
				s := sessions[ref[len(ref)-1]-'0']
				s.Receive(fmt.Appendf(nil, `{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":{"brightness":80}}`, ref), e.Now())
				if sent < b.N {
					l.command(fmt.Sprintf("td-%d", sent%devices), fmt.Sprintf("%d-%d", sent, sent%devices), "")
					sent++
				}
			}
		})
	}
}

// TestStatusAllocatesNothing: a status that is passed on at once costs no allocation.
func TestStatusAllocatesNothing(t *testing.T) {
	if raced {
		t.Skip("pools are not kept under the race detector")
	}
	st := newStation(t)
	e := startEdge(t, options("edge-1", t.TempDir(), st.url()))
	l := st.accept()
	s := crowd(t, e, 1)[0]
	until(t, "the link", e.isUp)
	msg := []byte(`{"type":"DEVICE_STATUS","clientId":"td-00000","status":{"brightness":80}}`)
	// The reader of the link allocates in this process too, so the least of several counts.
	least := testing.AllocsPerRun(1, func() { s.Receive(msg, 1) })
	for range 50 {
		w := workPool.Get().(*work)
		n := testing.AllocsPerRun(1, func() {
			_ = w.env.Scan(msg, wire.DefaultMaxDepth)
			e.mu.Lock()
			e.pass(3, "td-00000", "", msg, nil)
			e.mu.Unlock()
		})
		w.giveBack()
		least = min(least, n)
	}
	if least > 0 {
		t.Errorf("%v allocations", least)
	}
	until(t, "what was sent", func() bool { return l.count("DEVICE_STATUS", "") >= 50 })
}
