package wire

import (
	"testing"

	"github.com/mailru/easyjson"
)

func TestAnswers(t *testing.T) {
	f := func(answer easyjson.Marshaler, want string) {
		t.Helper()
		if got := string(AppendAnswer([]byte("#"), answer)); got != "#"+want {
			t.Errorf("got %s\nwant #%s", got, want)
		}
	}
	f(&CommandAnswer{Success: true, RequestRef: "r", Message: "a <b> & c"}, `{"success":true,"requestRef":"r","message":"a <b> & c"}`)
	f(&CommandAnswer{Success: true, RequestRef: "r", Status: "CANCELLED"}, `{"success":true,"requestRef":"r","status":"CANCELLED"}`)
	f(&ErrorAnswer{Error: "no", Code: "NOT_FOUND"}, `{"success":false,"error":"no","code":"NOT_FOUND"}`)
	f(&ErrorAnswer{Error: "no", Code: "X", Details: []byte(`{"field":"a"}`), RequestRef: "r"}, `{"success":false,"error":"no","code":"X","details":{"field":"a"},"requestRef":"r"}`)
	f(&CommandRecord{Success: true, RequestRef: "r", Status: "PENDING", TargetClientID: "td", CommandType: "T", Priority: "LOW", TimeoutMs: 5, CreatedAt: at, UpdatedAt: at,
		Result: []byte(`{"a": 1.0}`), ExecutionTime: []byte("42"), Callback: &CallbackState{State: "DEAD"}},
		`{"success":true,"requestRef":"r","status":"PENDING","targetClientId":"td","commandType":"T","priority":"LOW","timeout":5,"createdAt":"2024-01-20T10:00:00.123Z",`+
			`"updatedAt":"2024-01-20T10:00:00.123Z","result":{"a": 1.0},"executionTime":42,"callback":{"state":"DEAD","attempts":0}}`)
	f(&CommandList{Success: true}, `{"success":true,"commands":[]}`)
	f(&DeviceList{Success: true, NextCursor: "c", Devices: []Device{{ClientID: "a", LastSeen: at, StatusAt: at, Status: []byte("{}")}}},
		`{"success":true,"devices":[{"clientId":"a","deviceType":"","edgeId":"","connection":"","lastSeen":"2024-01-20T10:00:00.123Z","epoch":0,"status":{},"statusAt":"2024-01-20T10:00:00.123Z"}],"nextCursor":"c"}`)
	f(&EdgeAnswer{Success: true, Edge: Edge{EdgeID: "e", LastSeen: at}},
		`{"success":true,"edge":{"edgeId":"e","connection":"","devices":0,"queued":0,"lastSeen":"2024-01-20T10:00:00.123Z","epoch":0,"remoteAddress":""}}`)
	var zero int64
	f(&Trace{RequestRef: "r", Path: []Hop{{"http", 1, "send"}}, Status: "pending"}, `{"requestRef":"r","startTime":0,"path":[{"node":"http","timestamp":1,"action":"send"}],"status":"pending"}`)
	f(&Trace{RequestRef: "r", Duration: &zero}, `{"requestRef":"r","startTime":0,"path":[],"status":"","duration":0}`)
	f(&BatchAnswer{Success: true, Accepted: 1, Results: []BatchResult{{TargetClientID: "a", RequestRef: "r"}, {TargetClientID: "b", Error: "e", Code: "C"}}},
		`{"success":true,"accepted":1,"rejected":0,"results":[{"targetClientId":"a","requestRef":"r"},{"targetClientId":"b","error":"e","code":"C"}]}`)
}

// TestAppendedAnswers: what is appended member by member is what the generated code writes.
func TestAppendedAnswers(t *testing.T) {
	f := func(got []byte, answer easyjson.Marshaler) {
		t.Helper()
		if want := string(AppendAnswer([]byte("#"), answer)); string(got) != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	for _, ref := range []string{"cmd-1", `a"b\c<>&`} {
		f(AppendAccepted([]byte("#"), []byte(ref)), &CommandAnswer{Success: true, RequestRef: ref, Message: "Command accepted for processing"})
	}
	f(AppendBatchAnswer([]byte("#"), 0, 0, nil), &BatchAnswer{Success: true})
	f(AppendBatchAnswer([]byte("#"), 1, 2, AppendBatchRejected(AppendBatchRejected(AppendBatchAccepted(nil, []byte("td-1"), []byte("r")), []byte(`a"`), "no", CodeTargetNotFound, []byte("{}")),
		nil, "bad", CodeInvalidRequest, nil)),
		&BatchAnswer{Success: true, Accepted: 1, Rejected: 2, Results: []BatchResult{{TargetClientID: "td-1", RequestRef: "r"},
			{TargetClientID: `a"`, Error: "no", Code: CodeTargetNotFound.String(), Details: []byte("{}")}, {Error: "bad", Code: CodeInvalidRequest.String()}}})
	for _, c := range []CommandRecord{
		{},
		{Success: true, RequestRef: "r", Status: "PENDING", TargetClientID: "td-1", CommandType: "a \"b\" é \n", Priority: "LOW", TimeoutMs: 30000, CreatedAt: at, UpdatedAt: at + 5e6},
		{RequestRef: "r", Progress: []byte(`{"a": 1}`), Result: []byte(`{"b": [1.0]}`), Error: []byte(`{"code":"X"}`), ExecutionTime: []byte("42"), Callback: &CallbackState{State: "DELIVERED", Attempts: 2}},
		{Progress: []byte{}, Callback: &CallbackState{}},
	} {
		f(c.Append([]byte("#")), &c)
	}
}

func TestAnswersAreReadBack(t *testing.T) {
	var l CallbackList
	want := CallbackList{Success: true, Callbacks: []Callback{{ID: "i", RequestRef: "r", URL: "u", State: "DEAD", Attempts: 3, LastError: "e", CreatedAt: at / 1e6 * 1e6}}}
	if err := easyjson.Unmarshal(AppendAnswer(nil, &want), &l); err != nil || len(l.Callbacks) != 1 || l.Callbacks[0] != want.Callbacks[0] {
		t.Errorf("%+v, %v", l, err)
	}
	if err := easyjson.Unmarshal([]byte(`{"callbacks":[{"createdAt":"yesterday"}]}`), &l); err == nil {
		t.Error("a time that is none is read")
	}
}
