package gateway_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
)

// A client that goes while it waits for a command's end keeps no connection.
func TestWaiterThatGoesIsLetGo(t *testing.T) {
	f := start(t, nil)
	edge := f.edge("edge-1", "td-01")
	const waiters = 20
	for i := range waiters {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"target_client_id":"td-01","command":{"commandType":"T"},"request_ref":"gone-%d"}`, i)
		fmt.Fprintf(conn, "POST /api/commands?wait=60000 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		edge.expect("COMMAND")
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset
		}
		_ = conn.Close()
	}
	until(t, "the waiters' connections are gone", func() bool { return f.metric(`subway_connections{kind="http"}`) <= 2 })
	if n := f.metric("subway_pending_commands"); n != waiters {
		t.Errorf("%g commands are pending, want %d: a waiter that goes does them no harm", n, waiters)
	}
}

// A device that is named twice gets the command twice; a pattern adds nobody twice.
func TestBatchNamesAndPatterns(t *testing.T) {
	f := start(t, nil)
	f.edge("edge-1", "td-01", "td-02", "screen-1")
	targets := func(list string) []string {
		t.Helper()
		a := f.want(200, "", "POST", "/api/commands/batch", `{"command":{"commandType":"T"},"targets":`+list+`}`)
		var got struct {
			Results []struct{ TargetClientID, RequestRef string }
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range got.Results {
			ids = append(ids, r.TargetClientID)
		}
		return ids
	}
	for list, want := range map[string]string{
		`["td-01","td-01"]`:          "td-01 td-01",
		`["td-01","td-*"]`:           "td-01 td-02",
		`["td-*","td-01"]`:           "td-02 td-01",
		`["td-*","*"]`:               "td-01 td-02 screen-1",
		`["screen-*","td-0*","td*"]`: "screen-1 td-01 td-02",
	} {
		if got := strings.Join(targets(list), " "); got != want {
			t.Errorf("%s went to %s, want %s", list, got, want)
		}
	}
	many := `["td-01"` + strings.Repeat(`,"td-01"`, 1000) + `]`
	f.want(400, "INVALID_REQUEST", "POST", "/api/commands/batch", `{"command":{"commandType":"T"},"targets":`+many+`}`)
}

// What is wrong with a request is told without a word of another's, and a page of
// another origin commands nobody.
func TestAnswersTellNothingOfOthers(t *testing.T) {
	f := start(t, nil)
	f.edge("edge-1", "td-01")
	for i := range 50 {
		f.want(200, "", "POST", "/api/commands", fmt.Sprintf(`{"target_client_id":"td-01","command":{"commandType":"T"},"request_ref":"secret-%d"}`, i))
		for _, body := range []string{"", "garbage", "[1]", `{"x":1`} {
			if a := f.want(400, "INVALID_REQUEST", "POST", "/api/commands", body); strings.Contains(string(a.body), "secret") || strings.Contains(string(a.body), "requestRef") {
				t.Fatalf("the answer to %q: %s", body, a.body)
			}
		}
		a := f.want(200, "", "POST", "/api/commands/batch", `{"commands":[{"target_client_id":"td-01","command":{"commandType":"T"}},"x",null]}`)
		if n := strings.Count(string(a.body), "targetClientId"); n != 1 {
			t.Fatalf("%d targets in %s", n, a.body)
		}
	}
	command := `{"target_client_id":"td-01","command":{"commandType":"T"}}`
	f.want(403, "FORBIDDEN", "POST", "/api/commands", command, "Origin", "http://evil.example", "Content-Type", "text/plain")
	f.want(200, "", "POST", "/api/commands", command, "Origin", "http://"+f.addr)
	f.want(200, "", "GET", "/api/devices", "", "Origin", "http://evil.example")
}
