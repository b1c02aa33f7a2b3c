package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"subway/api/contract"
)

// party is a Backend, an edge or a device in a test: a WebSocket client that does only
// what it is told to. Everything it reads is held against the contract. It belongs to
// one goroutine.
type party struct {
	t      testing.TB
	conn   net.Conn
	br     *bufio.Reader
	status []message // what the Gateway said of devices and edges, see news
	sparse bool      // of what it reads only every hundredth message is held against the contract
	n      int
}

// message is one message that was read.
type message struct {
	raw    []byte
	fields map[string]any
}

func (m *message) get(path string) any    { return lookup(m.fields, path) }
func (m *message) str(path string) string { s, _ := m.get(path).(string); return s }

const handshake = "GET /ws HTTP/1.1\r\nHost: gw.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

// dial opens a WebSocket that has not registered. control may set socket options.
func (f *fixture) dial(control ...func(fd int)) *party {
	f.t.Helper()
	p, err := f.tryDial(control...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

func (f *fixture) tryDial(control ...func(fd int)) (*party, error) {
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			for _, fn := range control {
				fn(int(fd))
			}
		})
	}}
	conn, err := d.Dial("tcp", f.addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(4 * patience))
	p := &party{t: f.t, conn: conn, br: bufio.NewReaderSize(conn, 4096)}
	if _, err := io.WriteString(conn, handshake); err != nil {
		_ = conn.Close()
		return nil, err
	}
	r, err := http.ReadResponse(p.br, nil)
	if err == nil && r.StatusCode != http.StatusSwitchingProtocols {
		err = errors.New("the handshake was answered with " + r.Status)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// join dials and registers with this REGISTER.
func (f *fixture) join(register string, control ...func(fd int)) *party {
	f.t.Helper()
	p := f.dial(control...)
	p.send(register)
	if m := p.expect("REGISTER_ACK"); m.str("status") != "REGISTERED" {
		f.t.Fatalf("%s was answered with %s", register, m.raw)
	}
	return p
}

func (f *fixture) backend(id string) *party {
	f.t.Helper()
	return f.join(`{"type":"REGISTER","clientId":"` + id + `","clientType":"BACKEND"}`)
}

// edge joins as an edge with these devices.
func (f *fixture) edge(id string, devices ...string) *party {
	f.t.Helper()
	return f.join(edgeRegister(id, devices...))
}

func edgeRegister(id string, devices ...string) string {
	return `{"type":"REGISTER","clientId":"` + id + `","clientType":"EDGE","devices":["` + strings.Join(devices, `","`) + `"]}`
}

// device joins as a directly connected device.
func (f *fixture) device(id string) *party {
	f.t.Helper()
	return f.join(`{"type":"REGISTER","clientId":"` + id + `","clientType":"DEVICE"}`)
}

// frame builds a masked frame.
func frame(op ws.OpCode, fin bool, payload []byte) []byte {
	b, err := ws.CompileFrame(ws.MaskFrameInPlaceWith(ws.NewFrame(op, fin, bytes.Clone(payload)), [4]byte{0x9a, 1, 0xfe, 3}))
	if err != nil {
		panic(err)
	}
	return b
}

// write sends raw bytes.
func (p *party) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// send sends a text message.
func (p *party) send(msg string) {
	p.t.Helper()
	p.write(frame(ws.OpText, true, []byte(msg)))
}

func (p *party) sendf(format string, args ...any) {
	p.t.Helper()
	p.send(fmt.Sprintf(format, args...))
}

// frame reads the next frame, which must be one that a server may send.
func (p *party) frame() (ws.OpCode, []byte, error) {
	h, err := ws.ReadHeader(p.br)
	if err != nil {
		return 0, nil, err
	}
	if err := ws.CheckHeader(h, ws.StateClientSide); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, h.Length)
	_, err = io.ReadFull(p.br, payload)
	return h.OpCode, payload, err
}

// errClosed is a close frame, or the end of TCP without one (1006).
type errClosed struct {
	code   int
	reason string
}

func (e *errClosed) Error() string { return fmt.Sprintf("closed with %d %q", e.code, e.reason) }

