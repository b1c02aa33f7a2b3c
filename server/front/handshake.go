package front

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"strconv"

	"subway/core/wire"
)

// Handshake is the request that opened a WebSocket. Its slices are borrowed: they
// are valid during Options.Open only.
type Handshake struct {
	Path          []byte // without the query
	Query         []byte // what follows the '?', as it came
	Host          []byte
	Origin        []byte // nil: none
	Authorization []byte // nil: none
	Subprotocol   bool   // subway.v1 was offered

	key []byte // Sec-WebSocket-Key
}

// Refusal is an answer to a request that is not taken.
type Refusal struct {
	Status int
	Reason string // of the status line
	Code   wire.Code
	Text   string
	header string // further header lines, each with its CRLF
	detail string // a JSON object, what the code promises (PROTOCOL.md section 3)
}

var (
	refuseHead    = &Refusal{400, "Bad Request", wire.CodeInvalidRequest, "malformed request", "", ""}
	refuseBody    = &Refusal{400, "Bad Request", wire.CodeInvalidRequest, "a WebSocket handshake has no body", "", ""}
	refuseUpgrade = &Refusal{400, "Bad Request", wire.CodeInvalidRequest, "not a WebSocket handshake: Connection: Upgrade, Upgrade: websocket and HTTP/1.1 are required", "", ""}
	refuseKey     = &Refusal{400, "Bad Request", wire.CodeInvalidRequest, "Sec-WebSocket-Key must be 16 bytes in base64", "", ""}
	refuseOrigin  = &Refusal{403, "Forbidden", wire.CodeForbidden, "this Origin is not allowed", "", ""}
	refusePath    = &Refusal{404, "Not Found", wire.CodeNotFound, "no WebSocket on this path", "", ""}
	refuseMethod  = &Refusal{405, "Method Not Allowed", wire.CodeMethodNotAllowed, "a WebSocket handshake is a GET", "Allow: GET\r\n", ""}
	refuseSlow    = &Refusal{408, "Request Timeout", wire.CodeInvalidRequest, "the request took too long", "", ""}
	refuseVersion = &Refusal{426, "Upgrade Required", wire.CodeInvalidRequest, "WebSocket version 13 is required",
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", ""}
	refuseGoing = &Refusal{503, "Service Unavailable", wire.CodeGatewayUnavailable, "going down", "Retry-After: 1\r\n",
		`{"service":"gateway","lastSeen":null,"retryAfter":1}`}
	refuseBusy = &Refusal{503, "Service Unavailable", wire.CodeOverloaded, "too many connections", "Retry-After: 1\r\n",
		`{"retryAfter":1}`}
)

// appendBody appends the JSON error form of PROTOCOL.md section 6.
func (f *Refusal) appendBody(dst []byte) []byte {
	dst = append(dst, `{"success":false,"error":`...)
	dst = strconv.AppendQuote(dst, f.Text)
	dst = append(dst, `,"code":"`...)
	dst = append(append(dst, f.Code.String()...), '"')
	if f.detail != "" {
		dst = append(append(dst, `,"details":`...), f.detail...)
	}
	return append(dst, '}')
}

// append appends the whole answer, which ends the connection.
func (f *Refusal) append(dst []byte) []byte {
	body := f.appendBody(nil)
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(f.Status), 10)
	dst = append(dst, ' ')
	dst = append(dst, f.Reason...)
	dst = append(dst, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\n"...)
	dst = append(dst, f.header...)
	dst = append(dst, "Connection: close\r\n\r\n"...)
	return append(dst, body...)
}

// ParseHandshake reads the head of a request that asks for a WebSocket, from its
// request line to the empty line that ends it (RFC 6455 section 4.2.1, PROTOCOL.md
// section 2), and returns either the handshake, whose slices point into head, or
// why it is refused. The Origin is not judged here, see OriginAllowed.
func ParseHandshake(head []byte) (Handshake, *Refusal) {
	var p headParser
	line, rest, ok := cutLine(bytes.TrimPrefix(head, []byte("\r\n"))) // RFC 9112 section 2.2
	if !ok || !p.requestLine(line) {
		return Handshake{}, refuseHead
	}
	for {
		if line, rest, ok = cutLine(rest); !ok {
			return Handshake{}, refuseHead
		}
		if len(line) == 0 {
			break
		}
		if !p.field(line) {
			return Handshake{}, refuseHead
		}
	}
	return p.judge()
}

// headParser gathers what a handshake is judged by.
type headParser struct {
	Handshake
	method        []byte
	http11        bool
	hosts         int
	upgrade       bool // Upgrade has the token websocket
	connection    bool // Connection has the token Upgrade
	closes        bool // Connection has the token close
	keys          int
	version       []byte
	versions      int
	origins       int
	authorization int
	body          bool
}

func (p *headParser) judge() (Handshake, *Refusal) {
	none := Handshake{}
	switch {
	case p.hosts != 1 || p.origins > 1 || p.authorization > 1:
		return none, refuseHead
	case string(p.Path) != "/" && string(p.Path) != "/ws":
		return none, refusePath
	case string(p.method) != "GET":
		return none, refuseMethod
	case p.body:
		return none, refuseBody
	case !p.http11 || !p.upgrade || !p.connection || p.closes:
		return none, refuseUpgrade
	case p.versions != 1 || string(p.version) != "13":
		return none, refuseVersion
	case p.keys != 1 || !goodKey(p.key):
		return none, refuseKey
	}
	return p.Handshake, nil
}

// requestLine reads "GET /ws?x HTTP/1.1" (RFC 9112 section 3), with one space
// between its parts and an origin-form or absolute-form target.
func (p *headParser) requestLine(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	target, version, ok2 := bytes.Cut(rest, []byte{' '})
	if !ok || !ok2 || !isToken(method) || len(version) != 8 || string(version[:7]) != "HTTP/1." ||
		version[7] < '0' || version[7] > '9' {
		return false
	}
	for _, c := range target {
		if c <= ' ' || c == 0x7f || c == '#' {
			return false
		}
	}
	if after, ok := bytes.CutPrefix(target, []byte("http://")); ok {
		i := bytes.IndexByte(after, '/')
		if i < 0 {
			return false
		}
		target = after[i:]
	}
	if len(target) == 0 || target[0] != '/' {
		return false
	}
	p.method, p.http11 = method, version[7] != '0'
	p.Path, p.Query, _ = bytes.Cut(target, []byte{'?'})
	return true
}

// field reads one header line (RFC 9112 section 5). Folded lines, space before the
// colon and control characters make the head malformed.
func (p *headParser) field(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok || !isToken(name) || !isText(value) {
		return false
	}
	value = trimOWS(value)
	switch len(name) {
	case len("Host"):
		if isName(name, "host") {
			p.Host = value
			p.hosts++
		}
	case len("Origin"):
		if isName(name, "origin") {
			p.Origin = value
			p.origins++
		}
	case len("Upgrade"):
		if isName(name, "upgrade") {
			p.upgrade = p.upgrade || hasToken(value, "websocket")
			return isList(value, '/') // RFC 9110 section 7.8: a name, or name/version
		}
	case len("Connection"):
		if isName(name, "connection") {
			p.connection = p.connection || hasToken(value, "upgrade")
			p.closes = p.closes || hasToken(value, "close")
			return isList(value, 0)
		}
	case len("Authorization"):
		if isName(name, "authorization") {
			p.Authorization = value
			p.authorization++
		}
	case len("Content-Length"):
		p.body = p.body || isName(name, "content-length") && string(value) != "0"
	default:
		p.longField(name, value)
	}
	return true
}

func (p *headParser) longField(name, value []byte) {
	switch {
	case isName(name, "transfer-encoding"):
		p.body = true
	case isName(name, "sec-websocket-key"):
		p.key = value
		p.keys++
	case isName(name, "sec-websocket-version"):
		p.version = value
		p.versions++
	case isName(name, "sec-websocket-protocol"):
		p.Subprotocol = p.Subprotocol || hasExactToken(value, "subway.v1")
	}
}

// cutLine returns the line up to the next CRLF. A CR or LF on its own ends nothing
// and is found by the checks of the line.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 1 || b[i-1] != '\r' {
		return nil, nil, false
	}
	return b[:i-1], b[i+1:], true
}

