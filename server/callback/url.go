package callback

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
)

const (
	maxURL          = 2048 // bytes, as given
	maxHostName     = 253  // RFC 1035 section 2.3.4
	maxPlaceholders = 8    // bounds what a URL grows to
)

// Errors of CheckURL. ErrRefused is the address policy's, the others say that a URL has
// the wrong form.
var (
	ErrRefused     = errors.New("callback address is not allowed")
	errScheme      = errors.New("callback URL must begin with http:// or https://")
	errLength      = errors.New("callback URL is longer than 2048 bytes")
	errBytes       = errors.New("callback URL holds a space or a control character")
	errUserinfo    = errors.New("callback URL must not hold credentials")
	errHost        = errors.New("callback URL has no valid host")
	errPort        = errors.New("callback URL has no valid port")
	errPlaceholder = errors.New("callback URL holds more than 8 placeholders")
)

// target is a callback URL taken apart. Its slices point into the URL.
type target struct {
	tls       bool
	authority []byte     // host and port as given: the Host header
	name      []byte     // the host without port and brackets, as given
	addr      netip.Addr // of a literal address, also one in disguise (0xa9fea9fe)
	port      uint16
	rest      []byte // path and query as given, placeholders and all; no fragment
	restAt    int    // where in the URL that begins
}

// parseURL takes a callback URL apart: RFC 3986 with less freedom. No credentials, no
// percent-encoding and nothing but ASCII in the host, no zone ids; placeholders only
// after the host.
func parseURL(url []byte) (t target, err error) {
	if len(url) > maxURL {
		return t, errLength
	}
	for _, c := range url {
		if c <= ' ' || c == 0x7f {
			return t, errBytes
		}
	}
	rest := url
	switch {
	case hasPrefixFold(url, "http://"):
		t.port, rest = 80, url[len("http://"):]
	case hasPrefixFold(url, "https://"):
		t.tls, t.port, rest = true, 443, url[len("https://"):]
	default:
		return t, errScheme
	}
	end := 0
	for end < len(rest) && rest[end] != '/' && rest[end] != '?' && rest[end] != '#' {
		end++
	}
	t.authority, t.rest = rest[:end], rest[end:]
	t.restAt = len(url) - len(t.rest)
	if hash := bytes.IndexByte(t.rest, '#'); hash >= 0 {
		t.rest = t.rest[:hash]
	}
	if err := t.parseAuthority(); err != nil {
		return t, err
	}
	if bytes.IndexByte(t.rest, '{') >= 0 && bytes.Count(t.rest, []byte(refSnake))+bytes.Count(t.rest, []byte(refCamel)) > maxPlaceholders {
		return t, errPlaceholder
	}
	return t, nil
}

func hasPrefixFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && bytes.EqualFold(b[:len(prefix)], []byte(prefix))
}

func (t *target) parseAuthority() error {
	a := t.authority
	if bytes.IndexByte(a, '@') >= 0 {
		return errUserinfo
	}
	var port []byte
	if len(a) > 0 && a[0] == '[' {
		end := bytes.IndexByte(a, ']')
		if end < 0 || end > 64 {
			return errHost
		}
		addr, err := netip.ParseAddr(string(a[1:end]))
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return errHost
		}
		t.name, t.addr, port = a[1:end], addr, a[end+1:]
		if len(port) > 0 && port[0] != ':' {
			return errHost
		}
	} else {
		colon := bytes.IndexByte(a, ':')
		if colon < 0 {
			colon = len(a)
		}
		t.name, port = a[:colon], a[colon:]
		if err := t.parseName(); err != nil {
			return err
		}
	}
	if len(port) <= 1 { // nothing, or a colon alone: RFC 3986 section 3.2.3 allows it
		t.authority = a[:len(a)-len(port)]
		return nil
	}
	n, err := strconv.ParseUint(string(port[1:]), 10, 16)
	if err != nil || n == 0 {
		return errPort
	}
	t.port = uint16(n)
	return nil
}

// parseName checks a host that is not in brackets. One whose last label is a number is
// an IPv4 address or nothing (WHATWG URL, "ends in a number").
func (t *target) parseName() error {
	name := t.bareName()
	if len(name) == 0 || len(name) > maxHostName || name[0] == '.' || name[len(name)-1] == '.' || bytes.Contains(name, []byte("..")) {
		return errHost
	}
	for _, c := range name {
		if !isHostByte(c) {
			return errHost
		}
	}
	last := name[bytes.LastIndexByte(name, '.')+1:]
	if _, numeric := ipv4Number(last); !numeric {
		return nil
	}
	addr, ok := parseIPv4(name)
	if !ok {
		return errHost
	}
	t.addr = addr
	return nil
}

