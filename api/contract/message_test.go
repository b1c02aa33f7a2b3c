package contract

import (
	"strings"
	"testing"
)

const (
	ref = `"requestRef":"cmd-1705744800000-k3j9x0q2a"`
	now = `"timestamp":"2024-01-20T10:00:00.000Z"`
)

func TestMessagesToGateway(t *testing.T) {
	good := func(raw string) {
		t.Helper()
		ValidateMessage(t, ToGateway, []byte(raw))
	}
	bad := func(raw, why string) {
		t.Helper()
		refused(t, CheckMessage(ToGateway, []byte(raw)), why, raw)
	}
	// As PROTOCOL.md section 3 shows them.
	good(`{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-001","edgeVersion":"1.3.0"},
		"deviceInfo":{"model":"P3","firmware":"2.1"},` + now + `,"version":"1.0"}`)
	good(`{"type":"REGISTER","clientId":"edge-1","clientType":"EDGE","devices":["td-01",{"clientId":"td-02","deviceInfo":{}}],"capabilities":["dedupe"],"x-own":1}`)
	good(`{"type":"REGISTER","clientId":"edge-1","clientType":"EDGE","edgeInfo":null,"deviceInfo":null,"devices":null,"capabilities":null,"token":null,"version":null,"timestamp":null,"requestRef":null}`)
	bad(`{"type":"REGISTER","clientId":"a b","clientType":"EDGE"}`, "clientId")
	bad(`{"type":"REGISTER","clientId":"a","clientType":"edge"}`, "clientType")
	bad(`{"type":"REGISTER","clientId":"a"}`, "clientType")
	bad(`{"type":"REGISTER","clientId":"a","clientType":"DEVICE","edgeInfo":{}}`, "edgeId")
	bad(`{"type":"REGISTER","clientId":"a","clientType":"EDGE","devices":["td 1"]}`, "devices")
	bad(`{"type":"REGISTER","clientId":"a","clientType":"EDGE","devices":[{"deviceInfo":{}}]}`, "devices")
	bad(`{"type":"REGISTER","clientId":"a","clientType":"EDGE","version":"2.0"}`, "version")
	bad(`{"type":"REGISTER","clientId":"a","clientType":"EDGE","version":1}`, "version")
	bad(`{"type":"REGISTER","clientId":"`+strings.Repeat("a", 129)+`","clientType":"EDGE"}`, "clientId")

	good(`{"type":"UNREGISTER","clientId":"td-01"}`)
	bad(`{"type":"UNREGISTER"}`, "clientId")

	good(`{"type":"COMMAND",` + ref + `,"targetClientId":"td-01","sourceClientId":"backend-001","command":{"commandType":"SET_BRIGHTNESS","value":80},
		"priority":"NORMAL","timeout":30000,"callback":"http://eudi.example/cb",` + now + `,"version":"1.0"}`)
	good(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"timeout":1e3,"whenOffline":"QUEUE","ack":true,"version":"1.9"}`)
	good(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"timeout":1000.0,"priority":null,"callback":null,"whenOffline":null,"ack":null}`)
	bad(`{"type":"COMMAND","command":{"commandType":"T"}}`, "targetClientId")
	bad(`{"type":"COMMAND","targetClientId":"td-01"}`, "command")
	bad(`{"type":"COMMAND","targetClientId":"td-01","command":{}}`, "commandType")
	bad(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":""}}`, "commandType")
	for _, timeout := range []string{"-1", "1.5", `"100"`, "86400001", "true"} {
		bad(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"timeout":`+timeout+`}`, "timeout")
	}
	bad(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"priority":"URGENT"}`, "priority")
	bad(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"whenOffline":"queue"}`, "whenOffline")
	bad(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"requestRef":"a b"}`, "requestRef")
	bad(`{"type":"COMMAND","targetClientId":"td-01","targetClientId":"td-02","command":{"commandType":"T"}}`, "twice")
	good(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T"},"x":1,"x":2,"Timeout":"soon"}`)

	good(`{"type":"COMMAND_RESPONSE",` + ref + `,"status":"COMPLETED","result":{"brightness":80},"executionTime":42,` + now + `,"version":"1.0"}`)
	good(`{"type":"COMMAND_RESPONSE",` + ref + `,"status":"REJECTED_BY_USER","error":{"code":"E","message":"m","details":{}},"callback":"http://a/","sourceClientId":"b"}`)
	bad(`{"type":"COMMAND_RESPONSE",`+ref+`}`, "status")
	bad(`{"type":"COMMAND_RESPONSE","status":"COMPLETED"}`, "requestRef")
	bad(`{"type":"COMMAND_RESPONSE",`+ref+`,"status":"FAILED","error":"no"}`, "error")

	good(`{"type":"PROGRESS_UPDATE",` + ref + `,"progress":40,"stage":"DOWNLOADING","message":"m",` + now + `}`)
	good(`{"type":"PROGRESS_UPDATE",` + ref + `,"progress":{"done":3}}`)
	for _, progress := range []string{"-1", "100.01", `"40"`, "[40]", "true", "null"} {
		bad(`{"type":"PROGRESS_UPDATE",`+ref+`,"progress":`+progress+`}`, "progress")
	}
	good(`{"type":"CANCEL",` + ref + `,"targetClientId":"td-01",` + now + `}`)
	bad(`{"type":"CANCEL","targetClientId":"td-01"}`, "requestRef")
	good(`{"type":"DEVICE_STATUS","clientId":"td-01","status":{"temp":36.5},` + now + `}`)
	bad(`{"type":"DEVICE_STATUS","clientId":"td-01","status":"fine"}`, "status")
	good(`{"type":"HEARTBEAT"}`)
	good(`{"type":"ERROR","code":"LAMP_BROKEN","message":"x",` + ref + `}`)
	bad(`{"type":"ERROR","message":"x"}`, "code")

	bad(`{"type":"REGISTER_ACK"}`, "goes this way")
	bad(`{"type":"NOPE"}`, "goes this way")
	bad(`{"Type":"HEARTBEAT"}`, "type")
	bad(`[{"type":"HEARTBEAT"}]`, "object")
	bad(`{"type":"HEARTBEAT"} {}`, "object")
	bad("{\"type\":\"HEARTBEAT\",\"x\":\"\xff\"}", "UTF-8")
}

