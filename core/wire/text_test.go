package wire

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestIDs(t *testing.T) {
	f := func(s string, id, ref bool) {
		t.Helper()
		if ValidID([]byte(s)) != id || ValidRef([]byte(s)) != ref {
			t.Errorf("%q: id %v, ref %v", s, ValidID([]byte(s)), ValidRef([]byte(s)))
		}
	}
	f("td-01", true, true)
	f("A.b_c:d-0Zz9", true, true)
	f("a", true, true)
	f("", false, false)
	f("a b", false, false)
	f("a/b", false, true)
	f("a*", false, true)
	f("é", false, false)
	f("a\x7f", false, false)
	f("a\x00", false, false)
	f("~!", false, true)
	f(strings.Repeat("a", 128), true, true)
	f(strings.Repeat("a", 129), false, false)
}

func TestDeviceType(t *testing.T) {
	for id, want := range map[string]string{"td-01": "td", "a-b-03": "a-b", "nodash": "unknown", "-1": "unknown", "td-": "td", "": "unknown", "--": "-"} {
		if got := DeviceType(id); got != want {
			t.Errorf("DeviceType(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestStringsAreDecodedLikeEncodingJSON(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	parts := []string{"a", "bc", `\n`, `\"`, `\\`, `\/`, `\b`, `\f`, `\r`, `\t`, `\u0041`, `\u00e9`, `\ud83d`, `\ude00`, `\uD83D\uDE00`, `\ud800\u0041`, "é", "😀", `\u0000`, `\uffff`}
	for range 50_000 {
		raw := `"`
		for range rnd.IntN(8) {
			raw += parts[rnd.IntN(len(parts))]
		}
		raw += `"`
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(raw, err)
		}
		e := scan(t, `{"type":"HEARTBEAT","reason":`+raw+`}`)
		if got, ok := e.Str(MemberReason, nil); !ok || string(got) != want {
			t.Fatalf("%s is read as %q, want %q", raw, got, want)
		}
	}
}

func TestAppendString(t *testing.T) {
	f := func(s, want string) {
		t.Helper()
		if got := string(AppendString([]byte("#"), s)); got != "#"+want {
			t.Errorf("%q: %s, want #%s", s, got, want)
		}
		if got := string(AppendString(nil, []byte(s))); got != want {
			t.Errorf("%q as bytes: %s, want %s", s, got, want)
		}
	}
	f("", `""`)
	f("a", `"a"`)
	f("</script>&'", `"</script>&'"`)
	f("a\"b\\c/", `"a\"b\\c/"`)
	f("\n\r\t\b\f\x00\x1f\x7f", "\"\\n\\r\\t\\u0008\\u000c\\u0000\\u001f\x7f\"")
	f("节目😀\u2028", "\"节目😀\u2028\"")
	f("\uFFFD", "\"\uFFFD\"")
	f("a\xffb\xc3", `"a\ufffdb\ufffd"`)
	f("\xed\xa0\x80", `"\ufffd\ufffd\ufffd"`)
	f("\xf0\x9f\x98", `"\ufffd\ufffd\ufffd"`)
}

func TestAppendTime(t *testing.T) {
	f := func(at Time, want string) {
		t.Helper()
		if got := string(AppendTime(nil, at)); got != want {
			t.Errorf("%d: %s, want %s", at, got, want)
		}
	}
	f(0, "1970-01-01T00:00:00.000Z")
	f(999_999, "1970-01-01T00:00:00.000Z")
	f(-1, "1969-12-31T23:59:59.999Z")
	f(at, "2024-01-20T10:00:00.123Z")
	f(-1<<63, "1677-09-21T00:12:43.145Z")
	f(1<<63-1, "2262-04-11T23:47:16.854Z")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	for range 100_000 {
		at := Time(rnd.Uint64())
		ms := time.Unix(0, int64(at)).UnixMilli() // rounded down, as we do
		if at.Millis() != ms {
			t.Fatalf("Millis(%d) = %d, want %d", at, at.Millis(), ms)
		}
		f(at, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if !Time(1).IsDefined() || Time(0).IsDefined() {
		t.Error("IsDefined")
	}
}
