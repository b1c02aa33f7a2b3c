package socket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gobwas/ws"
	"github.com/panjf2000/gnet/v2"
)

// fed stands for gnet's half of a connection: it holds what has come. A method that the
// reading of frames does not use panics.
type fed struct {
	gnet.Conn
	in []byte
}

func (f *fed) InboundBuffered() int     { return len(f.in) }
func (f *fed) OutboundBuffered() int    { return 0 }
func (f *fed) Peek(int) ([]byte, error) { return f.in, nil }
func (f *fed) SetLinger(int) error      { return nil }
func (f *fed) Discard(n int) (int, error) { // as gnet: n <= 0 drops everything
	if n <= 0 || n > len(f.in) {
		n = len(f.in)
	}
	f.in = f.in[n:]
	return n, nil
}

// heard is what a stream came to: messages, then answers, then the end.
type heard struct{ list []string }

func (h *heard) Open(*Conn)                  {}
func (h *heard) Message(_ *Conn, msg []byte) { h.list = append(h.list, string(msg)) }
func (h *heard) Close(*Conn, error)          {}

// fuzzMax is small, so that the fuzzer finds its way past it.
const fuzzMax = 300

// feed gives a connection a stream in pieces, the first of them with the handshake if
// early is set, and returns what came of it.
func feed(t *testing.T, pieces [][]byte, early bool) []string {
	e := &Engine{o: Options{MaxMessage: fuzzMax, MaxOutbox: 1 << 30, Goodbye: patience}}
	l, g, h := &Loop{engine: e, refuse: true}, &fed{}, &heard{}
	c := &Conn{loop: l, handler: h, g: g}
	defer func() {
		if c.timer != nil {
			c.timer.Stop()
		}
	}()
	for i, p := range pieces {
		if i == 0 && early {
			c.in.ahead = slices.Clone(p)
			c.in.early(c)
		} else {
			g.in = append(slices.Clone(g.in), p...) // a new array: bytes that are kept by mistake do not follow
			c.read()
		}
		if kept := len(g.in) + len(c.in.ahead); c.err == nil && kept >= fuzzMax+10 {
			t.Fatalf("%d bytes are kept with a limit of %d", kept, fuzzMax)
		}
		if len(c.in.message) > fuzzMax {
			t.Fatalf("%d bytes of fragments with a limit of %d", len(c.in.message), fuzzMax)
		}
	}
	for out := c.out; len(out) > 0; {
		op, payload, size := unmasked(out)
		if size == 0 {
			t.Fatal("half a frame is on its way out")
		}
		h.list = append(h.list, fmt.Sprintf("answer %d %q", op, payload))
		out = out[size:]
	}
	return append(h.list, fmt.Sprint("end ", c.err))
}

// FuzzFrames holds that a stream means the same however it is cut.
func FuzzFrames(f *testing.F) {
	long := make([]byte, 200)
	for _, s := range [][]byte{
		plain(ws.OpText, "hello"),
		append(appendPlain(nil, ws.OpText, false, []byte("h\xc3")), append(plain(ws.OpPing, "p"), plain(ws.OpContinuation, "\xa9")...)...),
		append(append(plain(ws.OpBinary, string(long)), plain(ws.OpPong, "")...), plain(ws.OpClose, "\x03\xe8bye")...),
		append(appendPlain(nil, ws.OpBinary, false, long), plain(ws.OpContinuation, string(long))...),
		{0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, {0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0}, {0x81, 0x81, 1, 2, 3, 4, 5}, {0x88, 1, 3},
	} {
		f.Add(s, uint64(1), false)
		f.Add(s, uint64(2), true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64, early bool) {
		if len(stream) == 0 {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		var random [][]byte
		for rest := stream; len(rest) > 0; {
			n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(64)))
			random, rest = append(random, rest[:n]), rest[n:]
		}
		whole := feed(t, [][]byte{stream}, false)
		for _, pieces := range [][][]byte{random, slices.Collect(slices.Chunk(stream, 1)), {stream}} {
			if got := feed(t, pieces, early); !slices.Equal(got, whole) {
				t.Errorf("%d pieces, early=%v:\n%q\nin one piece:\n%q", len(pieces), early, got, whole)
			}
		}
	})
}
