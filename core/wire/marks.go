package wire

import (
	"encoding/binary"
	"math/bits"
)

// marked is how many bytes of a message are marked at a time.
const marked = 1024

// marks says where in a part of a message the bytes stand at which a run of plain characters of
// a string ends: quotes, backslashes and control characters. With them the end of a string is found
// without a loop over its bytes. The part moves along as the message is read.
//
// The zero value marks nothing: every string is then read by skipString alone. So it is where
// a processor or a message is too small for more, and for what is read in small pieces.
type marks struct {
	on   bool
	from uint               // the part's first byte
	size uint               // its length, 0 to marked
	bits [marked/8 + 8]byte // the last eight are for ahead, and stay 0
}

// unmarked is for what is read in pieces too small for marks. Nothing writes to it.
var unmarked marks

// start makes k ready for the message b. Of b nothing is kept.
func (k *marks) start(b []byte) {
	k.size = 0
	if k.on = hasAVX2 && len(b) >= 64; k.on {
		k.move(b, 0)
	}
}

// move marks what stands from i, which is within b, on.
func (k *marks) move(b []byte, i int) {
	n := min(len(b)-i, marked)
	k.from, k.size = uint(i), uint(n)
	markBlocks(&k.bits[0], &b[i], n)
}

// ahead returns the marks of the next 57 to 64 bytes from at on, which is below size, as bits. Past the end
// of the message they may be those of one before, past that of a part they are 0.
func (k *marks) ahead(at uint) uint64 {
	return binary.LittleEndian.Uint64(k.bits[at/8%(marked/8):][:8]) >> (at % 8)
}

// end returns where the first mark from i on stands if it is near, and else notJSON. Where that is
// a quote, a string that begins at i ends there and has no escape: so are most.
func (k *marks) end(i int) int {
	at := uint(i) - k.from
	if at >= k.size {
		return notJSON
	}
	hit := k.ahead(at)
	if hit == 0 {
		return notJSON
	}
	return i + bits.TrailingZeros64(hit)
}

// skipString is skipString with the help of the marks.
func (k *marks) skipString(b []byte, i int) (end int, escaped bool) {
	for at := uint(i) - k.from; at < k.size; at = at&^7 + 64 {
		if hit := k.ahead(at); hit != 0 {
			end = int(k.from+at) + bits.TrailingZeros64(hit)
			if byteAt(b, end) == '"' {
				return end + 1, false
			}
			return k.skipLong(b, i)
		}
	}
	if !k.on {
		return skipString(b, i)
	}
	return k.skipLong(b, i)
}

// skipLong skips any string where there are marks: one that goes on after the part that is marked,
// or holds an escape.
func (k *marks) skipLong(b []byte, i int) (end int, escaped bool) {
	for {
		if i = k.next(b, i); i < 0 {
			return notJSON, false
		}
		switch b[i] {
		case '"':
			return i + 1, escaped
		case '\\':
			escaped = true
			if i = skipEscape(b, i+1); i < 0 {
				return notJSON, false
			}
		default:
			return notJSON, false // a raw control character
		}
	}
}

// next returns the first mark at i or after it, or notJSON: no string goes on to the end of b.
func (k *marks) next(b []byte, i int) int {
	for i < len(b) {
		at := uint(i) - k.from
		if at >= k.size {
			k.move(b, i)
			at = 0
		}
		if hit := k.ahead(at); hit != 0 {
			i += bits.TrailingZeros64(hit)
			break
		}
		i = int(k.from + min(at&^7+64, k.size))
	}
	if i >= len(b) {
		return notJSON
	}
	return i
}
