package attack

import (
	"fmt"

	"github.com/mailru/easyjson"
)

//go:generate go tool easyjson -no_std_marshalers reply.go

// The members of the gateway's answers and callbacks that are looked at (PROTOCOL.md
// sections 6 and 7). A RawMessage is borrowed from the text it was read from.

// reply is the answer to POST /api/commands and GET /api/commands/{ref}, or a refusal.
//
//easyjson:json
type reply struct {
	Success    bool                `json:"success"`
	RequestRef string              `json:"requestRef"`
	Status     string              `json:"status"`
	Code       string              `json:"code"`   // of a refusal
	Error      easyjson.RawMessage `json:"error"`  // text in a refusal, an object in a record
	Result     easyjson.RawMessage `json:"result"` //
}

//easyjson:json
type fault struct {
	Code string `json:"code"`
}

//easyjson:json
type batchReply struct {
	Success  bool        `json:"success"`
	Accepted int         `json:"accepted"`
	Rejected int         `json:"rejected"`
	Code     string      `json:"code"` // where the whole of it was refused
	Results  []batchItem `json:"results"`
}

//easyjson:json
type batchItem struct {
	Target     string `json:"targetClientId"`
	RequestRef string `json:"requestRef"`
	Code       string `json:"code"`
}

//easyjson:json
type notice struct {
	RequestRef string              `json:"requestRef"`
	Status     string              `json:"status"`
	Type       string              `json:"type"`
	Target     string              `json:"targetClientId"`
	Result     easyjson.RawMessage `json:"result"`
	Progress   easyjson.RawMessage `json:"progress"`
	Error      easyjson.RawMessage `json:"error"`
}

//easyjson:json
type versionReply struct {
	Version string `json:"version"`
}

// decode reads a text that must be one JSON object.
func decode(body []byte, into easyjson.Unmarshaler) error {
	if len(body) == 0 || body[0] != '{' { // easyjson lets null pass
		return fmt.Errorf("%w: %s", ErrAnswer, excerpt(body))
	}
	if err := easyjson.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %s", ErrAnswer, excerpt(body))
	}
	return nil
}

// errorCode returns the code of an error object, empty where there is none.
func errorCode(raw []byte) string {
	var f fault
	if len(raw) == 0 || raw[0] != '{' || easyjson.Unmarshal(raw, &f) != nil {
		return ""
	}
	return f.Code
}

// excerpt is the beginning of what came instead.
func excerpt(b []byte) string {
	const most = 120
	if len(b) > most {
		return fmt.Sprintf("%q...", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
