package wire

// Bodies of the HTTP API (PROTOCOL.md section 6). A member has two spellings,
// null means absent, and what is not named is ignored.

// HTTPCommand holds the checked members of the body of POST /api/commands; the
// slices are borrowed from the body or the Scratch.
type HTTPCommand struct {
	Command           // Source is nil and Ack false: HTTP has neither
	CommandRaw []byte // `command`, as it came

	// The members as the caller spelled them, for details.field of a fault
	// found later; snake_case where they are absent.
	TargetField   string
	RefField      string
	CallbackField string
}

// httpMember is a member of a body, by its place in httpNames.
type httpMember uint8

const (
	httpTarget httpMember = iota
	httpCommand
	httpCallback
	httpPriority
	httpTimeout
	httpRef
	httpWhenOffline
	httpCommands // of a batch
	httpTargets  // of a batch
	numHTTPMembers
)

// httpNames holds the spellings; the first is used for what is missing.
var httpNames = [numHTTPMembers][2]string{
	httpTarget:      {"target_client_id", "targetClientId"},
	httpCommand:     {"command", "command"},
	httpCallback:    {"callback_url", "callbackUrl"},
	httpPriority:    {"priority", "priority"},
	httpTimeout:     {"timeout", "timeout"},
	httpRef:         {"request_ref", "requestRef"},
	httpWhenOffline: {"when_offline", "whenOffline"},
	httpCommands:    {"commands", "commands"},
	httpTargets:     {"targets", "targets"},
}

// body holds where the members of a body stand.
type body struct {
	b           []byte
	values      [numHTTPMembers]Value
	camel       [numHTTPMembers]bool
	commandType Value
	items       int // in `commands`
}

func requestFault(field, text string) *Fault {
	return &Fault{Code: CodeInvalidRequest, Field: field, Text: text}
}

// name returns a member's name as it was sent.
func (h *body) name(m httpMember) string {
	if h.camel[m] {
		return httpNames[m][1]
	}
	return httpNames[m][0]
}

func (h *body) wrong(m httpMember, rule string) *Fault {
	return requestFault(h.name(m), h.name(m)+" "+rule)
}

// parseHTTPMember finds the member of a name among those up to last; numHTTPMembers
// where it is none. httpNames holds the same names.
func parseHTTPMember(name []byte, last httpMember) (m httpMember, camel bool) {
	switch string(name) {
	case "target_client_id":
		m = httpTarget
	case "targetClientId":
		m, camel = httpTarget, true
	case "command":
		m = httpCommand
	case "callback_url":
		m = httpCallback
	case "callbackUrl":
		m, camel = httpCallback, true
	case "priority":
		m = httpPriority
	case "timeout":
		m = httpTimeout
	case "request_ref":
		m = httpRef
	case "requestRef":
		m, camel = httpRef, true
	case "when_offline":
		m = httpWhenOffline
	case "whenOffline":
		m, camel = httpWhenOffline, true
	case "commands":
		m = httpCommands
	case "targets":
		m = httpTargets
	default:
		return numHTTPMembers, false
	}
	if m > last {
		return numHTTPMembers, false
	}
	return m, camel
}

// read finds the members up to last, checking the body as strict JSON in UTF-8.
func (h *body) read(b []byte, maxDepth int, last httpMember) *Fault {
	if len(b) > MaxMessage || !ValidUTF8(b) {
		*h = body{b: b}
		return requestFault("", "body is not valid UTF-8")
	}
	var k marks
	k.start(b)
	o := object{k: &k, b: b, i: skipSpace(b, 0), level: 1, max: maxDepth}
	f := h.walk(b, &o, last)
	if o.err == 0 && skipSpace(b, o.i) != len(b) {
		return faultNoObject
	}
	return f
}

var (
	faultNoObject = requestFault("", "body is not a JSON object")
	faultTooDeep  = requestFault("", "body is nested too deeply")
)

// walk finds the members up to last of the object o, which is in b.
func (h *body) walk(b []byte, o *object, last httpMember) *Fault {
	*h = body{b: b}
	var tmp [6 * longestName]byte
	var fault *Fault
	for o.next() {
		m, camel := parseHTTPMember(o.name(tmp[:]), last)
		if m == numHTTPMembers {
			o.skip()
			continue
		}
		twice := h.values[m].Kind != KindAbsent
		switch {
		case m == httpCommand && o.i < len(b) && b[o.i] == '{':
			if h.readCommand(o) && fault == nil {
				fault = requestFault("command.commandType", "command.commandType stands twice")
			}
		case m == httpCommands && o.i < len(b) && b[o.i] == '[':
			h.countItems(o)
		default:
			o.skip()
		}
		h.values[m], h.camel[m] = o.val, camel
		if twice && fault == nil {
			fault = h.wrong(m, "stands twice")
		}
	}
	switch o.err {
	case tooDeep:
		return faultTooDeep
	case notJSON:
		return faultNoObject
	}
	return fault
}

