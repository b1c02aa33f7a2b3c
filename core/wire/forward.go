package wire

import "strconv"

// Additions are what a Gateway adds to a COMMAND it forwards (PROTOCOL.md
// section 3). Which of them are needed is decided from the envelope.
type Additions struct {
	Source    []byte // the sender's id; empty: none is added
	Ref       []byte // empty: none is added
	Priority  Priority
	TimeoutMs int64
	Now       Time // for `timestamp`
}

// additional are the members that Additions can fill in, in the order they are
// appended.
var additional = [...]Member{MemberSourceClientID, MemberRequestRef, MemberPriority, MemberTimeout, MemberTimestamp, MemberVersion}

var additionalSet = set(additional[:]...)

// HasNulls reports whether one of the members that a Gateway adds stands there
// as null: then nothing can be inserted and AppendForward must be used.
func (e *Envelope) HasNulls() bool { return e.nulls&additionalSet != 0 }

// AppendAdditions appends `,"sourceClientId":"...",...` for those additions that
// are absent from the message: the bytes to insert at Close. At most
// MaxAdditions bytes, as Source and Ref are an id and a ref.
func (e *Envelope) AppendAdditions(dst []byte, a *Additions) []byte {
	if e.seen&additionalSet == additionalSet {
		return dst
	}
	for _, m := range additional {
		if e.seen>>m&1 != 0 || !a.has(m) {
			continue
		}
		dst = append(dst, ',', '"')
		dst = append(dst, memberNames[m]...)
		dst = append(dst, '"', ':')
		dst = a.appendValue(dst, m)
	}
	return dst
}

// AppendForward appends the whole message with its additions: what is null is
// replaced in place, what is absent comes last. The slow road, for messages
// with HasNulls; right for any.
func (e *Envelope) AppendForward(dst []byte, a *Additions) []byte {
	var order [len(additional)]Member
	n := 0
	for _, m := range additional {
		if e.nulls>>m&1 == 0 || !a.has(m) {
			continue
		}
		i := n
		for ; i > 0 && e.values[order[i-1]].Off > e.values[m].Off; i-- {
			order[i] = order[i-1]
		}
		order[i] = m
		n++
	}
	at := 0
	for _, m := range order[:n] {
		dst = append(dst, e.Msg[at:e.values[m].Off]...)
		dst = a.appendValue(dst, m)
		at = int(e.values[m].End)
	}
	dst = append(dst, e.Msg[at:e.closing]...)
	dst = e.AppendAdditions(dst, a)
	return append(dst, e.Msg[e.closing:]...)
}

// has reports whether there is a value for the member.
func (a *Additions) has(m Member) bool {
	return (m != MemberSourceClientID || len(a.Source) > 0) && (m != MemberRequestRef || len(a.Ref) > 0)
}

func (a *Additions) appendValue(dst []byte, m Member) []byte {
	switch m {
	case MemberSourceClientID:
		return AppendString(dst, a.Source)
	case MemberRequestRef:
		return AppendString(dst, a.Ref)
	case MemberPriority:
		return AppendString(dst, a.Priority.String())
	case MemberTimeout:
		return strconv.AppendInt(dst, a.TimeoutMs, 10)
	case MemberTimestamp:
		return appendQuotedTime(dst, a.Now)
	}
	return append(dst, `"`+Version+`"`...)
}

// AppendHTTPCommand appends the COMMAND that an edge gets for an HTTP request
// (PROTOCOL.md section 6): command is the bytes of the body's `command`, as
// they came; callback is nil for none.
func AppendHTTPCommand(dst, ref, target, command []byte, p Priority, timeoutMs int64, callback []byte, queue bool, now Time) []byte {
	dst = append(dst, `{"type":"COMMAND","requestRef":`...)
	dst = AppendString(dst, ref)
	dst = append(dst, `,"targetClientId":`...)
	dst = AppendString(dst, target)
	dst = append(dst, `,"command":`...)
	dst = append(dst, command...)
	dst = append(dst, `,"priority":"`...)
	dst = append(dst, p.String()...)
	dst = append(dst, `","timeout":`...)
	dst = strconv.AppendInt(dst, timeoutMs, 10)
	if len(callback) > 0 {
		dst = append(dst, `,"callback":`...)
		dst = AppendString(dst, callback)
	}
	if queue {
		dst = append(dst, `,"whenOffline":"QUEUE"`...)
	}
	return appendEnd(dst, now, true)
}
