package front

import "testing"

// The details that the codes of PROTOCOL.md section 3 promise stand in the answers too
// that are given before a request is looked at.
func TestRefusalDetails(t *testing.T) {
	f := func(r *Refusal, want string) {
		t.Helper()
		if got := string(r.appendBody(nil)); got != want {
			t.Errorf("%s", got)
		}
	}
	f(refuseBusy, `{"success":false,"error":"too many connections","code":"OVERLOADED","details":{"retryAfter":1}}`)
	f(refuseGoing, `{"success":false,"error":"going down","code":"GATEWAY_UNAVAILABLE","details":{"service":"gateway","lastSeen":null,"retryAfter":1}}`)
	f(refuseKey, `{"success":false,"error":"Sec-WebSocket-Key must be 16 bytes in base64","code":"INVALID_REQUEST"}`)
}