func TestMessagesFromGateway(t *testing.T) {
	good := func(raw string) {
		t.Helper()
		ValidateMessage(t, FromGateway, []byte(raw))
	}
	bad := func(raw, why string) {
		t.Helper()
		refused(t, CheckMessage(FromGateway, []byte(raw)), why, raw)
	}
	// strict: each member is required, none may be added.
	strict := func(raw string) {
		t.Helper()
		good(raw)
		bad(strings.Replace(raw, `{`, `{"x-own":1,`, 1), "x-own")
		bad(strings.Replace(raw, now, `"timestamp":"2024-01-20T10:00:00Z"`, 1), "timestamp")
		bad(strings.Replace(raw, ","+now, "", 1), "timestamp")
		bad(strings.Replace(raw, `{`, `{`+now+`,`, 1), "twice")
	}
	strict(`{"type":"REGISTER_ACK","clientId":"td-01","clientType":"DEVICE","status":"REGISTERED","sessionId":"s1","epoch":7,"heartbeatInterval":30000,"version":"1.0",` + now + `}`)
	bad(`{"type":"REGISTER_ACK","clientId":"td-01","clientType":"DEVICE","status":"REGISTERED","sessionId":"s1","epoch":"7","heartbeatInterval":30000,"version":"1.0",`+now+`}`, "epoch")
	strict(`{"type":"COMMAND_ACK",` + ref + `,"targetClientId":"td-01","status":"PENDING",` + now + `}`)
	bad(`{"type":"COMMAND_ACK",`+ref+`,"targetClientId":"td-01","status":"DISPATCHED",`+now+`}`, "status")
	strict(`{"type":"HEARTBEAT_ACK",` + now + `}`)

	const edge = `{"type":"CONNECTION_STATUS","clientId":"edge-1","clientType":"EDGE","edgeId":"edge-1","status":"OFFLINE","reason":"goodbye","lastSeen":"2024-01-20T09:59:00.000Z","devices":3,` + now + `}`
	strict(edge)
	bad(strings.Replace(edge, `"devices":3,`, "", 1), "devices")
	bad(strings.Replace(edge, `"OFFLINE"`, `"PERMANENTLY_OFFLINE"`, 1), "status")
	bad(strings.Replace(edge, `"OFFLINE"`, `"GONE"`, 1), "status")
	device := strings.NewReplacer("EDGE", "DEVICE", `"devices":3,`, "").Replace(edge)
	strict(device)
	bad(strings.Replace(edge, "EDGE", "DEVICE", 1), "devices")
	bad(strings.Replace(device, "DEVICE", "BACKEND", 1), "clientType")

	const forwarded = `{"type":"COMMAND",` + ref + `,"targetClientId":"td-01","sourceClientId":"b-1","command":{"commandType":"T"},"priority":"LOW","timeout":1e3,"version":"1.0","x-own":null,` + now + `}`
	good(forwarded)
	good(strings.Replace(forwarded, `"sourceClientId":"b-1",`, "", 1))
	for _, member := range []string{ref, `"priority":"LOW"`, `"timeout":1e3`, `"version":"1.0"`} {
		name, _, _ := strings.Cut(member, ":")
		bad(strings.Replace(forwarded, member+",", "", 1), strings.Trim(name, `"`))
		bad(strings.Replace(forwarded, member, name+":null", 1), strings.Trim(name, `"`))
		bad(strings.Replace(forwarded, member, member+","+member, 1), "twice")
	}
	bad(strings.Replace(forwarded, now, `"timestamp":null`, 1), "timestamp")
	bad(strings.Replace(forwarded, `"b-1"`, "null", 1), "sourceClientId")
	good(strings.Replace(forwarded, now, `"timestamp":7`, 1)) // not checked, as it came

	good(`{"type":"COMMAND_RESPONSE",` + ref + `,"status":"SUCCESS","result":[1],"x":1}`)
	good(`{"type":"CANCEL",` + ref + `,"targetClientId":"td-01",` + now + `,"version":"1.0"}`)
	good(`{"type":"ERROR","code":"LAMP_BROKEN","x":1,` + ref + `}`)
	bad(`{"type":"REGISTER","clientId":"a","clientType":"EDGE"}`, "goes this way")
	bad(`{"type":"HEARTBEAT"}`, "goes this way")
}

