package wire

import "testing"

// A body that is no good tells nothing of the one before it that used the same value.
func TestHTTPCommandReused(t *testing.T) {
	var c HTTPCommand
	var s Scratch
	if f := ParseHTTPCommand([]byte(`{"target_client_id":"td-01","command":{"commandType":"T"},"request_ref":"secret"}`), 64, &c, &s); f != nil {
		t.Fatal(f)
	}
	for _, body := range []string{"", "garbage", "[]", "null", `{"a":1`, `{"a":1,}`, "\xff", `{"target_client_id":"td-01","command":{"commandType":"T"},"timeout":-1}`} {
		if f := ParseHTTPCommand([]byte(body), 64, &c, &s); f == nil {
			t.Fatalf("%q is accepted", body)
		}
		if c.Ref != nil || string(c.Target) != "" && string(c.Target) != "td-01" || body != "" && body[0] != '{' && c.Target != nil {
			t.Errorf("%q: ref %q, target %q", body, c.Ref, c.Target)
		}
	}
}
