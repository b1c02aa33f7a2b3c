package callback

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"subway/core/wire"
)

// bodySize is an upper bound of what appendBody appends, but for text that needs
// escapes.
func bodySize(n *Notice) int {
	const members = len(`{"requestRef":"","status":"","result":,"timestamp":"2024-01-20T10:00:00.000Z",` +
		`"executionTime":,"type":"","targetClientId":"","error":,"progress":}`)
	return members + len(n.Ref) + len(n.Status) + len(n.Result) + len(n.Timestamp) + len(n.ExecutionTime) +
		len(n.Type) + len(n.Target) + len(n.Error) + len(n.Progress)
}

// appendBody appends the callback's body (PROTOCOL.md section 7).
func appendBody(dst []byte, n *Notice) []byte {
	dst = append(dst, `{"requestRef":`...)
	dst = wire.AppendString(dst, n.Ref)
	dst = appendText(dst, `,"status":`, n.Status)
	dst = appendJSON(dst, `,"result":`, n.Result)
	if n.Timestamp != nil {
		dst = appendText(dst, `,"timestamp":`, n.Timestamp)
	} else {
		dst = append(dst, `,"timestamp":"`...)
		dst = append(wire.AppendTime(dst, n.Now), '"')
	}
	dst = appendJSON(dst, `,"executionTime":`, n.ExecutionTime)
	dst = append(dst, `,"type":`...)
	dst = wire.AppendString(dst, n.Type)
	dst = appendText(dst, `,"targetClientId":`, n.Target)
	dst = appendJSON(dst, `,"error":`, n.Error)
	dst = appendJSON(dst, `,"progress":`, n.Progress)
	return append(dst, '}')
}

func appendText(dst []byte, name string, text []byte) []byte {
	if text == nil {
		return dst
	}
	return wire.AppendString(append(dst, name...), text)
}

func appendJSON(dst []byte, name string, raw []byte) []byte {
	if raw == nil {
		return dst
	}
	return append(append(dst, name...), raw...)
}

// finalID is the X-Callback-Id of a request's final notice: made of the ref alone, so
// that it is the same after a restart.
func finalID(ref []byte) [idLen]byte {
	var buf [160]byte
	sum := sha256.Sum256(append(append(buf[:0], "subway callback "...), ref...))
	var id [idLen]byte
	copy(id[:], "cb-")
	hex.Encode(id[3:], sum[:16])
	return id
}

const idLen = 3 + 32

// appendID appends a notice's X-Callback-Id. A progress has the final one's with a part
// of its own: the Outbox's random name, for restarts, and a number.
func (o *Outbox) appendID(dst []byte, n *notice) []byte {
	id := finalID(n.ref())
	dst = append(dst, id[:]...)
	if n.final {
		return dst
	}
	dst = append(append(append(dst, '-'), o.boot...), '-')
	return strconv.AppendUint(dst, n.serial, 10)
}

func bootID() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
