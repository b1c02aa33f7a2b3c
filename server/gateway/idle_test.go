package gateway_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gobwas/ws"
)

// resident returns a process's resident memory in bytes, without what it shares with
// files.
func resident(t testing.TB, pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc to read the memory of a process from")
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib * 1024
		}
	}
	t.Skip("the system does not say how much memory of a process is its own")
	return 0
}

// TestIdleDevices: 10,000 devices, connected directly, registered and idle, cost the
// Gateway no goroutine and less than 2 KB of memory each.
func TestIdleDevices(t *testing.T) {
	if raced {
		t.Skip("the race detector has memory of its own for all memory")
	}
	n := 10_000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(n+n/8) {
		t.Skipf("%d descriptors are too few", limit.Cur)
	}
	f, pid := startChild(t, childOptions{Loops: 2})
	f.joinIdle(t, 0, 200) // what is made for the first is no cost of the next
	before, memory := f.metrics(), resident(t, pid)
	f.joinIdle(t, 200, n)
	after := f.metrics()
	per := (resident(t, pid) - memory) / float64(n-200)
	t.Logf("%d idle devices: %.0f bytes of resident memory each (heap %.0f), %g goroutines, %g before", n, per,
		(after["go_memstats_heap_alloc_bytes"]-before["go_memstats_heap_alloc_bytes"])/float64(n-200), after["go_goroutines"], before["go_goroutines"])
	if got := after[`subway_active_connections{node_type="device"}`]; got != float64(n) {
		t.Errorf("%g devices are there", got)
	}
	if per > 2048 {
		t.Errorf("%.0f bytes each", per)
	}
	if more := after["go_goroutines"] - before["go_goroutines"]; more > 10 {
		t.Errorf("%g goroutines more", more)
	}
	a := f.want(200, "", "POST", "/api/commands?wait=5000", fmt.Sprintf(`{"target_client_id":"idle-%d","command":{"commandType":"T"},"timeout":20}`, n-1))
	if a.str("error.details.stage") != "DISPATCHED" {
		t.Errorf("a command to an idle device: %s", a.body)
	}
}

// joinIdle connects devices from to n, from several source addresses, eight at a time.
func (f *fixture) joinIdle(t testing.TB, from, n int) {
	t.Helper()
	var next, failed atomic.Int64
	next.Store(int64(from))
	done := make(chan struct{})
	const workers = 8
	conns := make([]net.Conn, n)
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				source := syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(2 + i%4)}}
				p, err := f.tryDial(func(fd int) { _ = syscall.Bind(fd, &source) })
				if err == nil {
					conns[i] = p.conn
					_, err = p.conn.Write(frame(ws.OpText, true, fmt.Appendf(nil, `{"type":"REGISTER","clientId":"idle-%d","clientType":"DEVICE"}`, i)))
				}
				if err == nil {
					_, err = p.try()
				}
				if err != nil && failed.Add(1) < 4 {
					t.Errorf("device %d: %v", i, err)
				}
			}
		}()
	}
	for range workers {
		<-done
	}
	t.Cleanup(func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	})
}
