package wire

import (
	"strconv"

	"github.com/mailru/easyjson"
	"github.com/mailru/easyjson/jwriter"
)

//go:generate go tool easyjson -no_std_marshalers api.go

// The answers of the HTTP API (PROTOCOL.md section 6). Members without a value
// are left out. A RawMessage holds JSON as it came and is written byte for byte;
// it is borrowed.

// CommandAnswer answers POST /api/commands, and DELETE with a status.
//
//easyjson:json
type CommandAnswer struct {
	Success    bool   `json:"success"`
	RequestRef string `json:"requestRef"`
	Message    string `json:"message,omitempty"`
	Status     string `json:"status,omitempty"`
}

// ErrorAnswer is the form of every error of the HTTP API.
//
//easyjson:json
type ErrorAnswer struct {
	Success    bool                `json:"success"` // always false
	Error      string              `json:"error"`
	Code       string              `json:"code"`
	Details    easyjson.RawMessage `json:"details,omitempty"`
	RequestRef string              `json:"requestRef,omitempty"`
}

// CommandRecord is what is known of a command: the body of GET
// /api/commands/{ref} (with Success true) and an item of the list (without).
//
//easyjson:json
type CommandRecord struct {
	Success        bool                `json:"success,omitempty"`
	RequestRef     string              `json:"requestRef"`
	Status         string              `json:"status"`
	TargetClientID string              `json:"targetClientId"`
	CommandType    string              `json:"commandType"`
	Priority       string              `json:"priority"`
	TimeoutMs      int64               `json:"timeout"`
	CreatedAt      Time                `json:"createdAt"`
	UpdatedAt      Time                `json:"updatedAt"`
	Progress       easyjson.RawMessage `json:"progress,omitempty"`
	Result         easyjson.RawMessage `json:"result,omitempty"`
	Error          easyjson.RawMessage `json:"error,omitempty"`
	ExecutionTime  easyjson.RawMessage `json:"executionTime,omitempty"`
	Callback       *CallbackState      `json:"callback,omitempty"`

	Mark uint64 `json:"-"` // of what it tells, in the Gateway's journal: nobody is told before that is stored
}

// CallbackState is the callback's part of a CommandRecord.
//
//easyjson:json
type CallbackState struct {
	State    string `json:"state"` // PENDING, DELIVERED or DEAD
	Attempts int    `json:"attempts"`
}

// CommandList answers GET /api/commands.
//
//easyjson:json
type CommandList struct {
	Success    bool            `json:"success"`
	Commands   []CommandRecord `json:"commands"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

// Device is a device of the API.
//
//easyjson:json
type Device struct {
	ClientID   string              `json:"clientId"`
	DeviceType string              `json:"deviceType"`
	EdgeID     string              `json:"edgeId"`
	Connection string              `json:"connection"` // ONLINE or OFFLINE
	LastSeen   Time                `json:"lastSeen"`
	Epoch      int64               `json:"epoch"`
	Status     easyjson.RawMessage `json:"status,omitempty"`
	StatusAt   Time                `json:"statusAt,omitempty"`
	DeviceInfo easyjson.RawMessage `json:"deviceInfo,omitempty"`
	Flapping   *Flapping           `json:"flapping,omitempty"` // of a single device only
}

// Flapping says that a device goes to and fro between edges: most likely two devices
// have its id.
//
//easyjson:json
type Flapping struct {
	Moves int      `json:"moves"`
	Since Time     `json:"since"`
	Edges []string `json:"edges"` // the last two, the present one last
}

// DeviceAnswer answers GET /api/devices/{id}.
//
//easyjson:json
type DeviceAnswer struct {
	Success bool   `json:"success"`
	Device  Device `json:"device"`
}

// DeviceList answers GET /api/devices.
//
//easyjson:json
type DeviceList struct {
	Success    bool     `json:"success"`
	Devices    []Device `json:"devices"`
	NextCursor string   `json:"nextCursor,omitempty"`
}

// Edge is an edge of the API.
//
//easyjson:json
type Edge struct {
	EdgeID        string `json:"edgeId"`
	Connection    string `json:"connection"`
	Devices       int    `json:"devices"`
	Queued        int    `json:"queued"`
	LastSeen      Time   `json:"lastSeen"`
	Epoch         int64  `json:"epoch"`
	EdgeVersion   string `json:"edgeVersion,omitempty"`
	RemoteAddress string `json:"remoteAddress"`
}

// EdgeAnswer answers GET /api/edges/{id}.
//
//easyjson:json
type EdgeAnswer struct {
	Success bool `json:"success"`
	Edge    Edge `json:"edge"`
}

// EdgeList answers GET /api/edges.
//
//easyjson:json
type EdgeList struct {
	Success    bool   `json:"success"`
	Edges      []Edge `json:"edges"`
	NextCursor string `json:"nextCursor,omitempty"`
}

// Callback is a callback of the API (section 7).
//
//easyjson:json
type Callback struct {
	ID         string `json:"id"`
	RequestRef string `json:"requestRef"`
	URL        string `json:"url"`
	State      string `json:"state"`
	Attempts   int    `json:"attempts"`
	LastError  string `json:"lastError"`
	CreatedAt  Time   `json:"createdAt"`
}

// CallbackList answers GET /api/callbacks.
//
//easyjson:json
type CallbackList struct {
	Success    bool       `json:"success"`
	Callbacks  []Callback `json:"callbacks"`
	NextCursor string     `json:"nextCursor,omitempty"`
}

// RetryAnswer answers POST /api/callbacks/{id}/retry.
//
//easyjson:json
type RetryAnswer struct {
	Success bool   `json:"success"`
	ID      string `json:"id"`
}

// Trace answers GET /api/traces/{ref}; its times are in unix milliseconds.
//
//easyjson:json
type Trace struct {
	RequestRef string `json:"requestRef"`
	StartTime  int64  `json:"startTime"`
	Path       []Hop  `json:"path"`
	Status     string `json:"status"` // pending, completed, failed or timeout
	Duration   *int64 `json:"duration,omitempty"`

	Mark uint64 `json:"-"` // as of a CommandRecord
}

// Hop is one step of a Trace.
//
//easyjson:json
type Hop struct {
	Node      string `json:"node"`
	Timestamp int64  `json:"timestamp"`
	Action    string `json:"action"` // send, receive or forward
}

// BatchAnswer answers POST /api/commands/batch.
//
//easyjson:json
type BatchAnswer struct {
	Success  bool          `json:"success"`
	Accepted int           `json:"accepted"`
	Rejected int           `json:"rejected"`
	Results  []BatchResult `json:"results"`
}

// BatchResult is the outcome for one command of a batch: a RequestRef, or an
// Error and its Code.
//
//easyjson:json
type BatchResult struct {
	TargetClientID string              `json:"targetClientId,omitempty"`
	RequestRef     string              `json:"requestRef,omitempty"`
	Error          string              `json:"error,omitempty"`
	Code           string              `json:"code,omitempty"`
	Details        easyjson.RawMessage `json:"details,omitempty"`
}

// AppendAnswer appends one of the answers above as JSON. It does not escape
// <, > and &. Lists that are nil come out as [].
func AppendAnswer(dst []byte, answer easyjson.Marshaler) []byte {
	w := jwriter.Writer{NoEscapeHTML: true, Flags: jwriter.NilSliceAsEmpty}
	answer.MarshalEasyJSON(&w)
	if w.Error != nil {
		panic("BUG: an answer does not encode: " + w.Error.Error())
	}
	out := appender(dst)
	w.DumpTo(&out) // which cannot fail, and gives the buffers back
	return out
}

// appender is a slice that is written to.
type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

// AppendAccepted appends the CommandAnswer to a command that was accepted, without
// allocating.
func AppendAccepted(dst, ref []byte) []byte {
	dst = AppendString(append(dst, `{"success":true,"requestRef":`...), ref)
	return append(dst, `,"message":"Command accepted for processing"}`...)
}

// AppendBatchAnswer appends the BatchAnswer with these results, which were appended by
// AppendBatchAccepted and AppendBatchRejected.
func AppendBatchAnswer(dst []byte, accepted, rejected int, results []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"success":true,"accepted":`...), int64(accepted), 10)
	dst = strconv.AppendInt(append(dst, `,"rejected":`...), int64(rejected), 10)
	dst = append(dst, `,"results":[`...)
	if len(results) > 0 {
		dst = append(dst, results[1:]...) // without the comma
	}
	return append(dst, `]}`...)
}

