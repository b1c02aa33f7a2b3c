package wire

// ClientType is the `clientType` of a REGISTER.
type ClientType uint8

// The client types. ClientNone is no client type: a connection not registered.
const (
	ClientNone ClientType = iota
	ClientBackend
	ClientEdge
	ClientDevice
)

// String returns the word on the wire, "BACKEND", and "" for ClientNone.
func (t ClientType) String() string {
	switch t {
	case ClientBackend:
		return "BACKEND"
	case ClientEdge:
		return "EDGE"
	case ClientDevice:
		return "DEVICE"
	}
	return ""
}

// ParseClientType reads BACKEND, EDGE or DEVICE.
func ParseClientType(word []byte) (ClientType, bool) {
	switch string(word) {
	case "BACKEND":
		return ClientBackend, true
	case "EDGE":
		return ClientEdge, true
	case "DEVICE":
		return ClientDevice, true
	}
	return ClientNone, false
}

// Register holds the checked members of a REGISTER (PROTOCOL.md section 3); the
// slices are nil where absent, and borrowed from the message or the Scratch.
type Register struct {
	ClientID      []byte
	ClientType    ClientType
	HasEdge       bool // edgeInfo is there; of a DEVICE it then has an edgeId
	EdgeID        []byte
	EdgeVersion   []byte
	DeviceInfoRaw []byte // an object, as it came
	Token         []byte
	Dedupe        bool // capabilities has "dedupe"
	HasDevices    bool // an EDGE's snapshot, see EachDevice; may be empty
	DeviceCount   int  // its entries
}

// Register reads a REGISTER. Where it returns nil, every entry of `devices` is
// good, so that a snapshot is applied as a whole or not at all.
func (e *Envelope) Register(r *Register, s *Scratch) (f *Fault) {
	s.reset()
	*r = Register{}
	if r.ClientID, f = e.id(MemberClientID, s, true); f != nil {
		return f
	}
	v := e.Value(MemberClientType)
	if !v.present() {
		return &faults[MemberClientType].missing
	}
	var tmp [6 * longestWord]byte
	var ok bool
	if r.ClientType, ok = ParseClientType(wordOf(e.Msg, v, &tmp)); !ok {
		return &faults[MemberClientType].wrong
	}
	if f = e.edgeInfo(r, s); f != nil {
		return f
	}
	if v := e.Value(MemberDeviceInfo); v.present() {
		if v.Kind != KindObject {
			return &faults[MemberDeviceInfo].wrong
		}
		r.DeviceInfoRaw = v.raw(e.Msg)
	}
	if r.Token, f = e.text(MemberToken, s); f != nil {
		return f
	}
	if r.Dedupe, f = e.dedupe(); f != nil {
		return f
	}
	n, f := e.countDevices()
	if f == nil && r.ClientType == ClientEdge {
		r.HasDevices, r.DeviceCount = e.Has(MemberDevices), n
	}
	return f
}

// edgeInfo reads edgeInfo and what it holds.
func (e *Envelope) edgeInfo(r *Register, s *Scratch) *Fault {
	v := e.Value(MemberEdgeInfo)
	if !v.present() {
		return nil
	}
	if v.Kind != KindObject {
		return &faults[MemberEdgeInfo].wrong
	}
	r.HasEdge = true
	if v := e.inner[innerEdgeID]; v.present() || r.ClientType == ClientDevice {
		var ok bool
		if r.EdgeID, ok = s.id(e.Msg, v); !ok {
			return faultEdgeID
		}
	}
	if v := e.inner[innerEdgeVersion]; v.present() {
		if v.Kind != KindString {
			return faultEdgeVersion
		}
		r.EdgeVersion = s.str(e.Msg, v)
	}
	return nil
}

