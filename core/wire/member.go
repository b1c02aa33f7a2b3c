package wire

// Type is the `type` of a message (PROTOCOL.md section 3).
type Type uint8

// The types. Those up to TypeError are what a Gateway reads (a Gateway answers
// the others with INVALID_MESSAGE, see ToGateway); clients read both.
const (
	TypeUnknown Type = iota
	TypeRegister
	TypeUnregister
	TypeCommand
	TypeCommandResponse
	TypeProgressUpdate
	TypeCancel
	TypeDeviceStatus
	TypeHeartbeat
	TypeError
	TypeRegisterAck
	TypeCommandAck
	TypeConnectionStatus
	TypeHeartbeatAck
	numTypes
)

var typeWords = [numTypes]string{
	TypeUnknown:          "UNKNOWN",
	TypeRegister:         "REGISTER",
	TypeUnregister:       "UNREGISTER",
	TypeCommand:          "COMMAND",
	TypeCommandResponse:  "COMMAND_RESPONSE",
	TypeProgressUpdate:   "PROGRESS_UPDATE",
	TypeCancel:           "CANCEL",
	TypeDeviceStatus:     "DEVICE_STATUS",
	TypeHeartbeat:        "HEARTBEAT",
	TypeError:            "ERROR",
	TypeRegisterAck:      "REGISTER_ACK",
	TypeCommandAck:       "COMMAND_ACK",
	TypeConnectionStatus: "CONNECTION_STATUS",
	TypeHeartbeatAck:     "HEARTBEAT_ACK",
}

// String returns the type's word on the wire, "REGISTER".
func (t Type) String() string {
	if t >= numTypes {
		t = TypeUnknown
	}
	return typeWords[t]
}

// ToGateway reports whether a Gateway reads this type; the others go from a
// server to its clients only, and are no known type to a Gateway.
func (t Type) ToGateway() bool { return t != TypeUnknown && t <= TypeError }

func parseType(b []byte) Type {
	switch string(b) {
	case "COMMAND":
		return TypeCommand
	case "COMMAND_RESPONSE":
		return TypeCommandResponse
	case "PROGRESS_UPDATE":
		return TypeProgressUpdate
	case "DEVICE_STATUS":
		return TypeDeviceStatus
	case "HEARTBEAT":
		return TypeHeartbeat
	case "REGISTER":
		return TypeRegister
	case "UNREGISTER":
		return TypeUnregister
	case "CANCEL":
		return TypeCancel
	case "ERROR":
		return TypeError
	case "REGISTER_ACK":
		return TypeRegisterAck
	case "COMMAND_ACK":
		return TypeCommandAck
	case "CONNECTION_STATUS":
		return TypeConnectionStatus
	case "HEARTBEAT_ACK":
		return TypeHeartbeatAck
	}
	return TypeUnknown
}

// Member is a top-level member that PROTOCOL.md section 3 names.
type Member uint8

// The members, by the message that names them first.
const (
	MemberType Member = iota
	MemberVersion
	MemberTimestamp
	MemberRequestRef
	MemberTargetClientID
	MemberSourceClientID
	MemberCommand
	MemberPriority
	MemberTimeout
	MemberCallback
	MemberWhenOffline
	MemberAck
	MemberClientID
	MemberClientType
	MemberEdgeInfo
	MemberDeviceInfo
	MemberDevices
	MemberCapabilities
	MemberToken
	MemberStatus
	MemberResult
	MemberError
	MemberExecutionTime
	MemberProgress
	MemberStage
	MemberMessage
	MemberCode
	MemberDetails
	MemberSessionID
	MemberEpoch
	MemberHeartbeatInterval
	MemberEdgeID
	MemberReason
	MemberLastSeen
	numMembers // at most 64: sets of members are bit masks
)