// countItems reads the array `commands` and counts what it holds.
func (h *body) countItems(outer *object) {
	b, start, level := outer.b, outer.i, outer.level+1
	h.items = 0
	if level > outer.max {
		outer.fail(tooDeep)
		return
	}
	i := skipSpace(b, start+1)
	for more := i >= len(b) || b[i] != ']'; more; {
		_, end := skipValue(outer.k, b, i, level, outer.max)
		if end < 0 {
			outer.fail(end)
			return
		}
		h.items++
		if i = skipSpace(b, end); i >= len(b) || b[i] != ',' && b[i] != ']' {
			outer.fail(notJSON)
			return
		}
		if more = b[i] == ','; more {
			i = skipSpace(b, i+1)
		}
	}
	outer.i = i + 1
	outer.val = Value{Off: uint32(start), End: uint32(outer.i), Kind: KindArray}
}

// readCommand reads the object `command` and reports whether commandType stands
// twice in it.
func (h *body) readCommand(outer *object) (twice bool) {
	start := outer.i
	h.commandType = Value{}
	var tmp [6 * longestName]byte
	o := object{k: outer.k, b: outer.b, i: start, level: outer.level + 1, max: outer.max}
	for o.next() {
		n := parseInner(o.name(tmp[:]))
		o.skip()
		if n == innerCommandType {
			twice = twice || h.commandType.Kind != KindAbsent
			h.commandType = o.val
		}
	}
	if o.err != 0 {
		outer.fail(o.err)
		return false
	}
	outer.val = Value{Off: uint32(start), End: uint32(o.i), Kind: KindObject}
	outer.i = o.i
	return twice
}

// ParseHTTPCommand reads the body of POST /api/commands.
// The fault has CodeInvalidRequest and names the member as it was sent. It
// allocates nothing when the body is good.
func ParseHTTPCommand(b []byte, maxDepth int, c *HTTPCommand, s *Scratch) *Fault {
	var h body
	s.reset()
	*c = HTTPCommand{} // whatever is wrong with this body, nothing of another is told
	if f := h.read(b, maxDepth, httpWhenOffline); f != nil {
		return f
	}
	return h.command(c, s, true)
}

// command checks the members of one command; withTarget is false for a batch
// that has its targets beside it.
func (h *body) command(c *HTTPCommand, s *Scratch, withTarget bool) *Fault {
	*c = HTTPCommand{TargetField: h.name(httpTarget), RefField: h.name(httpRef), CallbackField: h.name(httpCallback)}
	c.Priority, c.TimeoutMs = PriorityNormal, DefaultTimeoutMs
	var ok bool
	if withTarget {
		v := h.values[httpTarget]
		if !v.present() {
			return h.wrong(httpTarget, "is required")
		}
		if c.Target, ok = s.id(h.b, v); !ok {
			return h.wrong(httpTarget, ruleID)
		}
	}
	switch v := h.values[httpCommand]; v.Kind {
	case KindObject:
		c.CommandRaw = v.raw(h.b)
	case KindAbsent, KindNull:
		return h.wrong(httpCommand, "is required")
	default:
		return h.wrong(httpCommand, ruleObject)
	}
	if v := h.commandType; v.Kind != KindString || v.End-v.Off == 2 {
		return requestFault(faultCommandType.Field, faultCommandType.Text)
	}
	c.CommandType = s.str(h.b, h.commandType)
	return h.options(c, s)
}

// options reads the members that have a default.
func (h *body) options(c *HTTPCommand, s *Scratch) *Fault {
	var ok bool
	if v := h.values[httpPriority]; v.present() {
		if c.Priority, ok = priorityOf(h.b, v); !ok {
			return h.wrong(httpPriority, rules[MemberPriority])
		}
	}
	if v := h.values[httpTimeout]; v.present() {
		if c.TimeoutMs, ok = timeoutOf(h.b, v); !ok {
			return h.wrong(httpTimeout, rules[MemberTimeout])
		}
	}
	if v := h.values[httpCallback]; v.present() {
		if v.Kind != KindString || v.End-v.Off == 2 {
			return h.wrong(httpCallback, rules[MemberCallback])
		}
		c.Callback = s.str(h.b, v)
	}
	if v := h.values[httpRef]; v.present() {
		if v.Kind != KindString || v.End-v.Off-2 > 6*MaxIDBytes {
			return h.wrong(httpRef, rules[MemberRequestRef])
		}
		ref := s.str(h.b, v)
		if !ValidRef(ref) {
			return h.wrong(httpRef, rules[MemberRequestRef])
		}
		c.Ref = ref
	}
	if v := h.values[httpWhenOffline]; v.present() {
		if c.Queue, ok = queueOf(h.b, v); !ok {
			return h.wrong(httpWhenOffline, rules[MemberWhenOffline])
		}
	}
	return nil
}