// dedupe reads capabilities, an array of strings.
func (e *Envelope) dedupe() (found bool, f *Fault) {
	v := e.Value(MemberCapabilities)
	if !v.present() {
		return false, nil
	}
	if v.Kind != KindArray {
		return false, &faults[MemberCapabilities].wrong
	}
	var tmp [6 * longestWord]byte
	for i, item := firstItem(e.Msg, v); i >= 0; i, item = nextItem(e.Msg, i) {
		if item.Kind != KindString {
			return false, &faults[MemberCapabilities].wrong
		}
		if string(wordOf(e.Msg, item, &tmp)) == "dedupe" {
			found = true
		}
	}
	return found, nil
}

// countDevices checks every entry of `devices` and counts them.
func (e *Envelope) countDevices() (n int, f *Fault) {
	v := e.Value(MemberDevices)
	if !v.present() {
		return 0, nil
	}
	if v.Kind != KindArray {
		return 0, &faults[MemberDevices].wrong
	}
	var tmp [6 * MaxIDBytes]byte
	for i, item := firstItem(e.Msg, v); i >= 0; i, item = nextItem(e.Msg, i) {
		if _, _, ok := device(e.Msg, item, tmp[:]); !ok {
			return 0, &faults[MemberDevices].wrong
		}
		n++
	}
	return n, nil
}

// EachDevice calls fn for each entry of `devices` in order, with the id and the
// deviceInfo (an object as it came, or nil), until fn returns false. id is valid
// during the call only. An entry that is not good ends it with a fault; after a
// Register that returned nil there is none. It allocates nothing per entry.
func (e *Envelope) EachDevice(fn func(id, deviceInfo []byte) bool) *Fault {
	v := e.Value(MemberDevices)
	if v.Kind != KindArray {
		return nil
	}
	var tmp []byte
	for i, item := firstItem(e.Msg, v); i >= 0; i, item = nextItem(e.Msg, i) {
		if tmp == nil && (item.Escaped || item.Kind == KindObject) {
			tmp = make([]byte, 0, 6*MaxIDBytes)
		}
		id, about, ok := device(e.Msg, item, tmp)
		if !ok {
			return &faults[MemberDevices].wrong
		}
		if !fn(id, about) {
			return nil
		}
	}
	return nil
}

// device reads an entry of `devices`: an id, or {"clientId","deviceInfo"}.
func device(b []byte, v Value, tmp []byte) (id, about []byte, ok bool) {
	if v.Kind == KindObject {
		o := object{k: &unmarked, b: b, i: int(v.Off), max: MaxDepth}
		v = Value{}
		var name [6 * longestName]byte
		var info Value
		for o.next() {
			m := parseMember(o.name(name[:]))
			o.skip()
			switch m {
			case MemberClientID:
				v = o.val
			case MemberDeviceInfo:
				info = o.val
			}
		}
		if info.present() {
			if info.Kind != KindObject {
				return nil, nil, false
			}
			about = info.raw(b)
		}
	}
	if v.Kind != KindString || v.End-v.Off-2 > 6*MaxIDBytes {
		return nil, nil, false
	}
	if id = v.inner(b); v.Escaped {
		id = decode(tmp[:0], id)
	}
	return id, about, ValidID(id)
}

// firstItem begins a walk over an array that a scan has passed as valid. next
// is negative at its end, else where nextItem goes on.
func firstItem(b []byte, array Value) (next int, item Value) {
	return itemAt(b, skipSpace(b, int(array.Off)+1))
}

// nextItem goes on after an item.
func nextItem(b []byte, i int) (next int, item Value) {
	if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
		return notJSON, item
	}
	return itemAt(b, skipSpace(b, i+1))
}

func itemAt(b []byte, i int) (next int, item Value) {
	if i >= len(b) || b[i] == ']' {
		return notJSON, item
	}
	item, next = skipValue(&unmarked, b, i, 0, MaxDepth)
	return next, item
}

// ClientID reads a required clientId: all that an UNREGISTER holds.
func (e *Envelope) ClientID(s *Scratch) (clientID []byte, f *Fault) {
	s.reset()
	return e.id(MemberClientID, s, true)
}
