package front

import (
	"bytes"
	"strings"
)

// OriginAllowed says whether a page from this origin may open a WebSocket
// (PROTOCOL.md section 2; RFC 6454 section 6): no Origin at all, one that is the
// request's own host, or one that is in allowed, where "*" stands for any.
func OriginAllowed(origin, host []byte, allowed []string) bool {
	if origin == nil {
		return true
	}
	for _, a := range allowed {
		if a == "*" || strings.EqualFold(a, string(origin)) {
			return true
		}
	}
	var port string
	rest, ok := bytes.CutPrefix(origin, []byte("http://"))
	if port = "80"; !ok {
		if rest, ok = bytes.CutPrefix(origin, []byte("https://")); !ok {
			return false
		}
		port = "443"
	}
	name, p, ok := splitHost(rest, port)
	own, q, ok2 := splitHost(host, port)
	return ok && ok2 && p == q && len(name) == len(own) && bytes.EqualFold(name, own)
}

// splitHost takes host[:port] apart. Anything else that could stand in a URL (user,
// path, query) is no host.
func splitHost(b []byte, defaultPort string) (host []byte, port string, ok bool) {
	if len(b) == 0 || bytes.ContainsAny(b, "/@?#\\ ,") {
		return nil, "", false
	}
	i := bytes.LastIndexByte(b, ':')
	if i < 0 || bytes.IndexByte(b[i:], ']') >= 0 { // a colon inside [::1] is not a port's
		return b, defaultPort, true
	}
	if port = string(b[i+1:]); port == "" {
		port = defaultPort
	}
	return b[:i], port, i > 0
}
