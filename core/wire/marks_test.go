package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// without runs f as on a processor that has no AVX2.
func without(f func()) {
	had := hasAVX2
	hasAVX2 = false
	defer func() { hasAVX2 = had }()
	f()
}

// random returns n bytes, one of them in every `every` such as end a run of plain characters.
func random(rnd *rand.Rand, n, every int) []byte {
	const special = "\"\"\"\\\\\x00\x01\t\n\x1f !~\x7f\x80\xa2\xdc\xff/unbr0Ff"
	b := make([]byte, n)
	for i := range b {
		if b[i] = byte(' ' + rnd.IntN(0x5f)); b[i] == '"' || b[i] == '\\' {
			b[i] = 'x'
		}
		if rnd.IntN(every) == 0 {
			b[i] = special[rnd.IntN(len(special))]
		}
	}
	return b
}

func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestMarkBlocks(t *testing.T) {
	if !hasAVX2 {
		t.Skip("no AVX2")
	}
	rnd := newRand(t)
	for c := range 256 {
		b := []byte(strings.Repeat(string([]byte{byte(c)}), 64))
		want := strings.Repeat("\x00", 8)
		if c == '"' || c == '\\' || c < ' ' {
			want = strings.Repeat("\xff", 8)
		}
		var got [8]byte
		if markBlocks(&got[0], &b[0], 64); string(got[:]) != want {
			t.Errorf("%#x is marked %x", c, got)
		}
	}
	for n := 1; n <= marked; n++ {
		b := random(rnd, 64+n, 1+rnd.IntN(40))
		var got, want [marked/8 + 8]byte
		got[(n+63)/64*8] = 7 // not to be written
		want[(n+63)/64*8] = 7
		markBlocks(&got[0], &b[64], n)
		for i, c := range b[64:] {
			if c == '"' || c == '\\' || c < ' ' {
				want[i/8] |= 1 << (i % 8)
			}
		}
		if got != want {
			t.Fatalf("%q: %x, want %x", b[64:], got, want)
		}
	}
}

func TestStringsEndAlike(t *testing.T) {
	rnd := newRand(t)
	for range 300 {
		b := random(rnd, rnd.IntN(3*marked), 1+rnd.IntN(900))
		var k marks
		k.start(b)
		for range 50 {
			i := rnd.IntN(len(b) + 1) // not only forward
			want, escaped := skipString(b, i)
			if end, e := k.skipString(b, i); end != want || e != escaped && end >= 0 {
				t.Fatalf("%q from %d: %d %v, want %d %v", b, i, end, e, want, escaped)
			}
		}
	}
}

func TestValidUTF8(t *testing.T) {
	rnd := newRand(t)
	for n := range 300 {
		b := []byte(strings.Repeat("a", n))
		if !ValidUTF8(b) {
			t.Errorf("%d bytes of ASCII", n)
		}
		for i := range b {
			b[i] = 0x80
			if ValidUTF8(b) {
				t.Errorf("a byte of 0x80 at %d of %d", i, n)
			}
			b[i] = 'a'
		}
		if n > 4 {
			copy(b[rnd.IntN(n-4):], "\U0001f600")
		}
		if ValidUTF8(b) != utf8.Valid(b) {
			t.Errorf("%q", b)
		}
	}
}

// found is all that Scan finds, to compare.
func found(e *Envelope, err error) string {
	s := fmt.Sprint(err, e.Type, e.seen, e.twice&(1<<numMembers-1)&e.seen, e.nulls&e.seen, e.closing, e.inner, e.doubled)
	for m := range numMembers {
		s += fmt.Sprint(e.Value(m))
	}
	return s
}

// What stood in the messages before decides how fast the next is read, and nothing else; neither do the
// marks.
func TestScanForgets(t *testing.T) {
	rnd := newRand(t)
	var msgs [][]byte
	for _, p := range []string{`""`, `"a\\\"b"`, payload(100, false), payload(1500, false), payload(300, true), "null", "7", `{"a":[{}]}`} {
		command, response := pair(len(msgs), p)
		msgs = append(msgs, command, response)
	}
	for ty := TypeUnknown; ty < numTypes; ty++ { // all members, in many orders, now and then one twice or null
		for range 10 {
			s := `{"type":"` + ty.String() + `"`
			for _, m := range rnd.Perm(int(numMembers) + 3) {
				name := Member(m).Name()
				if m == 0 {
					name = "command"
				}
				s += fmt.Sprintf(`%s"%s":%s%s`, []string{",", ", "}[rnd.IntN(2)], name, []string{"", " "}[rnd.IntN(2)],
					[]string{"null", `"x"`, "12", `{"edgeId":"e","commandType":"T","x":1}`, `{"commandType":"a","commandType":1,"edgeId":{}}`, `"1.0"`}[rnd.IntN(6)])
				if rnd.IntN(12) == 0 {
					break
				}
			}
			msgs = append(msgs, []byte(s+"}"))
		}
	}
	for _, m := range msgs[:len(msgs):len(msgs)] { // and broken
		b := []byte(string(m))
		b[rnd.IntN(len(b))] = `"}]:,\ a`[rnd.IntN(8)]
		msgs = append(msgs, b, b[:rnd.IntN(len(b))])
	}
	want := make([]string, len(msgs))
	without(func() {
		for i, m := range msgs {
			var e Envelope
			want[i] = found(&e, e.Scan(m, DefaultMaxDepth))
		}
	})
	var e Envelope
	for range 5000 { // e is trained by all before
		if rnd.IntN(8) == 0 {
			for kind := range e.order {
				for m := range e.order[kind] {
					e.order[kind][m] = Member(rnd.IntN(int(numMembers) + 1))
				}
			}
		}
		i := rnd.IntN(len(msgs))
		if got := found(&e, e.Scan(msgs[i], DefaultMaxDepth)); got != want[i] {
			t.Fatalf("%s\nafter others: %s\nalone: %s", msgs[i], got, want[i])
		}
	}
}

func TestSpellingsAreExact(t *testing.T) {
	for m := range numMembers {
		name := m.Name() + `":`
		msg := []byte(`{"` + name + `"0123456789abcdef"}`)
		want := 2 + len(name)
		if len(name) > 16 {
			want = notJSON // only slower
		}
		if got := spellings[m].after(msg, 2); got != want {
			t.Errorf("%s: %d, want %d", msg, got, want)
		}
		for i := range msg[:2+len(name)] {
			was := msg[i]
			msg[i] ^= 1
			if got := spellings[m].after(msg, 2); i >= 2 && got >= 0 {
				t.Errorf("%s is read as %s", msg, name)
			}
			msg[i] = was
			if got := spellings[m].after(msg[:i], 2); got >= 0 {
				t.Errorf("%s is read as %s", msg[:i], name)
			}
		}
		if got := spellings[numMembers].after(msg, 2); got >= 0 {
			t.Errorf("%s is read as no name", msg)
		}
	}
}
