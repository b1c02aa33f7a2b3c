package wire

import "math/bits"

// Envelope holds where the members of one message stand. It is reusable and
// holds no pointer into the message other than Msg; use it from one goroutine
// at a time. The zero value is ready for Scan.
type Envelope struct {
	Msg  []byte // borrowed: the message that was scanned, valid as long as the caller's buffer
	Type Type

	seen    uint64 // members that are there, by bit; values of others are stale
	twice   uint64 // members that stand twice
	nulls   uint64 // members that are there and null
	closing int    // the offset of the final '}'
	inner   [numInner]Value
	doubled [numInner]bool
	values  [numMembers + 1]Value // the last is of names that are not known
	marks   marks
	order   order
}

// The members inside others that PROTOCOL.md names.
const (
	innerCommandType = iota
	innerEdgeID
	innerEdgeVersion
	numInner
)

// Scan reads a message in one pass and judges it, in this order: strict JSON
// (RFC 8259; containers at most maxDepth deep, the outermost object is level
// 1), a known type, no named member twice, version, requestRef (PROTOCOL.md
// sections 2 and 3). The error is a *Fault or nil. After a fault other than of
// JSON itself, a requestRef that is valid can still be read, for the answer.
// UTF-8 is the caller's to check, see ValidUTF8. It allocates nothing.
func (e *Envelope) Scan(msg []byte, maxDepth int) error {
	e.Msg, e.Type = msg, TypeUnknown
	e.seen, e.twice, e.nulls, e.closing = 0, 0, 0, 0
	e.inner = [numInner]Value{}
	e.doubled = [numInner]bool{}
	if f := e.scan(msg, maxDepth); f != nil {
		e.seen, e.nulls = 0, 0
		return f
	}
	f := e.judge()
	if r := e.judgeRef(); r != nil {
		e.seen &^= 1 << MemberRequestRef
		if f == nil {
			f = r
		}
	}
	if f != nil {
		return f
	}
	return nil
}

func (e *Envelope) scan(msg []byte, maxDepth int) *Fault {
	if len(msg) > MaxMessage {
		return faultSize
	}
	e.marks.start(msg)
	end := e.members(msg, maxDepth)
	switch {
	case end == tooDeep:
		return faultDepth
	case end < 0 || skipSpace(msg, end) != len(msg):
		return faultSyntax
	}
	e.closing = end - 1
	return nil
}

// members reads the outermost object and returns the position after it. Its fast road is for a
// message without space whose members come in the order of the last one: the name as guessed, a
// string that ends within sight, a comma and the next quote. Anything else takes a step aside, in name,
// value or next, to the same result.
func (e *Envelope) members(b []byte, maxDepth int) int {
	row := &e.order[0]
	guess := &row[numMembers]
	i, more := open(b, skipSpace(b, 0), 1, maxDepth)
	for more {
		m := *guess
		at := spellings[m].after(b, i+1)
		if at < 0 {
			if m, at = e.name(b, i); at < 0 {
				return at
			}
			*guess = m
		} else if byteAt(b, at) <= ' ' {
			at = skipSpace(b, at)
		}
		end := e.marks.end(at + 1)
		if byteAt(b, at) == '"' && byteAt(b, end) == '"' {
			end++ // no escape stands before the first mark
			e.values[m] = Value{Off: uint32(at), End: uint32(end), Kind: KindString}
		} else if end = e.value(b, at, m, maxDepth); end < 0 {
			return end
		}
		bit := uint64(1) << (m % 64)
		if e.seen&bit != 0 {
			e.again(m)
		}
		e.seen |= bit
		if m == MemberType {
			row = &e.order[kindOf(e.values[m])]
		}
		guess = &row[m]
		if i = end + 1; uint(i) < uint(len(b)) && b[end] == ',' && b[i] == '"' {
			continue
		}
		i, more = next(b, end)
	}
	e.seen &= 1<<numMembers - 1
	return i
}

// again notes that a member stands once more; what counts is the last.
func (e *Envelope) again(m Member) {
	e.twice |= 1 << m
	if e.values[m].Kind != KindNull {
		e.nulls &^= 1 << m
	}
}

