package callback

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func attempts(hs []hit) string {
	var b strings.Builder
	for _, h := range hs {
		fmt.Fprintf(&b, "%v:%s ", h.json["progress"], h.attempt)
	}
	return b.String()
}

func TestRetriedUntilDead(t *testing.T) {
	s := newSink(t, status(503))
	o := open(t, Options{FirstDelay: 40 * time.Millisecond})
	var k track
	o.Notify(final(s.URL, "r", &k))
	s.wait(1)
	if !k.is(Pending, 1) {
		t.Errorf("state %s during the first attempt", &k)
	}
	until(t, "DEAD/3", func() bool { return k.is(Dead, 3) })
	hs := s.seen()
	if a := attempts(hs); a != "<nil>:1/3 <nil>:2/3 <nil>:3/3 " {
		t.Error(a)
	}
	if hs[0].id == "" || hs[0].id != hs[1].id || hs[1].id != hs[2].id {
		t.Errorf("ids %q %q %q", hs[0].id, hs[1].id, hs[2].id)
	}
	g1, g2 := hs[1].at.Sub(hs[0].at), hs[2].at.Sub(hs[1].at)
	if g1 < 32*time.Millisecond || g2 < 64*time.Millisecond {
		t.Errorf("gaps %v %v are too short", g1, g2)
	}
}

