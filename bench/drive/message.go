package drive

import (
	"bytes"
	"fmt"
)

const (
	targetPattern = "td-000000" // td-{edge 2}{device 4}
	targetSize    = len(targetPattern)
	routePattern  = `{"r":"00-00",` // what the floor routes by
	routeEdgeAt   = 6
	routeSourceAt = 9
	refMember     = `"requestRef":"`
)

// Largest numbers that the fixed-width digits hold.
const (
	edgesMax    = 100
	backendsMax = 100
	devicesMax  = 10_000
)

// payload returns a JSON value of exactly n bytes (at least the 2 of an empty string): a string ("text"), or an array of small
// objects and a string that fills it up ("json", from 16 bytes on).
func payload(kind string, n int) []byte {
	n = max(n, 2)
	out := make([]byte, 0, n)
	if kind == "json" && n >= 16 {
		out = append(out, '[')
		for id := 1001; ; id++ {
			record := fmt.Sprintf(`{"id":%d,"name":"item-%d","on":true,"level":12.5},`, id, id)
			if len(out)+len(record)+len(`""]`) > n {
				break
			}
			out = append(out, record...)
		}
		return append(filled(out, n-len(`"]`)), `"]`...)
	}
	return append(filled(out, n-1), '"')
}

// filled opens a string and fills it with letters up to n bytes in all.
func filled(out []byte, n int) []byte {
	const letters = "the quick brown fox jumps over the lazy dog "
	out = append(out, '"')
	for i := 0; len(out) < n; i++ {
		out = append(out, letters[i%len(letters)])
	}
	return out
}

// commandText and responseText are what a Backend and a Device send; the floor's carry the route as a first member.
func commandText(floor bool, payload []byte) []byte {
	return fmt.Appendf(nil, `%s"type":"COMMAND",%s%s","targetClientId":"%s","command":{"commandType":"SHOW","data":%s},`+
		`"priority":"NORMAL","timeout":30000,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"}`,
		opening(floor), refMember, refPattern, targetPattern, payload)
}

func responseText(floor bool, payload []byte) []byte {
	return fmt.Appendf(nil, `%s"type":"COMMAND_RESPONSE",%s%s","status":"COMPLETED","result":{"data":%s},`+
		`"executionTime":1,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"}`,
		opening(floor), refMember, refPattern, payload)
}

func opening(floor bool) string {
	if floor {
		return routePattern
	}
	return "{"
}

// template is ready bytes and where the parts that change stand in them; -1: it has no such part.
type template struct {
	bytes                    []byte
	refAt, targetAt, routeAt int
}

func newTemplate(b []byte) template {
	return template{
		bytes:    b,
		refAt:    bytes.Index(b, []byte(refPattern)),
		targetAt: bytes.Index(b, []byte(targetPattern)),
		routeAt:  bytes.Index(b, []byte(routePattern)),
	}
}

// framed returns the template as a client frame.
func (t template) framed() template { return newTemplate(appendFrame(nil, opText, t.bytes)) }

// setRoute fixes the numbers the floor routes by. Before setRef: it looks for nothing.
func (t template) setRoute(edge, source int) {
	if t.routeAt >= 0 {
		putDigits(t.bytes[t.routeAt+routeEdgeAt:][:2], uint64(edge))
		putDigits(t.bytes[t.routeAt+routeSourceAt:][:2], uint64(source))
	}
}

func (t template) setRef(ref []byte) { copy(t.bytes[t.refAt:], ref) }

// putTarget writes the device's id over pattern bytes.
func putTarget(b []byte, edge, device int) {
	putDigits(b[3:5], uint64(edge))
	putDigits(b[5:9], uint64(device))
}

// matches reports whether msg is the template but for its route and its ref.
func (t template) matches(msg []byte) bool {
	after := t.refAt + refSize
	from := 0
	if t.routeAt >= 0 {
		from = t.routeAt + len(routePattern)
	}
	return len(msg) == len(t.bytes) &&
		string(msg[from:t.refAt]) == string(t.bytes[from:t.refAt]) && string(msg[after:]) == string(t.bytes[after:])
}

// findRef returns the value of requestRef in msg: at the place where the template has it, else wherever it stands.
func (t template) findRef(msg []byte) []byte {
	at := t.refAt
	if len(msg) < at+refSize || string(msg[at-len(refMember):at]) != refMember {
		if at = bytes.Index(msg, []byte(refMember)); at < 0 {
			return nil
		}
		at += len(refMember)
	}
	end := bytes.IndexByte(msg[at:], '"')
	if end < 0 {
		return nil
	}
	return msg[at : at+end]
}