// name reads the name whose opening quote is at i, and the colon.
func (e *Envelope) name(b []byte, i int) (Member, int) {
	key, at := skipName(&e.marks, b, i)
	if at < 0 {
		return numMembers, at
	}
	if !key.Escaped {
		return parseMember(key.inner(b)), at
	}
	var tmp [6 * longestName]byte
	return parseMember(decodeShort(tmp[:], key.inner(b), longestName)), at
}

// value reads the value of a member and returns the position after it.
func (e *Envelope) value(b []byte, i int, m Member, maxDepth int) (end int) {
	v := &e.values[m]
	if (m == MemberCommand || m == MemberEdgeInfo) && byteAt(b, i) == '{' {
		end = e.scanInner(b, i, m, maxDepth)
		*v = Value{Off: uint32(i), End: uint32(end), Kind: KindObject}
		return end
	}
	if *v, end = skipValue(&e.marks, b, i, 1, maxDepth); v.Kind == KindNull {
		e.nulls |= 1 << m
	}
	return end
}

// scanInner reads the object that is the value of `command` or `edgeInfo`, and
// returns the position after it.
func (e *Envelope) scanInner(b []byte, i int, m Member, maxDepth int) int {
	first, last := innerCommandType, innerCommandType
	if m == MemberEdgeInfo {
		first, last = innerEdgeID, innerEdgeVersion
	}
	for n := first; n <= last; n++ {
		e.inner[n], e.doubled[n] = Value{}, false
	}
	i, more := open(b, i, 2, maxDepth)
	for more {
		n, at := innerCommandType, commandTypeSpelling.after(b, i+1)
		if at < 0 {
			if n, at = e.innerName(b, i); at < 0 {
				return at
			}
		}
		if byteAt(b, at) <= ' ' {
			at = skipSpace(b, at)
		}
		var v Value
		if end := e.marks.end(at + 1); byteAt(b, at) == '"' && byteAt(b, end) == '"' {
			v, i = Value{Off: uint32(at), End: uint32(end + 1), Kind: KindString}, end+1
		} else if v, i = skipValue(&e.marks, b, at, 2, maxDepth); i < 0 {
			return i
		}
		if n >= first && n <= last {
			e.doubled[n] = e.doubled[n] || e.inner[n].Kind != KindAbsent
			e.inner[n] = v
		}
		i, more = next(b, i)
	}
	return i
}

// innerName is name for those inside.
func (e *Envelope) innerName(b []byte, i int) (n, at int) {
	if end := e.marks.end(i + 1); byteAt(b, end) == '"' && byteAt(b, end+1) == ':' {
		return parseInner(b[i+1 : end]), end + 2
	}
	key, at := skipName(&e.marks, b, i)
	if at < 0 {
		return numInner, at
	}
	if !key.Escaped {
		return parseInner(key.inner(b)), at
	}
	var tmp [6 * longestName]byte
	return parseInner(decodeShort(tmp[:], key.inner(b), longestName)), at
}

func parseInner(name []byte) int {
	switch string(name) {
	case "commandType":
		return innerCommandType
	case "edgeId":
		return innerEdgeID
	case "edgeVersion":
		return innerEdgeVersion
	}
	return numInner
}

// judge finds the type and holds the message against it.
func (e *Envelope) judge() *Fault {
	if v := e.Value(MemberType); v.Kind == KindString {
		word := v.inner(e.Msg)
		if v.Escaped {
			var tmp [6 * longestWord]byte
			word = decodeShort(tmp[:], word, longestWord)
		}
		e.Type = parseType(word)
	}
	if e.Type == TypeUnknown {
		return faultType
	}
	if twice := e.twice & named[e.Type]; twice != 0 {
		return &faults[bits.TrailingZeros64(twice)].twice
	}
	if e.Type == TypeCommand && e.doubled[innerCommandType] {
		return faultCommandTypeTwice
	}
	if e.Type == TypeRegister && e.doubled[innerEdgeID] {
		return faultEdgeIDTwice
	}
	return e.judgeVersion()
}

