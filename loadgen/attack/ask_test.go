package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAskerTellsEachKind(t *testing.T) {
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch ref := strings.TrimPrefix(r.URL.Path, "/api/commands/"); ref {
		case "done/1":
			fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"COMPLETED","result":{}}`, ref)
		case "failed":
			fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"FAILED","error":{"code":"LAMP_BROKEN"}}`, ref)
		case "unknown":
			w.WriteHeader(404)
			fmt.Fprint(w, `{"success":false,"error":"no","code":"COMMAND_NOT_FOUND"}`)
		case "nopath":
			w.WriteHeader(404)
			fmt.Fprint(w, `{"success":false,"error":"no","code":"NOT_FOUND"}`)
		case "other":
			fmt.Fprint(w, `{"success":true,"requestRef":"cmd-x","status":"COMPLETED"}`)
		default:
			w.WriteHeader(500)
		}
	})
	a, err := NewAsker(s.URL, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, c := range []struct {
		ref, status, code string
		found, bad        bool
	}{
		{"done/1", "COMPLETED", "", true, false},
		{"failed", "FAILED", "LAMP_BROKEN", true, false},
		{"unknown", "", "COMMAND_NOT_FOUND", false, false},
		{"nopath", "", "NOT_FOUND", false, true},
		{"other", "", "", false, true},
		{"broken", "", "", false, true},
	} {
		status, code, found, err := a.Status(t.Context(), c.ref)
		if status != c.status || code != c.code || found != c.found || errors.Is(err, ErrAnswer) != c.bad || !c.bad && err != nil {
			t.Errorf("%s: %q %q %v %v", c.ref, status, code, found, err)
		}
	}
}

func TestAskerBoundsItsConnections(t *testing.T) {
	const conns, questions = 4, 2000
	var open, most, made atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := open.Add(1)
		defer open.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"COMPLETED"}`, strings.TrimPrefix(r.URL.Path, "/api/commands/"))
	}))
	t.Cleanup(s.Close)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			made.Add(1)
		}
	}
	s.Start()
	a, err := NewAsker(s.URL, conns)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := i; n < questions; n += 16 {
				if _, _, found, err := a.Status(t.Context(), fmt.Sprint("cmd-", n)); err != nil || !found {
					t.Errorf("%v, found %v", err, found)
					return
				}
			}
		})
	}
	wg.Wait()
	// The transport may close one and make another; sixteen askers would make sixteen.
	if most.Load() > conns || made.Load() > 2*conns {
		t.Errorf("%d questions at a time, %d connections made", most.Load(), made.Load())
	}
}

func TestProbe(t *testing.T) {
	ready := true
	gateway := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/version":
			fmt.Fprint(w, `{"name":"subway","version":"1.2"}`)
		case !ready:
			w.WriteHeader(503)
			fmt.Fprint(w, `{"status":"draining"}`)
		}
	})
	if h, err := Probe(t.Context(), gateway.URL); err != nil || h != (Health{Version: "1.2", Ready: true}) {
		t.Errorf("%+v, %v", h, err)
	}
	ready = false
	if h, err := Probe(t.Context(), gateway.URL); err != nil || h.Ready || h.Reason != `{"status":"draining"}` {
		t.Errorf("%+v, %v", h, err)
	}
	web := scripted(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	closed := scripted(t, nil)
	closed.Close()
	for url, want := range map[string]error{
		web.URL:    ErrNotGateway,
		closed.URL: ErrUnreachable,
		"http://" + speaker(t, "220 mail.example ESMTP\r\n"): ErrNotGateway,
		"http://" + speaker(t, ""):                           ErrUnreachable,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if h, err := Probe(ctx, url); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", url, h, err, want)
		}
	}
}

// speaker is a server that answers the first bytes it gets with so much and then nothing.
func speaker(t *testing.T, text string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			_, _ = c.Read(make([]byte, 1)) // the test looks at what arrives
			_, _ = c.Write([]byte(text))
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func TestScrape(t *testing.T) {
	s := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"+
			"# TYPE subway_active_connections gauge\nsubway_active_connections{node_type=\"edge\"} 3\nsubway_active_connections{node_type=\"device\"} 4\n"+
			"go_goroutines 12\nsubway_routes NaN\ngo_memstats_mallocs_total +Inf\n")
	})
	got, err := Scrape(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUSeconds != (Value{1.5, true}) || got.Connections != (Value{7, true}) || got.Goroutines != (Value{12, true}) ||
		got.ByKind["edge"] != 3 || got.ByKind["device"] != 4 || got.ResidentBytes.Known || got.Mallocs.Known || got.Routes.Known {
		t.Errorf("%+v", got)
	}
	broken := scripted(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	if _, err := Scrape(t.Context(), broken.URL); !errors.Is(err, ErrAnswer) {
		t.Errorf("a page that is no metrics: %v", err)
	}
}
