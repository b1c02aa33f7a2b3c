package uplink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
	"subway/server/front"
)

// echo is a session of a real port that sends back what it gets.
type echo struct{ c *front.Conn }

func (e echo) Receive(msg []byte, _ wire.Time) { e.c.Append(wire.ClassNotice, msg, nil, nil) }
func (echo) Invalid(wire.Time)                 {}
func (echo) Writable(wire.Time)                {}
func (echo) Registered() bool                  { return true }
func (echo) Closed(wire.Time, string)          {}

func echoServer(t testing.TB) string {
	t.Helper()
	s, err := front.Listen(front.Options{
		Listen: "127.0.0.1:0", Loops: 1,
		Clock: func() wire.Time { return wire.Time(time.Now().UnixNano()) },
		Open:  func(c *front.Conn, _ wire.Time) front.Session { return echo{c} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	return "ws://" + s.Addr().String() + "/ws"
}

// TestEcho sends messages of all sizes through a real port and compares what returns.
func TestEcho(t *testing.T) {
	rnd := seeded(t)
	c := dial(t, echoServer(t), Options{})
	messages, ended := serving(c)
	for _, n := range []int{0, 1, 125, 126, 4081, 4082, 4096, 65535, 65536, 200_000, 1 << 20, rnd.IntN(1 << 20), 3} {
		want := strings.Repeat("é0123456789", n/12+1)[:n]
		want = strings.ToValidUTF8(want, "?")
		if err := c.Send([]byte(want)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if got := await(t, "an echo", messages); got != want {
			t.Fatalf("%d bytes came back as %d others", len(want), len(got))
		}
	}
	for range 2000 {
		if err := c.Send([]byte("in a row")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 {
		await(t, "an echo", messages)
	}
	if err := c.Send(make([]byte, 1<<20+1)); err != ErrTooLarge {
		t.Errorf("a message over the limit: %v", err)
	}
	c.Close(wire.CloseNormal, "enough")
	if end := await(t, "the end", ended); end.Code != 1000 || !end.Local || end.Err != nil {
		t.Errorf("ended with %+v", end)
	}
	if err := c.Send([]byte("late")); err != ErrDown {
		t.Errorf("a message after the end: %v", err)
	}
}

// TestGateway registers with a real Gateway, which greets and, going down, says so.
func TestGateway(t *testing.T) {
	url, g := realGateway(t)
	c := dial(t, url, Options{})
	messages, ended := serving(c)
	if err := c.Send([]byte(`{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE"}`)); err != nil {
		t.Fatal(err)
	}
	if ack := await(t, "REGISTER_ACK", messages); !strings.Contains(ack, `"type":"REGISTER_ACK"`) {
		t.Errorf("REGISTER was answered with %s", ack)
	}
	stopGateway(t, g)
	if end := await(t, "the end", ended); end.Code != 1001 || end.Local || end.Reason == "" {
		t.Errorf("ended with %+v", end)
	}
}

// TestFragments puts a message together from pieces with control frames between them.
func TestFragments(t *testing.T) {
	big := strings.Repeat("x", 700_000)
	pongs := make(chan string, 8)
	url := server(t, func(p *peer) {
		for _, f := range []struct {
			op   ws.OpCode
			fin  bool
			text string
		}{
			{ws.OpText, false, "one "}, {ws.OpPing, true, "a"}, {ws.OpContinuation, false, ""}, {ws.OpContinuation, true, "two"},
			{ws.OpBinary, false, big}, {ws.OpPing, true, "b"}, {ws.OpContinuation, true, "end"},
			{ws.OpText, false, ""}, {ws.OpContinuation, true, "three"}, {ws.OpText, true, "four"},
		} {
			if p.send(f.op, f.fin, f.text) != nil {
				return
			}
			if f.op == ws.OpPing {
				h, b, err := p.frame()
				if err != nil || h.OpCode != ws.OpPong || !h.Masked {
					pongs <- "none"
					return
				}
				pongs <- string(b)
			}
		}
		_ = p.close(4400, "done")
		_, _, _ = p.frame()
	})
	messages, ended := serving(dial(t, url, Options{}))
	for _, want := range []string{"one two", big + "end", "three", "four"} {
		if got := await(t, "a message", messages); got != want {
			t.Fatalf("got %.40q, want %.40q", got, want)
		}
	}
	for _, want := range []string{"a", "b"} {
		if got := await(t, "a pong", pongs); got != want {
			t.Errorf("pong %q, want %q", got, want)
		}
	}
	if end := await(t, "the end", ended); end.Code != 4400 || end.Reason != "done" || end.Local || end.Err != nil {
		t.Errorf("ended with %+v", end)
	}
}

// TestViolations feeds what RFC 6455 forbids; the server must be told why it is left.
func TestViolations(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 3000)
	for name, c := range map[string]struct {
		raw  []byte
		code uint16
	}{
		"masked":           {[]byte{0x81, 0x81, 1, 2, 3, 4, 'x'}, 1002},
		"reserved bit":     {[]byte{0xc1, 0x01, 'x'}, 1002},
		"reserved opcode":  {[]byte{0x83, 0x00}, 1002},
		"continuation":     {[]byte{0x80, 0x00}, 1002},
		"nested message":   {[]byte{0x01, 0x01, 'x', 0x81, 0x00}, 1002},
		"split ping":       {[]byte{0x09, 0x00}, 1002},
		"long ping":        {append([]byte{0x89, 126, 0, 126}, long[:126]...), 1002},
		"long length 16":   {[]byte{0x81, 126, 0, 5, 'h', 'e', 'l', 'l', 'o'}, 1002},
		"long length 64":   {append([]byte{0x81, 127, 0, 0, 0, 0, 0, 0, 0xb, 0xb8}, long...), 1002},
		"negative length":  {[]byte{0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0}, 1002},
		"not UTF-8":        {[]byte{0x81, 0x01, 0xff}, 1007},
		"too large":        {[]byte{0x81, 127, 0, 0, 0, 0, 0, 0x10, 0x10, 0x01}, 1009},
		"close code":       {[]byte{0x88, 0x02, 0x03, 0xed}, 1002},
		"close of a byte":  {[]byte{0x88, 0x01, 0x03}, 1002},
		"close not UTF-8":  {[]byte{0x88, 0x03, 0x03, 0xe8, 0xff}, 1002},
		"too large in all": {append([]byte{0x01, 127, 0, 0, 0, 0, 0, 0x10, 0x10, 0x00}, append(make([]byte, 1<<20+4096), 0x80, 0x01, 'x')...), 1009},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan uint16, 1)
			url := server(t, func(p *peer) {
				_, _ = p.sock.Write(c.raw)
				code := uint16(0)
				if h, b, err := p.frame(); err == nil && h.OpCode == ws.OpClose && len(b) >= 2 {
					code = uint16(b[0])<<8 | uint16(b[1])
				}
				told <- code
			})
			_, ended := serving(dial(t, url, Options{}))
			if end := await(t, "the end", ended); end.Code != c.code || !end.Local || end.Err == nil {
				t.Errorf("ended with %+v, want %d", end, c.code)
			}
			if code := await(t, "the close frame", told); code != c.code {
				t.Errorf("the server was told %d, want %d", code, c.code)
			}
		})
	}
}

// TestBinaryNotUTF8 answers a binary message that is not UTF-8 and keeps the connection.
func TestBinaryNotUTF8(t *testing.T) {
	answers := make(chan string, 2)
	url := server(t, func(p *peer) {
		_ = p.send(ws.OpBinary, true, "\xff")
		_, b, _ := p.frame()
		answers <- string(b)
		_ = p.send(ws.OpBinary, false, "\xff")
		_ = p.send(ws.OpContinuation, true, "x")
		_, b, _ = p.frame()
		answers <- string(b)
		_ = p.text("still here")
		_ = p.close(1000, "")
		_, _, _ = p.frame()
	})
	messages, ended := serving(dial(t, url, Options{}))
	for range 2 {
		if got := await(t, "an answer", answers); !strings.Contains(got, `"code":"INVALID_MESSAGE"`) {
			t.Errorf("answered with %q", got)
		}
	}
	if got := await(t, "a message", messages); got != "still here" {
		t.Errorf("got %q", got)
	}
	if end := await(t, "the end", ended); end.Code != 1000 {
		t.Errorf("ended with %+v", end)
	}
}

// piped connects to a scripted peer within a bubble of fake time.
func piped(t *testing.T, opt Options, serve func(*peer)) *Conn {
	t.Helper()
	opt.NetDial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if p, err := accept(theirs); err == nil {
				serve(p)
			}
		}()
		return ours, nil
	}
	return dial(t, "ws://a:1/ws", opt)
}

