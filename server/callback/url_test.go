package callback

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	f := func(in, key, rest string) {
		t.Helper()
		u, err := parseURL([]byte(in))
		if err != nil {
			t.Errorf("%q: %v", in, err)
			return
		}
		if k := string(u.appendKey(nil)); k != key || string(u.rest) != rest {
			t.Errorf("%q: key %q rest %q, want %q %q", in, k, u.rest, key, rest)
		}
	}
	f("http://eudi.example/cb", "peudi.example:80", "/cb")
	f("HTTPS://EUDI.example:8443", "seudi.example:8443", "")
	f("http://h.?x=1#y", "ph:80", "?x=1")
	f("http://h:/a", "ph:80", "/a")
	f("http://[::1]:9/x", "p[::1]:9", "/x")
	f("http://127.1/x", "p127.0.0.1:80", "/x")
	f("http://2130706433/x", "p127.0.0.1:80", "/x")
	f("http://0x7f000001/", "p127.0.0.1:80", "/")
	f("http://0177.0.0.1./", "p127.0.0.1:80", "/")
	f("http://0xzz/", "p0xzz:80", "/")
	f("http://1.2.3.4.example/", "p1.2.3.4.example:80", "/")
	f("http://h/{request_ref}@:\\", "ph:80", "/{request_ref}@:\\")

	for _, in := range []string{
		"", "http:", "http://", "http:///x", "http:/h/x", "http:\\\\h\\x", "ftp://h/", "file:///etc/passwd", "//h/x", "h/x",
		"javascript:alert(1)", "http://h /x", "http://h/x y", "http://h/x\r\nX-Evil: 1", "http://h/\x00", "http://h/\x7f",
		"http://u@h/", "http://u:p@h/", "http://169.254.169.254@h/", "http://h\\@x/", "http://h:0/", "http://h:65536/", "http://h:x/", "http://h:+1/",
		"http://h:80:80/", "http://{request_ref}/", "http://h:{requestRef}/", "http://a%2eb/", "http://b\u00fccher.example/", "http://\uff11\uff12\uff17.0.0.1/",
		"http://[::1", "http://[::1]x/", "http://[127.0.0.1]/", "http://[fe80::1%25lo]/", "http://[fe80::1%lo]/", "http://::1/", "http://.h/", "http://a..b/", "http://h../",
		"http://256.1.1.1/", "http://1.2.3.4.5/", "http://999999999999/", "http://foo.123/", "http://08.1.1.1/", "http://1.2.3.0x100/",
		"http://h/" + strings.Repeat("x", maxURL), "http://" + strings.Repeat("x", 254) + "/", "http://h/" + strings.Repeat(refCamel, 9),
	} {
		if u, err := parseURL([]byte(in)); err == nil {
			t.Errorf("%q passed: %+v", in, u)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add([]byte("http://[::1]:80/a/{request_ref}?x#y"), []byte("a/b"))
	f.Add([]byte("https://0x7f.1:443"), []byte(".."))
	f.Fuzz(func(t *testing.T, in, ref []byte) {
		u, err := parseURL(in)
		if err != nil || len(ref) > 128 {
			return
		}
		line := string(appendTarget(nil, u.rest, ref))
		if line[0] != '/' || strings.ContainsAny(line, " \r\n\x00#") || len(line) > 3*maxURL+maxPlaceholders*3*128+1 {
			t.Fatalf("%q with ref %q makes the target %q", in, ref, line)
		}
		if addr := string(u.appendAddress(nil)); strings.Count(addr, ":") < 1 || strings.ContainsAny(addr, "@/\\% ") {
			t.Fatalf("%q is dialled as %q", in, addr)
		}
	})
}

func TestAppendTarget(t *testing.T) {
	f := func(rest, ref, want string) {
		t.Helper()
		if got := string(appendTarget(nil, []byte(rest), []byte(ref))); got != want {
			t.Errorf("%q with %q: %q, want %q", rest, ref, got, want)
		}
	}
	f("", "r", "/")
	f("?a=b", "r", "/?a=b")
	f("/a/../b//c/%41?q={x}", "r", "/a/../b//c/%41?q={x}")
	f("/a/{request_ref}/b?r={requestRef}", "cmd-1_a.b~", "/a/cmd-1_a.b~/b?r=cmd-1_a.b~")
	f("/{request_ref}", "../../x", "/..%2F..%2Fx")
	f("/{request_ref}/y", "..", "/%2E%2E/y")
	f("/{request_ref}/y", ".", "/%2E/y")
	f("/{request_ref}", "a?b#c%d&e=f+g", "/a%3Fb%23c%25d%26e%3Df%2Bg")
	f("/\u8282", "r", "/%E8%8A%82")
}

// The target reaches the receiver byte for byte, whatever the ref.
func TestTargetOnTheWire(t *testing.T) {
	s := newSink(t, nil)
	o := open(t, Options{})
	refs := []string{`a/b?c#d%41&e=f+g`, `../../x`, `..`, `"<>\^` + "`" + `{|}[]@:;,$!'()*~`}
	for i, ref := range refs {
		o.Notify(final(s.URL+"/a//./{request_ref}/b?r={requestRef}&z=%41+1", ref, nil))
		h := s.wait(i + 1)[i]
		enc := string(appendRef(nil, []byte(ref)))
		if want := "/a//./" + enc + "/b?r=" + enc + "&z=%41+1"; h.uri != want {
			t.Errorf("target %q, want %q", h.uri, want)
		}
		if back, err := url.PathUnescape(enc); err != nil || back != ref {
			t.Errorf("%q does not read back as %q", enc, ref)
		}
		if h.ref != ref {
			t.Errorf("requestRef %q, want %q", h.ref, ref)
		}
	}
}

func TestPolicy(t *testing.T) {
	f := func(p Policy, in string, ok bool) {
		t.Helper()
		o := New(Options{Policy: p})
		defer o.cancel()
		if err := o.CheckURL([]byte(in)); (err == nil) != ok {
			t.Errorf("%+v: %q: %v, want ok %v", p, in, err, ok)
		}
	}
	for _, in := range []string{
		"http://169.254.169.254/latest/meta-data", "https://169.254.1.1:8080/", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/",
		"http://[fd00:ec2::254]/", "http://[fe80::a9fe:a9fe%25lo]/", "http://2852039166/", "http://0xa9fea9fe/", "http://0251.0376.0251.0376/",
		"http://169.254.43518/", "http://0xa9.254.0251.254/", "http://169.254.169.254./", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::1]/",
		"http://[::169.254.169.254]/", "http://100.100.100.200/", "http://192.0.0.192/", "http://[febf::1]:1/",
	} {
		f(Policy{}, in, false)
	}
	for _, in := range []string{
		"http://127.0.0.1/", "http://[::1]/", "http://10.1.2.3/", "http://eudi.example/", "http://169.253.1.1/", "http://[2001:db8::1]/", "http://localhost:1/",
	} {
		f(Policy{}, in, true)
	}
	strict := Policy{DenyPrivate: true, Allow: prefixes("10.7.0.0/16")}
	for _, in := range []string{"http://127.1/", "http://10.1.2.3/", "http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://[::]/", "http://0/", "http://[fd12::1]/"} {
		f(strict, in, false)
	}
	f(strict, "http://10.7.1.1/", true)
	f(strict, "http://8.8.8.8/", true)
	f(Policy{Deny: prefixes("8.0.0.0/8")}, "http://8.8.8.8/", false)
	f(Policy{Allow: prefixes("169.254.7.0/24")}, "http://169.254.7.1/", true)
	only := Policy{Hosts: []string{"eudi.example", ".corp.example"}}
	f(only, "http://EUDI.example./x", true)
	f(only, "http://a.corp.example/x", true)
	f(only, "http://corp.example.evil/x", false)
	f(only, "http://127.0.0.1/x", false)
}

