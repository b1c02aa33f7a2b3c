package wire

import (
	"fmt"
	"strings"
	"testing"
)

func TestRegister(t *testing.T) {
	var r Register
	var s Scratch
	e := scan(t, `{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE","edgeInfo":{"edgeId":"\u0065dge-001","edgeVersion":"1.3.0"},
		"deviceInfo":{"model":"P3"},"token":"\u0074ok"}`)
	wantFault(t, "DEVICE", e.Register(&r, &s), "", "")
	if string(r.ClientID) != "td-01" || r.ClientType != ClientDevice || !r.HasEdge || string(r.EdgeID) != "edge-001" || string(r.EdgeVersion) != "1.3.0" ||
		string(r.DeviceInfoRaw) != `{"model":"P3"}` || string(r.Token) != "tok" || r.Dedupe || r.HasDevices {
		t.Errorf("DEVICE: %+v", r)
	}
	e = scan(t, `{"type":"REGISTER","clientId":"e","clientType":"EDGE","devices":["a",{"clientId":"b"}],"capabilities":["x","d\u0065dupe"],"edgeInfo":{"edgeVersion":"2"}}`)
	wantFault(t, "EDGE", e.Register(&r, &s), "", "")
	if r.ClientType != ClientEdge || !r.Dedupe || !r.HasDevices || r.DeviceCount != 2 || string(r.EdgeVersion) != "2" || r.EdgeID != nil || r.Token != nil || r.DeviceInfoRaw != nil {
		t.Errorf("EDGE: %+v", r)
	}
	e = scan(t, `{"type":"REGISTER","clientId":"e","clientType":"BACKEND","edgeInfo":null,"deviceInfo":null,"token":null,"devices":null,"capabilities":null}`)
	wantFault(t, "BACKEND", e.Register(&r, &s), "", "")
	if r.ClientType != ClientBackend || r.HasEdge || r.HasDevices || r.Dedupe {
		t.Errorf("BACKEND: %+v", r)
	}
	e = scan(t, `{"type":"REGISTER","clientId":"e","clientType":"EDGE","devices":[]}`)
	wantFault(t, "an empty snapshot", e.Register(&r, &s), "", "")
	if !r.HasDevices || r.DeviceCount != 0 {
		t.Errorf("an empty snapshot: %+v", r)
	}
}

func TestRegisterFaults(t *testing.T) {
	f := func(members, field string) {
		t.Helper()
		var r Register
		var s Scratch
		code := "INVALID_MESSAGE"
		if field == "" {
			code = ""
		}
		wantFault(t, members, scan(t, `{"type":"REGISTER"`+members+`}`).Register(&r, &s), code, field)
	}
	f(`,"clientType":"EDGE"`, "clientId")
	f(`,"clientId":"a"`, "clientType")
	for _, id := range []string{"null", "7", `""`, `"a b"`, `"a/b"`, `"a\u0000b"`, `"节目"`, `"a*"`, `"td-01\u200b"`, `{}`} {
		f(`,"clientType":"EDGE","clientId":`+id, "clientId")
	}
	for _, ty := range []string{"null", "7", `""`, `"edge"`, `"GATEWAY"`, `["EDGE"]`} {
		f(`,"clientId":"a","clientType":`+ty, "clientType")
	}
	const dev = `,"clientId":"a","clientType":"DEVICE"`
	const edge = `,"clientId":"a","clientType":"EDGE"`
	for _, v := range []string{`7`, `"e"`, `[]`} {
		f(dev+`,"edgeInfo":`+v, "edgeInfo")
		f(dev+`,"deviceInfo":`+v, "deviceInfo")
	}
	for _, v := range []string{`{}`, `{"edgeId":null}`, `{"edgeId":7}`, `{"edgeId":"a b"}`, `{"edgeId":""}`, `{"x":{"edgeId":"e"}}`} {
		f(dev+`,"edgeInfo":`+v, "edgeInfo.edgeId")
	}
	f(edge+`,"edgeInfo":{}`, "")
	f(edge+`,"edgeInfo":{"edgeId":7}`, "edgeInfo.edgeId")
	f(dev+`,"edgeInfo":{"edgeId":"e","edgeVersion":7}`, "edgeInfo.edgeVersion")
	f(dev+`,"token":7`, "token")
	for _, v := range []string{`"dedupe"`, `{}`, `[7]`, `["dedupe",null]`} {
		f(edge+`,"capabilities":`+v, "capabilities")
	}
	f(edge+`,"capabilities":[]`, "")
	for _, v := range []string{`"td-1"`, `{"a":1}`, `7`, `[7]`, `["a","with space"]`, `[{"deviceInfo":{}}]`, `[""]`, `[null]`, `[["td-1"]]`, `[{"clientId":"a","deviceInfo":7}]`, `[{"clientId":7}]`} {
		f(edge+`,"devices":`+v, "devices")
	}
}

func TestEachDevice(t *testing.T) {
	e := scan(t, `{"type":"REGISTER","devices":[ "td-01" , {"clientId":"td-02","deviceInfo":{"m":[1]}},"\u0074d-03",
		{"deviceInfo":null,"client\u0049d":"\u0074d-04","x":[{}]}, {"clientId":"no","clientId":"td-05"}]}`)
	var got []string
	collect := func(id, info []byte) bool {
		got = append(got, fmt.Sprintf("%s %s", id, info))
		return len(got) != 7
	}
	wantFault(t, "devices", e.EachDevice(collect), "", "")
	if want := `td-01 ,td-02 {"m":[1]},td-03 ,td-04 ,td-05 `; strings.Join(got, ",") != want {
		t.Errorf("got %q", strings.Join(got, ","))
	}
	wantFault(t, "stopped", e.EachDevice(collect), "", "")
	if len(got) != 7 {
		t.Errorf("it did not stop: %d", len(got))
	}
	for _, none := range []string{`{"type":"REGISTER"}`, `{"type":"REGISTER","devices":null}`, `{"type":"REGISTER","devices":[ ]}`} {
		wantFault(t, none, scan(t, none).EachDevice(func(_, _ []byte) bool { t.Error("called for " + none); return true }), "", "")
	}
	e = scan(t, `{"type":"REGISTER","devices":["a","b c"]}`)
	wantFault(t, "a bad entry", e.EachDevice(func(_, _ []byte) bool { return true }), "INVALID_MESSAGE", "devices")
}

func TestClientID(t *testing.T) {
	var s Scratch
	id, f := scan(t, `{"type":"UNREGISTER","clientId":"\u0061"}`).ClientID(&s)
	wantFault(t, "UNREGISTER", f, "", "")
	if string(id) != "a" {
		t.Errorf("id %q", id)
	}
	_, f = scan(t, `{"type":"UNREGISTER"}`).ClientID(&s)
	wantFault(t, "UNREGISTER without an id", f, "INVALID_MESSAGE", "clientId")
	for ty := ClientBackend; ty <= ClientDevice; ty++ {
		if got, ok := ParseClientType([]byte(ty.String())); got != ty || !ok {
			t.Errorf("%v is read as %v", ty, got)
		}
	}
	if ClientNone.String() != "" {
		t.Error("ClientNone has a word")
	}
}
