package front

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// api is a handler for tests.
func api(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case "/panic":
		panic("on purpose")
	case "/body":
		ctx.SetBodyString(strconv.Itoa(len(ctx.PostBody())))
	default:
		ctx.SetBodyString("hello " + string(ctx.Path()))
	}
}

func withAPI(o *Options) { o.HTTP = api }

const get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"

func TestHTTPKeepAliveAndPipelining(t *testing.T) {
	f := serve(t, withAPI)
	c := f.tcp()
	br := bufio.NewReader(c)
	for range 3 {
		_, _ = io.WriteString(c, get)
		if r, body := readAnswer(t, br, get); r.StatusCode != 200 || body != "hello /x" {
			t.Fatalf("got %s %q", r.Status, body)
		}
	}
	_, _ = io.WriteString(c, get+"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"+get)
	for _, want := range []string{"hello /x", "3", "hello /x"} {
		if _, body := readAnswer(t, br, get); body != want {
			t.Fatalf("got %q, want %q", body, want)
		}
	}
	if got := f.s.Stats(); got.HTTP != 1 || got.Waiting != 0 {
		t.Errorf("stats %+v", got)
	}
}

func TestHTTPSlowPieces(t *testing.T) {
	f := serve(t, withAPI)
	c := f.tcp()
	raw := "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
	for i := range raw {
		_, _ = io.WriteString(c, raw[i:i+1])
	}
	if _, body := readAnswer(t, bufio.NewReader(c), raw); body != "3" {
		t.Fatalf("got %q", body)
	}
}

