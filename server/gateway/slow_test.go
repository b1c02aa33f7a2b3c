package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"subway/server/gateway"
)

// narrow gives a socket a receive buffer of this size: its peer soon notices that nobody
// reads.
func narrow(size int) func(fd int) {
	return func(fd int) { _ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, size) }
}

// answered has a lean edge answer every command with a result of this size.
func (f *fixture) answered(id, device string, size int) {
	f.t.Helper()
	c, err := f.joinLean(edgeRegister(id, device))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.conn.Close() })
	result := strings.Repeat("x", size)
	go func() {
		for {
			msg, err := c.read()
			if err != nil {
				return
			}
			c.addf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":"%s"}`, member(msg, "requestRef"), result)
			if c.flush() != nil {
				return
			}
		}
	}()
}

// latencies measures commands to this device, one after the other, until stop is closed,
// and returns the median: the machine has other work too.
func (f *fixture) latencies(device string, stop <-chan struct{}) (median time.Duration, n int) {
	p := f.backend("backend-latency")
	p.sparse = true
	var all []time.Duration
	for ; ; n++ {
		select {
		case <-stop:
			slices.Sort(all)
			return all[len(all)/2], n
		default:
		}
		began := time.Now()
		p.command(fmt.Sprintf("latency-%d", n), device, "")
		p.expect("COMMAND_RESPONSE")
		all = append(all, time.Since(began))
	}
}

// tolerable is how long a command may take on a busy machine that is not held up by others.
func tolerable() time.Duration {
	if raced {
		return time.Second
	}
	return 250 * time.Millisecond
}

// TestBackendThatStopsReading: what waits for it is bounded, it is closed with 4429 when
// more than 16 MiB do, news of devices yield before, and others notice nothing.
func TestBackendThatStopsReading(t *testing.T) {
	f := start(t, nil)
	f.answered("edge-1", "td-01", 20_000)
	f.answered("edge-2", "td-02", 10)
	edge := f.edge("edge-3", "td-03")
	other := f.backend("backend-other")
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	slow := f.join(`{"type":"REGISTER","clientId":"backend-slow","clientType":"BACKEND"}`, narrow(16<<10))
	slow.sparse = true
	stop, done := make(chan struct{}), make(chan struct{})
	var median time.Duration
	go func() { median, _ = f.latencies("td-02", stop); close(done) }()
	peak := uint64(0)
	for i := 0; f.metric("subway_status_dropped_total") == 0; i++ {
		for j := range 100 {
			slow.command(fmt.Sprintf("r-%d-%d", i, j), "td-01", "")
		}
		edge.send(`{"type":"DEVICE_STATUS","clientId":"td-03","status":{}}`)
		other.news("DEVICE_STATUS", "td-03", "")
	}
	for i := 0; i < 2500; i++ {
		slow.command(fmt.Sprintf("s-%d", i), "td-01", "")
		if i%50 == 0 {
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapInuse)
			if f.metric(`subway_active_connections{node_type="backend"}`) == 2 {
				break
			}
		}
	}
	slow.wantClose(4429)
	close(stop)
	<-done
	t.Logf("others waited %v (median), the heap grew by %d MiB", median, (int64(peak)-int64(before.HeapInuse))>>20)
	if median > tolerable() {
		t.Errorf("others waited %v", median)
	}
	if grown := int64(peak) - int64(before.HeapInuse); grown > 160<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// fill sends commands of this priority until one is refused, and returns how many were
// accepted. more is what each carries besides.
func fill(p *party, device, priority, more string) (accepted int) {
	p.t.Helper()
	return fillFrom(p, device, priority, more, 0)
}

// fillFrom is fill after so many.
func fillFrom(p *party, device, priority, more string, accepted int) int {
	p.t.Helper()
	for {
		const batch = 256
		for i := range batch {
			p.command(fmt.Sprintf("%s-%s-%d", device, priority, accepted+i), device, `,"timeout":86400000,"priority":"`+priority+`"`+more)
		}
		p.send(`{"type":"HEARTBEAT"}`)
		refused := 0
		for m := p.next(); m.str("type") != "HEARTBEAT_ACK"; m = p.next() {
			if m.str("code") != "OVERLOADED" {
				p.t.Fatalf("got %s", m.raw)
			}
			refused++
		}
		if accepted += batch - refused; refused > 0 {
			return accepted
		}
	}
}

