package router

import (
	"encoding/binary"
	"fmt"
	"time"
)

var kindNames = map[byte]string{
	kindAccepted: "accepted", kindHanded: "handed", kindDeadline: "deadline", kindVoid: "refused", kindEnded: "ended",
	kindEdge: "edge", kindForget: "forgotten", kindRoutes: "routes", kindUnroute: "unrouted",
}

// Describe names the kind of a record that a Router journalled, and says in a line, for
// people, what it is about; "" for what is none or makes no sense.
func Describe(kind byte, rec []byte) (name, line string) {
	name = kindNames[kind]
	if name == "" {
		return "", ""
	}
	x := newRestoring()
	switch kind {
	case kindAccepted:
		if x.accepted(rec) != nil {
			return name, ""
		}
		for ref, o := range x.open {
			state := Pending
			if o.progressed != 0 {
				state = InProgress
			} else if o.handed != 0 {
				state = Dispatched
			}
			line = fmt.Sprintf("%s to %s at edge %s, %s, until %s", ref, o.target, o.edge, state, clockOf(int64(o.deadline)))
		}
	case kindHanded, kindDeadline:
		at := map[byte]int{kindHanded: 10, kindDeadline: 16}[kind]
		if kind == kindHanded && len(rec) > 9 {
			at += int(rec[9])
		}
		if len(rec) > at {
			line = string(rec[at:])
		}
	case kindVoid, kindUnroute:
		line = string(rec)
	case kindEnded:
		if checkPast(rec) == nil {
			line = fmt.Sprintf("%s to %s, %s at %s", rec[pastHead:pastHead+int(rec[pastRef])], pastTargetOf(rec),
				State(rec[pastState]), clockOf(int64(binary.LittleEndian.Uint64(rec[pastEnded:]))))
		}
	case kindForget:
		if len(rec) > 1 {
			line = string(rec[1:])
		}
	case kindEdge:
		if len(rec) > edgeHead && len(rec) >= edgeHead+int(rec[17]) {
			line = string(rec[edgeHead : edgeHead+int(rec[17])])
		}
	case kindRoutes:
		if len(rec) > 2 && len(rec) >= 2+int(rec[1]) {
			n := 0
			for b := rec[2+int(rec[1]):]; len(b) > 0 && len(b) > int(b[0]); n++ {
				b = b[1+int(b[0]):]
			}
			line = fmt.Sprintf("%d devices to edge %s", n, rec[2:2+int(rec[1])])
		}
	}
	return name, line
}

func clockOf(nanos int64) string {
	return time.Unix(0, nanos).UTC().Format("2006-01-02T15:04:05.000Z")
}
