package drive

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Opcodes of RFC 6455 section 5.2.
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// frameHeadMax is the longest head of a client frame: 2 + 8 of length + 4 of mask.
const frameHeadMax = 14

// appendFrame appends a client frame. Its mask key is 0, which RFC 6455 section 5.3 does not forbid: the server unmasks as for any
// other key, and the driver can patch its ready frames in place.
func appendFrame(to []byte, opcode byte, payload []byte) []byte {
	to = append(to, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		to = append(to, 0x80|byte(n))
	case n < 1<<16:
		to = binary.BigEndian.AppendUint16(append(to, 0x80|126), uint16(n))
	default:
		to = binary.BigEndian.AppendUint64(append(to, 0x80|127), uint64(n))
	}
	return append(append(to, 0, 0, 0, 0), payload...)
}

// cutFrame returns the opcode and payload of the server frame at the start of b and its length in all, 0 when it is not complete.
func cutFrame(b []byte) (opcode byte, payload []byte, size int, err error) {
	if len(b) < 2 {
		return 0, nil, 0, nil
	}
	if b[0]&0xf0 != 0x80 || b[1]&0x80 != 0 {
		return 0, nil, 0, fmt.Errorf("server frame begins with %#x %#x: fragmented, reserved bits or masked", b[0], b[1])
	}
	head, n := 2, int(b[1])
	switch {
	case n == 126 && len(b) >= 4:
		head, n = 4, int(binary.BigEndian.Uint16(b[2:]))
	case n == 127 && len(b) >= 10:
		wide := binary.BigEndian.Uint64(b[2:])
		if wide > messageMax {
			return 0, nil, 0, fmt.Errorf("server frame of %d bytes", wide)
		}
		head, n = 10, int(wide)
	case n >= 126:
		return 0, nil, 0, nil
	}
	if len(b) < head+n {
		return 0, nil, 0, nil
	}
	return b[0] & 15, b[head : head+n], head + n, nil
}

// messageReader takes whole messages; msg is valid until it returns.
type messageReader interface {
	message(c *conn, msg []byte) error
}

// framing is the reader of a WebSocket connection: it cuts frames, answers pings and passes messages on.
type framing struct {
	to messageReader
}

func (f framing) read(c *conn, b []byte) (int, error) {
	used := 0
	for {
		opcode, payload, size, err := cutFrame(b[used:])
		if err != nil || size == 0 {
			return used, err
		}
		used += size
		switch opcode {
		case opText, opBinary:
			err = f.to.message(c, payload)
		case opPing:
			c.out = appendFrame(c.out, opPong, payload)
			c.send()
		case opClose:
			err = closedBy(payload)
		}
		if err != nil {
			return used, err
		}
	}
}

func closedBy(payload []byte) error {
	if len(payload) < 2 {
		return errors.New("the server closed without a code")
	}
	return fmt.Errorf("the server closed with %d %q", binary.BigEndian.Uint16(payload), payload[2:])
}

const challengeKey = "c3Vid2F5IGJlbmNoIGtleQ=="

// upgradeRequest returns the handshake for a host (RFC 6455 section 4.1). The key is fixed: nothing here is secret.
func upgradeRequest(host string) []byte {
	return fmt.Appendf(nil, "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: subway.v1\r\n\r\n", host, challengeKey)
}

// checkUpgrade looks at the answer to upgradeRequest: b ends with the empty line.
func checkUpgrade(b []byte) error {
	if !bytes.HasPrefix(b, []byte("HTTP/1.1 101 ")) {
		line, _, _ := bytes.Cut(b, []byte("\r\n"))
		return fmt.Errorf("handshake refused: %s", line)
	}
	sum := sha1.Sum([]byte(challengeKey + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	want := base64.StdEncoding.EncodeToString(sum[:])
	for line := range strings.SplitSeq(string(b), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if http.CanonicalHeaderKey(name) == "Sec-Websocket-Accept" && strings.TrimSpace(value) == want {
			return nil
		}
	}
	return errors.New("handshake: wrong Sec-WebSocket-Accept")
}