func (e *Envelope) judgeVersion() *Fault {
	v := e.Value(MemberVersion)
	if !v.present() {
		return nil
	}
	if string(v.raw(e.Msg)) == `"1.0"` {
		return nil
	}
	if v.Kind != KindString {
		return faultVersion
	}
	s := v.inner(e.Msg)
	if v.Escaped {
		var tmp [6 * longestWord]byte
		s = decodeShort(tmp[:], s, longestWord)
	}
	dot := skipDigits(s, 0)
	if dot < 0 || dot >= len(s) || s[dot] != '.' || skipDigits(s, dot+1) != len(s) {
		return faultVersion
	}
	major := s[:dot]
	for len(major) > 1 && major[0] == '0' {
		major = major[1:]
	}
	if string(major) != "1" {
		return faultMajor
	}
	return nil
}

// judgeRef is nil exactly where the requestRef is absent or can be answered with.
func (e *Envelope) judgeRef() *Fault {
	if e.twice>>MemberRequestRef&1 != 0 {
		return &faults[MemberRequestRef].twice
	}
	v := e.Value(MemberRequestRef)
	if !v.present() {
		return nil
	}
	if v.Kind != KindString || v.End-v.Off-2 > 6*MaxIDBytes {
		return faultRef
	}
	ref := v.inner(e.Msg)
	if v.Escaped {
		var tmp [6 * MaxIDBytes]byte
		ref = decode(tmp[:0], ref)
	}
	if !ValidRef(ref) {
		return faultRef
	}
	return nil
}

// longestWord bounds the strings that are compared with a fixed list.
const longestWord = 32

// Value returns where the member stands; its Kind is KindAbsent if it is not
// there. Of one that stands twice (where that is allowed) it is the last.
func (e *Envelope) Value(m Member) Value {
	if m >= numMembers || e.seen>>m&1 == 0 {
		return Value{}
	}
	return e.values[m]
}

// Has reports whether the member is there and not null.
func (e *Envelope) Has(m Member) bool { return (e.seen&^e.nulls)>>m&1 != 0 }

// Raw returns the value's bytes as they came, nil if it is absent or null.
// Borrowed from the message.
func (e *Envelope) Raw(m Member) []byte {
	if !e.Has(m) {
		return nil
	}
	return e.values[m].raw(e.Msg)
}

// Str returns a string's decoded bytes: a part of the message if it holds no
// escape, else appended to scratch[:0]. ok is false if it is not a string.
func (e *Envelope) Str(m Member, scratch []byte) (s []byte, ok bool) {
	return e.str(e.Value(m), scratch)
}

func (e *Envelope) str(v Value, scratch []byte) ([]byte, bool) {
	if v.Kind != KindString {
		return nil, false
	}
	if !v.Escaped {
		return v.inner(e.Msg), true
	}
	return decode(scratch[:0], v.inner(e.Msg)), true
}

// Ref returns the message's requestRef, nil if it has none that is valid, also
// after a fault of Scan: for the ERROR that answers it. Decoded into scratch if
// it holds escapes.
func (e *Envelope) Ref(scratch []byte) []byte {
	ref, _ := e.Str(MemberRequestRef, scratch)
	return ref
}

// CommandType returns command.commandType as Str does.
func (e *Envelope) CommandType(scratch []byte) ([]byte, bool) {
	return e.str(e.inner[innerCommandType], scratch)
}

// CommandTypeValue returns where command.commandType stands.
func (e *Envelope) CommandTypeValue() Value { return e.inner[innerCommandType] }

// EdgeID returns edgeInfo.edgeId as Str does.
func (e *Envelope) EdgeID(scratch []byte) ([]byte, bool) {
	return e.str(e.inner[innerEdgeID], scratch)
}

// EdgeIDValue returns where edgeInfo.edgeId stands.
func (e *Envelope) EdgeIDValue() Value { return e.inner[innerEdgeID] }

// EdgeVersion returns edgeInfo.edgeVersion as Str does.
func (e *Envelope) EdgeVersion(scratch []byte) ([]byte, bool) {
	return e.str(e.inner[innerEdgeVersion], scratch)
}

// EdgeVersionValue returns where edgeInfo.edgeVersion stands.
func (e *Envelope) EdgeVersionValue() Value { return e.inner[innerEdgeVersion] }

// Close returns the offset of the message's final '}': who forwards a message
// inserts there. It is 0 unless the message was valid JSON.
func (e *Envelope) Close() int { return e.closing }