func TestErrorsOfGateway(t *testing.T) {
	const head = `{"type":"ERROR","message":"m",` + now
	const withRef = head + `,` + ref
	// f: the details that a code promises; each is required.
	f := func(start, code, details string) {
		t.Helper()
		raw := start + `,"code":"` + code + `","details":` + details + `}`
		ValidateMessage(t, FromGateway, []byte(raw))
		refused(t, CheckMessage(FromGateway, []byte(start+`,"code":"`+code+`"}`)), "details", code)
		refused(t, CheckMessage(FromGateway, []byte(start+`,"code":"`+code+`","details":{}}`)), "details", code)
		refused(t, CheckMessage(FromGateway, []byte(strings.Replace(raw, "{", `{"x-own":1,`, 1))), "x-own", code)
		refused(t, CheckMessage(FromGateway, []byte(strings.Replace(raw, `"message":"m",`, "", 1))), "message", code)
	}
	f(withRef, "TARGET_NOT_FOUND", `{"targetClientId":"device-99","reason":"No route found for device device-99"}`)
	f(head, "TARGET_NOT_FOUND", `{"targetClientId":"device-99","reason":"No route found for device device-99"}`)
	f(withRef, "DUPLICATE_REQUEST", `{"status":"IN_PROGRESS"}`)
	f(withRef, "EDGE_UNAVAILABLE", `{"edgeId":"edge-1","lastSeen":"2024-01-20T09:55:00.000Z","retryAfter":5}`)
	f(head, "OVERLOADED", `{"retryAfter":1}`)
	f(head, "RATE_LIMITED", `{"retryAfter":0.5}`)
	f(head, "GATEWAY_UNAVAILABLE", `{"service":"gateway","lastSeen":null,"retryAfter":30}`)
	f(withRef, "CANCELLED", `{"stage":"PENDING"}`)
	f(withRef, "CONNECTION_LOST", `{"stage":"DISPATCHED"}`)
	timeout := strings.Replace(withRef, `"m"`, `"Command timeout after 400ms"`, 1)
	ValidateMessage(t, FromGateway, []byte(timeout+`,"code":"TIMEOUT","details":{"stage":"IN_PROGRESS"}}`))

	good := func(raw string) { t.Helper(); ValidateMessage(t, FromGateway, []byte(raw)) }
	bad := func(raw, why string) {
		t.Helper()
		refused(t, CheckMessage(FromGateway, []byte(raw)), why, raw)
	}
	good(head + `,"code":"INVALID_MESSAGE"}`)
	good(withRef + `,"code":"INVALID_MESSAGE","details":{"field":"command.commandType"}}`)
	bad(head+`,"code":"INVALID_MESSAGE","details":{"field":7}}`, "field")
	for _, code := range []string{"FORBIDDEN", "NOT_REGISTERED", "UNAUTHORIZED", "UNSUPPORTED_VERSION", "INTERNAL"} {
		good(head + `,"code":"` + code + `"}`)
	}
	for _, code := range []string{"ALREADY_ENDED", "COMMAND_NOT_FOUND"} {
		good(withRef + `,"code":"` + code + `"}`)
		bad(head+`,"code":"`+code+`"}`, "requestRef")
	}
	bad(head+`,"code":"CANCELLED","details":{"stage":"PENDING"}}`, "requestRef")
	bad(withRef+`,"code":"CANCELLED","details":{"stage":"COMPLETED"}}`, "stage")
	bad(withRef+`,"code":"TIMEOUT","details":{"stage":"PENDING"}}`, "message")
}

func TestCheckAsUnknownSchema(t *testing.T) {
	refused(t, CheckAs("no-such.json", []byte(`{}`)), "no schema", "")
	refused(t, CheckAs("heartbeat.json", []byte(`{"type":"heartbeat"}`)), "type", "")
}

// refused fails the test unless err says why.
func refused(t *testing.T, err error, why, what string) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted, although %q: %s", why, what)
		return
	}
	// What follows "in {" quotes the message, which always has the word.
	said, _, _ := strings.Cut(err.Error(), "\nin {")
	if !strings.Contains(said, why) {
		t.Errorf("refused, but not for %q: %v", why, err)
	}
}
