package api_test

import (
	"encoding/json"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestRequestBodies: what PROTOCOL.md section 6 accepts and refuses, as far as a schema can say it.
func TestRequestBodies(t *testing.T) {
	judge := func(schema, body string) error {
		t.Helper()
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		return document(t).Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
	}
	good := func(schema, body string) {
		t.Helper()
		if err := judge(schema, body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	bad := func(schema string, bodies ...string) {
		t.Helper()
		for _, body := range bodies {
			if judge(schema, body) == nil {
				t.Errorf("%s accepts %s", schema, body)
			}
		}
	}
	const command = `"command":{"commandType":"T"}`
	const one = `{"target_client_id":"td-1",` + command
	good("CommandRequest", one+`}`)
	good("CommandRequest", `{"targetClientId":"td-1",`+command+`,"callbackUrl":"http://a/","requestRef":"r","whenOffline":"QUEUE","priority":"HIGH","timeout":1e3}`)
	good("CommandRequest", one+`,"callback_url":"http://a/","request_ref":"r","when_offline":"REJECT","priority":"LOW","timeout":0,"x":1}`)
	good("CommandRequest", one+`,"callback_url":null,"request_ref":null,"when_offline":null,"priority":null,"timeout":null}`)
	bad("CommandRequest", `{`+command+`}`, `{"target_client_id":7,`+command+`}`, `{"target_client_id":"",`+command+`}`, `{"target_client_id":null,`+command+`}`,
		`{"targetClientId":"a b",`+command+`}`, `{"target_client_id":"a","targetClientId":"a",`+command+`}`, `{"target_client_id":"a"}`, `[]`,
		`{"target_client_id":"a","command":{}}`, `{"target_client_id":"a","command":{"commandType":""}}`, `{"target_client_id":"a","command":"T"}`,
		one+`,"timeout":-1}`, one+`,"timeout":1.5}`, one+`,"timeout":"100"}`, one+`,"timeout":86400001}`, one+`,"priority":"high"}`,
		one+`,"request_ref":"a b"}`, one+`,"request_ref":""}`, one+`,"when_offline":"queue"}`, one+`,"callback_url":7}`,
		one+`,"request_ref":"a","requestRef":"a"}`, one+`,"callback_url":null,"callbackUrl":"http://a/"}`, one+`,"when_offline":"QUEUE","whenOffline":"QUEUE"}`)

	good("BatchRequest", `{"commands":[`+one+`},{"command":{}},7]}`) // each item for itself
	good("BatchRequest", `{`+command+`,"targets":["td-01","td-*"],"timeout":10,"whenOffline":"QUEUE"}`)
	bad("BatchRequest", `{}`, `{"commands":"x"}`, `{"commands":{"a":1}}`, `{`+command+`}`, `{`+command+`,"targets":"td-1"}`, `[]`,
		`{`+command+`,"targets":["td-1"],"request_ref":"r"}`, `{`+command+`,"targets":["td-1"],"requestRef":"r"}`, `{"targets":["td-1"]}`,
		`{`+command+`,"targets":["td-1"],"callback_url":"http://a/","callbackUrl":"http://a/"}`)
}
