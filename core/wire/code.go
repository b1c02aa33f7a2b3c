package wire

// Code is one of the error codes of PROTOCOL.md section 3.
type Code uint8

// The error codes. CodeInvalidMessage is a WebSocket's word for what HTTP calls
// CodeInvalidRequest.
const (
	CodeInvalidMessage Code = iota
	CodeInvalidRequest
	CodeUnsupportedVersion
	CodeUnauthorized
	CodeForbidden
	CodeNotRegistered
	CodeTargetNotFound
	CodeCommandNotFound
	CodeNotFound
	CodeMethodNotAllowed
	CodeDuplicateRequest
	CodeAlreadyEnded
	CodePayloadTooLarge
	CodeRateLimited
	CodeEdgeUnavailable
	CodeOverloaded
	CodeGatewayUnavailable
	CodeDeviceNotFound
	CodeConnectionLost
	CodeTimeout
	CodeCancelled
	CodeInternal
	numCodes
)

var codes = [numCodes]struct {
	word   string
	status int
}{
	CodeInvalidMessage:     {"INVALID_MESSAGE", 400},
	CodeInvalidRequest:     {"INVALID_REQUEST", 400},
	CodeUnsupportedVersion: {"UNSUPPORTED_VERSION", 400},
	CodeUnauthorized:       {"UNAUTHORIZED", 401},
	CodeForbidden:          {"FORBIDDEN", 403},
	CodeNotRegistered:      {"NOT_REGISTERED", 0},
	CodeTargetNotFound:     {"TARGET_NOT_FOUND", 404},
	CodeCommandNotFound:    {"COMMAND_NOT_FOUND", 404},
	CodeNotFound:           {"NOT_FOUND", 404},
	CodeMethodNotAllowed:   {"METHOD_NOT_ALLOWED", 405},
	CodeDuplicateRequest:   {"DUPLICATE_REQUEST", 409},
	CodeAlreadyEnded:       {"ALREADY_ENDED", 409},
	CodePayloadTooLarge:    {"PAYLOAD_TOO_LARGE", 413},
	CodeRateLimited:        {"RATE_LIMITED", 429},
	CodeEdgeUnavailable:    {"EDGE_UNAVAILABLE", 503},
	CodeOverloaded:         {"OVERLOADED", 503},
	CodeGatewayUnavailable: {"GATEWAY_UNAVAILABLE", 503},
	CodeDeviceNotFound:     {"DEVICE_NOT_FOUND", 0},
	CodeConnectionLost:     {"CONNECTION_LOST", 0},
	CodeTimeout:            {"TIMEOUT", 0},
	CodeCancelled:          {"CANCELLED", 0},
	CodeInternal:           {"INTERNAL", 500},
}

// String returns the code's word on the wire, "INVALID_MESSAGE".
func (c Code) String() string {
	if c >= numCodes {
		return "INTERNAL"
	}
	return codes[c].word
}

// HTTPStatus returns the status that PROTOCOL.md section 3 gives the code, or 0
// where it never answers an HTTP request by itself.
func (c Code) HTTPStatus() int {
	if c >= numCodes {
		return 500
	}
	return codes[c].status
}

// Fault says what is wrong with a message or a body. Faults of WebSocket
// messages are shared and preallocated: treat them as read-only.
type Fault struct {
	Code  Code
	Field string // details.field: the member at fault, nested with a dot; "" where there is none
	Text  string // for the `message` of an ERROR, or the `error` of an HTTP answer
}

// Error implements error.
func (f *Fault) Error() string { return f.Code.String() + ": " + f.Text }

// AppendDetails appends {"field":"..."}, the `details` of the fault, or nothing
// where no member is at fault.
func (f *Fault) AppendDetails(dst []byte) []byte {
	if f.Field == "" {
		return dst
	}
	dst = append(dst, `{"field":`...)
	dst = AppendString(dst, f.Field)
	return append(dst, '}')
}

var (
	faultSyntax  = &Fault{CodeInvalidMessage, "", "message is not a JSON object"}
	faultDepth   = &Fault{CodeInvalidMessage, "", "message is nested too deeply"}
	faultSize    = &Fault{CodeInvalidMessage, "", "message is too large"}
	faultUTF8    = &Fault{CodeInvalidMessage, "", "message is not valid UTF-8"}
	faultType    = &Fault{CodeInvalidMessage, "type", "message has no known type"}
	faultMajor   = &Fault{CodeUnsupportedVersion, "version", "protocol version is not supported"}
	faultVersion = &Fault{CodeInvalidMessage, "version", "version must be a string like 1.0"}
	faultRef     = &Fault{CodeInvalidMessage, "requestRef", "requestRef must be 1 to 128 printable characters without spaces"}
)

// FaultUTF8 is the fault of a binary message that is not valid UTF-8
// (PROTOCOL.md section 2; a text message closes the connection instead).
func FaultUTF8() *Fault { return faultUTF8 }

// Faults of one member, preallocated so that a flood of bad messages costs no
// memory: twice (it stands twice), missing, and wrong (its kind or value).
var faults = func() (t [numMembers]struct{ twice, missing, wrong Fault }) {
	for m := range numMembers {
		name := m.Name()
		t[m].twice = Fault{CodeInvalidMessage, name, name + " stands twice"}
		t[m].missing = Fault{CodeInvalidMessage, name, name + " is required"}
		t[m].wrong = Fault{CodeInvalidMessage, name, name + " " + rules[m]}
		if rules[m] == "" {
			t[m].wrong.Text = name + " is of the wrong kind"
		}
	}
	return t
}()

// rules completes "timeout ..." for the message of a fault.
var rules = [numMembers]string{
	MemberRequestRef:     "must be 1 to 128 printable characters without spaces",
	MemberTargetClientID: ruleID,
	MemberSourceClientID: ruleString,
	MemberCommand:        ruleObject,
	MemberPriority:       "must be LOW, NORMAL or HIGH",
	MemberTimeout:        "must be an integer of milliseconds from 1 to 86400000",
	MemberCallback:       "must be a string that is not empty",
	MemberWhenOffline:    "must be REJECT or QUEUE",
	MemberAck:            "must be true or false",
	MemberClientID:       ruleID,
	MemberClientType:     "must be BACKEND, EDGE or DEVICE",
	MemberEdgeInfo:       ruleObject,
	MemberDeviceInfo:     ruleObject,
	MemberDevices:        "must be an array of ids or of objects with a clientId",
	MemberCapabilities:   "must be an array of strings",
	MemberToken:          ruleString,
	MemberError:          ruleObject,
	MemberExecutionTime:  "must be a number of milliseconds",
	MemberProgress:       "must be a number from 0 to 100 or an object",
	MemberMessage:        ruleString,
	MemberCode:           ruleString,
}

const (
	ruleID     = "must be 1 to 128 of A-Z a-z 0-9 . _ : -"
	ruleString = "must be a string"
	ruleObject = "must be an object"
)

var (
	faultCommandType      = &Fault{CodeInvalidMessage, "command.commandType", "command.commandType must be a string that is not empty"}
	faultCommandTypeTwice = &Fault{CodeInvalidMessage, "command.commandType", "command.commandType stands twice"}
	faultEdgeID           = &Fault{CodeInvalidMessage, "edgeInfo.edgeId", "edgeInfo.edgeId " + ruleID}
	faultEdgeIDTwice      = &Fault{CodeInvalidMessage, "edgeInfo.edgeId", "edgeInfo.edgeId stands twice"}
	faultEdgeVersion      = &Fault{CodeInvalidMessage, "edgeInfo.edgeVersion", "edgeInfo.edgeVersion " + ruleString}
)
