package front

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gobwas/ws"
)

// transcript feeds a Reader in pieces and writes down what it finds.
func transcript(r *Reader, input []byte, piece func() int) string {
	var out strings.Builder
	for len(input) > 0 {
		n := min(piece(), len(input))
		part := bytes.Clone(input[:n])
		input = input[n:]
		for {
			ev, used := r.Next(part)
			part = part[used:]
			if ev.Kind == Nothing {
				if len(part) != 0 {
					fmt.Fprintf(&out, "left %d\n", len(part))
				}
				break
			}
			fmt.Fprintf(&out, "%d %d %q\n", ev.Kind, ev.Code, ev.Payload)
		}
	}
	fmt.Fprintf(&out, "partial %v\n", r.Partial() && !r.dead)
	r.Close()
	return out.String()
}

func all() int                { return 1 << 30 }
func oneByOne() int           { return 1 }
func join(b ...[]byte) []byte { return bytes.Join(b, nil) }

// raw builds a frame by hand; the mask is zero.
func raw(b0, b1 byte, rest ...byte) []byte { return append([]byte{b0, b1}, rest...) }

const limit = 1000

var readings = []struct {
	name  string
	input []byte
	want  string // kinds and codes
}{
	{"text", text("hello"), `1 0 "hello"`},
	{"empty text", text(""), `1 0 ""`},
	{"binary", frame(ws.OpBinary, true, []byte("bin")), `2 0 "bin"`},
	{"binary, not UTF-8", frame(ws.OpBinary, true, []byte("\xff")), `3 0 "\xff"`},
	{"two and a ping", join(text("a"), frame(ws.OpPing, true, []byte("p")), text("b")), `1 0 "a"|4 0 "p"|1 0 "b"`},
	{"pong", frame(ws.OpPong, true, nil), `5 0 ""`},
	{"fragments", join(frame(ws.OpText, false, []byte("a")), frame(ws.OpPing, true, []byte("p")), frame(ws.OpContinuation, false, nil),
		frame(ws.OpContinuation, false, []byte("b")), frame(ws.OpContinuation, true, []byte("c"))), `4 0 "p"|1 0 "abc"`},
	{"empty fragments", join(frame(ws.OpText, false, nil), frame(ws.OpContinuation, false, nil), frame(ws.OpContinuation, true, []byte("x"))), `1 0 "x"`},
	{"empty last fragment", join(frame(ws.OpBinary, false, []byte("x")), frame(ws.OpContinuation, true, nil), text("y")), `2 0 "x"|1 0 "y"`},
	{"a character over two fragments", join(frame(ws.OpText, false, []byte("\xce")), frame(ws.OpContinuation, true, []byte("\xba"))), `1 0 "κ"`},
	{"as long as may be", text(strings.Repeat("x", limit)), `1 0 "` + strings.Repeat("x", limit) + `"`},
	{"long ping", frame(ws.OpPing, true, bytes.Repeat([]byte{0xff}, 125)), `4 0 "` + strings.Repeat(`\xff`, 125) + `"`},
	{"noncharacters", text("\ufffe\uffff\U0010ffff"), `1 0 "\ufffe\uffff\U0010ffff"`},

	{"close", frame(ws.OpClose, true, closeBody(1000, "bye")), `6 1000 "bye"`},
	{"close, empty", frame(ws.OpClose, true, nil), `6 1005 ""`},
	{"nothing after a close", join(frame(ws.OpClose, true, closeBody(3000, "")), text("x")), `6 3000 ""`},
	{"close, 123 bytes", frame(ws.OpClose, true, closeBody(1000, strings.Repeat("r", 123))), `6 1000 "` + strings.Repeat("r", 123) + `"`},
	{"close, one byte", frame(ws.OpClose, true, []byte{3}), "7 1002"},
	{"close, reason not UTF-8", frame(ws.OpClose, true, closeBody(1000, "\xed\xa0\x80")), "7 1002"},

	{"too long", text(strings.Repeat("x", limit+1)), "7 1009"},
	{"too long in fragments", join(frame(ws.OpText, false, make([]byte, limit)), frame(ws.OpContinuation, true, []byte("x"))), "7 1009"},
	{"text, not UTF-8", text("a\xff"), "7 1007"},
	{"text, cut short", text("a\xe4\xbd"), "7 1007"},
	{"broken where fragments meet", join(frame(ws.OpText, false, []byte("\xe1\xbd")), frame(ws.OpContinuation, true, []byte("A"))), "7 1007"},
	{"surrogate", text("\xed\xa0\x80"), "7 1007"},
	{"unmasked", raw(0x81, 1, 'x'), "7 1002"},
	{"RSV1", raw(0xc1, 0x80, 0, 0, 0, 0), "7 1002"},
	{"RSV3 on a ping", raw(0x99, 0x80, 0, 0, 0, 0), "7 1002"},
	{"opcode 3", raw(0x83, 0x80, 0, 0, 0, 0), "7 1002"},
	{"opcode 7", raw(0x87, 0x80, 0, 0, 0, 0), "7 1002"},
	{"opcode 11", raw(0x8b, 0x80, 0, 0, 0, 0), "7 1002"},
	{"opcode 15", raw(0x8f, 0x80, 0, 0, 0, 0), "7 1002"},
	{"fragmented ping", raw(0x09, 0x80, 0, 0, 0, 0), "7 1002"},
	{"fragmented close", raw(0x08, 0x80, 0, 0, 0, 0), "7 1002"},
	{"ping of 126 bytes", raw(0x89, 0xfe, 0, 126, 0, 0, 0, 0), "7 1002"},
	{"continuation of nothing", raw(0x80, 0x80, 0, 0, 0, 0), "7 1002"},
	{"text inside a message", join(frame(ws.OpText, false, []byte("a")), text("b")), "7 1002"},
	{"125 in the long form", raw(0x81, 0xfe, 0, 125, 0, 0, 0, 0), "7 1002"},
	{"65535 in the longest form", raw(0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0), "7 1002"},
	{"top bit of the length", raw(0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "7 1002"},
	{"2^63-1 bytes", raw(0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0), "7 1009"},
	{"good, then bad", join(text("good"), raw(0x83, 0x80)), `1 0 "good"|7 1002`},
}

func TestReader(t *testing.T) {
	rng := seeded(t)
	for _, tc := range readings {
		budget := NewBudget(1 << 20)
		reader := func() *Reader { return NewReader(limit, budget) }
		want := transcript(reader(), tc.input, all)
		short := strings.ReplaceAll(strings.TrimSpace(want[:strings.LastIndex(want, "partial")]), "\n", "|")
		if strings.HasPrefix(tc.want, "7") || strings.Contains(tc.want, "|7") {
			short = strings.TrimSuffix(short, ` ""`)
		}
		if short != tc.want {
			t.Errorf("%s: found %.200s, want %.200s", tc.name, short, tc.want)
		}
		if !strings.HasSuffix(want, "partial false\n") {
			t.Errorf("%s: something is left over", tc.name)
		}
		// Whatever the pieces, the result is the same.
		if got := transcript(reader(), tc.input, oneByOne); got != want {
			t.Errorf("%s, byte by byte: found %.200s, want %.200s", tc.name, got, want)
		}
		for cut := 1; cut < len(tc.input) && cut < 200; cut++ {
			at := cut
			piece := func() int { n := at; at = 1 << 30; return n }
			if got := transcript(reader(), tc.input, piece); got != want {
				t.Errorf("%s, cut at %d: found %.200s, want %.200s", tc.name, cut, got, want)
			}
		}
		for range 20 {
			if got := transcript(reader(), tc.input, func() int { return 1 + rng.IntN(20) }); got != want {
				t.Errorf("%s, in pieces: found %.200s, want %.200s", tc.name, got, want)
			}
		}
		if budget.Used() != 0 {
			t.Errorf("%s: %d bytes of the budget are lost", tc.name, budget.Used())
		}
	}
}

func TestReaderCloseCodes(t *testing.T) {
	good := map[int]bool{1000: true, 1001: true, 1002: true, 1003: true, 1007: true, 1008: true, 1009: true, 1010: true, 1011: true,
		1012: true, 1013: true, 1014: true}
	for code := range 1 << 16 {
		want := fmt.Sprintf("7 %d \"\"\n", closeProtocol)
		if good[code] || code >= 3000 && code <= 4999 {
			want = fmt.Sprintf("6 %d \"\"\n", code)
		}
		got := transcript(NewReader(limit, nil), raw(0x88, 0x82, 0, 0, 0, 0, byte(code>>8), byte(code)), all)
		if !strings.HasPrefix(got, want) {
			t.Fatalf("close code %d: %s, want %s", code, got, want)
		}
	}
}

// A peer that announces much and sends little costs little.
func TestReaderBelievesNoLength(t *testing.T) {
	budget := NewBudget(1 << 30)
	r := NewReader(64<<20, budget)
	r.Next(raw(0x81, 0xff, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 'x'))
	if got := budget.Used(); got != trustLength {
		t.Errorf("%d bytes are held for one byte of a big message", got)
	}
	for range 100 {
		r.Next(make([]byte, 10_000))
	}
	if got := budget.Used(); got > 2<<20 {
		t.Errorf("%d bytes are held for a megabyte", got)
	}
	if got := r.Taken(); got != 14+1+1_000_000 {
		t.Errorf("%d bytes taken", got)
	}
	r.Close()
	if got := budget.Used(); got != 0 {
		t.Errorf("%d bytes are held after Close", got)
	}
}

func TestReaderBudget(t *testing.T) {
	budget := NewBudget(20_000)
	first, second := NewReader(1<<20, budget), NewReader(1<<20, budget)
	begin := raw(0x81, 0xfe, 0x20, 0, 0, 0, 0, 0, 'x') // of 8 KiB
	for range 2 {
		if ev, _ := first.Next(bytes.Clone(begin)); ev.Kind != Nothing {
			t.Fatal(ev)
		}
		first, second = second, first
	}
	third := NewReader(1<<20, budget)
	if ev, _ := third.Next(bytes.Clone(begin)); ev.Kind != Violation || ev.Code != closeBusy {
		t.Fatal(ev)
	}
	first.Close()
	if ev, _ := NewReader(1<<20, budget).Next(bytes.Clone(begin)); ev.Kind != Nothing {
		t.Fatal(ev)
	}
}

func TestReaderAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	r := NewReader(1<<20, NewBudget(1<<20))
	one := join(text(strings.Repeat("x", 300)), frame(ws.OpPing, true, []byte("p")))
	half := len(one) / 2
	work := bytes.Clone(one)
	feed := func(part []byte) {
		for len(part) > 0 {
			_, n := r.Next(part)
			part = part[n:]
		}
		r.Next(nil)
	}
	if n := testing.AllocsPerRun(200, func() {
		copy(work, one)
		feed(work)
		copy(work, one)
		feed(work[:half])
		feed(work[half:])
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{200, 4096} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			one := text(strings.Repeat("x", size))
			r := NewReader(1<<20, nil)
			b.SetBytes(int64(len(one)))
			b.ReportAllocs()
			work := bytes.Clone(one)
			for b.Loop() {
				copy(work, one)
				if ev, _ := r.Next(work); ev.Kind != Text {
					b.Fatal(ev)
				}
			}
		})
	}
}
