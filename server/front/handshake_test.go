package front

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"subway/core/wire"
)

// change replaces a line of the good request; an empty new line takes it away.
func change(old, new string) string {
	if new != "" {
		new += "\r\n"
	}
	out := strings.Replace(request, old+"\r\n", new, 1)
	if out == request {
		panic("no such line: " + old)
	}
	return out
}

const (
	lineRequest = "GET /ws HTTP/1.1"
	lineHost    = "Host: gw.example"
	lineUpgrade = "Upgrade: websocket"
	lineConn    = "Connection: Upgrade"
	lineKey     = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	lineVersion = "Sec-WebSocket-Version: 13"
)

type refusal struct {
	name   string
	raw    string
	status int
	code   string
}

var refusals = []refusal{
	{"other path", change(lineRequest, "GET /other HTTP/1.1"), 404, "NOT_FOUND"},
	{"below /ws", change(lineRequest, "GET /ws/x HTTP/1.1"), 404, "NOT_FOUND"},
	{"an API path", change(lineRequest, "GET /api/commands HTTP/1.1"), 404, "NOT_FOUND"},
	{"POST", change(lineRequest, "POST /ws HTTP/1.1"), 405, "METHOD_NOT_ALLOWED"},
	{"POST elsewhere", change(lineRequest, "POST /nope HTTP/1.1"), 404, "NOT_FOUND"},
	{"POST with a length", strings.Replace(change(lineRequest, "POST /ws HTTP/1.1"), lineHost, lineHost+"\r\nContent-Length: 0", 1), 405, "METHOD_NOT_ALLOWED"},
	{"HTTP/1.0", change(lineRequest, "GET /ws HTTP/1.0"), 400, "INVALID_REQUEST"},
	{"no version", change(lineVersion, ""), 426, "INVALID_REQUEST"},
	{"version 8", change(lineVersion, "Sec-WebSocket-Version: 8"), 426, "INVALID_REQUEST"},
	{"version 13, 8", change(lineVersion, "Sec-WebSocket-Version: 13, 8"), 426, "INVALID_REQUEST"},
	{"two versions", change(lineVersion, lineVersion+"\r\n"+lineVersion), 426, "INVALID_REQUEST"},
	{"no key", change(lineKey, ""), 400, "INVALID_REQUEST"},
	{"empty key", change(lineKey, "Sec-WebSocket-Key: "), 400, "INVALID_REQUEST"},
	{"short key", change(lineKey, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAA"), 400, "INVALID_REQUEST"},
	{"long key", change(lineKey, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), 400, "INVALID_REQUEST"},
	{"18 bytes in 24 characters", change(lineKey, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAAA"), 400, "INVALID_REQUEST"},
	{"no base64", change(lineKey, "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!=="), 400, "INVALID_REQUEST"},
	{"two keys", change(lineKey, lineKey+"\r\n"+lineKey), 400, "INVALID_REQUEST"},
	{"no Connection: Upgrade", change(lineConn, "Connection: keep-alive"), 400, "INVALID_REQUEST"},
	{"a quote in Connection", change(lineConn, "Connection: \",Upgrade"), 400, "INVALID_REQUEST"},
	{"a comment in Connection", change(lineConn, "Connection: Upgrade, (close)"), 400, "INVALID_REQUEST"},
	{"a parameter in Connection", change(lineConn, "Connection: Upgrade; q=1, Upgrade"), 400, "INVALID_REQUEST"},
	{"two slashes in Upgrade", change("Upgrade: websocket", "Upgrade: a/b/c, websocket"), 400, "INVALID_REQUEST"},
	{"Connection: Upgrade, close", change(lineConn, "Connection: Upgrade, close"), 400, "INVALID_REQUEST"},
	{"no Host", change(lineHost, ""), 400, "INVALID_REQUEST"},
	{"two Hosts", change(lineHost, lineHost+"\r\n"+lineHost), 400, "INVALID_REQUEST"},
	{"a body", change(lineHost, lineHost+"\r\nContent-Length: 2"), 400, "INVALID_REQUEST"},
	{"a chunked body", change(lineHost, lineHost+"\r\nTransfer-Encoding: chunked"), 400, "INVALID_REQUEST"},
	{"a folded line", change(lineHost, lineHost+"\r\n folded"), 400, "INVALID_REQUEST"},
	{"space before the colon", change(lineHost, "Host : gw.example"), 400, "INVALID_REQUEST"},
	{"a control character", change(lineHost, lineHost+"\r\nX: a\x01b"), 400, "INVALID_REQUEST"},
	{"a foreign Origin", change(lineHost, lineHost+"\r\nOrigin: http://evil.example"), 403, "FORBIDDEN"},
	{"Origin null", change(lineHost, lineHost+"\r\nOrigin: null"), 403, "FORBIDDEN"},
	{"Origin with a user", change(lineHost, lineHost+"\r\nOrigin: http://gw.example@evil.example"), 403, "FORBIDDEN"},
	{"Origin with a path", change(lineHost, lineHost+"\r\nOrigin: http://gw.example/"), 403, "FORBIDDEN"},
	{"Origin on another port", change(lineHost, lineHost+"\r\nOrigin: http://gw.example:81"), 403, "FORBIDDEN"},
	{"empty Origin", change(lineHost, lineHost+"\r\nOrigin:"), 403, "FORBIDDEN"},
}

func TestHandshakeRefused(t *testing.T) {
	f := serve(t, withAPI)
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			r, body := f.answer(tc.raw)
			if r.StatusCode != tc.status || !strings.Contains(body, `"code":"`+tc.code+`"`) || !strings.Contains(body, `{"success":false,"error":"`) {
				t.Errorf("got %s %s, want %d %s", r.Status, body, tc.status, tc.code)
			}
			if r.Header.Get("Content-Type") != "application/json" || !r.Close {
				t.Errorf("header %v", r.Header)
			}
			if tc.status == 426 && r.Header.Get("Sec-WebSocket-Version") != "13" {
				t.Error("no Sec-WebSocket-Version: 13")
			}
			if tc.status == 405 && r.Header.Get("Allow") != "GET" {
				t.Error("no Allow: GET")
			}
		})
	}
	until(t, "no connection left", func() bool { return f.s.stats.total.Load() == 0 })
	if got := len(f.sessions); got != 0 {
		t.Errorf("%d sessions were opened", got)
	}
}

func TestHandshakeTaken(t *testing.T) {
	f := serve(t, func(o *Options) { o.Origins = []string{"https://app.example"} })
	for _, tc := range []struct{ name, raw, protocol string }{
		{"as it is", request, ""},
		{"on /", change(lineRequest, "GET / HTTP/1.1"), ""},
		{"with a query", change(lineRequest, "GET /ws?token=a HTTP/1.1"), ""},
		{"absolute form", change(lineRequest, "GET http://gw.example/ws HTTP/1.1"), ""},
		{"any case, lists", "GET /ws HTTP/1.1\r\nhOST: gw\r\nUPGRADE: h2c, TLS/1.0,, WebSocket\r\nconnection: keep-alive , UPGRADE\r\n" +
			"SEC-WEBSOCKET-KEY:dGhlIHNhbXBsZSBub25jZQ==\t\r\nsec-websocket-version:   13\r\n\r\n", ""},
		{"protocol", change(lineHost, lineHost+"\r\nSec-WebSocket-Protocol: subway.v1"), "subway.v1"},
		{"protocol in a second line", change(lineHost, lineHost+"\r\nSec-WebSocket-Protocol: a, b\r\nX: y\r\nsec-websocket-protocol: c,subway.v1"), "subway.v1"},
		{"another protocol", change(lineHost, lineHost+"\r\nSec-WebSocket-Protocol: subway.v2, Subway.v1"), ""},
		{"an extension", change(lineHost, lineHost+"\r\nSec-WebSocket-Extensions: permessage-deflate"), ""},
		{"own Origin", change(lineHost, lineHost+"\r\nOrigin: http://gw.example"), ""},
		{"own Origin, default port", change(lineHost, "Host: gw.example:80\r\nOrigin: http://GW.example"), ""},
		{"own Origin, https", change(lineHost, "Host: gw.example:443\r\nOrigin: https://gw.example"), ""},
		{"own Origin, a port", change(lineHost, "Host: gw.example:18081\r\nOrigin: http://gw.example:18081"), ""},
		{"own Origin, IPv6", change(lineHost, "Host: [::1]:18081\r\nOrigin: http://[::1]:18081"), ""},
		{"configured Origin", change(lineHost, lineHost+"\r\nOrigin: https://app.example"), ""},
		{"an empty line before it", "\r\n" + request, ""},
		{"Content-Length: 0", change(lineHost, lineHost+"\r\nContent-Length: 0"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := f.tcp()
			_, _ = io.WriteString(conn, tc.raw)
			br := bufio.NewReader(conn)
			r, err := http.ReadResponse(br, nil)
			if err != nil || r.StatusCode != 101 {
				t.Fatal(r, err)
			}
			if r.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || r.Header.Get("Sec-WebSocket-Protocol") != tc.protocol ||
				r.Header.Get("Sec-WebSocket-Extensions") != "" {
				t.Errorf("header %v", r.Header)
			}
			c := &client{t: t, conn: conn, br: br}
			c.write(text("hello"))
			c.expect("hello")
		})
	}
}

// The head in pieces of every size, and frames in the segment that ends it.
func TestHandshakeInPieces(t *testing.T) {
	f := serve(t, nil)
	for cut := 1; cut < len(request); cut += 7 {
		conn := f.tcp()
		_, _ = io.WriteString(conn, request[:cut])
		c := &client{t: t, conn: conn, br: bufio.NewReader(conn)}
		until(t, "the first piece is there", func() bool { return f.s.Stats().Waiting == 1 })
		c.write([]byte(request[cut:]), text("early"), frame(9, true, []byte("p")))
		if r, err := http.ReadResponse(c.br, nil); err != nil || r.StatusCode != 101 {
			t.Fatal(r, err)
		}
		c.expect("early")
		if op, b := c.next(); op != 10 || string(b) != "p" {
			t.Fatalf("no pong: %x %q", op, b)
		}
		_ = conn.Close()
	}
}

func TestHandshakeForOpen(t *testing.T) {
	got := make(chan string, 1)
	f := serve(t, func(o *Options) {
		open := o.Open
		o.Open = func(c *Conn, now wire.Time) Session {
			h := c.Handshake()
			got <- string(h.Path) + "|" + string(h.Query) + "|" + string(h.Authorization) + "|" + string(h.Host)
			return open(c, now)
		}
	})
	conn := f.tcp()
	raw := strings.Replace(change(lineRequest, "GET /ws?token=x&y HTTP/1.1"), lineHost, lineHost+"\r\nAuthorization: Bearer abc", 1)
	_, _ = io.WriteString(conn, raw)
	if h := <-got; h != "/ws|token=x&y|Bearer abc|gw.example" {
		t.Error(h)
	}
	if e := f.session(); e.c.RemoteAddr().String() != conn.LocalAddr().String() {
		t.Error(e.c.RemoteAddr())
	}
}
