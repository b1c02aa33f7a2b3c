package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"subway/server/gateway"
)

// freeAddress returns a loopback address nobody listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestDebugRates: the block and mutex profiles hold samples once their rates are set, and
// what is no rate is refused and changes nothing.
func TestDebugRates(t *testing.T) {
	addr := freeAddress(t)
	d, err := gateway.ListenDebug(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	call := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	t.Cleanup(func() {
		runtime.SetBlockProfileRate(0)
		runtime.SetMutexProfileFraction(0)
	})
	for _, bad := range []string{"block=x", "block=-1", "mutex=1000001", "block=1&mutex=1e3"} {
		if status, body := call("POST", "/debug/rates?"+bad); status != 400 || !strings.Contains(body, "integer") {
			t.Errorf("%s: %d %q", bad, status, body)
		}
	}
	if status, _ := call("GET", "/debug/rates?block=1"); status != 405 {
		t.Errorf("GET: %d", status)
	}
	if got := runtime.SetMutexProfileFraction(-1); got != 0 {
		t.Errorf("fraction %d before it was set", got)
	}
	if status, body := call("POST", "/debug/rates?block=1&mutex=7"); status != 200 {
		t.Fatalf("%d %q", status, body)
	}
	if got := runtime.SetMutexProfileFraction(-1); got != 7 {
		t.Errorf("fraction %d, want 7", got)
	}
	blockOnce()
	if _, body := call("GET", "/debug/pprof/block?debug=1"); !strings.Contains(body, "blockOnce") {
		t.Errorf("no sample of blockOnce in %.200q", body)
	}
	if status, _ := call("POST", "/debug/free"); status != 200 {
		t.Errorf("free: %d", status)
	}
}

// blockOnce blocks for as long as another goroutine takes to get going.
func blockOnce() {
	var wg sync.WaitGroup
	c := make(chan string)
	wg.Go(func() { c <- fmt.Sprint(runtime.NumGoroutine()) })
	<-c
	wg.Wait()
}
