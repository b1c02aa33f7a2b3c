package peers

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startFloor builds and starts the relay.
func startFloor(t *testing.T) *Process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "floor")
	err := BuildFloor(t.Context(), "floor/floor.c", binary)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Peer{Name: "floor", Argv: []string{binary, "{port}"}}, -1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out := s.output(); out != fmt.Sprintf("listening on %s\n", s.Addr) {
			t.Errorf("it printed %q", out)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// link is a bare WebSocket client: one frame per message, so that what is on the wire is what the test says.
type link struct {
	net.Conn
	t      *testing.T
	in     *bufio.Reader
	random *rand.Rand
}

const upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nsec-websocket-version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// dial connects; every later read and write has a minute in all.
func dial(t *testing.T, s *Process, random *rand.Rand) *link {
	t.Helper()
	c, err := net.Dial("tcp4", s.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &link{Conn: c, t: t, in: bufio.NewReader(c), random: random}
}

// dialAs connects, upgrades and announces itself; a ping behind the announcement tells when it was read.
func dialAs(t *testing.T, s *Process, who string, random *rand.Rand) *link {
	t.Helper()
	l := dial(t, s, random)
	l.raw([]byte(upgrade))
	l.upgraded()
	l.write([]byte(who))
	l.barrier()
	return l
}

func (l *link) raw(b []byte) {
	l.t.Helper()
	if _, err := l.Write(b); err != nil {
		l.t.Fatal(err)
	}
}

// upgraded reads the answer to upgrade, whose key is the example of RFC 6455 section 1.3.
func (l *link) upgraded() {
	l.t.Helper()
	answer, err := http.ReadResponse(l.in, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if got := answer.Header.Get("Sec-WebSocket-Accept"); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || answer.StatusCode != 101 {
		l.t.Fatalf("status %d, accept %q", answer.StatusCode, got)
	}
}

func (l *link) write(msg []byte) {
	l.t.Helper()
	l.raw(maskedFrame(0x81, msg, l.random))
}

// frame reads one frame of the server.
func (l *link) frame() (first byte, payload []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(l.in, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch n {
	case 126:
		_, err = io.ReadFull(l.in, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		_, err = io.ReadFull(l.in, head[2:10])
		n = binary.BigEndian.Uint64(head[2:])
	}
	if err == nil && n > 2<<20 {
		err = fmt.Errorf("a frame of %d bytes", n)
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(l.in, payload)
	return head[0], payload, err
}

func (l *link) expectFrame(first byte, want []byte) {
	l.t.Helper()
	got, payload, err := l.frame()
	if err != nil {
		l.t.Fatal(err)
	}
	if got != first || !bytes.Equal(payload, want) {
		l.t.Fatalf("got %#x with %d bytes %.80q, want %#x with %d bytes %.80q", got, len(payload), payload, first, len(want), want)
	}
}

func (l *link) expect(want []byte) {
	l.t.Helper()
	l.expectFrame(0x81, want)
}

// barrier returns when the relay has read everything sent before.
func (l *link) barrier() {
	l.t.Helper()
	l.raw(maskedFrame(0x89, []byte("here"), l.random))
	l.expectFrame(0x8a, []byte("here"))
}

// maskedFrame returns a client frame whose first byte is first, under a random key.
func maskedFrame(first byte, payload []byte, random *rand.Rand) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	key := binary.BigEndian.AppendUint32(nil, random.Uint32())
	out = append(out, key...)
	at := len(out)
	out = append(out, payload...)
	for i := range payload {
		out[at+i] ^= key[i&3]
	}
	return out
}

// routed returns a message of n bytes in all.
func routed(edge, backend, n int, random *rand.Rand) []byte {
	msg := fmt.Appendf(nil, `{"r":"%02d-%02d","x":"`, edge, backend)
	var letters [61]byte
	for i := range letters {
		letters[i] = byte('a' + random.IntN(26))
	}
	for len(msg) < n-2 {
		msg = append(msg, letters[:min(len(letters), n-2-len(msg))]...)
	}
	return append(msg, `"}`...)
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestFloorFanOut(t *testing.T) {
	s, random := startFloor(t), seeded(t)
	const edges, backends = 5, 3
	var e [edges]*link
	var b [backends]*link
	for i := range e {
		e[i] = dialAs(t, s, fmt.Sprintf("E%02d", i), random)
	}
	for i := range b {
		b[i] = dialAs(t, s, fmt.Sprintf("B%02d", i), random)
	}
	for range 300 {
		from, to, n := random.IntN(backends), random.IntN(edges), 22+random.IntN(400)
		down, up := routed(to, from, n, random), routed(to, from, n+100, random)
		b[from].write(down)
		e[to].expect(down)
		e[to].write(up)
		b[from].expect(up)
	}
	for _, n := range []int{125, 126, 65535, 65536, 1 << 20, 1<<20 + 4<<10} {
		msg := routed(4, 2, n, random)
		b[2].write(msg)
		e[4].expect(msg)
		e[4].write(msg)
		b[2].expect(msg)
	}
	b[0].write(routed(77, 0, 50, random)) // nobody there: dropped
	b[0].barrier()
	e[1].Close()
	again := dialAs(t, s, "E01", random)
	msg := routed(1, 0, 60, random)
	b[0].write(msg)
	again.expect(msg)
	newer := dialAs(t, s, "E01", random)
	if _, _, err := again.frame(); err == nil {
		t.Error("the superseded connection is open")
	}
	b[0].write(msg)
	newer.expect(msg)
}

// TestFloorSplitAtEveryByte sends a handshake and three frames in two pieces, cut at every place.
func TestFloorSplitAtEveryByte(t *testing.T) {
	s, random := startFloor(t), seeded(t)
	edge := dialAs(t, s, "E03", random)
	first, second := routed(3, 5, 300, random), routed(3, 5, 30, random)
	stream := []byte(upgrade)
	for _, msg := range [][]byte{[]byte("B05"), first, second} {
		stream = append(stream, maskedFrame(0x81, msg, random)...)
	}
	for cut := 1; cut < len(stream); cut++ {
		l := dial(t, s, random)
		l.raw(stream[:cut])
		rawAnswer(t, s, "GET / HTTP/1.0\r\n\r\n") // a round trip: the first piece has been read meanwhile
		l.raw(stream[cut:])
		edge.expect(first)
		edge.expect(second)
		l.upgraded()
		l.Close()
	}
}

// TestFloorSlowReader lets 12 MiB wait for an edge that does not read, far more than its socket holds, then reads it all.
func TestFloorSlowReader(t *testing.T) {
	s, random := startFloor(t), seeded(t)
	edge := dialAs(t, s, "E09", random)
	backend := dialAs(t, s, "B00", random)
	var sent [][]byte
	for i := range 48 {
		msg := routed(9, 0, 256<<10+i, random)
		backend.write(msg)
		sent = append(sent, msg)
	}
	backend.barrier() // all of it is in the relay, which still answers others
	for _, msg := range sent {
		edge.expect(msg)
	}
}

// TestFloorBoundsWaiting sends more than may wait for one reader: the reader is closed, the relay goes on.
func TestFloorBoundsWaiting(t *testing.T) {
	s, random := startFloor(t), seeded(t)
	edge := dialAs(t, s, "E09", random)
	backend := dialAs(t, s, "B00", random)
	frame := maskedFrame(0x81, routed(9, 0, 1<<20, random), random)
	for range 80 {
		backend.raw(frame)
	}
	backend.barrier()
	got := 0
	for {
		if _, _, err := edge.frame(); err != nil {
			break
		}
		got++
	}
	if got >= 80 {
		t.Error("80 MiB waited for one reader")
	}
}

func TestFloorRefuses(t *testing.T) {
	s, random := startFloor(t), seeded(t)
	hello := maskedFrame(0x81, []byte("B01"), random)
	f := func(name string, frame []byte, code uint16) {
		t.Helper()
		l := dial(t, s, random)
		l.raw(append(append([]byte(upgrade), hello...), frame...))
		l.upgraded()
		l.expectFrame(0x88, binary.BigEndian.AppendUint16(nil, code))
	}
	f("unmasked", []byte{0x81, 1, 'x', 0, 0, 0, 0}, 1002)
	f("reserved bit", maskedFrame(0xc1, []byte("x"), random), 1002)
	f("reserved opcode", maskedFrame(0x83, []byte("x"), random), 1002)
	f("fragment", maskedFrame(0x01, []byte("x"), random), 1003)
	f("large ping", maskedFrame(0x89, make([]byte, 126), random), 1002)
	f("oversize", []byte{0x81, 0xff, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0}, 1009)
	f("negative size", []byte{0x81, 0xff, 0xff, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0}, 1009)
	f("no route", maskedFrame(0x81, []byte(`{"r":"x1-01"}`), random), 1003)
	f("too short", maskedFrame(0x81, []byte(`{"r":"01`), random), 1003)
	f("close", maskedFrame(0x88, []byte{3, 0xe8}, random), 1000)

	for _, head := range []string{"POST / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"} {
		if got := rawAnswer(t, s, head); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", head, got)
		}
	}
	if got := rawAnswer(t, s, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 9<<10)); got != "" {
		t.Errorf("a head over 8 KiB got %q", got)
	}
}

// rawAnswer sends text and reads to the end of the connection.
func rawAnswer(t *testing.T, s *Process, text string) string {
	t.Helper()
	l := dial(t, s, nil)
	l.raw([]byte(text))
	got, _ := io.ReadAll(l.in) // a reset is an end too: it had unread bytes
	return string(got)
}