// HTTPBatch holds the checked body of POST /api/commands/batch, in one of its
// two forms; the slices are borrowed from the body.
type HTTPBatch struct {
	Command HTTPCommand // the form with targets: what each of them gets; Target is nil
	ByItems bool        // the form {"commands":[...]}
	Count   int         // items or targets, before patterns are expanded

	b     []byte
	list  Value
	depth int
}

// ParseHTTPBatch reads the body of POST /api/commands/batch. An item of
// `commands` is strict JSON and not otherwise looked into (one that is wrong is one
// rejected result, see EachItem); everything else that is wrong is a fault of the whole. How many
// there may be is for the caller to judge.
func ParseHTTPBatch(b []byte, maxDepth int, batch *HTTPBatch, s *Scratch) *Fault {
	var h body
	s.reset()
	*batch = HTTPBatch{b: b, depth: maxDepth}
	if f := h.read(b, maxDepth, numHTTPMembers-1); f != nil {
		return f
	}
	items, targets := h.values[httpCommands], h.values[httpTargets]
	switch {
	case items.present() && targets.present():
		return h.wrong(httpCommands, "and targets exclude each other")
	case items.present():
		if items.Kind != KindArray {
			return h.wrong(httpCommands, "must be an array")
		}
		batch.ByItems, batch.list = true, items
		batch.Count = h.items
		return nil
	case targets.present():
		return h.targets(batch, s)
	case h.values[httpCommand].present():
		return h.wrong(httpTargets, "is required")
	}
	return h.wrong(httpCommands, "is required")
}

// targets reads the form with one command for many targets.
func (h *body) targets(batch *HTTPBatch, s *Scratch) *Fault {
	v := h.values[httpTargets]
	if v.Kind != KindArray {
		return h.wrong(httpTargets, "must be an array of strings")
	}
	for i, item := firstItem(h.b, v); i >= 0; i, item = nextItem(h.b, i) {
		if item.Kind != KindString {
			return h.wrong(httpTargets, "must be an array of strings")
		}
		batch.Count++
	}
	batch.list = v
	if h.values[httpRef].present() {
		return h.wrong(httpRef, "and targets exclude each other")
	}
	return h.command(&batch.Command, s, false)
}

// EachItem reads each item of `commands` into c, as ParseHTTPCommand does, and calls fn
// with it as it came and what is wrong with it, until fn returns false. Nothing for the
// other form. Only one Scratch may be in use with c, and it is not the batch's.
func (batch *HTTPBatch) EachItem(c *HTTPCommand, s *Scratch, fn func(item []byte, f *Fault) bool) {
	if !batch.ByItems {
		return
	}
	const level = 3 // below the body and the array
	b, i := batch.b, skipSpace(batch.b, int(batch.list.Off)+1)
	var h body
	var k marks
	k.start(b)
	for range batch.Count {
		o := object{k: &k, b: b, i: i, level: level, max: batch.depth}
		f := h.walk(b, &o, httpWhenOffline)
		end := o.i
		if o.err != 0 { // it is no object, though JSON
			_, end = skipValue(&k, b, i, level-1, batch.depth)
		}
		s.reset()
		*c = HTTPCommand{}
		if f == nil {
			f = h.command(c, s, true)
		}
		if !fn(b[i:end], f) {
			return
		}
		i = skipSpace(b, skipSpace(b, end)+1) // after the comma
	}
}

// EachTarget calls fn for each string of `targets`, decoded and not otherwise
// checked (it may be a pattern, td-*), until it returns false. target is valid
// during the call only. Nothing for the other form.
func (batch *HTTPBatch) EachTarget(fn func(target []byte) bool) {
	if batch.ByItems {
		return
	}
	var s Scratch
	for i, v := firstItem(batch.b, batch.list); i >= 0; i, v = nextItem(batch.b, i) {
		s.reset()
		if !fn(s.str(batch.b, v)) {
			return
		}
	}
}
