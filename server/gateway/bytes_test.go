package gateway_test

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/gobwas/ws"
)

// awkward are values that a reader who decodes and encodes again would change.
var awkward = []string{
	`9007199254740993`, `-0`, `1.0`, `1E+2`, `0.1e-7`, `123456789012345678901234567890`, `1e400`,
	`"\u0041\/\u00e9"`, `"é\u2028<>&'"`, `"\ud83d\ude00😀"`, `"\ud800"`, `"\u0000\b\f"`, `"` + "\u2028\u2029\ufeff\x7f" + `"`,
	`{"b":1,"a":2,"b":3}`, `{ "x" :	[ ] , "" : { } }`, "[\r\n\t1 , 2 ]", `null`, `[null,true,false]`,
	`{"requestRef":"inner","targetClientId":"inner","sourceClientId":"inner","type":"inner"}`,
}

// members builds the rest of a message: strangers with awkward values, in an order and
// with white space of their own.
func members(rng *rand.Rand, named []string) string {
	all := append([]string(nil), named...)
	for i := range 1 + rng.IntN(6) {
		all = append(all, `"x`+strconv.Itoa(i)+`"`+space(rng)+`:`+space(rng)+awkward[rng.IntN(len(awkward))])
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var b strings.Builder
	for i, m := range all {
		if i > 0 {
			b.WriteString(space(rng) + ",")
		}
		b.WriteString(space(rng) + m)
	}
	return b.String()
}

func space(rng *rand.Rand) string {
	return []string{"", "", "", " ", "\n", "\t", "\r\n  "}[rng.IntN(7)]
}

// TestByteForByte: what the router forwards is byte for byte what came in, either way,
// through real sockets, whole or in fragments, text or binary; to a command the Gateway
// adds before the last brace what was absent.
func TestByteForByte(t *testing.T) {
	f := start(t, nil)
	r := receive(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	rng := seeded(t)
	for n := range 500 {
		ref := "r-" + strconv.Itoa(n)
		command := space(rng) + "{" + members(rng, []string{`"type":"COMMAND"`, `"requestRef":"` + ref + `"`, `"targetClientId" : "td-01"`,
			`"command":{` + members(rng, []string{`"commandType":"T"`}) + `}`, `"callback":"` + r.URL + `"`}) + space(rng) + "}" + space(rng)
		backend.write(chopped(rng, command))
		m := edge.expectCommand(ref)
		cut := strings.LastIndexByte(command, '}')
		rest, ok := bytes.CutPrefix(m.raw, []byte(command[:cut]))
		added, ok2 := bytes.CutSuffix(rest, []byte(command[cut:]))
		if !ok || !ok2 || !bytes.HasPrefix(added, []byte(`,"sourceClientId":"backend-1"`)) {
			t.Fatalf("the edge got\n%q, sent was\n%q", m.raw, command)
		}
		progress := "{" + members(rng, []string{`"type":"PROGRESS_UPDATE"`, `"requestRef":"` + ref + `"`, `"progress":{"of" : 1.50}`}) + space(rng) + "}"
		result := awkward[rng.IntN(len(awkward))]
		response := "{" + members(rng, []string{`"type":"COMMAND_RESPONSE"`, `"requestRef":"` + ref + `"`, `"status":"COMPLETED"`, `"result":` + result}) + "}"
		for _, msg := range []string{progress, response} {
			edge.write(chopped(rng, msg))
			if m := backend.next(); string(m.raw) != msg {
				t.Fatalf("the Backend got\n%q, sent was\n%q", m.raw, msg)
			}
		}
		if a := f.record(ref); n%50 == 0 && result != "null" && !bytes.Contains(a.body, []byte(`"result":`+result)) {
			t.Errorf("the record of %q is %s", result, a.body)
		}
	}
	for _, h := range r.wait(1000) {
		if h.fields["type"] == "PROGRESS_UPDATE" && !bytes.Contains(h.body, []byte(`"progress":{"of" : 1.50}`)) {
			t.Errorf("callback %s", h.body)
		}
	}
}

// chopped makes a message one frame or some fragments, of text or binary.
func chopped(rng *rand.Rand, msg string) (sent []byte) {
	op := []ws.OpCode{ws.OpText, ws.OpBinary}[rng.IntN(2)]
	for rng.IntN(3) == 0 && len(msg) > 0 {
		n := rng.IntN(len(msg))
		sent = append(sent, frame(op, false, []byte(msg[:n]))...)
		msg, op = msg[n:], ws.OpContinuation
	}
	return append(sent, frame(op, true, []byte(msg))...)
}

// TestLargestMessage: a command of a full MiB goes through and arrives with what is
// added to it, a response likewise.
func TestLargestMessage(t *testing.T) {
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.edge("edge-1", "td-01")
	fill := func(msg string) string {
		return strings.Replace(msg, "#", strings.Repeat("é", (1<<20-len(msg)+1)/2)+strings.Repeat("x", (1<<20-len(msg)+1)%2), 1)
	}
	command := fill(`{"type":"COMMAND","requestRef":"r","targetClientId":"td-01","command":{"commandType":"T","data":"#"}}`)
	backend.send(command)
	m := edge.expectCommand("r")
	if over := len(m.raw) - 1<<20; len(command) != 1<<20 || over <= 0 || over > 4<<10 || !bytes.HasPrefix(m.raw, []byte(command[:len(command)-1])) {
		t.Errorf("%d bytes became %d", len(command), len(m.raw))
	}
	response := fill(`{"type":"COMMAND_RESPONSE","requestRef":"r","status":"COMPLETED","result":"#"}`)
	edge.send(response)
	if m = backend.expect("COMMAND_RESPONSE"); string(m.raw) != response {
		t.Error("the response changed on its way")
	}
	if a := f.record("r"); a.str("status") != "COMPLETED" || len(a.str("result")) < 1<<20-100 {
		t.Errorf("the record has a result of %d bytes", len(a.str("result")))
	}
}