var memberNames = [numMembers]string{
	MemberType:              "type",
	MemberVersion:           "version",
	MemberTimestamp:         "timestamp",
	MemberRequestRef:        "requestRef",
	MemberTargetClientID:    "targetClientId",
	MemberSourceClientID:    "sourceClientId",
	MemberCommand:           "command",
	MemberPriority:          "priority",
	MemberTimeout:           "timeout",
	MemberCallback:          "callback",
	MemberWhenOffline:       "whenOffline",
	MemberAck:               "ack",
	MemberClientID:          "clientId",
	MemberClientType:        "clientType",
	MemberEdgeInfo:          "edgeInfo",
	MemberDeviceInfo:        "deviceInfo",
	MemberDevices:           "devices",
	MemberCapabilities:      "capabilities",
	MemberToken:             "token",
	MemberStatus:            "status",
	MemberResult:            "result",
	MemberError:             "error",
	MemberExecutionTime:     "executionTime",
	MemberProgress:          "progress",
	MemberStage:             "stage",
	MemberMessage:           "message",
	MemberCode:              "code",
	MemberDetails:           "details",
	MemberSessionID:         "sessionId",
	MemberEpoch:             "epoch",
	MemberHeartbeatInterval: "heartbeatInterval",
	MemberEdgeID:            "edgeId",
	MemberReason:            "reason",
	MemberLastSeen:          "lastSeen",
}

const longestName = len("heartbeatInterval")

// Name returns the member's name on the wire, "targetClientId".
func (m Member) Name() string {
	if m >= numMembers {
		return ""
	}
	return memberNames[m]
}

// parseMember returns numMembers for a name that PROTOCOL.md does not name.
// The compiler turns the switch into comparisons by length, then by content.
func parseMember(name []byte) Member {
	switch string(name) {
	case "type":
		return MemberType
	case "version":
		return MemberVersion
	case "timestamp":
		return MemberTimestamp
	case "requestRef":
		return MemberRequestRef
	case "targetClientId":
		return MemberTargetClientID
	case "sourceClientId":
		return MemberSourceClientID
	case "command":
		return MemberCommand
	case "priority":
		return MemberPriority
	case "timeout":
		return MemberTimeout
	case "callback":
		return MemberCallback
	case "whenOffline":
		return MemberWhenOffline
	case "ack":
		return MemberAck
	case "clientId":
		return MemberClientID
	case "clientType":
		return MemberClientType
	case "edgeInfo":
		return MemberEdgeInfo
	case "deviceInfo":
		return MemberDeviceInfo
	case "devices":
		return MemberDevices
	case "capabilities":
		return MemberCapabilities
	case "token":
		return MemberToken
	case "status":
		return MemberStatus
	case "result":
		return MemberResult
	case "error":
		return MemberError
	case "executionTime":
		return MemberExecutionTime
	case "progress":
		return MemberProgress
	case "stage":
		return MemberStage
	case "message":
		return MemberMessage
	case "code":
		return MemberCode
	case "details":
		return MemberDetails
	case "sessionId":
		return MemberSessionID
	case "epoch":
		return MemberEpoch
	case "heartbeatInterval":
		return MemberHeartbeatInterval
	case "edgeId":
		return MemberEdgeID
	case "reason":
		return MemberReason
	case "lastSeen":
		return MemberLastSeen
	}
	return numMembers
}

func set(ms ...Member) (mask uint64) {
	for _, m := range ms {
		mask |= 1 << m
	}
	return mask
}

// named holds the members that PROTOCOL.md names for a message: one of these
// that stands twice makes the message invalid.
var named = func() (t [numTypes]uint64) {
	t[TypeRegister] = set(MemberClientID, MemberClientType, MemberEdgeInfo, MemberDeviceInfo, MemberToken, MemberDevices, MemberCapabilities)
	t[TypeUnregister] = set(MemberClientID)
	t[TypeCommand] = set(MemberTargetClientID, MemberSourceClientID, MemberCommand, MemberPriority, MemberTimeout, MemberCallback, MemberWhenOffline, MemberAck)
	t[TypeCommandResponse] = set(MemberStatus, MemberResult, MemberExecutionTime, MemberError, MemberCallback, MemberSourceClientID)
	t[TypeProgressUpdate] = set(MemberProgress, MemberStage, MemberMessage, MemberCallback, MemberSourceClientID)
	t[TypeCancel] = set(MemberTargetClientID)
	t[TypeDeviceStatus] = set(MemberClientID, MemberStatus)
	t[TypeError] = set(MemberCode, MemberMessage, MemberDetails)
	t[TypeRegisterAck] = set(MemberClientID, MemberClientType, MemberStatus, MemberSessionID, MemberEpoch, MemberHeartbeatInterval)
	t[TypeCommandAck] = set(MemberTargetClientID, MemberStatus)
	t[TypeConnectionStatus] = set(MemberClientID, MemberClientType, MemberEdgeID, MemberStatus, MemberReason, MemberLastSeen, MemberDevices)
	for i := range t {
		t[i] |= set(MemberType, MemberVersion, MemberTimestamp, MemberRequestRef)
	}
	return t
}()