// TestSilence notices a peer that is there no more two ping intervals after its last byte.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lastByte = 17 * time.Second
		pings := 0
		c := piped(t, Options{}, func(p *peer) {
			<-time.After(lastByte)
			_ = p.text("still here")
			for {
				h, _, err := p.frame()
				if err != nil {
					return
				}
				if h.OpCode == ws.OpPing {
					pings++
				}
			}
		})
		began := time.Now()
		end := c.Serve(func([]byte) {})
		if took := time.Since(began); !errors.Is(end, ErrSilent) || end.Code != wire.CloseSilent || took != lastByte+2*defaultPing {
			t.Errorf("ended with %+v after %v", end, took)
		}
		synctest.Wait()
		if pings != 2 {
			t.Errorf("the peer got %d pings", pings)
		}
	})
}

// TestPongsKeep holds a connection whose peer says nothing but pong.
func TestPongsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 10
		c := piped(t, Options{}, func(p *peer) {
			for n := 0; n < rounds; {
				h, b, err := p.frame()
				if err != nil {
					return
				}
				if h.OpCode == ws.OpPing {
					n++
					_ = p.send(ws.OpPong, true, string(b))
				}
			}
			_ = p.close(1000, "kept")
			_, _, _ = p.frame()
		})
		began := time.Now()
		end := c.Serve(func([]byte) {})
		if took := time.Since(began); end.Code != 1000 || end.Reason != "kept" || took < rounds*defaultPing {
			t.Errorf("ended with %+v after %v", end, took)
		}
	})
}