func TestStatusDecides(t *testing.T) {
	for code, again := range map[int]bool{301: false, 302: false, 304: false, 400: false, 404: false, 410: false, 408: true, 425: true, 429: true, 500: true, 502: true, 599: true} {
		s := newSink(t, func(n int, _ hit, w http.ResponseWriter) {
			if n == 0 {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(code)
			}
		})
		o := open(t, Options{})
		var k track
		o.Notify(final(s.URL, "r", &k))
		if again {
			until(t, fmt.Sprintf("%d to be retried", code), func() bool { return k.is(Delivered, 2) })
		} else {
			until(t, fmt.Sprintf("%d to be final", code), func() bool { return k.is(Dead, 1) })
		}
		for _, h := range s.seen() {
			if h.uri != "/" {
				t.Errorf("followed a redirect to %s", h.uri)
			}
		}
	}
	for _, code := range []int{200, 201, 204, 299} {
		s := newSink(t, status(code))
		o := open(t, Options{})
		var k track
		o.Notify(final(s.URL, "r", &k))
		until(t, "delivery", func() bool { return k.is(Delivered, 1) })
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	f := func(v string, want time.Duration) {
		t.Helper()
		if got := retryAfter([]byte(v), func() time.Time { return now }); got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
	f("", 0)
	f("0", 0)
	f("7", 7*time.Second)
	f("-5", 0)
	f("soon", 0)
	f("1e9x", 0)
	f("1.5", 0)
	f("99999999999999999999", (1<<31-1)*time.Second)
	f(now.Add(4*time.Second).Format(http.TimeFormat), 4*time.Second)
	f(now.Add(-time.Hour).Format(http.TimeFormat), 0)

	for _, v := range []string{"1", "Tue, 01 Jan 2030 00:00:03 GMT", "99999"} {
		s := newSink(t, func(n int, _ hit, w http.ResponseWriter) {
			if n == 0 {
				w.Header().Set("Retry-After", v)
				w.WriteHeader(503)
			}
		})
		o := open(t, Options{Clock: func() time.Time { return now }, MaxRetryAfter: 300 * time.Millisecond})
		o.Notify(final(s.URL, "r", nil))
		hs := s.wait(2)
		if gap := hs[1].at.Sub(hs[0].at); gap < 295*time.Millisecond || gap > 10*time.Second {
			t.Errorf("Retry-After %s, cut to 300 ms: gap %v", v, gap)
		}
	}
}

func TestHangUpRefusedThenUp(t *testing.T) {
	s := newSink(t, func(n int, _ hit, w http.ResponseWriter) {
		if n == 0 {
			hangUp(w)
		}
	})
	o := open(t, Options{FirstDelay: 100 * time.Millisecond})
	o.Notify(final(s.URL, "r", nil))
	hs := s.wait(2)
	if attempts(hs) != "<nil>:1/3 <nil>:2/3 " || hs[0].id != hs[1].id {
		t.Error(attempts(hs), hs[0].id, hs[1].id)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	var k track
	o.Notify(final("http://"+addr, "r2", &k))
	until(t, "a failed attempt", func() bool { return o.Stats().Outcomes[Retried] >= 2 })
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Skip("the port was taken: ", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go srv.Serve(l)
	defer srv.Close()
	until(t, "delivery", func() bool { return k.is(Delivered, 2) || k.is(Delivered, 3) })
}

// A kept connection that the receiver closed meanwhile costs no attempt and no delay.
func TestStaleConnection(t *testing.T) {
	s := newSink(t, nil)
	o := open(t, Options{FirstDelay: time.Hour})
	for i := range 20 {
		var k track
		o.Notify(final(s.URL, fmt.Sprint("r", i), &k))
		until(t, "delivery", func() bool { return k.is(Delivered, 1) })
		if o.Stats().Busy == 0 {
			s.CloseClientConnections()
		}
	}
}

func TestAttemptTimeLimit(t *testing.T) {
	o := open(t, Options{AttemptTimeout: 50 * time.Millisecond, FirstDelay: time.Millisecond})
	var k track
	o.Notify(final(silence(t), "r", &k))
	until(t, "DEAD/3", func() bool { return k.is(Dead, 3) })
	if dead, _, _ := o.Dead("", 1); dead[0].LastError != "timeout" {
		t.Errorf("%+v", dead)
	}
}

// raw is a receiver that answers each request with the bytes given and then does what
// end says.
func raw(t *testing.T, answer string, end func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if readHead(c) {
					io.WriteString(c, answer)
					end(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func readHead(c net.Conn) bool {
	var got []byte
	buf := make([]byte, 4096)
	for !bytes.HasSuffix(got, []byte("}")) {
		n, err := c.Read(buf)
		if err != nil {
			return false
		}
		got = append(got, buf[:n]...)
	}
	return true
}

func TestOddAnswers(t *testing.T) {
	linger := func(c net.Conn) { io.Copy(io.Discard, c) }
	drip := func(c net.Conn) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := c.Write(bytes.Repeat([]byte("x"), 64)); err != nil {
				return
			}
		}
	}
	hang := func(net.Conn) {}
	for name, x := range map[string]struct {
		answer string
		end    func(net.Conn)
		state  uint8
	}{
		"huge length":         {"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nxxx", linger, Delivered},
		"endless chunks":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000\r\n", drip, Delivered},
		"endless until EOF":   {"HTTP/1.0 200 OK\r\n\r\n", drip, Delivered},
		"body never comes":    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", linger, Delivered},
		"body cut":            {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", hang, Delivered},
		"interim":             {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n", linger, Delivered},
		"only interim":        {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20), linger, Dead},
		"giant head":          {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n", linger, Delivered},
		"bad header":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", linger, Delivered},
		"giant head of a 404": {"HTTP/1.1 404 No\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n", linger, Dead},
		"not HTTP":            {"220 smtp ready\r\n", linger, Dead},
		"half a status line":  {"HTTP/1.1 20", hang, Dead},
		"half a head":         {"HTTP/1.1 200 OK\r\nContent-Le", hang, Dead},
		"a head without end":  {"HTTP/1.1 200 OK\r\nX: y\r\n", hang, Dead},
		"switching":           {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", linger, Dead},
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, x.answer, x.end)
			o := open(t, Options{FirstDelay: time.Millisecond, AttemptTimeout: 2 * time.Second, PerHostConns: 1})
			ks := make([]track, 5)
			for i := range ks {
				o.Notify(final(url, fmt.Sprint("r", i), &ks[i]))
			}
			for i := range ks {
				until(t, "the end of each", func() bool { return ks[i].v.Load()>>32 == int64(x.state) })
			}
		})
	}
}

func TestTLSAndIPv6(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	o := open(t, Options{TLS: s.Client().Transport.(*http.Transport).TLSClientConfig})
	strict := open(t, Options{FirstDelay: time.Millisecond})
	for range 3 {
		var k track
		o.Notify(final(s.URL, "r", &k))
		until(t, "delivery over TLS", func() bool { return k.is(Delivered, 1) })
	}
	var k track
	strict.Notify(final(s.URL, "r", &k))
	until(t, "a certificate that nobody signed to be refused", func() bool { return k.is(Dead, 3) })

	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go srv.Serve(l)
	defer srv.Close()
	var k6 track
	o.Notify(final("http://"+l.Addr().String(), "r6", &k6))
	until(t, "delivery over IPv6", func() bool { return k6.is(Delivered, 1) })
}

func TestBigBody(t *testing.T) {
	s := newSink(t, nil)
	o := open(t, Options{})
	n := final(s.URL, "big", nil)
	n.Result = fmt.Appendf(nil, "%q", strings.Repeat("x", 1<<20))
	for i := range 3 {
		o.Notify(n)
		if h := s.wait(i + 1)[i]; len(h.json["result"].(string)) != 1<<20 {
			t.Fatal("the result was cut")
		}
	}
}

func TestClose(t *testing.T) {
	s := newSink(t, func(n int, _ hit, w http.ResponseWriter) {
		if n < 20 {
			w.WriteHeader(500)
		}
	})
	o := New(Options{FirstDelay: 10 * time.Millisecond})
	ks := make([]track, 50)
	for i := range ks {
		o.Notify(final(s.URL, fmt.Sprint("r", i), &ks[i]))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := o.Close(ctx); err != nil {
		t.Error(err)
	}
	for i := range ks {
		if ks[i].v.Load()>>32 != int64(Delivered) && ks[i].v.Load()>>32 != int64(Dead) {
			t.Errorf("notice %d is %s after Close", i, &ks[i])
		}
	}
	o.Notify(final(s.URL, "late", nil))
	if st := o.Stats(); st.Queued != 0 || st.Outcomes[Refused] != 1 {
		t.Errorf("%+v", st)
	}
}

// What cannot be delivered in time stays Pending, and nothing is left running.
func TestCloseGivesUp(t *testing.T) {
	o := New(Options{})
	ks := make([]track, 20)
	url := silence(t)
	for i := range ks {
		o.Notify(final(url, fmt.Sprint("r", i), &ks[i]))
	}
	until(t, "attempts under way", func() bool { return o.Stats().Busy == firstLimit })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := o.Close(ctx); err == nil {
		t.Error("no error although nothing was delivered")
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("Close took %v", d)
	}
	for i := range ks {
		if ks[i].v.Load()>>32 != int64(Pending) {
			t.Errorf("notice %d is %s", i, &ks[i])
		}
	}
	if st := o.Stats(); st.Busy != 0 {
		t.Errorf("%+v", st)
	}
}