// block sends large LOW commands until the way to an edge that hardly reads is blocked,
// and some have waited for a while: the kernel's buffers grow. It returns how many there
// were.
func (f *fixture) block(p *party, edge, device string) (n int) {
	f.t.Helper()
	large := `,"timeout":86400000,"priority":"LOW","fill":"` + strings.Repeat("x", 20_000) + `"`
	since, waited := time.Now(), 0
	until(f.t, "the way is blocked", func() bool {
		waits := f.queued(edge)
		if waits < 20 {
			for range 16 {
				p.command(fmt.Sprintf("%s-LOW-%d", device, n), device, large)
				n++
			}
		}
		if waits < waited-2 || waits < 20 {
			since, waited = time.Now(), waits
		}
		waited = max(waited, waits)
		return time.Since(since) > 500*time.Millisecond
	})
	p.quiet()
	return n
}

// settle fills an edge's queue with LOW until the kernel, whose buffers grow for a while,
// takes no more of it, and returns how many were accepted.
func (f *fixture) settle(p *party, edge string, bound int) (accepted int) {
	f.t.Helper()
	accepted = f.block(p, edge, "td-01")
	since := time.Now()
	until(f.t, "the queue stays full", func() bool {
		if n := f.queued(edge); n != bound {
			if n > bound {
				f.t.Fatalf("%d LOW wait, want %d", n, bound)
			}
			accepted, since = fillFrom(p, "td-01", "LOW", "", accepted), time.Now()
		}
		return time.Since(since) > time.Second
	})
	return accepted
}

func (f *fixture) queued(edge string) int {
	f.t.Helper()
	n, _ := f.want(200, "", "GET", "/api/edges/"+edge, "").get("edge.queued").(float64)
	return int(n)
}

// TestBounds: 8,192 commands or 16 MiB wait for one edge, LOW may fill 3/4 of that and
// NORMAL 7/8. What leaves later does so by priority, first come first served.
func TestBounds(t *testing.T) {
	f := start(t, func(o *gateway.Options) { o.StallTimeout = time.Hour })
	backend := f.backend("backend-1")
	backend.sparse = true
	edge := f.join(edgeRegister("edge-1", "td-01"), narrow(16<<10))
	edge.sparse = true
	low := f.settle(backend, "edge-1", 6144)
	normal := fill(backend, "td-01", "NORMAL", "")
	if n := f.queued("edge-1"); n != 7168 || normal != 1024 {
		t.Errorf("%d wait, %d NORMAL, want 7168, 1024", n, normal)
	}
	high := fill(backend, "td-01", "HIGH", "")
	if n := f.queued("edge-1"); n != 8192 || high != 1024 {
		t.Errorf("%d wait, %d HIGH, want 8192, 1024", n, high)
	}
	f.want(503, "OVERLOADED", "POST", "/api/commands", `{"target_client_id":"td-01","command":{"commandType":"T"},"priority":"HIGH"}`)
	cancelled := map[string]bool{}
	for ref, stage := range map[string]string{"td-01-LOW-0": "DISPATCHED", "td-01-HIGH-7": "PENDING", fmt.Sprintf("td-01-LOW-%d", low-1): "PENDING"} {
		backend.sendf(`{"type":"CANCEL","requestRef":%q,"targetClientId":"td-01"}`, ref)
		if m := backend.expectError("CANCELLED"); m.str("details.stage") != stage {
			t.Errorf("%s: %s, want stage %s", ref, m.raw, stage)
		}
		cancelled[ref] = stage == "PENDING"
	}
	want := order(low-6144, low, normal, high, cancelled)
	for _, ref := range want {
		m := edge.next()
		if m.str("type") == "CANCEL" && m.str("requestRef") == "td-01-LOW-0" {
			m = edge.next()
		}
		if m.str("requestRef") != ref {
			t.Fatalf("got %s, want %s", m.raw, ref)
		}
	}
	until(t, "nothing waits", func() bool { return f.queued("edge-1") == 0 })
}

// order is what an edge gets: LOW that left at once, then HIGH, NORMAL and LOW.
func order(left, low, normal, high int, cancelled map[string]bool) (refs []string) {
	add := func(priority string, from, to int) {
		for i := from; i < to; i++ {
			if ref := fmt.Sprintf("td-01-%s-%d", priority, i); !cancelled[ref] {
				refs = append(refs, ref)
			}
		}
	}
	add("LOW", 0, left)
	add("HIGH", 0, high)
	add("NORMAL", 0, normal)
	add("LOW", left, low)
	return refs
}

