package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"
)

// TestAllocations: a command through the whole Gateway and its response back cost no
// allocation, with the table of records at its bound. The Gateway is a process of its
// own that is asked how often it allocated.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	n := 1_000_000
	if testing.Short() {
		n = 200_000
	}
	f, _ := startChild(t, childOptions{MaxRecords: 20_000, Loops: 2})
	d := newDriving(t, f, 4, 64)
	d.run(t, 100_000) // until pools and tables are warm
	before, began := f.metrics(), time.Now()
	d.run(t, n)
	took := time.Since(began)
	after := f.metrics()
	allocated := after["go_memstats_mallocs_total"] - before["go_memstats_mallocs_total"]
	f.http.CloseIdleConnections()
	asking := -f.metric("go_memstats_mallocs_total")
	asking += f.metric("go_memstats_mallocs_total")
	cpu := after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
	per := (allocated - asking) / float64(2*n)
	t.Logf("%d commands and responses in %v, %.1f us of the Gateway's CPU each pair, %.0f allocations (%.0f more for asking), %.5f a message",
		n, took.Round(time.Millisecond), cpu/float64(n)*1e6, allocated-asking, asking, per)
	if per > 0.01 {
		t.Errorf("%.4f allocations a message", per)
	}
	if done := after[`subway_commands_success_total{command_type="T",device_type="td"}`]; int(done) != n+100_000 {
		t.Errorf("%g commands ended", done)
	}
}

// driving is a Backend that keeps a window of commands under way, and edges that answer.
type driving struct {
	backend *lean
	tokens  chan struct{}
	edges   int
	next    int
}

func newDriving(t testing.TB, f *fixture, edges, window int) *driving {
	d := &driving{tokens: make(chan struct{}, window*edges), edges: edges}
	for i := range edges {
		c, err := f.joinLean(edgeRegister(fmt.Sprintf("edge-%d", i), fmt.Sprintf("td-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.conn.Close() })
		go answerAll(c)
	}
	var err error
	if d.backend, err = f.joinLean(`{"type":"REGISTER","clientId":"backend-1","clientType":"BACKEND"}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.backend.conn.Close() })
	go func() {
		for {
			msg, err := d.backend.read()
			if err != nil {
				return
			}
			if string(msg[:27]) == `{"type":"COMMAND_RESPONSE",` {
				<-d.tokens
			}
		}
	}()
	return d
}

// answerAll completes every command, in as few writes as they came in reads.
func answerAll(c *lean) {
	var out []byte
	for {
		if c.br.Buffered() == 0 && c.flush() != nil {
			return
		}
		msg, err := c.read()
		if err != nil {
			return
		}
		out = append(append(out[:0], `{"type":"COMMAND_RESPONSE","requestRef":"`...), member(msg, "requestRef")...)
		c.add(append(out, `","status":"COMPLETED","result":{"brightness":80},"executionTime":42,"timestamp":"2024-01-20T10:00:00.042Z","version":"1.0"}`...))
	}
}

// run sends n commands, each with a ref of its own, and waits for all responses.
func (d *driving) run(t testing.TB, n int) {
	var out []byte
	c := d.backend
	for range n {
		select {
		case d.tokens <- struct{}{}:
		default:
			if err := c.flush(); err != nil {
				t.Fatal(err)
			}
			d.tokens <- struct{}{}
		}
		d.next++
		out = append(out[:0], `{"type":"COMMAND","requestRef":"cmd-1705744800000-`...)
		out = strconv.AppendInt(out, int64(d.next), 36)
		out = append(out, `","targetClientId":"td-`...)
		out = strconv.AppendInt(out, int64(d.next%d.edges), 10)
		c.add(append(out, `","command":{"commandType":"T","value":80,"text":"to be shown on the screen"},"priority":"NORMAL","timeout":30000,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"}`...))
		if len(c.out) > 16<<10 {
			if err := c.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	until(t, "all responses", func() bool { return len(d.tokens) == 0 })
}

// TestHTTPAllocations: a command over HTTP and its response from the edge cost at most
// four allocations, one one that waits for its end ten, one in a batch one.
func TestHTTPAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	f, _ := startChild(t, childOptions{MaxRecords: 2_000, Loops: 2})
	edge, err := f.joinLean(edgeRegister("edge-0", "td-0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = edge.conn.Close() })
	go answerAll(edge)
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &posting{conn: conn, br: bufio.NewReaderSize(conn, 64<<10)}

	const each = 100
	command := `{"target_client_id":"td-0","command":{"commandType":"T","value":80}}`
	batch := `{"commands":[` + command + string(bytes.Repeat([]byte(","+command), each-1)) + `]}`
	for _, c := range []struct {
		path, body, want string
		n, commands      int
		most             float64
	}{
		{"/api/commands", command, "accepted", 10_000, 1, 4},
		{"/api/commands?wait=60000", command, "COMPLETED", 10_000, 1, 7},
		{"/api/commands/batch", batch, `"accepted":100,"rejected":0`, 200, each, 1},
	} {
		request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path, len(c.body), c.body)
		run := func(n int) {
			for range n {
				p.post(t, request, c.want)
			}
			until(t, "all ended", func() bool { return f.metric("subway_pending_commands") == 0 })
		}
		run(c.n / 2) // until pools and tables are warm
		asking := -f.metric("go_memstats_mallocs_total")
		asking += f.metric("go_memstats_mallocs_total")
		before := f.metric("go_memstats_mallocs_total")
		for range c.n {
			p.post(t, request, c.want)
		}
		allocated := f.metric("go_memstats_mallocs_total") - before - asking
		per := allocated / float64(c.n*c.commands)
		t.Logf("%s: %.2f allocations a command (%.0f more for asking)", c.path, per, asking)
		if per > c.most {
			t.Errorf("%s: %.2f allocations a command", c.path, per)
		}
	}
}

// posting makes requests over one connection and allocates nothing.
type posting struct {
	conn net.Conn
	br   *bufio.Reader
}

// post makes one request and wants its answer to hold a text. Not while another is made.
func (p *posting) post(t testing.TB, request []byte, want string) {
	t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	if _, err := p.conn.Write(request); err != nil {
		t.Fatal(err)
	}
	const name = "Content-Length: "
	length := -1
	for {
		line, err := p.br.ReadSlice('\n')
		if err != nil {
			t.Fatal(err)
		}
		if len(line) == 2 {
			break
		}
		if bytes.HasPrefix(line, []byte(name)) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(line[len(name):])))
		}
	}
	body, err := p.br.Peek(length)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(body, []byte(want)) {
		t.Fatalf("no %s in %.300s", want, body)
	}
	_, _ = p.br.Discard(length)
}
