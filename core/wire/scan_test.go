package wire

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// heartbeat returns a message that holds v, written as it is.
func heartbeat(v string) string { return `{"type":"HEARTBEAT","x":` + v + `}` }

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestScanTakesEveryValue(t *testing.T) {
	f := func(v string) {
		t.Helper()
		wantFault(t, v, scanFault(heartbeat(v)), "", "")
	}
	for _, v := range []string{
		"null", "true", "false", "0", "-0", "-0.0", "1", "-12", "1.5", "0.001", "1e3", "1E+3", "1e-3", "0e0", "-1.5E+10", "123456789012345678901234567890",
		`""`, `"a"`, `"é 节目 😀"`, `"\"\\\/\b\f\n\r\t"`, `"\u0000"`, `"\ud83d\ude00"`, `"\ud800"`, `"\udc00\ud800x"`, `"\uABcd"`, "\"\x7f\"",
		`[]`, `[ ]`, `[1]`, `[1,2 , 3]`, `{}`, `{ }`, `{"a":1}`, `{"a":1,"a":2}`, `{"":0}`, `[[],{},[{}]]`, `{"a":{"b":[{"c":null}]}}`,
		" \t\r\n1 \t\r\n", "[ \n1\t,\r2 ]", "{ \"a\" :\t1 , \"b\"\n: 2 }",
	} {
		f(v)
	}
	for n := range 40 { // every alignment of the eight-byte steps
		s := strings.Repeat("a", n)
		f(`"` + s + `"`)
		f(`"` + s + `\""`)
		f(`"` + s + `é"`)
		f(`{"` + s + `":"` + s + `\\"}`)
	}
}

func TestScanRefusesWhatIsNoJSON(t *testing.T) {
	f := func(msg string) {
		t.Helper()
		if json.Valid([]byte(msg)) && strings.HasPrefix(strings.TrimLeft(msg, " \t\r\n"), "{") {
			t.Fatalf("the case is valid: %s", msg)
		}
		wantFault(t, msg, scanFault(msg), "INVALID_MESSAGE", "")
	}
	for _, msg := range []string{
		"", " ", "hello", "[]", `[{"type":"HEARTBEAT"}]`, `"HEARTBEAT"`, "1", "null", "true", "{", "}", "{]", `{"type":"HEARTBEAT"`,
		`{"type":"HEARTBEAT"} {}`, `{"type":"HEARTBEAT"}}`, `{"type":"HEARTBEAT",}`, `{,"type":"HEARTBEAT"}`, `{"type":"HEARTBEAT",,"x":1}`,
		`{'type':'HEARTBEAT'}`, `{type:"HEARTBEAT"}`, `{"type" "HEARTBEAT"}`, `{"type":"HEARTBEAT" "x":1}`, `{"type":"HEARTBEAT";"x":1}`,
		`{"type":"HEARTBEAT"}//c`, "{\"type\":\"HEARTBEAT\"}\x00", "\xef\xbb\xbf{\"type\":\"HEARTBEAT\"}", "\v{\"type\":\"HEARTBEAT\"}", "{\"type\":\u00a0\"HEARTBEAT\"}",
		`{"type`, `{"type"`, `{"type":`, `{"type":"`, `{"type":"HEARTBEAT",`, `{"type":"HEARTBEAT","x`, `{"type":"HEARTBEAT","x\`, `{1:2}`, `{null:1}`,
	} {
		f(msg)
	}
	for _, v := range []string{
		"", "NaN", "Infinity", "-Infinity", "01", "-01", "1.", "+1", ".5", "-.5", "-", "--1", "0x1", "1e", "1e+", "1.e3", "1e1.5", "1_000", "tru", "True", "nul", "nulll", "falsee", "truefalse",
		`"`, `"\x41"`, `"\u12G4"`, `"\u123"`, `"\u"`, `"\"`, `"\ "`, "\"a\x00b\"", "\"\x01\"", "\"\n\"", "\"\t\"", "\"\x1f\"", "'a'",
		"[1 2]", "[1,]", "[,1]", "[,]", "[", "]", "[1}", "{]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1]`, `{"a" 1}`, `{a:1}`, `{"a":1 "b":2}`, `{,}`, `[{]}`, `{"a":[}]`,
	} {
		f(heartbeat(v))
		f(`{"type":"COMMAND","command":` + v + `}`)
		f(heartbeat("[" + v + ",")) // and deeper
	}
	for c := range 0x20 { // every control character, at every alignment
		for n := range 16 {
			f(heartbeat(`"` + strings.Repeat("a", n) + string(rune(c)) + `bbbbbbbb"`))
		}
	}
}