// TestBoundOfBytes: 16 MiB wait for one edge, LOW may fill 12 and NORMAL 14.
func TestBoundOfBytes(t *testing.T) {
	f := start(t, func(o *gateway.Options) { o.StallTimeout = time.Hour })
	backend := f.backend("backend-1")
	backend.sparse = true
	edge := f.join(edgeRegister("edge-1", "td-01"), narrow(16<<10))
	edge.sparse = true
	const size = 50_000
	waits := 0
	for _, p := range []struct {
		priority string
		most     int
	}{{"LOW", 12 << 20}, {"NORMAL", 14 << 20}, {"HIGH", 16 << 20}} {
		for i := range 128 {
			backend.command(fmt.Sprintf("%s-%d", p.priority, i), "td-01", `,"timeout":86400000,"priority":"`+p.priority+`","fill":"`+strings.Repeat("x", size)+`"`)
		}
		for f.queued("edge-1") == waits { // the way is blocked only when kernel and outbox are full
			backend.send(`{"type":"HEARTBEAT"}`)
		}
		fill(backend, "td-01", p.priority, `,"fill":"`+strings.Repeat("x", size)+`"`)
		waits = f.queued("edge-1")
		if n := waits * (size + 300); n < p.most-size || (waits*size) > p.most {
			t.Errorf("%d commands of %d bytes wait after %s, the bound is %d", waits, size, p.priority, p.most)
		}
	}
	_ = edge.conn.Close()
}

// throttle reads from an edge's connection at this many bytes a second until stop is
// closed.
func throttle(p *party, perSecond int, stop <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	buf := make([]byte, perSecond/20)
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if _, err := io.ReadFull(p.br, buf); err != nil {
				return
			}
		}
	}
}

// TestThrottledEdge: an edge behind 64 kbit/s with a queue stays connected, gets what
// waits, and holds nobody up.
func TestThrottledEdge(t *testing.T) {
	f := start(t, func(o *gateway.Options) { o.StallTimeout = 2 * time.Second })
	f.answered("edge-2", "td-02", 10)
	backend := f.backend("backend-1")
	backend.sparse = true
	edge := f.join(edgeRegister("edge-1", "td-01"), narrow(4<<10))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { throttle(edge, 8000, stop); close(done) }()
	f.block(backend, "edge-1", "td-01")
	began := time.Now()
	measured := make(chan struct{})
	var median time.Duration
	var n int
	go func() { median, n = f.latencies("td-02", stop); close(measured) }()
	until(t, "twice the stall limit", func() bool { return time.Since(began) > 4*time.Second })
	close(stop)
	<-done
	<-measured
	t.Logf("%d commands to another edge took %v (median)", n, median)
	if median > tolerable() {
		t.Errorf("another edge waited %v", median)
	}
	if a := f.want(200, "", "GET", "/api/edges/edge-1", ""); a.str("edge.connection") != "ONLINE" {
		t.Errorf("the slow edge was lost: %s", a.body)
	}
	backend.command("urgent", "td-01", `,"priority":"HIGH"`)
	var refs []string
	rest := bufio.NewReaderSize(edge.br, 64<<10) // it begins within a frame
	for !slices.Contains(refs, "urgent") {
		b, err := rest.ReadSlice('}')
		if err != nil && !bytes.Contains(b, []byte("requestRef")) {
			t.Fatal(err)
		}
		if ref := member(b, "requestRef"); ref != nil {
			refs = append(refs, string(ref))
		}
	}
	t.Logf("%d commands before the urgent one were under way", len(refs)-1)
}

// TestEdgeThatStopsReading: for a while it may, then it is closed with 4429 and lost;
// what it was not handed is told so.
func TestEdgeThatStopsReading(t *testing.T) {
	f := start(t, func(o *gateway.Options) { o.StallTimeout = 3 * time.Second })
	backend := f.backend("backend-1")
	backend.sparse = true
	edge := f.join(edgeRegister("edge-1", "td-01", "td-02"), narrow(16<<10))
	edge.sparse = true
	low := f.block(backend, "edge-1", "td-01")
	began := time.Now()
	until(t, "a third of the stall limit", func() bool { return time.Since(began) > time.Second })
	for range low {
		edge.expect("COMMAND")
	}
	backend.command("first", "td-01", `,"timeout":5000`)
	edge.expectCommand("first")
	began = time.Now()
	f.block(backend, "edge-1", "td-02")
	backend.command("last", "td-01", `,"timeout":5000,"priority":"LOW"`)
	if m := backend.news("CONNECTION_STATUS", "edge-1", "OFFLINE"); m.str("reason") != "too slow" {
		t.Errorf("got %s", m.raw)
	}
	if took := time.Since(began); took < 2*time.Second || took > 15*time.Second {
		t.Errorf("lost after %v", took)
	}
	edge.wantClose(4429)
	stages := map[string]string{}
	for len(stages) < 2 {
		m := backend.expectError("CONNECTION_LOST")
		stages[m.str("requestRef")] = m.str("details.stage")
	}
	if stages["first"] != "DISPATCHED" || stages["last"] != "PENDING" {
		t.Errorf("ended as %v", stages)
	}
}