// A name that resolves to a refused address is refused when it is dialled, and is not
// tried again.
func TestPolicyAtConnect(t *testing.T) {
	s := newSink(t, nil)
	o := open(t, Options{Policy: Policy{Deny: prefixes("127.0.0.0/8", "::1/128")}})
	u := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	if err := o.CheckURL([]byte(u)); err != nil {
		t.Fatal(err)
	}
	var k track
	o.Notify(final(u, "r", &k))
	until(t, "DEAD after one attempt", func() bool { return k.is(Dead, 1) })
	dead, _, _ := o.Dead("", 10)
	if len(dead) != 1 || !strings.Contains(dead[0].LastError, "not allowed") || len(s.seen()) != 0 {
		t.Errorf("%+v, %d hits", dead, len(s.seen()))
	}
}

func TestPolicyControl(t *testing.T) {
	p := Policy{}
	for addr, ok := range map[string]bool{"127.0.0.1:80": true, "[fe80::1%eth0]:80": false, "169.254.169.254:80": false, "x:80": false, "[::ffff:169.254.0.1]:80": false} {
		if err := p.control("tcp", addr, nil); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if p.CheckAddr(netip.MustParseAddr("::1")) != nil {
		t.Error("::1 refused")
	}
}

func TestHeadersAndBody(t *testing.T) {
	s := newSink(t, func(_ int, _ hit, w http.ResponseWriter) { w.WriteHeader(202) })
	o := open(t, Options{UserAgent: "subway/test"})
	n := final(s.URL+"/cb", "cmd-1", nil)
	n.ExecutionTime, n.Error = []byte("42"), []byte(`{"code":"X"}`)
	o.Notify(n)
	h := s.wait(1)[0]
	want := `{"requestRef":"cmd-1","status":"COMPLETED","result":{"b": 80},"timestamp":"2024-01-20T10:00:00.000Z",` +
		`"executionTime":42,"type":"COMMAND_RESPONSE","targetClientId":"td-01","error":{"code":"X"}}`
	if string(h.body) != want {
		t.Errorf("body %s\nwant %s", h.body, want)
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "User-Agent": "subway/test", "X-Callback-Attempt": "1/3"} {
		if h.header.Get(name) != v {
			t.Errorf("%s: %q, want %q", name, h.header.Get(name), v)
		}
	}
	n = &Notice{URL: []byte(s.URL), Ref: []byte(`q"\`), Type: "ERROR", Status: []byte("TIMEOUT"), Timestamp: []byte("2030-01-01T00:00:00Z"), Final: true}
	o.Notify(n)
	if h := s.wait(2)[1]; string(h.body) != `{"requestRef":"q\"\\","status":"TIMEOUT","timestamp":"2030-01-01T00:00:00Z","type":"ERROR"}` {
		t.Errorf("body %s", h.body)
	}
}