func TestHTTPErrors(t *testing.T) {
	f := serve(t, withAPI)
	long := strings.Repeat("a", 9000)
	for _, tc := range []struct {
		name, raw string
		status    int
		code      string
	}{
		{"too large at once", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n", 413, "PAYLOAD_TOO_LARGE"},
		{"too large, all sent", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n" + strings.Repeat("x", 4000000), 413, "PAYLOAD_TOO_LARGE"},
		{"too large, 100-continue", "POST /body HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1048577\r\n\r\n", 413, "PAYLOAD_TOO_LARGE"},
		{"too large in chunks", "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("10000\r\n"+strings.Repeat("x", 65536)+"\r\n", 20), 413, "PAYLOAD_TOO_LARGE"},
		{"two lengths", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "INVALID_REQUEST"},
		{"two lengths the other way", "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + get, 400, "INVALID_REQUEST"},
		{"unknown coding", "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400, "INVALID_REQUEST"},
		{"bad coding", "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400, "INVALID_REQUEST"},
		{"chunked twice", "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked, chunked\r\n\r\n0\r\n\r\n", 400, "INVALID_REQUEST"},
		{"two Content-Lengths", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, "INVALID_REQUEST"},
		{"negative length", "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabcd", 400, "INVALID_REQUEST"},
		{"long head", "GET / HTTP/1.1\r\nHost: a\r\nX: " + long + "\r\n\r\n", 431, "INVALID_REQUEST"},
		{"long line", "GET /" + long + long, 431, "INVALID_REQUEST"},
		{"no line at all", strings.Repeat("G", 3000000), 431, "INVALID_REQUEST"},
		{"garbage", "\x16\x03\x01 \r\n\r\n", 400, "INVALID_REQUEST"},
		{"panic", "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n", 500, "INTERNAL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, body := f.answer(tc.raw)
			if r.StatusCode != tc.status || !strings.Contains(body, `"success":false`) || !strings.Contains(body, `"code":"`+tc.code+`"`) {
				t.Fatalf("got %s %s, want %d %s", r.Status, body, tc.status, tc.code)
			}
			if got := r.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
			if !r.Close {
				t.Error("the connection is kept open")
			}
		})
	}
	if _, body := f.answer(get); body != "hello /x" {
		t.Fatalf("afterwards: %q", body)
	}
	until(t, "all connections gone", func() bool { return f.s.Stats().HTTP <= 1 })
}

func TestHTTPHead(t *testing.T) {
	f := serve(t, withAPI)
	c := f.tcp()
	_, _ = io.WriteString(c, "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nHEAD /panic HTTP/1.1\r\nHost: a\r\n\r\n")
	br := bufio.NewReader(c)
	for _, want := range []int{200, 500} {
		if r, body := readAnswer(t, br, "HEAD /x"); r.StatusCode != want || body != "" {
			t.Errorf("got %s %q", r.Status, body)
		}
	}
	if rest, _ := io.ReadAll(br); len(rest) != 0 {
		t.Errorf("HEAD was answered with a body: %q", rest)
	}
}

func TestHTTPWithoutHandler(t *testing.T) {
	f := serve(t, nil)
	r, body := f.answer(get)
	if r.StatusCode != 404 || !strings.Contains(body, `"code":"NOT_FOUND"`) {
		t.Errorf("got %s %s", r.Status, body)
	}
}

func TestHTTPTimeouts(t *testing.T) {
	f := serve(t, func(o *Options) {
		o.HTTP = api
		o.HeadTimeout, o.BodyTimeout, o.IdleTimeout = 30*time.Millisecond, 30*time.Millisecond, 30*time.Millisecond
	})
	t.Run("idle", func(t *testing.T) {
		c := f.tcp()
		br := bufio.NewReader(c)
		_, _ = io.WriteString(c, get)
		readAnswer(t, br, get)
		if rest, err := io.ReadAll(br); err != nil || len(rest) != 0 {
			t.Errorf("an idle connection ended with %q, %v", rest, err)
		}
	})
	t.Run("body", func(t *testing.T) {
		r, body := f.answer("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
		if r.StatusCode != 408 || !strings.Contains(body, "INVALID_REQUEST") {
			t.Errorf("got %s %s", r.Status, body)
		}
	})
	t.Run("later head", func(t *testing.T) {
		c := f.tcp()
		br := bufio.NewReader(c)
		_, _ = io.WriteString(c, get)
		readAnswer(t, br, get)
		_, _ = io.WriteString(c, "GET ")
		if r, _ := readAnswer(t, br, get); r.StatusCode != 408 {
			t.Errorf("got %s", r.Status)
		}
	})
}

// The upgrade may be any request of an HTTP connection.
func TestLateUpgrade(t *testing.T) {
	f := serve(t, withAPI)
	post := "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
	for n := range 3 {
		for _, pipelined := range []bool{false, true} {
			conn := f.tcp()
			br := bufio.NewReader(conn)
			var before string
			for i := range n + 1 {
				before += []string{get, post}[i%2]
			}
			if pipelined {
				_, _ = io.WriteString(conn, before)
			}
			for i := range n + 1 {
				if !pipelined {
					_, _ = io.WriteString(conn, []string{get, post}[i%2])
				}
				if r, _ := readAnswer(t, br, get); r.StatusCode != 200 {
					t.Fatalf("request %d: %s", i, r.Status)
				}
			}
			c := open(t, conn, append(text("early"), text("too")...))
			c.expect("early")
			c.expect("too")
			c.write(text("later"))
			c.expect("later")
			f.session().c.CloseWith(1000, "done")
			c.wantClose(1000)
			c.wantEOF()
			_ = conn.Close()
		}
	}
	until(t, "no connection left", func() bool {
		st := f.s.Stats()
		return st.HTTP == 0 && st.WebSockets == 0 && f.s.stats.total.Load() == 0
	})
}

// All of it in one segment: a request, the upgrade, and frames.
func TestLateUpgradePipelined(t *testing.T) {
	f := serve(t, withAPI)
	conn := f.tcp()
	_, _ = io.WriteString(conn, get+request+string(text("early"))+string(frame(8, true, closeBody(1000, ""))))
	br := bufio.NewReader(conn)
	readAnswer(t, br, get)
	r, err := http.ReadResponse(br, nil)
	if err != nil || r.StatusCode != 101 {
		t.Fatal(r, err)
	}
	c := &client{t: t, conn: conn, br: br}
	c.expect("early")
	c.wantClose(1000)
	c.wantEOF()
}

func TestLateUpgradeRefused(t *testing.T) {
	f := serve(t, withAPI)
	for _, tc := range refusals {
		conn := f.tcp()
		br := bufio.NewReader(conn)
		_, _ = io.WriteString(conn, get)
		readAnswer(t, br, get)
		_, _ = io.WriteString(conn, tc.raw)
		switch tc.name { // fasthttp reads the body first
		case "a body":
			_, _ = io.WriteString(conn, "ok")
		case "a chunked body":
			_, _ = io.WriteString(conn, "0\r\n\r\n")
		}
		r, body := readAnswer(t, br, tc.raw)
		// fasthttp may see to it before us: then the head was malformed.
		if r.StatusCode != tc.status && r.StatusCode != 400 || !strings.Contains(body, `"success":false`) || !r.Close {
			t.Errorf("%s: %s %s, want %d", tc.name, r.Status, body, tc.status)
		}
		if r.StatusCode == 426 && r.Header.Get("Sec-WebSocket-Version") != "13" {
			t.Errorf("%s: no Sec-WebSocket-Version: 13", tc.name)
		}
	}
}
