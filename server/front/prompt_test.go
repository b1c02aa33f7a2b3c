package front

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// promptly has every POST served on the loops.
func promptly(o *Options) {
	o.HTTP = api
	o.Prompt = func(method, _ []byte) bool { return string(method) == "POST" }
}

const post = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"

// onGoroutines is how many connections have left their loop.
func (f *fixture) onGoroutines() int {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return len(f.s.httpConn)
}

func TestPromptStaysOnItsLoop(t *testing.T) {
	f := serve(t, promptly)
	c := f.tcp()
	br := bufio.NewReader(c)
	for range 100 {
		_, _ = io.WriteString(c, post)
		if r, body := readAnswer(t, br, post); r.StatusCode != 200 || body != "3" || r.Header.Get("Date") == "" || r.Close {
			t.Fatalf("%s %q %v", r.Status, body, r.Header)
		}
	}
	_, _ = io.WriteString(c, strings.Repeat(post, 20)+post[:30])
	for range 20 {
		readAnswer(t, br, post)
	}
	_, _ = io.WriteString(c, post[30:])
	readAnswer(t, br, post)
	if st := f.s.Stats(); st.HTTP != 1 || st.Waiting != 0 || f.onGoroutines() != 0 {
		t.Errorf("%+v, %d on goroutines", st, f.onGoroutines())
	}
	_, _ = io.WriteString(c, get+post)
	readAnswer(t, br, get)
	readAnswer(t, br, post)
	if st := f.s.Stats(); st.HTTP != 1 || st.Waiting != 0 || f.onGoroutines() != 1 {
		t.Errorf("after a GET: %+v, %d on goroutines", st, f.onGoroutines())
	}
	_ = c.Close()
	until(t, "it is counted out", func() bool { return f.s.Stats().HTTP == 0 && f.s.stats.total.Load() == 0 })
}

// mirror answers with all that a handler can see of a request.
func mirror(ctx *fasthttp.RequestCtx) {
	if bytes.HasPrefix(ctx.PostBody(), []byte("panic")) {
		panic("on purpose")
	}
	if bytes.HasPrefix(ctx.PostBody(), []byte("close")) {
		ctx.SetConnectionClose()
	}
	host, _, _ := net.SplitHostPort(ctx.RemoteAddr().String())
	fmt.Fprintf(ctx, "%s %q %q %q %s %q\n", ctx.Method(), ctx.RequestURI(), ctx.Path(), ctx.Host(), host, ctx.PostBody())
	for k, v := range ctx.Request.Header.All() {
		fmt.Fprintf(ctx, "%q: %q\n", k, v)
	}
}

var dateLine = regexp.MustCompile(`Date: [^\r]*\r\n`)

// said is all that a server answers to the bytes, sent in these pieces.
func (f *fixture) said(pieces []string) string {
	c := f.tcp().(*net.TCPConn)
	go func() {
		for _, p := range pieces {
			if _, err := io.WriteString(c, p); err != nil {
				return // it was refused meanwhile
			}
		}
	}()
	all, _ := io.ReadAll(c)
	return dateLine.ReplaceAllString(string(all), "")
}

// Whatever comes, it is answered as a goroutine of fasthttp answers it.
func TestPromptOrNotIsTheSame(t *testing.T) {
	small := func(o *Options) { o.HTTP, o.MaxBody, o.MaxHead = mirror, 4000, 1024 }
	plain, prompt := serve(t, small), serve(t, func(o *Options) { promptly(o); small(o) })
	t.Run("at once", func(t *testing.T) { compareAnswers(t, prompt, plain) })

	m := &marks{}
	held := serve(t, func(o *Options) {
		promptly(o)
		small(o)
		o.Journal = m
		o.HTTP = func(ctx *fasthttp.RequestCtx) {
			if mark := m.appended.Add(1); mark%3 > 0 {
				Hold(ctx, mark)
			}
			mirror(ctx)
		}
	})
	stop := m.commit(held)
	defer stop()
	t.Run("held for a journal", func(t *testing.T) { compareAnswers(t, held, plain) })
}

func compareAnswers(t *testing.T, prompt, plain *fixture) {
	rng := seeded(t)
	body := func(length string, header ...string) string {
		return "POST /a/b?c=d HTTP/1.1\r\nHost: gw.example:80\r\nContent-Length: " + length + "\r\n" + strings.Join(header, "") + "\r\n"
	}
	requests := []string{
		body("3") + "abc", body("0"), body("3", "X: y\r\n", "x: z\r\n") + "abc", body("3", "Connection: keep-alive\r\n") + "abc",
		body("3", "Connection: close\r\n") + "abc", body("3", "Connection: Keep-Alive, x\r\n") + "abc", body("+3") + "abc", body("003") + "abc",
		body("4001") + strings.Repeat("x", 4001), body("4000") + strings.Repeat("x", 4000), body("12345678") + "x", body("3", "Content-Length: 3\r\n") + "abc",
		body("3", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", body("3", "Content-Type: multipart/form-data; boundary=x\r\n") + "abc",
		body("3", "Content-Encoding: gzip\r\n") + "abc", body("3", "Expect: 100-continue\r\n") + "abc", body("3", "Upgrade: websocket\r\n") + "abc",
		body("3", "Prefer: wait=1\r\n") + "abc", body("3", "Bad Name: x\r\n") + "abc", body("3", " folded\r\n") + "abc", body("3", "X: \x01\r\n") + "abc",
		body("3", "Host: other\r\n") + "abc", body("3", "X: "+strings.Repeat("a", 2000)+"\r\n") + "abc", body("5") + "panic", body("5") + "close", body("") + "abc",
		"POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "POST http://a/b HTTP/1.1\r\nHost: c\r\nContent-Length: 1\r\n\r\nx",
		"POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: 1\r\n\r\nx", "POST / HTTP/1.1\r\nHost: [::1]:1\r\nContent-Length: 1\r\n\r\nx", "POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\nx",
		"\r\n" + body("3") + "abc", "POST /%zz/../x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "POST  / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
		"POST / HTTP/1.1\r\nHost: a\r\n\r\n", get, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "garbage\r\n\r\n",
	}
	last := "POST /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	for i := range 300 {
		stream := requests[i%len(requests)]
		if i >= len(requests) {
			for range rng.IntN(4) {
				next := requests[rng.IntN(len(requests))]
				if !strings.Contains(next, "Upgrade") { // judged by another reader where it is not the first on a goroutine
					stream += next
				}
			}
			if rng.IntN(3) == 0 {
				stream = mutated(rng, stream)
			}
		}
		stream += last
		pieces := []string{stream}
		for rng.IntN(2) == 0 && len(pieces) < 6 {
			p := pieces[len(pieces)-1]
			at := rng.IntN(len(p) + 1)
			pieces = append(pieces[:len(pieces)-1], p[:at], p[at:])
		}
		if got, want := prompt.said(pieces), plain.said(pieces); got != want {
			t.Fatalf("%q\nis answered with\n%q\nwant\n%q", pieces, got, want)
		}
	}
}

