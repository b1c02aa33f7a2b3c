package wire

import (
	"encoding/json"
	"testing"
)

func TestAppendMessages(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if !json.Valid(got) {
			t.Errorf("no JSON: %s", got)
		}
		scan(t, string(got))
	}
	ref, td := []byte("r"), []byte("td-01")
	f(AppendRegisterAck(nil, "td-01", "DEVICE", "s-1", 7, 30000, at),
		`{"type":"REGISTER_ACK","clientId":"td-01","clientType":"DEVICE","status":"REGISTERED","sessionId":"s-1","epoch":7,"heartbeatInterval":30000,"timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"}`)
	f(AppendCommandAck(nil, ref, td, at), `{"type":"COMMAND_ACK","requestRef":"r","targetClientId":"td-01","status":"PENDING","timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendHeartbeatAck(nil, at), `{"type":"HEARTBEAT_ACK","timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendError(nil, "TARGET_NOT_FOUND", "No route", []byte(`{"a":1}`), ref, at),
		`{"type":"ERROR","code":"TARGET_NOT_FOUND","message":"No route","details":{"a":1},"requestRef":"r","timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendError(nil, []byte("ODD \"code\""), "", nil, nil, at), `{"type":"ERROR","code":"ODD \"code\"","message":"","timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendFault(nil, faultCommandType, ref, at),
		`{"type":"ERROR","code":"INVALID_MESSAGE","message":"command.commandType must be a string that is not empty","details":{"field":"command.commandType"},"requestRef":"r","timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendFault(nil, faultSyntax, nil, at), `{"type":"ERROR","code":"INVALID_MESSAGE","message":"message is not a JSON object","timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendCancel(nil, ref, td, at), `{"type":"CANCEL","requestRef":"r","targetClientId":"td-01","timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"}`)
	f(AppendCancel(nil, ref, nil, at), `{"type":"CANCEL","requestRef":"r","timestamp":"2024-01-20T10:00:00.123Z","version":"1.0"}`)
	f(AppendConnectionStatus(nil, &ConnectionStatus{ClientID: "e", ClientType: "EDGE", EdgeID: "e", Status: "OFFLINE", Reason: "goodbye", LastSeen: at, Devices: 3}, at),
		`{"type":"CONNECTION_STATUS","clientId":"e","clientType":"EDGE","edgeId":"e","status":"OFFLINE","reason":"goodbye","lastSeen":"2024-01-20T10:00:00.123Z","devices":3,"timestamp":"2024-01-20T10:00:00.123Z"}`)
	f(AppendConnectionStatus(nil, &ConnectionStatus{ClientID: "d", ClientType: "DEVICE", Status: "ONLINE"}, at),
		`{"type":"CONNECTION_STATUS","clientId":"d","clientType":"DEVICE","status":"ONLINE","timestamp":"2024-01-20T10:00:00.123Z"}`)
}

func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	for c := range numCodes {
		if c.String() == "" || seen[c.String()] {
			t.Errorf("code %d has the word %q", c, c)
		}
		seen[c.String()] = true
		if s := c.HTTPStatus(); s != 0 && (s < 400 || s > 599) {
			t.Errorf("%v has the status %d", c, s)
		}
	}
	f := func(c Code, word string, status int) {
		t.Helper()
		if c.String() != word || c.HTTPStatus() != status {
			t.Errorf("%v %d, want %s %d", c, c.HTTPStatus(), word, status)
		}
	}
	f(CodeInvalidMessage, "INVALID_MESSAGE", 400)
	f(CodeInvalidRequest, "INVALID_REQUEST", 400)
	f(CodeTargetNotFound, "TARGET_NOT_FOUND", 404)
	f(CodeAlreadyEnded, "ALREADY_ENDED", 409)
	f(CodeOverloaded, "OVERLOADED", 503)
	f(CodeCancelled, "CANCELLED", 0)
	f(CodeTimeout, "TIMEOUT", 0)
	f(Code(200), "INTERNAL", 500)
	if FaultUTF8().Error() != "INVALID_MESSAGE: message is not valid UTF-8" {
		t.Error(FaultUTF8())
	}
}