// try reads the next message, and answers pings and a close.
func (p *party) try() (*message, error) {
	for {
		op, b, err := p.frame()
		switch {
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET):
			return nil, &errClosed{code: 1006}
		case err != nil:
			return nil, err
		case op == ws.OpPing:
			_, _ = p.conn.Write(frame(ws.OpPong, true, b))
		case op == ws.OpClose && len(b) >= 2:
			_, _ = p.conn.Write(frame(ws.OpClose, true, b[:2]))
			return nil, &errClosed{int(binary.BigEndian.Uint16(b)), string(b[2:])}
		case op == ws.OpClose:
			_, _ = p.conn.Write(frame(ws.OpClose, true, nil))
			return nil, &errClosed{code: 1005}
		case op == ws.OpText:
			if p.n++; !p.sparse || p.n%100 == 1 {
				contract.ValidateMessage(p.t, contract.FromGateway, b)
			}
			m := &message{raw: b}
			_ = json.Unmarshal(b, &m.fields) // of numbers beyond float64 it says so and goes on
			return m, nil
		case op != ws.OpPong:
			return nil, fmt.Errorf("a frame with opcode %x", op)
		}
	}
}

// next reads the next message that is no news of devices and edges.
func (p *party) next() *message {
	p.t.Helper()
	for {
		m, err := p.try()
		if err != nil {
			p.t.Fatal(err)
		}
		if typ := m.str("type"); typ == "CONNECTION_STATUS" || typ == "DEVICE_STATUS" {
			p.status = append(p.status, *m)
			continue
		}
		return m
	}
}

// expect reads the next message, which must be of this type.
func (p *party) expect(typ string) *message {
	p.t.Helper()
	m := p.next()
	if m.str("type") != typ {
		p.t.Fatalf("got %s, want %s", m.raw, typ)
	}
	return m
}

// expectError reads the next message, which must be an ERROR with this code.
func (p *party) expectError(code string) *message {
	p.t.Helper()
	m := p.expect("ERROR")
	if m.str("code") != code {
		p.t.Fatalf("got %s, want %s", m.raw, code)
	}
	return m
}

// news reads until the Gateway says this of a device or an edge.
func (p *party) news(typ, id, word string) *message {
	p.t.Helper()
	fits := func(m message) bool {
		return m.str("type") == typ && m.str("clientId") == id && (word == "" || m.str("status") == word)
	}
	for {
		if i := slices.IndexFunc(p.status, fits); i >= 0 {
			m := p.status[i]
			p.status = p.status[i+1:]
			return &m
		}
		m, err := p.try()
		if err != nil {
			p.t.Fatal(err)
		}
		p.status = append(p.status, *m)
	}
}

// quiet checks that the Gateway has sent this party nothing: what answers a HEARTBEAT
// comes first.
func (p *party) quiet() {
	p.t.Helper()
	p.send(`{"type":"HEARTBEAT"}`)
	p.expect("HEARTBEAT_ACK")
}

// closes reads up to the close frame and returns its code; 1006 where TCP ended without.
func (p *party) closes() int {
	p.t.Helper()
	for {
		m, err := p.try()
		var closed *errClosed
		if errors.As(err, &closed) {
			return closed.code
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if m.str("type") == "CONNECTION_STATUS" {
			p.status = append(p.status, *m)
		}
	}
}

func (p *party) wantClose(code int) {
	p.t.Helper()
	if got := p.closes(); got != code {
		p.t.Errorf("closed with %d, want %d", got, code)
	}
}

// command sends a COMMAND; more are members with a comma before.
func (p *party) command(ref, target, more string) {
	p.t.Helper()
	p.send(`{"type":"COMMAND","requestRef":"` + ref + `","targetClientId":"` + target + `","command":{"commandType":"TEST"}` + more + `}`)
}

// respond completes a command.
func (p *party) respond(ref string) {
	p.t.Helper()
	p.send(`{"type":"COMMAND_RESPONSE","requestRef":"` + ref + `","status":"COMPLETED","result":{"ok":true}}`)
}

// expectCommand reads a COMMAND with this ref.
func (p *party) expectCommand(ref string) *message {
	p.t.Helper()
	m := p.expect("COMMAND")
	if m.str("requestRef") != ref {
		p.t.Fatalf("got %s, want %s", m.raw, ref)
	}
	return m
}