// AppendBatchAccepted appends a comma and the BatchResult of a command that was accepted.
func AppendBatchAccepted(dst, target, ref []byte) []byte {
	dst = AppendString(append(dst, `,{"targetClientId":`...), target)
	dst = AppendString(append(dst, `,"requestRef":`...), ref)
	return append(dst, '}')
}

// AppendBatchRejected appends a comma and the BatchResult of a command that was not;
// target and details may be empty.
func AppendBatchRejected(dst, target []byte, text string, code Code, details []byte) []byte {
	dst = append(dst, `,{`...)
	if len(target) > 0 {
		dst = append(AppendString(append(dst, `"targetClientId":`...), target), ',')
	}
	dst = AppendString(append(dst, `"error":`...), text)
	dst = AppendString(append(dst, `,"code":`...), code.String())
	dst = appendRaw(dst, `,"details":`, details)
	return append(dst, '}')
}

// Append appends the record as AppendAnswer does, without allocating.
func (c *CommandRecord) Append(dst []byte) []byte {
	dst = append(dst, '{')
	if c.Success {
		dst = append(dst, `"success":true,`...)
	}
	dst = AppendString(append(dst, `"requestRef":`...), c.RequestRef)
	dst = AppendString(append(dst, `,"status":`...), c.Status)
	dst = AppendString(append(dst, `,"targetClientId":`...), c.TargetClientID)
	dst = AppendString(append(dst, `,"commandType":`...), c.CommandType)
	dst = AppendString(append(dst, `,"priority":`...), c.Priority)
	dst = strconv.AppendInt(append(dst, `,"timeout":`...), c.TimeoutMs, 10)
	dst = appendQuotedTime(append(dst, `,"createdAt":`...), c.CreatedAt)
	dst = appendQuotedTime(append(dst, `,"updatedAt":`...), c.UpdatedAt)
	dst = appendRaw(dst, `,"progress":`, c.Progress)
	dst = appendRaw(dst, `,"result":`, c.Result)
	dst = appendRaw(dst, `,"error":`, c.Error)
	dst = appendRaw(dst, `,"executionTime":`, c.ExecutionTime)
	if c.Callback != nil {
		dst = AppendString(append(dst, `,"callback":{"state":`...), c.Callback.State)
		dst = strconv.AppendInt(append(dst, `,"attempts":`...), int64(c.Callback.Attempts), 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendRaw(dst []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	return append(append(dst, name...), raw...)
}