// bareName is the name without the dot that marks it as fully qualified.
func (t *target) bareName() []byte {
	return bytes.TrimSuffix(t.name, []byte("."))
}

func isHostByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}

// parseIPv4 reads an IPv4 address as inet_aton does: one to four parts, each decimal,
// octal (leading 0) or hexadecimal (0x), the last one filling what is left.
func parseIPv4(s []byte) (netip.Addr, bool) {
	var sum uint64
	for i := 0; ; i++ {
		part, more, dot := bytes.Cut(s, []byte("."))
		v, ok := ipv4Number(part)
		if !ok || i > 3 {
			return netip.Addr{}, false
		}
		if !dot {
			if v >= 1<<(8*(4-i)) {
				return netip.Addr{}, false
			}
			sum |= v
			return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
		}
		if v > 255 {
			return netip.Addr{}, false
		}
		sum |= v << (8 * (3 - i))
		s = more
	}
}

// ipv4Number reads one part of an IPv4 address; a value over 32 bits is a number still,
// so that it does not pass for a name.
func ipv4Number(s []byte) (v uint64, ok bool) {
	base := uint64(10)
	switch {
	case len(s) > 1 && s[0] == '0' && s[1]|0x20 == 'x':
		base, s = 16, s[2:]
		if len(s) == 0 {
			return 0, true
		}
	case len(s) > 1 && s[0] == '0':
		base = 8
	case len(s) == 0:
		return 0, false
	}
	bad := false
	for _, c := range s {
		d := uint64(c - '0')
		if c |= 0x20; base == 16 && 'a' <= c && c <= 'f' {
			d = uint64(c-'a') + 10
		} else if d > 9 {
			return 0, false
		}
		bad = bad || d >= base // 08: a number to a reader that knows no octal
		v = min(v*base+d, 1<<40)
	}
	if bad {
		return 1 << 40, true
	}
	return v, true
}

// appendKey appends what hosts are told apart by: scheme, host in one spelling, port.
func (t *target) appendKey(dst []byte) []byte {
	if t.tls {
		dst = append(dst, 's')
	} else {
		dst = append(dst, 'p')
	}
	return t.appendAddress(dst)
}

// appendAddress appends what is dialled: host:port, a literal in its usual form.
func (t *target) appendAddress(dst []byte) []byte {
	if t.addr.IsValid() {
		return netip.AddrPortFrom(t.addr, t.port).AppendTo(dst)
	}
	for _, c := range t.bareName() {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return strconv.AppendUint(append(dst, ':'), uint64(t.port), 10)
}

const (
	refSnake = "{request_ref}"
	refCamel = "{requestRef}"
)

// appendTarget appends the request target: path and query byte for byte as given, with
// ref in the place of the placeholders and bytes that are not ASCII percent-encoded.
func appendTarget(dst, rest, ref []byte) []byte {
	if len(rest) == 0 || rest[0] != '/' {
		dst = append(dst, '/')
	}
	for i := 0; i < len(rest); {
		c := rest[i]
		switch {
		case c == '{' && bytes.HasPrefix(rest[i:], []byte(refSnake)):
			dst = appendRef(dst, ref)
			i += len(refSnake)
			continue
		case c == '{' && bytes.HasPrefix(rest[i:], []byte(refCamel)):
			dst = appendRef(dst, ref)
			i += len(refCamel)
			continue
		case c >= 0x80:
			dst = appendPercent(dst, c)
		default:
			dst = append(dst, c)
		}
		i++
	}
	return dst
}

// appendRef percent-encodes all but RFC 3986's unreserved characters, so that a ref
// stays one path segment or one query value. A ref of dots alone is encoded too: as a
// segment it would mean another path.
func appendRef(dst, ref []byte) []byte {
	dots := len(bytes.Trim(ref, ".")) == 0
	for _, c := range ref {
		if isUnreserved(c) && !(dots && c == '.') {
			dst = append(dst, c)
		} else {
			dst = appendPercent(dst, c)
		}
	}
	return dst
}

func isUnreserved(c byte) bool {
	return isHostByte(c) || c == '~'
}

func appendPercent(dst []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '%', hex[c>>4], hex[c&15])
}
