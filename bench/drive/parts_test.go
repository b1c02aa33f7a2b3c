package drive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPayloadIsExact(t *testing.T) {
	for _, kind := range []string{"text", "json"} {
		for _, n := range []int{16, 17, 60, 200, 201, 1024, 65536} {
			p := payload(kind, n)
			if len(p) != n || !json.Valid(p) {
				t.Errorf("%s %d: %d bytes, %.60s", kind, n, len(p), p)
			}
		}
	}
}

func TestMessagesAreJSON(t *testing.T) {
	for _, floor := range []bool{false, true} {
		for _, text := range [][]byte{commandText(floor, payload("json", 200)), responseText(floor, payload("text", 200))} {
			var members map[string]json.RawMessage
			if err := json.Unmarshal(text, &members); err != nil {
				t.Errorf("%v: %s", err, text)
			}
			if _, routed := members["r"]; routed != floor {
				t.Errorf("floor %v: %s", floor, text)
			}
		}
	}
}

func TestRefs(t *testing.T) {
	mine, other := newRef(12345678, 7), newRef(12345678, 8)
	putRef(mine, 31, 987654)
	if want := "cmd-12345678-007-00031-0000987654"; string(mine) != want {
		t.Fatalf("%s, want %s", mine, want)
	}
	if slot, sequence, ok := cutRef(mine, newRef(12345678, 7)); !ok || slot != 31 || sequence != 987654 {
		t.Errorf("cut to %d %d %v", slot, sequence, ok)
	}
	for _, bad := range []string{string(other), "", "cmd-12345678-007-00031-00009876x4", "cmd-12345678-007-00031x0000987654", string(mine) + "0"} {
		if _, _, ok := cutRef([]byte(bad), mine); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestLedgerAgainstMap holds the ledger against a plain map.
func TestLedgerAgainstMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	type key struct {
		slot     int
		sequence uint64
	}
	b, open, ended := newLedger(8), map[key]int64{}, map[key]bool{}
	for step := range int64(5000) {
		if len(b.free) > 0 && random.IntN(2) == 0 {
			slot, sequence := b.open(step)
			k := key{slot, sequence}
			if _, used := open[k]; used || ended[k] {
				t.Fatalf("%v used twice", k)
			}
			open[k] = step
			continue
		}
		k := key{random.IntN(10) - 1, uint64(random.IntN(int(step)/8 + 2))}
		for o := range open {
			k = o
			break
		}
		want, known := open[k]
		started, ok := b.settle(k.slot, k.sequence)
		if ok != known || started != want {
			t.Fatalf("settle %v: %d %v, want %d %v", k, started, ok, want, known)
		}
		if known {
			delete(open, k)
			ended[k] = true
		}
		if _, ok := b.settle(k.slot, k.sequence); ok {
			t.Fatalf("%v settled twice", k)
		}
		if n := len(b.slots) - len(b.free); n != len(open) {
			t.Fatalf("%d in flight, want %d", n, len(open))
		}
	}
}

// sink collects messages.
type sink struct{ got []string }

func (s *sink) message(_ *conn, msg []byte) error {
	s.got = append(s.got, string(msg))
	return nil
}

// feed offers a stream byte by byte, as the loop does.
func feed(t *testing.T, r reader, c *conn, stream []byte) {
	t.Helper()
	var begun []byte
	for _, b := range stream {
		begun = append(begun, b)
		used, err := r.read(c, begun)
		if err != nil {
			t.Fatal(err)
		}
		begun = begun[used:]
	}
	if len(begun) != 0 {
		t.Errorf("%d bytes left over", len(begun))
	}
}

func serverFrame(opcode byte, payload []byte) []byte {
	f := appendFrame(nil, opcode, payload)
	n := len(f) - len(payload)
	f[1] &^= 0x80
	return append(f[:n-4], payload...)
}

func TestFramingByteByByte(t *testing.T) {
	var s sink
	c := &conn{loop: &loop{}}
	var want []string
	var stream []byte
	for _, n := range []int{0, 1, 125, 126, 65535, 65536} {
		msg := bytes.Repeat([]byte{'m'}, n)
		want = append(want, string(msg))
		stream = append(stream, serverFrame(opText, msg)...)
		stream = append(stream, serverFrame(opPing, []byte("p"))...)
	}
	feed(t, framing{&s}, c, stream)
	if fmt.Sprint(s.got) != fmt.Sprint(want) {
		t.Errorf("got %d messages", len(s.got))
	}
	if pong := bytes.Count(c.out, []byte{0x8a, 0x81, 0, 0, 0, 0, 'p'}); pong != len(want) {
		t.Errorf("%d pongs", pong)
	}
	for _, bad := range [][]byte{{0x01, 1, 'x'}, {0x81, 0x81, 0, 0, 0, 0, 'x'}, {0xc1, 0}, serverFrame(opClose, []byte{17, 58}),
		{0x81, 127, 0xff, 0, 0, 0, 0, 0, 0, 0}} {
		if _, err := (framing{&s}).read(c, bad); err == nil {
			t.Errorf("%x was taken", bad)
		}
	}
}

func TestNATSByteByByte(t *testing.T) {
	var got []string
	r := natsReader{func(subject, reply, payload []byte) {
		got = append(got, fmt.Sprintf("%s|%s|%s", subject, reply, payload))
	}}
	c := &conn{loop: &loop{}}
	feed(t, r, c, []byte("INFO {}\r\nMSG a.b 1 5\r\na\r\nbc\r\nPING\r\nMSG a 2 re.ply 0\r\n\r\nPONG\r\n"))
	if want := "[a.b||a\r\nbc a|re.ply|]"; fmt.Sprint(got) != want || string(c.out) != "PONG\r\n" {
		t.Errorf("%q, out %q", got, c.out)
	}
	for _, bad := range []string{"-ERR 'x'\r\n", "MSG a 1 x\r\n", "MSG a 1 99999999999\r\n", "MSG \r\n"} {
		if _, err := r.read(c, []byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// newBench returns a run with one backend and one edge whose connections have no socket.
func newBench(proto string) (*run, *backend, *edge) {
	cfg := &Config{Addr: netip.MustParseAddrPort("127.0.0.1:1"), Proto: proto, Edges: 1, Devices: 64, Backends: 1, Window: 32, Payload: 200}
	r := &run{cfg: cfg, loop: &loop{base: time.Now()}, random: rand.NewPCG(1, 2), payload: payload("text", 200),
		latency: hdrhistogram.New(1, latencyMax, figuresKept), books: []ledger{newLedger(32)}, issuing: true, issueMax: 1 << 62}
	floor := r.floor()
	b := &backend{run: r, ref: newRef(1, 0), conn: &conn{loop: r.loop}, command: newTemplate(commandText(floor, r.payload)).framed(),
		expect: newTemplate(responseText(floor, r.payload))}
	e := &edge{run: r, conn: &conn{loop: r.loop}, command: newTemplate(commandText(floor, r.payload)),
		response: newTemplate(responseText(floor, r.payload)).framed()}
	r.sources = []source{b}
	return r, b, e
}

// unframed returns the message of one client frame with mask key 0.
func unframed(frame []byte) []byte {
	at := bytes.IndexByte(frame, '{')
	return bytes.Clone(frame[at:])
}

func TestWrongAnswersAreSeen(t *testing.T) {
	for _, proto := range []string{ProtoSubway, ProtoFloor} {
		r, b, e := newBench(proto)
		r.open(0, 0)
		r.issuing = false
		command := unframed(b.conn.out)
		if err := e.message(e.conn, append(command[:len(command)-1], `,"sourceClientId":"backend-00"}`...)); err != nil {
			t.Fatal(err)
		}
		response := unframed(e.conn.out)
		f := func(name string, msg []byte, want Result) {
			t.Helper()
			if err := b.message(b.conn, msg); err != nil {
				t.Fatal(err)
			}
			r.result.Notes = nil
			got := r.result
			if got.Commands != want.Commands || got.Stray != want.Stray || got.Corrupt != want.Corrupt ||
				got.Failed != want.Failed || got.Unexpected != want.Unexpected {
				t.Errorf("%s, %s: %+v", proto, name, got)
			}
			r.result = Result{}
		}
		f("the answer", response, Result{Commands: 1})
		f("the answer again", response, Result{Stray: 1})
		f("another's", bytes.Replace(response, []byte("-000-"), []byte("-001-"), 1), Result{Stray: 1})
		f("status", []byte(`{"type":"CONNECTION_STATUS","clientId":"e"}`), Result{})
		f("no ref", []byte(`{"type":"ERROR","code":"OVERLOADED"}`), Result{Unexpected: 1})
		r.open(0, 0)
		next := bytes.Replace(response, []byte("0000000001"), []byte("0000000002"), 1)
		f("changed", bytes.Replace(next, []byte("quick"), []byte("quack"), 1), Result{Commands: 1, Corrupt: 1})
		r.open(0, 0)
		ref := r.books[0].slots[0].sequence
		f("error", fmt.Appendf(nil, `{"type":"ERROR","code":"TIMEOUT","requestRef":"cmd-00000001-000-00000-%010d"}`, ref), Result{Failed: 1})

		f("command to another edge", nil, Result{Unexpected: 1})
		_ = e.message(e.conn, bytes.Replace(command, []byte(`"td-00`), []byte(`"td-01`), 1))
		_ = e.message(e.conn, bytes.Replace(command, []byte(`quick`), []byte(`quack`), 1))
		if r.result.Corrupt != 2 {
			t.Errorf("%s: corrupt commands: %+v", proto, r.result)
		}
	}
}

// cycle carries one command through backend, edge and backend again.
func cycle(b *backend, e *edge) {
	frame := b.conn.out
	at := bytes.IndexByte(frame, '{')
	_ = e.message(e.conn, frame[at:])
	b.conn.out = frame[:0]
	frame = e.conn.out
	at = bytes.IndexByte(frame, '{')
	_ = b.message(b.conn, frame[at:])
	e.conn.out = frame[:0]
	b.run.loop.dirty = b.run.loop.dirty[:0]
	b.conn.dirty, e.conn.dirty = false, false
}

func TestCommandAllocatesNothing(t *testing.T) {
	for _, proto := range []string{ProtoSubway, ProtoFloor} {
		r, b, e := newBench(proto)
		r.open(0, 0)
		if n := testing.AllocsPerRun(1000, func() { cycle(b, e) }); n != 0 {
			t.Errorf("%s: %v allocations per command", proto, n)
		}
		if r.result.Bad() != "" || r.result.Commands != 1001 {
			t.Errorf("%s: %+v", proto, r.result)
		}
	}
}

func BenchmarkCommand(b *testing.B) {
	r, s, e := newBench(ProtoSubway)
	r.open(0, 0)
	b.ReportAllocs()
	for b.Loop() {
		cycle(s, e)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Addr: netip.MustParseAddrPort("127.0.0.1:1"), Proto: ProtoFloor, Edges: 16, Devices: 64, Backends: 8, Window: 32,
		Payload: 200, Time: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"address":  func(c *Config) { c.Addr = netip.MustParseAddrPort("192.0.2.1:80") },
		"proto":    func(c *Config) { c.Proto = "telnet" },
		"edges":    func(c *Config) { c.Edges = 101 },
		"devices":  func(c *Config) { c.Devices = 0 },
		"backends": func(c *Config) { c.Backends = 101 },
		"window":   func(c *Config) { c.Window = 1 << 20 },
		"time":     func(c *Config) { c.Time = 0 },
		"rate":     func(c *Config) { c.Rate = -1 },
		"http":     func(c *Config) { c.HTTP = true },
	} {
		bad := good
		spoil(&bad)
		if _, err := Run(bad); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
