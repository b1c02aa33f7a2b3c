package wire

// Priority is a command's `priority`.
type Priority uint8

// The priorities, in rising order. The zero value is PriorityLow, not the
// default: who makes a command says which.
const (
	PriorityLow Priority = iota
	PriorityNormal
	PriorityHigh
	NumPriorities = 3
)

// String returns the word on the wire, "NORMAL".
func (p Priority) String() string {
	switch p {
	case PriorityLow:
		return "LOW"
	case PriorityHigh:
		return "HIGH"
	}
	return "NORMAL"
}

// ParsePriority reads LOW, NORMAL or HIGH.
func ParsePriority(word []byte) (Priority, bool) {
	switch string(word) {
	case "LOW":
		return PriorityLow, true
	case "NORMAL":
		return PriorityNormal, true
	case "HIGH":
		return PriorityHigh, true
	}
	return PriorityNormal, false
}

// Command holds the checked members of a COMMAND, whichever way it came. The
// slices are decoded, nil where the member is absent, and borrowed from the
// message or the Scratch.
type Command struct {
	Ref         []byte // nil: the Gateway makes one
	Target      []byte
	Source      []byte // as the sender said; only its kind is checked
	CommandType []byte
	Callback    []byte
	TimeoutMs   int64 // the default where none was asked for
	Priority    Priority
	Queue       bool // whenOffline QUEUE
	Ack         bool
}

// Command reads a COMMAND (PROTOCOL.md section 3): what is required, then kinds
// and values, in the order of the contract. It needs an envelope that Scan
// passed, and allocates nothing when the command is good.
func (e *Envelope) Command(c *Command, s *Scratch) *Fault {
	s.reset()
	*c = Command{Priority: PriorityNormal, TimeoutMs: DefaultTimeoutMs}
	var f *Fault
	if c.Ref, f = e.ref(s, false); f != nil {
		return f
	}
	if c.Target, f = e.id(MemberTargetClientID, s, true); f != nil {
		return f
	}
	if f = e.commandType(c, s); f != nil {
		return f
	}
	if c.Source, f = e.text(MemberSourceClientID, s); f != nil {
		return f
	}
	return e.options(c, s)
}

// commandType reads `command` and command.commandType.
func (e *Envelope) commandType(c *Command, s *Scratch) *Fault {
	switch e.Value(MemberCommand).Kind {
	case KindObject:
	case KindAbsent, KindNull:
		return &faults[MemberCommand].missing
	default:
		return &faults[MemberCommand].wrong
	}
	v := e.inner[innerCommandType]
	if v.Kind != KindString || v.End-v.Off == 2 {
		return faultCommandType
	}
	c.CommandType = s.str(e.Msg, v)
	return nil
}

// rareOptions are those that most commands do without.
var rareOptions = set(MemberCallback, MemberWhenOffline, MemberAck)

// options reads the members that have a default.
func (e *Envelope) options(c *Command, s *Scratch) *Fault {
	var ok bool
	if v := e.Value(MemberPriority); v.present() {
		if c.Priority, ok = priorityOf(e.Msg, v); !ok {
			return &faults[MemberPriority].wrong
		}
	}
	if v := e.Value(MemberTimeout); v.present() {
		if c.TimeoutMs, ok = timeoutOf(e.Msg, v); !ok {
			return &faults[MemberTimeout].wrong
		}
	}
	if e.seen&rareOptions == 0 {
		return nil
	}
	if v := e.Value(MemberCallback); v.present() {
		if v.Kind != KindString || v.End-v.Off == 2 {
			return &faults[MemberCallback].wrong
		}
		c.Callback = s.str(e.Msg, v)
	}
	if v := e.Value(MemberWhenOffline); v.present() {
		if c.Queue, ok = queueOf(e.Msg, v); !ok {
			return &faults[MemberWhenOffline].wrong
		}
	}
	if v := e.Value(MemberAck); v.present() {
		if v.Kind != KindBool {
			return &faults[MemberAck].wrong
		}
		c.Ack = e.Msg[v.Off] == 't'
	}
	return nil
}

func priorityOf(b []byte, v Value) (Priority, bool) {
	if v.Escaped {
		var tmp [6 * longestWord]byte
		return ParsePriority(wordOf(b, v, &tmp))
	}
	return ParsePriority(wordOf(b, v, nil))
}

func queueOf(b []byte, v Value) (queue, ok bool) {
	var tmp [6 * longestWord]byte
	switch string(wordOf(b, v, &tmp)) {
	case "QUEUE":
		return true, true
	case "REJECT":
		return false, true
	}
	return false, false
}

// wordOf returns the bytes of a string that is one of a few words. One with
// escapes is decoded into tmp, which others do not need.
func wordOf(b []byte, v Value, tmp *[6 * longestWord]byte) []byte {
	switch {
	case v.Kind != KindString:
		return nil
	case !v.Escaped:
		return v.inner(b)
	}
	return decodeShort(tmp[:], v.inner(b), longestWord)
}

// timeoutOf reads a timeout in milliseconds; 0 means the default.
func timeoutOf(b []byte, v Value) (ms int64, ok bool) {
	if v.Kind != KindNumber {
		return 0, false
	}
	ms, ok = ParseInteger(v.raw(b))
	if ok && ms == 0 {
		ms = DefaultTimeoutMs
	}
	return ms, ok && ms > 0 && ms <= MaxTimeoutMs
}

// ref reads the requestRef, which Scan has checked.
func (e *Envelope) ref(s *Scratch, required bool) ([]byte, *Fault) {
	v := e.Value(MemberRequestRef)
	if v.Kind == KindString {
		return s.str(e.Msg, v), nil
	}
	if required {
		return nil, &faults[MemberRequestRef].missing
	}
	return nil, nil
}

// id reads a member that is an id.
func (e *Envelope) id(m Member, s *Scratch, required bool) ([]byte, *Fault) {
	v := e.Value(m)
	if !v.present() {
		if required {
			return nil, &faults[m].missing
		}
		return nil, nil
	}
	id, ok := s.id(e.Msg, v)
	if !ok {
		return nil, &faults[m].wrong
	}
	return id, nil
}

// text reads a member that is a string, nil where it is absent.
func (e *Envelope) text(m Member, s *Scratch) ([]byte, *Fault) {
	v := e.Value(m)
	if !v.present() {
		return nil, nil
	}
	if v.Kind != KindString {
		return nil, &faults[m].wrong
	}
	return s.str(e.Msg, v), nil
}

// Cancel holds the checked members of a CANCEL; borrowed as in Command.
type Cancel struct {
	Ref    []byte
	Target []byte // nil where absent
}

// Cancel reads a CANCEL: a requestRef, and a targetClientId that is an id if it
// is there (PROTOCOL.md section 3).
func (e *Envelope) Cancel(c *Cancel, s *Scratch) (f *Fault) {
	s.reset()
	*c = Cancel{}
	if c.Ref, f = e.ref(s, true); f != nil {
		return f
	}
	c.Target, f = e.id(MemberTargetClientID, s, false)
	return f
}