func TestScanBoundsDepth(t *testing.T) {
	f := func(msg string, depth int, ok bool) {
		t.Helper()
		var e Envelope
		err := e.Scan([]byte(msg), depth)
		if (err == nil) != ok {
			t.Errorf("%.80s with %d levels: %v", msg, depth, err)
		}
		if err != nil && err != error(faultDepth) {
			t.Errorf("%.80s with %d levels: %v, want %v", msg, depth, err, faultDepth)
		}
	}
	f(`{"type":"HEARTBEAT"}`, 1, true)
	f(`{"type":"HEARTBEAT"}`, 0, false)
	f(heartbeat("[]"), 1, false)
	f(heartbeat("[]"), 2, true)
	f(heartbeat(nested(63)), 64, true)
	f(heartbeat(nested(64)), 64, false)
	f(heartbeat(strings.Repeat(`{"a":`, 63)+"1"+strings.Repeat("}", 63)), 64, true)
	f(heartbeat(strings.Repeat(`{"a":`, 64)+"1"+strings.Repeat("}", 64)), 64, false)
	f(heartbeat("["+strings.Repeat(nested(62)+",", 9)+"1]"), 64, true)
	f(`{"type":"CANCEL","command":{"deep":`+nested(62)+`}}`, 64, true)
	f(`{"type":"CANCEL","command":{"deep":`+nested(63)+`}}`, 64, false)
	f(`{"type":"CANCEL","command":{}}`, 1, false)
	f(heartbeat(nested(MaxDepth-1)), 1<<30, true)
	f(heartbeat(nested(MaxDepth)), 1<<30, false)
	f(heartbeat(strings.Repeat("[", 400_000)), 64, false)
	f(`{"a":`+strings.Repeat(`{"a":`, 150_000), 64, false)
}

// TestScanAgainstEncodingJSON breaks messages at random and asks encoding/json,
// which knows no type, no depth and no twice, what is still JSON.
func TestScanAgainstEncodingJSON(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	seeds := []string{
		heartbeat(`[1,-2.5e+3,true,false,null,"a\u00e9\n",{"b":{"c":[]},"d":""}]`),
		`{"type":"COMMAND","targetClientId":"td-01","command":{"commandType":"T","v":[{}]},"timeout":1e3}`,
		` { "type" : "REGISTER" , "edgeInfo" : { "edgeId" : "e" , "x" : [ 1 , 2 ] } } `,
	}
	const letters = `{}[]",:\u019eE+-.tfn /aA` + "\x00\x1f\x7f\n\t\xc3"
	for range 200_000 {
		msg := []byte(seeds[rnd.IntN(len(seeds))])
		for range 1 + rnd.IntN(3) {
			at, c := rnd.IntN(len(msg)), letters[rnd.IntN(len(letters))]
			switch rnd.IntN(3) {
			case 0:
				msg[at] = c
			case 1:
				msg = append(msg[:at], msg[at+1:]...)
			default:
				msg = append(msg[:at], append([]byte{c}, msg[at:]...)...)
			}
		}
		var e Envelope
		f, _ := e.Scan(msg, DefaultMaxDepth).(*Fault)
		object := bytes.HasPrefix(bytes.TrimLeft(msg, " \t\r\n"), []byte("{")) && json.Valid(msg)
		if (f == faultSyntax) == object {
			t.Fatalf("Scan(%q): %v; encoding/json: %v", msg, f, object)
		}
	}
}
