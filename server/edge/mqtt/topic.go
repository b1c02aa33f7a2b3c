package mqtt

import (
	"strings"

	"subway/core/wire"
)

// kind is which of a device's topics it is.
type kind uint8

const (
	kindNone kind = iota
	kindCommand
	kindResponse
	kindProgress
	kindStatus
)

const prefix = "subway/"

// kindOf returns which topic of this device it is, kindNone where it is none, also for a
// filter with wildcards.
func kindOf(topic, id string) kind {
	rest, ok := strings.CutPrefix(topic, prefix)
	if !ok {
		return kindNone
	}
	if rest, ok = strings.CutPrefix(rest, id); !ok {
		return kindNone
	}
	switch rest {
	case "/command":
		return kindCommand
	case "/response":
		return kindResponse
	case "/progress":
		return kindProgress
	case "/status":
		return kindStatus
	}
	return kindNone
}

func commandTopic(id string) string { return prefix + id + "/command" }

// shaper makes messages of payloads. One goroutine uses it at a time.
type shaper struct {
	env wire.Envelope
	buf []byte
}

// message returns the message that a payload on a topic stands for: the payload itself
// where it has a `type`, else with the `type` of its topic. On the status topic an object
// without `type` whose `status` is no object is the status. The result is borrowed until
// the next call.
func (s *shaper) message(k kind, id string, payload []byte) []byte {
	_ = s.env.Scan(payload, wire.DefaultMaxDepth) // a fault is the edge's to tell
	end := s.env.Close()
	if end == 0 || s.env.Has(wire.MemberType) {
		return payload
	}
	switch k {
	case kindResponse:
		return s.add(payload, end, `"type":"COMMAND_RESPONSE"`)
	case kindProgress:
		return s.add(payload, end, `"type":"PROGRESS_UPDATE"`)
	}
	if s.env.Value(wire.MemberStatus).Kind == wire.KindObject {
		s.add(payload, end, `"type":"DEVICE_STATUS"`)
		if !s.env.Has(wire.MemberClientID) {
			s.buf = append(s.buf[:len(s.buf)-1], `,"clientId":`...)
			s.buf = append(wire.AppendString(s.buf, id), '}')
		}
		return s.buf
	}
	s.buf = append(s.buf[:0], `{"type":"DEVICE_STATUS","clientId":`...)
	s.buf = append(wire.AppendString(s.buf, id), `,"status":`...)
	s.buf = append(append(s.buf, payload...), '}')
	return s.buf
}

// add puts members at the end of an object, whose last brace is at end.
func (s *shaper) add(object []byte, end int, members string) []byte {
	s.buf = append(s.buf[:0], object[:end]...)
	last := end - 1
	for object[last] <= ' ' {
		last--
	}
	if object[last] != '{' {
		s.buf = append(s.buf, ',')
	}
	s.buf = append(append(s.buf, members...), '}')
	return s.buf
}

// shrink lets a large buffer go: one long message is no reason to keep a megabyte.
func (s *shaper) shrink() {
	s.env.Msg = nil
	if cap(s.buf) > 16<<10 {
		s.buf = nil
	}
}
