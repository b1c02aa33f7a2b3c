package wire

import (
	"fmt"
	"strings"
	"testing"
)

// command returns a COMMAND of about n bytes, most of it strings and numbers of
// a payload.
func command(n int) []byte {
	head := `{"type":"COMMAND","requestRef":"cmd-1705744800000-k3j9x0q2a","targetClientId":"td-01","command":{"commandType":"SET_BRIGHTNESS","value":80`
	const item = `,"item%03d":{"title":"the quick brown fox jumps over the lazy dog","size":[1920,1080],"loop":true,"at":1705744800000.25}`
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len()+128 < n; i++ {
		fmt.Fprintf(&b, item, i)
	}
	b.WriteString(`},"timeout":30000}`)
	return []byte(b.String())
}

func BenchmarkScan(b *testing.B) {
	for _, c := range []struct {
		name string
		msg  []byte
	}{
		{"170B", command(170)},
		{"1KB", command(1 << 10)},
		{"16KB", command(16 << 10)},
		{"1KBstring", []byte(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T","blob":"` + strings.Repeat("0123456789abcdef", 58) + `"}}`)},
		{"16KBstring", []byte(`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T","blob":"` + strings.Repeat("0123456789abcdef", 1018) + `"}}`)},
		{"response", []byte(`{"type":"COMMAND_RESPONSE","requestRef":"cmd-1705744800000-k3j9x0q2a","status":"COMPLETED","result":{"brightness":80},"executionTime":42}`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var e Envelope
			b.SetBytes(int64(len(c.msg)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Scan(c.msg, DefaultMaxDepth); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// payload returns a JSON value of about n bytes: a string, or an array of small objects.
func payload(n int, objects bool) string {
	if !objects {
		return `"` + strings.Repeat("the quick brown fox jumps over the lazy dog ", n/44+1)[:n] + `"`
	}
	var b strings.Builder
	for id := 1001; b.Len() < n-50; id++ {
		fmt.Fprintf(&b, `,{"id":%d,"name":"item-%d","on":true,"level":12.5}`, id, id)
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]"
}

// pair returns the two messages of a command as clients write them, number n of many.
func pair(n int, payload string) (command, response []byte) {
	ref := fmt.Sprintf("cmd-17057448%05d-k3j9x0q2-%010d", n, n*7919)
	return fmt.Appendf(nil, `{"type":"COMMAND","requestRef":"%s","targetClientId":"td-%06d","command":{"commandType":"SHOW","data":%s},`+
			`"priority":"NORMAL","timeout":30000,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"}`, ref, n, payload),
		fmt.Appendf(nil, `{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":{"data":%s},`+
			`"executionTime":1,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"}`, ref, payload)
}

// BenchmarkPair reads the two messages of a command, of many in turn.
func BenchmarkPair(b *testing.B) {
	for _, c := range []struct {
		name    string
		payload string
	}{
		{"0", payload(0, false)},
		{"200", payload(200, false)},
		{"1000", payload(1000, false)},
		{"16000", payload(16_000, false)},
		{"1000objects", payload(1000, true)},
		{"16000objects", payload(16_000, true)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var e Envelope
			var s Scratch
			var command Command
			var response Response
			var msgs [64][]byte
			for i := 0; i < len(msgs); i += 2 {
				msgs[i], msgs[i+1] = pair(i, c.payload)
			}
			b.SetBytes(int64(len(msgs[0]) + len(msgs[1])))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if e.Scan(msgs[i%32*2], DefaultMaxDepth) != nil || e.Command(&command, &s) != nil {
					b.Fatal(string(msgs[i%32*2]))
				}
				if e.Scan(msgs[i%32*2+1], DefaultMaxDepth) != nil || e.Response(&response, &s) != nil {
					b.Fatal(string(msgs[i%32*2+1]))
				}
			}
		})
	}
}

func BenchmarkCommand(b *testing.B) {
	var e Envelope
	var c Command
	var s Scratch
	if err := e.Scan(command(170), DefaultMaxDepth); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if f := e.Command(&c, &s); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	var e Envelope
	if err := e.Scan(command(170), DefaultMaxDepth); err != nil {
		b.Fatal(err)
	}
	a := additions()
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		dst = append(dst[:0], e.Msg[:e.Close()]...)
		dst = e.AppendAdditions(dst, a)
		dst = append(dst, e.Msg[e.Close():]...)
	}
}

func BenchmarkHTTPCommand(b *testing.B) {
	body := []byte(`{"target_client_id":"td-01","command":{"commandType":"SET_BRIGHTNESS","value":80},"callback_url":"http://eudi.example/cb","priority":"NORMAL","timeout":30000}`)
	var c HTTPCommand
	var s Scratch
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if f := ParseHTTPCommand(body, DefaultMaxDepth, &c, &s); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkValidUTF8(b *testing.B) {
	command, _ := pair(1, payload(200, false))
	b.SetBytes(int64(len(command)))
	for b.Loop() {
		if !ValidUTF8(command) {
			b.Fatal("it is valid")
		}
	}
}

func BenchmarkAppendTime(b *testing.B) {
	dst := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendTime(dst[:0], at)
	}
}

func TestHotFunctionsAllocateNothing(t *testing.T) {
	var (
		e    Envelope
		s    Scratch
		c    Command
		r    Response
		h    HTTPCommand
		reg  Register
		rec  = CommandRecord{Success: true, RequestRef: "r", CreatedAt: at, Result: []byte("{}"), Callback: &CallbackState{State: "DEAD"}}
		dst  = make([]byte, 0, 4096)
		ref  = []byte("cmd-1")
		plan = command(1024)
		esc  = []byte(`{"t\u0079pe":"COMM\u0041ND","version":"1\u002e0","requestRef":"\u0063md","targetClientId":"\u0074d","command":{"commandType":"\u0054"},"priority":"HIG\u0048","timeout":null}`)
		resp = []byte(`{"type":"COMMAND_RESPONSE","requestRef":"r","status":"FAILED","error":{"code":"A"},"executionTime":42}`)
		bad  = []byte(`{"type":"COMMAND","requestRef":"r","version":"2.0"}`)
		snap = []byte(`{"type":"REGISTER","clientId":"e","clientType":"EDGE","devices":["a","b",{"clientId":"c"}]}`)
		body = []byte(`{"target_client_id":"td\u002d01","command":{"commandType":"T"},"priority":"LOW"}`)
	)
	f := func(name string, run func()) {
		t.Helper()
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	f("Scan", func() { _ = e.Scan(plan, 64) })
	f("Command", func() { _ = e.Command(&c, &s) })
	f("AppendAdditions", func() { dst = e.AppendAdditions(dst[:0], &Additions{Ref: ref, Now: at}) })
	f("escapes", func() { _ = e.Scan(esc, 64); _ = e.Command(&c, &s) })
	f("AppendForward", func() { dst = e.AppendForward(dst[:0], &Additions{Ref: ref, Now: at}) })
	f("Response", func() { _ = e.Scan(resp, 64); _ = e.Response(&r, &s) })
	f("a fault", func() { _ = e.Scan(bad, 64); dst = AppendFault(dst[:0], faultMajor, e.Ref(nil), at) })
	f("a syntax fault", func() { _ = e.Scan(bad[:20], 64) })
	f("Register", func() { _ = e.Scan(snap, 64); _ = e.Register(&reg, &s) })
	f("ParseHTTPCommand", func() { _ = ParseHTTPCommand(body, 64, &h, &s) })
	f("AppendHTTPCommand", func() { dst = AppendHTTPCommand(dst[:0], ref, ref, ref, PriorityLow, 1, ref, true, at) })
	f("AppendAccepted", func() { dst = AppendAccepted(dst[:0], ref) })
	f("CommandRecord.Append", func() { dst = rec.Append(dst[:0]) })
	f("AppendError", func() { dst = AppendError(dst[:0], "A", "m", nil, ref, at) })
	f("AppendRegisterAck", func() { dst = AppendRegisterAck(dst[:0], ref, "EDGE", "s", 1, 30000, at) })
	f("AppendCommandAck", func() { dst = AppendCommandAck(dst[:0], ref, ref, at) })
	f("AppendHeartbeatAck", func() { dst = AppendHeartbeatAck(dst[:0], at) })
	f("AppendCancel", func() { dst = AppendCancel(dst[:0], ref, nil, at) })
	f("AppendConnectionStatus", func() { dst = AppendConnectionStatus(dst[:0], &ConnectionStatus{ClientType: "EDGE"}, at) })
	f("ParseInteger", func() { _, _ = ParseInteger([]byte("1.5e3")) })
	f("ParseNumber", func() { _, _ = ParseNumber([]byte("33.3")) })
}
