package contract

import (
	"net/http"
	"strings"
	"testing"
)

func TestCallbacks(t *testing.T) {
	header := func() http.Header {
		return http.Header{"Content-Type": {"application/json"}, "X-Callback-Id": {"cb-1"}, "X-Callback-Attempt": {"1/3"}}
	}
	good := func(body string) {
		t.Helper()
		ValidateCallback(t, header(), []byte(body))
	}
	bad := func(why, body string) {
		t.Helper()
		if CheckCallback(header(), []byte(body)) == nil {
			t.Errorf("accepted, although %s: %s", why, body)
		}
	}
	const head = `{"requestRef":"r1",` + now
	const response = head + `,"status":"COMPLETED","type":"COMMAND_RESPONSE"`
	const timeout = head + `,"status":"TIMEOUT","type":"ERROR"`
	good(response + `,"targetClientId":"td-01","result":{"a":1},"executionTime":42}`)
	good(response + `}`)
	good(response + `,"error":{"code":"LAMP_BROKEN"}}`)
	good(head + `,"status":"IN_PROGRESS","type":"PROGRESS_UPDATE","progress":{"done":3},"targetClientId":"td-01"}`)
	good(timeout + `,"error":{"code":"CONNECTION_LOST","message":"m","details":{"stage":"PENDING"}}}`)
	good(head + `,"status":"FAILED","type":"ERROR","error":{"code":"DEVICE_NOT_FOUND","message":"gone"}}`)

	bad("a member is not described", response+`,"success":true}`)
	bad("a member stands twice", response+`,"result":1,"result":1}`)
	bad("executionTime has no value", response+`,"executionTime":null}`)
	bad("a response has no progress", response+`,"progress":3}`)
	bad("progress is missing", head+`,"status":"IN_PROGRESS","type":"PROGRESS_UPDATE"}`)
	bad("progress is over 100", head+`,"status":"IN_PROGRESS","type":"PROGRESS_UPDATE","progress":101}`)
	bad("progress has its own status", head+`,"status":"COMPLETED","type":"PROGRESS_UPDATE","progress":1}`)
	bad("the error is missing", timeout+`}`)
	bad("the stage is missing", timeout+`,"error":{"code":"TIMEOUT","message":"m"}}`)
	bad("the code is another's", timeout+`,"error":{"code":"CANCELLED","message":"m","details":{"stage":"PENDING"}}}`)
	bad("the type is unknown", head+`,"status":"COMPLETED","type":"DONE"}`)
	bad("requestRef is missing", `{"status":"COMPLETED","type":"COMMAND_RESPONSE",`+now+`}`)
	bad("it is no object", `[]`)

	body := []byte(response + `}`)
	for name, values := range map[string][]string{
		"X-Callback-Id": nil, "X-Callback-Attempt": {"1"}, "Content-Type": {"text/plain"},
	} {
		h := header()
		h[name] = values
		if err := CheckCallback(h, body); err == nil {
			t.Errorf("accepted with %s %q", name, values)
		}
	}
	h := header()
	h.Add("X-Callback-Id", "cb-2")
	if err := CheckCallback(h, body); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two ids: %v", err)
	}
}
