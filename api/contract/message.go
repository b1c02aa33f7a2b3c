package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"subway/api"
)

// Direction says which way a WebSocket message went. An edge stands in the gateway's place towards its devices.
type Direction uint8

// The two directions.
const (
	FromGateway Direction = iota // sent by the gateway, or by an edge to its devices
	ToGateway                    // sent to them
)

// schemaOf names the schema of each message type of PROTOCOL.md section 3, by direction.
var schemaOf = [...]map[string]string{
	FromGateway: {
		"REGISTER_ACK":      "register-ack.json",
		"COMMAND":           "command-forwarded.json",
		"COMMAND_ACK":       "command-ack.json",
		"COMMAND_RESPONSE":  "command-response.json",
		"PROGRESS_UPDATE":   "progress-update.json",
		"CANCEL":            "cancel.json",
		"DEVICE_STATUS":     "device-status.json",
		"CONNECTION_STATUS": "connection-status.json",
		"HEARTBEAT_ACK":     "heartbeat-ack.json",
	},
	ToGateway: {
		"REGISTER":         "register.json",
		"UNREGISTER":       "unregister.json",
		"COMMAND":          "command.json",
		"COMMAND_RESPONSE": "command-response.json",
		"PROGRESS_UPDATE":  "progress-update.json",
		"CANCEL":           "cancel.json",
		"DEVICE_STATUS":    "device-status.json",
		"HEARTBEAT":        "heartbeat.json",
		"ERROR":            "error.json",
	},
}

// ourCodes are the codes of an ERROR that the gateway makes itself; one with another code was passed on from a device.
// DEVICE_NOT_FOUND is an edge's to say.
var ourCodes = map[string]bool{
	"INVALID_MESSAGE": true, "UNSUPPORTED_VERSION": true, "UNAUTHORIZED": true, "FORBIDDEN": true, "NOT_REGISTERED": true,
	"TARGET_NOT_FOUND": true, "COMMAND_NOT_FOUND": true, "DUPLICATE_REQUEST": true, "ALREADY_ENDED": true, "PAYLOAD_TOO_LARGE": true,
	"RATE_LIMITED": true, "EDGE_UNAVAILABLE": true, "OVERLOADED": true, "GATEWAY_UNAVAILABLE": true, "CONNECTION_LOST": true,
	"TIMEOUT": true, "CANCELLED": true, "INTERNAL": true,
}

// ValidateMessage fails the test unless raw, one WebSocket message as it was read or written, is what the schema of its
// type and direction says. An ERROR from the gateway with a code of its own is held against gateway-error.json, any
// other against error.json; for a device's ERROR that borrows a code of the gateway use ValidateAs. It may be called
// from any goroutine.
func ValidateMessage(t testing.TB, d Direction, raw []byte) {
	t.Helper()
	if err := CheckMessage(d, raw); err != nil {
		t.Errorf("contract: %v", err)
	}
}

// ValidateAs is ValidateMessage with a schema named by the caller, "error.json" for example.
func ValidateAs(t testing.TB, schema string, raw []byte) {
	t.Helper()
	if err := CheckAs(schema, raw); err != nil {
		t.Errorf("contract: %v", err)
	}
}

// CheckMessage returns what is wrong with a message, see ValidateMessage. It may be called from any goroutine.
func CheckMessage(d Direction, raw []byte) error {
	// A map, not a struct: that would read "Type" as "type".
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return fmt.Errorf("a message is one JSON object: %w in %s", err, short(raw))
	}
	var typ, code string
	if err := json.Unmarshal(members["type"], &typ); err != nil {
		return fmt.Errorf("type: %w in %s", err, short(raw))
	}
	name, ok := schemaOf[d][typ]
	if typ == "ERROR" && d == FromGateway {
		name, ok = "error.json", true
		if json.Unmarshal(members["code"], &code) == nil && ourCodes[code] {
			name = "gateway-error.json"
		}
	}
	if !ok {
		return fmt.Errorf("no message of type %q goes this way: %s", typ, short(raw))
	}
	return CheckAs(name, raw)
}

// CheckAs returns what is wrong with a message, see ValidateAs. It may be called from any goroutine.
func CheckAs(schema string, raw []byte) error {
	compiled, err := compiledSchemas()
	if err != nil {
		return err
	}
	s, ok := compiled[schema]
	if !ok {
		return fmt.Errorf("no schema %q", schema)
	}
	if err := checkObject(raw, func(name string) bool { return names(s, name) }); err != nil {
		return fmt.Errorf("%s: %w: %s", schema, err, short(raw))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s: %w: %s", schema, err, short(raw))
	}
	if err := s.Validate(value); err != nil {
		return fmt.Errorf("%w\nin %s", err, short(raw))
	}
	return nil
}

// names reports whether a schema, or the one it refers to, names this member.
func names(s *jsonschema.Schema, member string) bool {
	for s != nil {
		if _, ok := s.Properties[member]; ok {
			return true
		}
		s = s.Ref
	}
	return false
}

// compiledSchemas compiles the embedded schemas once. They refer to each other and to nothing else.
var compiledSchemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nowhere{})
	ids := make(map[string]string)
	for _, name := range api.SchemaNames() {
		raw, _ := api.Schema(name)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		members, _ := doc.(map[string]any)
		id, _ := members["$id"].(string)
		if err := c.AddResource(id, doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		ids[name] = id
	}
	out := make(map[string]*jsonschema.Schema, len(ids))
	for name, id := range ids {
		s, err := c.Compile(id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = s
	}
	return out, nil
})

// nowhere refuses to load a schema that is not embedded.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, errors.New("no schema is loaded from outside: " + url)
}