// isToken checks a token of RFC 9110 section 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}

// isText checks a field value for control characters; HT is allowed.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// trimOWS takes optional white space off both ends. What is left of a field that is
// there is never nil.
func trimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// isName compares a field name with one in lower case.
func isName(b []byte, lower string) bool { return len(b) == len(lower) && equalFold(b, lower) }

// equalFold compares ASCII without regard to case; lower is in lower case and b as long.
func equalFold(b []byte, lower string) bool {
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// isList checks a comma-separated list of tokens (RFC 9110 section 5.6.1, where empty
// items count for nothing), each of which may have a second token behind the divider.
// Quotes and comments have no place in it: what one reader takes for the end of a quoted
// string is an item to the next.
func isList(list []byte, divider byte) bool {
	for len(list) > 0 {
		var item []byte
		item, list, _ = bytes.Cut(list, []byte{','})
		if item = trimOWS(item); len(item) == 0 {
			continue
		}
		first, second, two := bytes.Cut(item, []byte{divider})
		if !isToken(first) || two && !isToken(second) {
			return false
		}
	}
	return true
}

// hasToken looks for a token, in any case, in a comma-separated list.
func hasToken(list []byte, lower string) bool {
	for len(list) > 0 {
		var item []byte
		item, list, _ = bytes.Cut(list, []byte{','})
		if item = trimOWS(item); isName(item, lower) {
			return true
		}
	}
	return false
}

// hasExactToken is hasToken for names whose case counts (RFC 6455 section 11.5).
func hasExactToken(list []byte, token string) bool {
	for len(list) > 0 {
		var item []byte
		item, list, _ = bytes.Cut(list, []byte{','})
		if string(trimOWS(item)) == token {
			return true
		}
	}
	return false
}

// goodKey checks that a key is 16 bytes in base64 (RFC 6455 section 4.1).
func goodKey(key []byte) bool {
	var b [18]byte
	if len(key) != 24 {
		return false
	}
	n, err := base64.StdEncoding.Decode(b[:], key)
	return err == nil && n == 16
}

// appendAccept appends the answer to a good handshake (RFC 6455 section 4.2.2).
func (h *Handshake) appendAccept(dst []byte) []byte {
	var in [60]byte
	n := copy(in[:], h.key)
	n += copy(in[n:], "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
	sum := sha1.Sum(in[:n])
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	dst = base64.StdEncoding.AppendEncode(dst, sum[:])
	if h.Subprotocol {
		dst = append(dst, "\r\nSec-WebSocket-Protocol: subway.v1"...)
	}
	return append(dst, "\r\n\r\n"...)
}

// headEnd returns the length of the request head at the start of b, its empty line
// included, or -1 while it is incomplete. It looks only at what follows from.
// Lines that end in a bare LF count, so that whoever parses the head can refuse it.
func headEnd(b []byte, from int) int {
	for i := max(from, 0); i < len(b); i++ {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return -1
		}
		i += j
		switch rest := b[i+1:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 2
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 3
		}
	}
	return -1
}

// asksUpgrade reports whether a request head has an Upgrade field that names websocket.
func asksUpgrade(head []byte) bool {
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte{'\n'})
		if len(line) > 8 && line[7] == ':' && equalFold(line[:7], "upgrade") &&
			hasToken(bytes.TrimRight(line[8:], "\r"), "websocket") {
			return true
		}
	}
	return false
}