// TestStalledPeer fills the outbox of a peer that does not read, for as long as the kernel
// takes anything.
func TestStalledPeer(t *testing.T) {
	release := make(chan struct{})
	url := server(t, func(*peer) { <-release })
	t.Cleanup(func() { close(release) }) // before the server waits for serve
	c := dial(t, url, Options{MaxSend: 64 << 10, Outbox: 128 << 10, StallTimeout: 200 * time.Millisecond})
	_, ended := serving(c)
	full, late := false, time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for down := false; !down; {
		switch c.Send(make([]byte, 64<<10)) {
		case ErrDown:
			down = true
		case ErrFull:
			full = true
			select {
			case <-tick.C:
			case <-late:
				t.Fatal("the peer never stalled")
			}
		}
	}
	if !full {
		t.Error("the outbox has no bound")
	}
	if end := await(t, "the end", ended); !errors.Is(end, ErrStalled) {
		t.Errorf("ended with %+v", end)
	}
}

// TestUnconfirmedClose ends although the peer does not take part.
func TestUnconfirmedClose(t *testing.T) {
	release := make(chan struct{})
	url := server(t, func(*peer) { <-release })
	t.Cleanup(func() { close(release) })
	c := dial(t, url, Options{CloseTimeout: 30 * time.Millisecond})
	_, ended := serving(c)
	c.Close(1000, "")
	if end := await(t, "the end", ended); !errors.Is(end, ErrUnconfirmed) || end.Code != 1000 || !end.Local {
		t.Errorf("ended with %+v", end)
	}
}

