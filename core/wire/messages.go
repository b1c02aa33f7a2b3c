package wire

import "strconv"

// The messages of our own (PROTOCOL.md section 3), appended to the caller's
// slice without allocating.

// appendEnd appends the last members and the closing brace.
func appendEnd(dst []byte, now Time, version bool) []byte {
	dst = append(dst, `,"timestamp":`...)
	dst = appendQuotedTime(dst, now)
	if version {
		dst = append(dst, `,"version":"`+Version+`"`...)
	}
	return append(dst, '}')
}

// AppendRegisterAck appends a REGISTER_ACK. heartbeatMs is the interval of the
// server's pings.
func AppendRegisterAck[S ~string | ~[]byte](dst []byte, clientID S, clientType, sessionID string, epoch int64, heartbeatMs int, now Time) []byte {
	dst = append(dst, `{"type":"REGISTER_ACK","clientId":`...)
	dst = AppendString(dst, clientID)
	dst = append(dst, `,"clientType":`...)
	dst = AppendString(dst, clientType)
	dst = append(dst, `,"status":"REGISTERED","sessionId":`...)
	dst = AppendString(dst, sessionID)
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendInt(dst, epoch, 10)
	dst = append(dst, `,"heartbeatInterval":`...)
	dst = strconv.AppendInt(dst, int64(heartbeatMs), 10)
	return appendEnd(dst, now, true)
}

// AppendCommandAck appends the COMMAND_ACK of an accepted command.
func AppendCommandAck(dst, ref, target []byte, now Time) []byte {
	dst = append(dst, `{"type":"COMMAND_ACK","requestRef":`...)
	dst = AppendString(dst, ref)
	dst = append(dst, `,"targetClientId":`...)
	dst = AppendString(dst, target)
	dst = append(dst, `,"status":"PENDING"`...)
	return appendEnd(dst, now, false)
}

// AppendHeartbeatAck appends a HEARTBEAT_ACK.
func AppendHeartbeatAck(dst []byte, now Time) []byte {
	return appendEnd(append(dst, `{"type":"HEARTBEAT_ACK"`...), now, false)
}

// AppendError appends an ERROR. code is the word of a Code, or what a device
// sent as one; details is a JSON object or nil for none; ref is the requestRef
// it answers or nil for none.
func AppendError[C, M ~string | ~[]byte](dst []byte, code C, message M, details, ref []byte, now Time) []byte {
	dst = append(dst, `{"type":"ERROR","code":`...)
	dst = AppendString(dst, code)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, message)
	if len(details) > 0 {
		dst = append(dst, `,"details":`...)
		dst = append(dst, details...)
	}
	if len(ref) > 0 {
		dst = append(dst, `,"requestRef":`...)
		dst = AppendString(dst, ref)
	}
	return appendEnd(dst, now, false)
}

// AppendFault appends the ERROR that answers a message with a fault; ref is
// Envelope.Ref, nil for none.
func AppendFault(dst []byte, f *Fault, ref []byte, now Time) []byte {
	var room [160]byte
	return AppendError(dst, f.Code.String(), f.Text, f.AppendDetails(room[:0]), ref, now)
}

// AppendCancel appends the CANCEL that tells a device; target nil for none.
func AppendCancel(dst, ref, target []byte, now Time) []byte {
	dst = append(dst, `{"type":"CANCEL","requestRef":`...)
	dst = AppendString(dst, ref)
	if len(target) > 0 {
		dst = append(dst, `,"targetClientId":`...)
		dst = AppendString(dst, target)
	}
	return appendEnd(dst, now, true)
}

// ConnectionStatus is a CONNECTION_STATUS: strings that are empty and a LastSeen
// of zero are left out.
type ConnectionStatus struct {
	ClientID   string
	ClientType string // "EDGE" or "DEVICE"
	EdgeID     string
	Status     string // "ONLINE", "OFFLINE" or "PERMANENTLY_OFFLINE"
	Reason     string
	LastSeen   Time
	Devices    int // how many came or went with it; written for an EDGE only
}

// AppendConnectionStatus appends a CONNECTION_STATUS.
func AppendConnectionStatus(dst []byte, c *ConnectionStatus, now Time) []byte {
	dst = append(dst, `{"type":"CONNECTION_STATUS","clientId":`...)
	dst = AppendString(dst, c.ClientID)
	dst = append(dst, `,"clientType":`...)
	dst = AppendString(dst, c.ClientType)
	dst = appendText(dst, `,"edgeId":`, c.EdgeID)
	dst = append(dst, `,"status":`...)
	dst = AppendString(dst, c.Status)
	dst = appendText(dst, `,"reason":`, c.Reason)
	if c.LastSeen != 0 {
		dst = append(dst, `,"lastSeen":`...)
		dst = appendQuotedTime(dst, c.LastSeen)
	}
	if c.ClientType == "EDGE" {
		dst = append(dst, `,"devices":`...)
		dst = strconv.AppendInt(dst, int64(c.Devices), 10)
	}
	return appendEnd(dst, now, false)
}

func appendText(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return AppendString(append(dst, name...), text)
}
