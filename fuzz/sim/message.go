package sim

import (
	"bytes"
	"strconv"

	"subway/core/wire"
)

// message is a message between a party and the gateway as both of them read it.
type message struct {
	raw      []byte
	kind     wire.Type
	ref      string
	id       string // clientId
	target   string
	source   string
	callback string
	word     string // the status of an answer or a CONNECTION_STATUS, the code of an ERROR, the progress of a PROGRESS_UPDATE
	stage    string // details.stage of an ERROR
	result   string // of a COMMAND_RESPONSE
	epoch    int64
	register wire.Register // borrowed from raw
	command  wire.Command  // likewise
	devices  []string      // of a REGISTER
}

// reader reads messages; the strict scanner is the core's own, which has fuzz targets and
// oracles of its own.
type reader struct {
	env     wire.Envelope
	scratch wire.Scratch
}

// read returns what a message holds, or nil where it is none.
func (r *reader) read(raw []byte) *message {
	m := &message{raw: raw}
	if r.env.Scan(raw, wire.DefaultMaxDepth) != nil {
		return nil
	}
	m.kind = r.env.Type
	m.ref, m.id = r.text(wire.MemberRequestRef), r.text(wire.MemberClientID)
	m.target, m.source, m.callback = r.text(wire.MemberTargetClientID), r.text(wire.MemberSourceClientID), r.text(wire.MemberCallback)
	switch m.kind {
	case wire.TypeRegister:
		if r.env.Register(&m.register, &r.scratch) != nil {
			return nil
		}
		r.env.EachDevice(func(id, _ []byte) bool {
			m.devices = append(m.devices, string(id))
			return true
		})
	case wire.TypeCommand:
		if r.env.Command(&m.command, &r.scratch) != nil {
			return nil
		}
	case wire.TypeError:
		m.word, m.stage = r.text(wire.MemberCode), stageOf(r.env.Raw(wire.MemberDetails))
	case wire.TypeProgressUpdate:
		m.word = string(r.env.Raw(wire.MemberProgress))
	case wire.TypeRegisterAck:
		m.epoch, _ = strconv.ParseInt(string(r.env.Raw(wire.MemberEpoch)), 10, 64)
	default:
		m.word, m.result = r.text(wire.MemberStatus), string(r.env.Raw(wire.MemberResult))
	}
	return m
}

func (r *reader) text(m wire.Member) string {
	s, _ := r.env.Str(m, nil)
	return string(s)
}

// stageOf returns the stage in the details of an error.
func stageOf(details []byte) string {
	_, rest, ok := bytes.Cut(details, []byte(`"stage":"`))
	if !ok {
		return ""
	}
	stage, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(stage)
}