// TestLost tells a connection that broke from one that was closed.
func TestLost(t *testing.T) {
	for name, raw := range map[string][]byte{"between frames": nil, "in a header": {0x81}, "in a frame": {0x81, 0x05, 'h'}, "in a message": {0x01, 0x01, 'h'}} {
		t.Run(name, func(t *testing.T) {
			url := server(t, func(p *peer) { _, _ = p.sock.Write(raw) })
			_, ended := serving(dial(t, url, Options{}))
			if end := await(t, "the end", ended); end.Code != 1006 || !errors.Is(end, io.ErrUnexpectedEOF) {
				t.Errorf("ended with %+v", end)
			}
		})
	}
}

// TestDialErrors are short and come in time.
func TestDialErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts nobody: the kernel shakes hands, no answer follows
	_, err = Dial(context.Background(), "ws://"+l.Addr().String(), Options{DialTimeout: 30 * time.Millisecond})
	if err == nil || err.Error() != "no answer in time" {
		t.Errorf("a mute server: %v", err)
	}
	url, g := realGateway(t)
	defer stopGateway(t, g)
	_, err = Dial(context.Background(), strings.TrimSuffix(url, "/ws")+"/nowhere", Options{})
	var status ws.StatusError
	if !errors.As(err, &status) || status != 404 {
		t.Errorf("a wrong path: %v", err)
	}
	for _, bad := range []string{"", "127.0.0.1:18081", "http://127.0.0.1", "ws://", "ws:///ws", "ws://u:p@host", "ws://host/#x"} {
		if CheckURL(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// TestToken carries credentials in the handshake.
func TestToken(t *testing.T) {
	got := make(chan string, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		sock, err := l.Accept()
		if err != nil {
			return
		}
		defer sock.Close()
		u := ws.Upgrader{OnHeader: func(k, v []byte) error {
			if string(k) == "Authorization" {
				got <- string(v)
			}
			return nil
		}}
		_, _ = u.Upgrade(sock)
	}()
	c := dial(t, "ws://"+l.Addr().String(), Options{Token: "secret"})
	_, ended := serving(c)
	if v := await(t, "the header", got); v != "Bearer secret" {
		t.Errorf("Authorization: %s", v)
	}
	await(t, "the end", ended)
}

// TestSendAllocates nothing once the buffers have grown.
func TestSendAllocates(t *testing.T) {
	o := newOutbox(1 << 20)
	msg := bytes.Repeat([]byte("x"), 200)
	if n := testing.AllocsPerRun(1000, func() {
		for range 8 {
			if err := o.append(msg); err != nil {
				t.Fatal(err)
			}
		}
		o.answer(msg[:4])
		b, _ := o.take()
		o.giveBack(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkSend queues messages of 200 bytes that leave 64 at a time.
func BenchmarkSend(b *testing.B) {
	o := newOutbox(1 << 20)
	msg := bytes.Repeat([]byte("x"), 200)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if err := o.append(msg); err != nil {
			b.Fatal(err)
		}
		if n%64 == 63 {
			taken, _ := o.take()
			o.giveBack(taken)
		}
	}
}

// BenchmarkReceive reads messages of 200 bytes that lie ready.
func BenchmarkReceive(b *testing.B) {
	var raw bytes.Buffer
	for range 1000 {
		_ = ws.WriteFrame(&raw, ws.NewTextFrame(bytes.Repeat([]byte("x"), 200)))
	}
	from := bytes.NewReader(nil)
	r := reader{br: bufio.NewReaderSize(from, defaultReadBuffer), max: defaultMaxReceive}
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := r.next()
		if err == io.EOF {
			from.Reset(raw.Bytes())
			r.br.Reset(from)
		}
	}
}

// TestReceiveAllocates nothing for messages that fit the buffer.
func TestReceiveAllocates(t *testing.T) {
	var raw bytes.Buffer
	for range 2000 {
		_ = ws.WriteFrame(&raw, ws.NewTextFrame(bytes.Repeat([]byte("x"), 200)))
	}
	r := reader{br: bufio.NewReaderSize(&raw, defaultReadBuffer), max: defaultMaxReceive}
	if n := testing.AllocsPerRun(1000, func() {
		if _, _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
