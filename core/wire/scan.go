package wire

import (
	"encoding/binary"
	"math/bits"
)

// Strict RFC 8259, offsets only. Each skip function takes the position of the
// first byte of what it skips and returns the position after it, or one of:
const (
	notJSON = -1
	tooDeep = -2
)

// Kind is the kind of a JSON value.
type Kind uint8

// The kinds. KindAbsent is that of a member that is not there.
const (
	KindAbsent Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// Value is the span of a value's bytes in its message, without the space around
// it. A string's span includes the quotes.
type Value struct {
	Off, End uint32
	Kind     Kind
	Escaped  bool // a string that holds a backslash
}

// present reports whether there is a value other than null.
func (v Value) present() bool { return v.Kind > KindNull }

// raw returns the value's bytes in b.
func (v Value) raw(b []byte) []byte { return b[v.Off:v.End] }

// inner returns a string's bytes in b, without the quotes and not decoded.
func (v Value) inner(b []byte) []byte { return b[v.Off+1 : v.End-1] }

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && isSpace(b[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\n' || c == '\r' || c == '\t'
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// load returns the eight bytes of b from i, 0 where there are not so many.
func load(b []byte, i int) uint64 {
	if i < 0 || i > len(b)-8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b[i : i+8])
}

// skipString skips a string from after its opening quote to after its closing
// one. UTF-8 is not checked here.
//
// It looks at eight bytes at a time for a quote, a backslash or a control
// character: a byte's high bit is set in hit where the byte is one of those. A
// borrow can only set bits above a true one, so the lowest is exact.
func skipString(b []byte, i int) (end int, escaped bool) {
	for uint(i) <= uint(len(b)) {
		if rest := b[i:]; len(rest) >= 8 {
			x := binary.LittleEndian.Uint64(rest)
			hit := ((x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)) &^ x & highs
			if hit == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hit) >> 3
		} else if i = skipPlain(b, i); i >= len(b) {
			break
		}
		switch b[i] {
		case '"':
			return i + 1, escaped
		case '\\':
			escaped = true
			i = skipEscape(b, i+1)
		default:
			return notJSON, false // a raw control character
		}
	}
	return notJSON, false
}

// skipPlain is the end of a message's worth of skipString, a byte at a time.
func skipPlain(b []byte, i int) int {
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

// skipEscape skips what follows a backslash.
func skipEscape(b []byte, i int) int {
	if i >= len(b) {
		return notJSON
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if _, ok := hex4(b[i+1:]); ok {
			return i + 5
		}
	}
	return notJSON
}

func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	start := i
	if i = skipDigits(b, i); i < 0 || b[start] == '0' && i > start+1 {
		return notJSON
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return notJSON
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits skips one digit or more, eight at a time: a byte that is no digit has its high
// bit set in other, and the lowest is exact as in skipString.
func skipDigits(b []byte, i int) int {
	start := i
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:]) ^ ones*'0'
		other := (x + ones*(0x7f-9) | x) & highs
		if other != 0 {
			i += bits.TrailingZeros64(other) >> 3
			goto end
		}
		i += 8
	}
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
end:
	if i == start {
		return notJSON
	}
	return i
}

// skipWord skips one of the three words.
func skipWord(b []byte, i int) (int, Kind) {
	switch rest := b[i:]; {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		return i + 4, KindBool
	case len(rest) >= 4 && string(rest[:4]) == "null":
		return i + 4, KindNull
	case len(rest) >= 5 && string(rest[:5]) == "false":
		return i + 5, KindBool
	}
	return notJSON, KindAbsent
}

// skipValue skips the value that begins at i and says what it is. level is that
// of the container it stands in; no container may be deeper than max.
func skipValue(k *marks, b []byte, i, level, max int) (v Value, end int) {
	v.Off = uint32(i)
	switch c := byteAt(b, i); c {
	case '"':
		v.Kind = KindString
		end, v.Escaped = k.skipString(b, i+1)
	case '{':
		v.Kind = KindObject
		end = skipContainer(k, b, i, level, max)
	case '[':
		v.Kind = KindArray
		end = skipContainer(k, b, i, level, max)
	case 't', 'f', 'n':
		end, v.Kind = skipWord(b, i)
	default:
		v.Kind = KindNumber
		end = skipNumber(b, i)
	}
	v.End = uint32(end)
	return v, end
}