func mutated(rng *rand.Rand, s string) string {
	b := []byte(s)
	for range 1 + rng.IntN(3) {
		b[rng.IntN(min(len(b), 120))] = "\r\n :\x00aPH1/"[rng.IntN(10)]
	}
	return string(b)
}

func TestPromptTimeouts(t *testing.T) {
	f := serve(t, func(o *Options) {
		promptly(o)
		o.HeadTimeout, o.IdleTimeout = 30*time.Millisecond, 60*time.Millisecond
	})
	for _, tc := range []struct {
		name, sent string
		status     int
	}{{"idle", "", 0}, {"later head", "POST ", 408}} {
		t.Run(tc.name, func(t *testing.T) {
			c := f.tcp()
			br := bufio.NewReader(c)
			_, _ = io.WriteString(c, post)
			readAnswer(t, br, post)
			_, _ = io.WriteString(c, tc.sent)
			if tc.status != 0 {
				if r, _ := readAnswer(t, br, post); r.StatusCode != tc.status {
					t.Errorf("got %s", r.Status)
				}
			}
			if rest, err := io.ReadAll(br); err != nil || len(rest) != 0 {
				t.Errorf("the connection ended with %q, %v", rest, err)
			}
		})
	}
	until(t, "none is left", func() bool { return f.s.stats.total.Load() == 0 && f.s.Stats().HTTP == 0 })
}

// A client that does not read its answers takes its connection off the loop, and misses
// none of them in the end.
func TestPromptAnswersThatAreNotRead(t *testing.T) {
	const n = 60_000
	f := serve(t, func(o *Options) {
		promptly(o)
		o.HTTP = func(ctx *fasthttp.RequestCtx) { ctx.SetBody(append(ctx.PostBody(), make([]byte, 500)...)) }
	})
	c := f.tcp()
	sent := make(chan error, 1)
	go func() {
		var b bytes.Buffer
		for i := range n {
			fmt.Fprintf(&b, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n%06d", i)
		}
		_, err := c.Write(b.Bytes())
		sent <- err
	}()
	until(t, "its answers are stuck", func() bool { return f.onGoroutines() == 1 })
	br := bufio.NewReader(c)
	for i := range n {
		if _, body := readAnswer(t, br, post); body[:6] != fmt.Sprintf("%06d", i) {
			t.Fatalf("answer %d is %q", i, body[:6])
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// One that never reads is cut after the time that an answer may take.
func TestPromptNeverRead(t *testing.T) {
	f := serve(t, func(o *Options) {
		promptly(o)
		o.WriteTimeout = 50 * time.Millisecond
		o.HTTP = func(ctx *fasthttp.RequestCtx) { ctx.SetBody(make([]byte, 100_000)) }
	})
	c := f.tcp()
	go func() { _, _ = io.WriteString(c, strings.Repeat(post, 10_000)) }()
	until(t, "it is on a goroutine", func() bool { return f.onGoroutines() == 1 })
	until(t, "it is cut", func() bool { return f.s.stats.total.Load() == 0 && f.onGoroutines() == 0 })
}

func TestPromptConnectionsAreBounded(t *testing.T) {
	f := serve(t, func(o *Options) { promptly(o); o.MaxHTTP = 1 })
	c := f.tcp()
	br := bufio.NewReader(c)
	for range 2 {
		_, _ = io.WriteString(c, post)
		if r, _ := readAnswer(t, br, post); r.StatusCode != 200 {
			t.Fatal(r.Status)
		}
		if r, body := f.answer(post); r.StatusCode != 503 || !strings.Contains(body, "OVERLOADED") {
			t.Fatalf("a second connection: %s %s", r.Status, body)
		}
	}
	_, _ = io.WriteString(c, get) // it has its place on a goroutine as well
	if r, _ := readAnswer(t, br, get); r.StatusCode != 200 {
		t.Error(r.Status)
	}
}

func TestPromptThenWebSocket(t *testing.T) {
	f := serve(t, promptly)
	conn := f.tcp()
	_, _ = io.WriteString(conn, post)
	readAnswer(t, bufio.NewReader(conn), post)
	c := open(t, conn, text("early"))
	c.expect("early")
	if st := f.s.Stats(); st.WebSockets != 1 || st.HTTP != 0 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
	f.session().c.CloseWith(1000, "done")
	c.wantClose(1000)
	_ = conn.Close()
	until(t, "none is left", func() bool { return f.s.Stats().WebSockets == 0 && f.s.stats.total.Load() == 0 })
}
