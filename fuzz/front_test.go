package fuzz

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"subway/server/front"
)

const maxMessage = 5000

// transcript feeds a frame reader in pieces whose sizes cycle through sizes, and
// writes down what it finds.
func transcript(t *testing.T, input, sizes []byte) string {
	budget := front.NewBudget(1 << 20)
	r := front.NewReader(maxMessage, budget)
	var out strings.Builder
	for i := 0; len(input) > 0; i++ {
		n := len(input)
		if len(sizes) > 0 {
			n = min(n, 1+int(sizes[i%len(sizes)]))
		}
		part := bytes.Clone(input[:n])
		input = input[n:]
		for {
			ev, used := r.Next(part)
			if used < 0 || used > len(part) || ev.Kind == front.Nothing && used != len(part) {
				t.Fatalf("%d of %d bytes consumed for event %d", used, len(part), ev.Kind)
			}
			part = part[used:]
			if ev.Kind == front.Nothing {
				break
			}
			if len(ev.Payload) > maxMessage {
				t.Fatalf("a payload of %d bytes", len(ev.Payload))
			}
			fmt.Fprintf(&out, "%d %d %x\n", ev.Kind, ev.Code, ev.Payload)
		}
	}
	if held := budget.Used(); held > 2*maxMessage+4096 {
		t.Fatalf("%d bytes are held for a message of up to %d", held, maxMessage)
	}
	r.Close()
	if held := budget.Used(); held != 0 {
		t.Fatalf("%d bytes are held after Close", held)
	}
	return out.String()
}

// FuzzFrames: no input makes the frame reader panic, and what it finds does not
// depend on the pieces that the input comes in.
func FuzzFrames(f *testing.F) {
	frame := func(op ws.OpCode, fin bool, payload string) []byte {
		b, err := ws.CompileFrame(ws.MaskFrameInPlaceWith(ws.NewFrame(op, fin, []byte(payload)), [4]byte{1, 2, 3, 4}))
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add(frame(ws.OpText, true, `{"type":"HEARTBEAT"}`), []byte{3})
	f.Add(bytes.Join([][]byte{frame(ws.OpText, false, "a"), frame(ws.OpPing, true, "p"), frame(ws.OpContinuation, true, "b"),
		frame(ws.OpClose, true, "\x03\xe8bye")}, nil), []byte{0, 7})
	f.Add(frame(ws.OpBinary, true, strings.Repeat("\xff", 300)), []byte{100})
	f.Add([]byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, []byte{1})
	f.Add([]byte{0x81, 0xfe, 0x13, 0x88, 0, 0, 0, 0, 1, 2, 3}, []byte{2})
	f.Fuzz(func(t *testing.T, input, sizes []byte) {
		whole := transcript(t, input, nil)
		for _, s := range [][]byte{{0}, sizes} {
			if got := transcript(t, input, s); got != whole {
				t.Fatalf("in pieces of %v:\n%swhole:\n%s", s, got, whole)
			}
		}
	})
}

// FuzzHandshake: no head makes the parser panic; one that it takes has what RFC 6455
// section 4.2.1 asks for, read a second time with net/http.
func FuzzHandshake(f *testing.F) {
	const good = "GET /ws?a=b HTTP/1.1\r\nHost: h:1\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: x, subway.v1\r\n" +
		"Origin: http://h:1\r\nAuthorization: Bearer x\r\n\r\n"
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, "HTTP/1.1", "HTTP/1.0", 1)))
	f.Add([]byte(strings.Replace(good, "\r\nOrigin", "\r\n folded\r\nContent-Length: 3\r\nOrigin", 1)))
	f.Add([]byte(strings.Replace(good, "keep-alive,", "\",", 1)))
	f.Fuzz(func(t *testing.T, head []byte) {
		h, refusal := front.ParseHandshake(head)
		if refusal != nil {
			if refusal.Status < 400 || refusal.Status > 599 || refusal.Text == "" {
				t.Fatalf("refused with %+v", refusal)
			}
			return
		}
		if string(h.Path) != "/" && string(h.Path) != "/ws" || bytes.ContainsAny(h.Query, " \r\n") {
			t.Fatalf("taken: path %q, query %q", h.Path, h.Query)
		}
		front.OriginAllowed(h.Origin, h.Host, nil)
		if !bytes.HasPrefix(head, []byte("GET /")) || !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			return // absolute form, or more than a head
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil {
			t.Fatalf("we take what net/http does not (%v): %q", err, head)
		}
		if !listed(req.Header["Upgrade"], "websocket") || !listed(req.Header["Connection"], "upgrade") ||
			req.Header.Get("Sec-WebSocket-Version") != "13" || req.ContentLength != 0 {
			t.Fatalf("taken without what RFC 6455 section 4.2.1 asks for: %q", head)
		}
		for _, line := range strings.Split(string(head), "\r\n") {
			if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "sec-websocket-key") {
				if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value)); err != nil || len(key) != 16 {
					t.Fatalf("the key %q was taken", value)
				}
			}
		}
	})
}

// listed looks for a token in comma-separated lists of nothing but tokens.
func listed(lists []string, token string) bool {
	found := false
	for _, list := range lists {
		for item := range strings.SplitSeq(list, ",") {
			item = strings.Trim(item, " \t")
			if strings.ContainsAny(item, " \t\"\\(){}[]<>@;:?=") {
				return false
			}
			found = found || strings.EqualFold(item, token)
		}
	}
	return found
}