// byteAt returns b[i], and past the end of b a byte that is no part of JSON.
func byteAt(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// skipContainer skips the object or array that begins at i. It is a loop, not a
// recursion, so depth costs one bit a level: set where the level is an object.
func skipContainer(k *marks, b []byte, i, level, max int) int {
	var objects [MaxDepth/64 + 1]uint64
	if max > MaxDepth {
		max = MaxDepth
	}
	outer := level
	end := byte(0) // what ends the container at hand, '}' or ']'
	c := byteAt(b, i)
value:
	switch c {
	case '"':
		if end := k.end(i + 1); byteAt(b, end) == '"' {
			i = end + 1
			goto after
		}
		i, _ = k.skipString(b, i+1)
	case '{', '[':
		if level >= max {
			return tooDeep
		}
		level++
		word, bit := &objects[level>>6], uint64(1)<<(level&63)
		if *word &^= bit; c == '{' {
			*word |= bit
		}
		end = c + 2 // '}' is '{'+2, ']' is '['+2
		i++
		if c = byteAt(b, i); c <= ' ' {
			i = skipSpace(b, i)
			c = byteAt(b, i)
		}
		switch {
		case c == end:
			goto pop
		case end == '}':
			goto key
		}
		goto value
	case 't', 'f', 'n':
		i, _ = skipWord(b, i)
	case ' ', '\n', '\r', '\t':
		i = skipSpace(b, i)
		c = byteAt(b, i)
		goto value
	default:
		i = skipNumber(b, i)
	}
	if i < 0 {
		return i
	}
after:
	if c = byteAt(b, i); c <= ' ' {
		i = skipSpace(b, i)
		c = byteAt(b, i)
	}
	if c == ',' {
		i++
		if c = byteAt(b, i); end == ']' {
			goto value
		}
		if c <= ' ' {
			i = skipSpace(b, i)
			c = byteAt(b, i)
		}
		goto key
	}
	if c != end {
		return notJSON
	}
pop:
	i++
	level--
	if level == outer {
		return i
	}
	end = ']'
	if objects[level>>6]>>(level&63)&1 != 0 {
		end = '}'
	}
	goto after
key:
	if c != '"' {
		return notJSON
	}
	if at := k.end(i + 1); byteAt(b, at) == '"' {
		i = at + 1
	} else if i, _ = k.skipString(b, i+1); i < 0 {
		return i
	}
	if c = byteAt(b, i); c != ':' {
		i = skipSpace(b, i)
		if byteAt(b, i) != ':' {
			return notJSON
		}
	}
	i++
	if c = byteAt(b, i); c == ' ' {
		i++
		c = byteAt(b, i)
	}
	goto value
}

// open begins an object: i becomes the opening quote of the first name, or,
// where there is none, the position after the object.
func open(b []byte, i, level, max int) (next int, more bool) {
	if byteAt(b, i) != '{' {
		return notJSON, false
	}
	if level > max {
		return tooDeep, false
	}
	i = skipSpace(b, i+1)
	switch byteAt(b, i) {
	case '"':
		return i, true
	case '}':
		return i + 1, false
	}
	return notJSON, false
}

// next goes on after a value of an object, likewise.
func next(b []byte, i int) (next int, more bool) {
	if uint(i+1) < uint(len(b)) && b[i] == ',' && b[i+1] == '"' {
		return i + 1, true
	}
	i = skipSpace(b, i)
	switch byteAt(b, i) {
	case ',':
		i = skipSpace(b, i+1)
		if byteAt(b, i) == '"' {
			return i, true
		}
	case '}':
		return i + 1, false
	}
	return notJSON, false
}

// skipName skips a member's name, which begins with the quote at i, and the
// colon, up to the first byte of the value.
func skipName(k *marks, b []byte, i int) (key Value, end int) {
	key.Off = uint32(i)
	if end, key.Escaped = k.skipString(b, i+1); end < 0 {
		return key, end
	}
	key.End = uint32(end)
	if byteAt(b, end) != ':' {
		end = skipSpace(b, end)
		if byteAt(b, end) != ':' {
			return key, notJSON
		}
	}
	return key, skipSpace(b, end+1)
}

// object walks the members of one JSON object:
//
//	o := object{b: b, i: at, level: 1, max: max}
//	for o.next() {
//		... o.key, and o.val after o.skip()
//	}
//	if o.err != 0 { ... }
//
// After the walk o.i is the position after the closing brace.
type object struct {
	k       *marks
	b       []byte
	i       int // the next byte to read
	level   int // this object's own
	max     int
	err     int // 0, notJSON or tooDeep
	key     Value
	val     Value
	started bool
}

// next reads a member's name and the colon, up to the first byte of the value.
func (o *object) next() (more bool) {
	if o.err != 0 {
		return false
	}
	if o.started {
		o.i, more = next(o.b, o.i)
	} else {
		o.i, more = open(o.b, o.i, o.level, o.max)
		o.started = true
	}
	if more {
		o.key, o.i = skipName(o.k, o.b, o.i)
	}
	if o.i < 0 {
		return o.fail(o.i)
	}
	return more
}

// skip reads the value of the member that next found.
func (o *object) skip() {
	v, end := skipValue(o.k, o.b, o.i, o.level, o.max)
	if end < 0 {
		o.fail(end)
		return
	}
	o.val, o.i = v, end
}

func (o *object) fail(err int) bool {
	o.err = err
	return false
}

// name returns the member's name; one written with escapes is decoded into tmp,
// unless it is longer than any name that matters.
func (o *object) name(tmp []byte) []byte {
	if !o.key.Escaped {
		return o.key.inner(o.b)
	}
	return decodeShort(tmp, o.key.inner(o.b), longestName)
}
