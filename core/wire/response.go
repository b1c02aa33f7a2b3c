package wire

// Response holds the checked members of a COMMAND_RESPONSE (PROTOCOL.md section
// 3). The slices are nil where absent, and borrowed from the message or the
// Scratch.
type Response struct {
	Ref              []byte
	Status           []byte // the device's own word, decoded
	Completed        bool   // COMPLETED or SUCCESS; any other word counts as failed
	ResultRaw        []byte // any value, as it came
	ErrorRaw         []byte // an object, as it came
	ErrorCode        []byte // error.code where it is a string
	ExecutionTimeRaw []byte // a number of milliseconds, as it came
	Callback         []byte // for orphans, section 4
	Source           []byte // sourceClientId, likewise
}

// Response reads a COMMAND_RESPONSE.
func (e *Envelope) Response(r *Response, s *Scratch) (f *Fault) {
	s.reset()
	*r = Response{}
	if r.Ref, f = e.ref(s, true); f != nil {
		return f
	}
	v := e.Value(MemberStatus)
	if !v.present() {
		return &faults[MemberStatus].missing
	}
	if v.Kind != KindString {
		return &faults[MemberStatus].wrong
	}
	r.Status = s.str(e.Msg, v)
	r.Completed = string(r.Status) == "COMPLETED" || string(r.Status) == "SUCCESS"
	r.ResultRaw = e.Raw(MemberResult)
	if v := e.Value(MemberError); v.present() {
		if v.Kind != KindObject {
			return &faults[MemberError].wrong
		}
		r.ErrorRaw = v.raw(e.Msg)
		r.ErrorCode = errorCode(e.Msg, v, s)
	}
	if v := e.Value(MemberExecutionTime); v.present() {
		if v.Kind != KindNumber {
			return &faults[MemberExecutionTime].wrong
		}
		r.ExecutionTimeRaw = v.raw(e.Msg)
	}
	r.Callback, r.Source, f = e.orphan(s)
	return f
}

// errorCode finds error.code; of two the last counts, as elsewhere inside.
func errorCode(b []byte, v Value, s *Scratch) []byte {
	var name [6 * longestName]byte
	var code Value
	o := object{k: &unmarked, b: b, i: int(v.Off), max: MaxDepth}
	for o.next() {
		m := parseMember(o.name(name[:]))
		o.skip()
		if m == MemberCode {
			code = o.val
		}
	}
	if code.Kind != KindString {
		return nil
	}
	return s.str(b, code)
}

// orphan reads what tells whom a response is for when its ref is not known. An
// empty string is as good as none.
func (e *Envelope) orphan(s *Scratch) (callback, source []byte, f *Fault) {
	if callback, f = e.text(MemberCallback, s); f != nil {
		return nil, nil, f
	}
	if source, f = e.text(MemberSourceClientID, s); f != nil {
		return nil, nil, f
	}
	if len(callback) == 0 {
		callback = nil
	}
	if len(source) == 0 {
		source = nil
	}
	return callback, source, nil
}

// Progress holds the checked members of a PROGRESS_UPDATE; borrowed likewise.
type Progress struct {
	Ref         []byte
	ProgressRaw []byte // a number from 0 to 100 or an object, as it came
	Callback    []byte
	Source      []byte
}

// Progress reads a PROGRESS_UPDATE.
func (e *Envelope) Progress(p *Progress, s *Scratch) (f *Fault) {
	s.reset()
	*p = Progress{}
	if p.Ref, f = e.ref(s, true); f != nil {
		return f
	}
	v := e.Value(MemberProgress)
	if !v.present() {
		return &faults[MemberProgress].missing
	}
	p.ProgressRaw = v.raw(e.Msg)
	if v.Kind != KindObject && !isPercent(p.ProgressRaw) {
		return &faults[MemberProgress].wrong
	}
	p.Callback, p.Source, f = e.orphan(s)
	return f
}

// DeviceStatus holds the checked members of a DEVICE_STATUS; borrowed likewise.
type DeviceStatus struct {
	ClientID  []byte
	StatusRaw []byte // an object, as it came
}

// DeviceStatus reads a DEVICE_STATUS.
func (e *Envelope) DeviceStatus(d *DeviceStatus, s *Scratch) (f *Fault) {
	s.reset()
	*d = DeviceStatus{}
	if d.ClientID, f = e.id(MemberClientID, s, true); f != nil {
		return f
	}
	v := e.Value(MemberStatus)
	if !v.present() {
		return &faults[MemberStatus].missing
	}
	if v.Kind != KindObject {
		return faultStatusObject
	}
	d.StatusRaw = v.raw(e.Msg)
	return nil
}

var faultStatusObject = &Fault{CodeInvalidMessage, "status", "status " + ruleObject}

// ErrorMessage holds the checked members of an ERROR; borrowed likewise.
type ErrorMessage struct {
	Ref        []byte // nil where absent
	Code       []byte
	Message    []byte
	DetailsRaw []byte // any value, as it came
}

// ErrorMessage reads an ERROR, which an edge or device may send.
func (e *Envelope) ErrorMessage(m *ErrorMessage, s *Scratch) (f *Fault) {
	s.reset()
	*m = ErrorMessage{}
	if m.Ref, f = e.ref(s, false); f != nil {
		return f
	}
	if !e.Has(MemberCode) {
		return &faults[MemberCode].missing
	}
	if m.Code, f = e.text(MemberCode, s); f != nil {
		return f
	}
	if m.Message, f = e.text(MemberMessage, s); f != nil {
		return f
	}
	m.DetailsRaw = e.Raw(MemberDetails)
	return nil
}
