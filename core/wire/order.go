package wire

import "encoding/binary"

// A client sends its members in the same order again and again. So Scan keeps in the Envelope
// which member came after which the last time, and first tries whether the next name is that
// one: a comparison of two words, instead of a search for the name's end, its colon and its meaning.
// A guess decides only how fast the name is read, never as what.

// order holds the guesses: the member after each member, by the kind of message (see kindOf).
// numMembers stands for a name that is not known, and for the beginning.
type order [8][numMembers + 1]Member

// kindOf tells the types of messages that a Gateway reads apart, by the length of the value of
// `type`. Row 0 is also for what comes before it. Where two types fall together, as UNREGISTER and
// ERROR do, the guesses are worse and that is all.
func kindOf(t Value) uint32 { return (t.End - t.Off) * 3 / 2 % 8 }

// spelling is what follows a name's opening quote, `requestRef":`, as two words of eight bytes
// that may overlap: its first and its last. A shorter one is one word twice, of which mask leaves
// what counts.
type spelling struct {
	size       int // of all, in bytes
	last       int // where the last word begins
	head, tail uint64
	mask       uint64
}

// nowhere is no spelling at all: two words are too few for it. Its last is out of reach, where load gives 0.
var nowhere = spelling{last: MaxMessage, tail: 1, mask: 1}

func newSpelling(s string) spelling {
	if len(s) > 16 {
		return nowhere
	}
	p := spelling{size: len(s), last: max(len(s)-8, 0), mask: 1<<(8*len(s)) - 1} // a shift by 64 and more gives 0
	var b [16]byte
	copy(b[:], s)
	p.head = binary.LittleEndian.Uint64(b[:])
	p.tail = binary.LittleEndian.Uint64(b[p.last:])
	return p
}

// after returns the position after the spelling where it stands at i, which follows the opening
// quote of a name, and else notJSON.
func (p *spelling) after(b []byte, i int) int {
	if ((load(b, i)^p.head)|(load(b, i+p.last)^p.tail))&p.mask != 0 {
		return notJSON
	}
	return i + p.size
}

var spellings = func() (t [numMembers + 1]spelling) {
	for m := range numMembers {
		t[m] = newSpelling(m.Name() + `":`)
	}
	t[numMembers] = nowhere
	return t
}()

var commandTypeSpelling = newSpelling(`commandType":`)
