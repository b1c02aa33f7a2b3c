package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"subway/api"
	"subway/api/contract"
)

// coverage notes which answers of the published description were seen.
type coverage struct {
	doc *openapi3.T
	mu  sync.Mutex
	// guarded by mu: "GET /api/devices 200"
	seen map[string]bool
}

func newCoverage(t testing.TB) *coverage {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPIJSON())
	if err != nil {
		t.Fatal(err)
	}
	return &coverage{doc: doc, seen: make(map[string]bool)}
}

func (f *fixture) covered(method, target string, status int) {
	c := f.seen
	if c == nil {
		return
	}
	path, _, _ := strings.Cut(target, "?")
	c.mu.Lock()
	defer c.mu.Unlock()
	if template := c.template(path); template != "" {
		c.seen[fmt.Sprintf("%s %s %d", method, template, status)] = true
	}
}

// template finds the path of the description that fits, literal segments first.
func (c *coverage) template(path string) (best string) {
	segments, most := strings.Split(path, "/"), -1
	for template := range c.doc.Paths.Map() {
		parts := strings.Split(template, "/")
		if len(parts) != len(segments) {
			continue
		}
		literal := 0
		for i, part := range parts {
			if part == segments[i] {
				literal++
			} else if !strings.HasPrefix(part, "{") {
				literal = -1
				break
			}
		}
		if literal > most {
			best, most = template, literal
		}
	}
	return best
}

// operations calls fn for each operation with a path that fits its template.
func (c *coverage) operations(fn func(method, template, path string)) {
	for _, template := range c.doc.Paths.InMatchingOrder() {
		path := strings.NewReplacer("{ref}", "r-1", "{id}", "td-01", "{name}", "command.json").Replace(template)
		for method := range c.doc.Paths.Value(template).Operations() {
			fn(method, template, path)
		}
	}
}

// unreachable says why an answer of the description cannot be had from a Gateway: "" if it can.
func unreachable(method, template, status string) string {
	limited := method == "POST" && strings.HasPrefix(template, "/api/command")
	switch {
	case status == "default":
		return "the transport's"
	case status == "500":
		return "a bug of ours would be needed"
	case status == "401", status == "403" && template != "/":
		return "clients are not authenticated"
	case status == "429" && !limited:
		return "commands alone have a rate"
	}
	return ""
}

// missing lists the answers that were not seen and could have been.
func (c *coverage) missing() (all []string) {
	c.operations(func(method, template, _ string) {
		for status := range c.doc.Paths.Value(template).Operations()[method].Responses.Map() {
			key := method + " " + template + " " + status
			if unreachable(method, template, status) == "" && !c.seen[key] {
				all = append(all, key)
			}
		}
	})
	slices.Sort(all)
	return all
}

// raw sends bytes on a connection of their own and holds the one answer against the
// contract. The request line says what the request is.
func (f *fixture) raw(request string) (*http.Response, string) {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	_, _ = io.WriteString(conn, request) // what is refused may not be taken whole
	return f.rawAnswer(bufio.NewReader(conn), request)
}

func (f *fixture) rawAnswer(br *bufio.Reader, request string) (*http.Response, string) {
	f.t.Helper()
	words := strings.Fields(request)
	r, err := http.ReadResponse(br, &http.Request{Method: words[0]})
	if err != nil {
		f.t.Fatalf("%.80q: %v", request, err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatalf("%.80q: %v", request, err)
	}
	contract.Validate(f.t, words[0], words[1], r.StatusCode, r.Header, body)
	f.covered(words[0], words[1], r.StatusCode)
	return r, string(body)
}

// wantRaw is raw, and fails unless the answer has this status.
func (f *fixture) wantRaw(status int, request string) {
	f.t.Helper()
	if r, body := f.raw(request); r.StatusCode != status {
		f.t.Errorf("%.200q: %s %s, want %d", request, r.Status, body, status)
	}
}

func head(method, path string, headers ...string) string {
	var b strings.Builder
	b.WriteString(method + " " + path + " HTTP/1.1\r\nHost: gw.example\r\n")
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n"
}

func contentLength(n int) string { return "Content-Length: " + strconv.Itoa(n) }
