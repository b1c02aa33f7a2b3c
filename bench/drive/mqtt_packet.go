package drive

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The first byte of MQTT 5 packets (OASIS MQTT 5.0 section 2.1), QoS 0.
const (
	mqttConnect    = 0x10
	mqttConnAck    = 0x20
	mqttPublish    = 0x30
	mqttSubscribe  = 0x82
	mqttSubAck     = 0x90
	mqttDisconnect = 0xe0
)

// Properties (section 2.2.2.2) that request/response uses.
const (
	mqttResponseTopic   = 0x08
	mqttCorrelationData = 0x09
)

// appendVarint appends a Variable Byte Integer (section 1.5.5).
func appendVarint(to []byte, n int) []byte {
	return binary.AppendUvarint(to, uint64(n)) // the same code, MQTT ends it at four bytes
}

// cutVarint reads one; size 0: not complete.
func cutVarint(b []byte) (n, size int, err error) {
	v, size := binary.Uvarint(b[:min(len(b), 4)])
	if size == 0 && len(b) >= 4 {
		return 0, 0, errors.New("a length of more than four bytes")
	}
	return int(v), size, nil
}

func appendText[T string | []byte](to []byte, text T) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(text))), text...)
}

func appendPacket(to []byte, kind byte, body []byte) []byte {
	return append(appendVarint(append(to, kind), len(body)), body...)
}

// appendConnect appends a CONNECT with a clean start, no keep-alive and no properties (section 3.1).
func appendConnect(to []byte, id string) []byte {
	body := append(appendText(nil, "MQTT"), 5, 2, 0, 0, 0)
	return appendPacket(to, mqttConnect, appendText(body, id))
}

// appendSubscribe appends a SUBSCRIBE to one filter with QoS 0 (section 3.8).
func appendSubscribe(to []byte, filter string) []byte {
	return appendPacket(to, mqttSubscribe, append(appendText([]byte{0, 1, 0}, filter), 0))
}

// appendPublish appends a PUBLISH (section 3.3); response "" is left out.
func appendPublish(to []byte, topic, response, correlation string, payload []byte) []byte {
	var properties []byte
	if response != "" {
		properties = appendText(append(properties, mqttResponseTopic), response)
	}
	properties = appendText(append(properties, mqttCorrelationData), correlation)
	body := append(appendVarint(appendText(nil, topic), len(properties)), properties...)
	return appendPacket(to, mqttPublish, append(body, payload...))
}

// cutPacket returns the packet at the start of b and its size in all, 0 when it is not complete.
func cutPacket(b []byte) (kind byte, body []byte, size int, err error) {
	if len(b) < 2 {
		return 0, nil, 0, nil
	}
	n, width, err := cutVarint(b[1:])
	if err == nil && n > messageMax {
		err = fmt.Errorf("a packet of %d bytes", n)
	}
	if err != nil || width == 0 || len(b) < 1+width+n {
		return 0, nil, 0, err
	}
	return b[0], b[1+width : 1+width+n], 1 + width + n, nil
}

// publication is a PUBLISH; its parts are valid until the reader returns.
type publication struct {
	topic, response, correlation, payload []byte
}

var errPublish = errors.New("malformed PUBLISH")

// cutText reads a string or binary data with its length before it.
func cutText(b []byte) (text, rest []byte, err error) {
	if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
		return nil, nil, errPublish
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return b[2:n], b[n:], nil
}

// cutPublication reads the body of a PUBLISH with QoS 0.
func cutPublication(body []byte) (m publication, err error) {
	var rest []byte
	if m.topic, rest, err = cutText(body); err != nil {
		return m, err
	}
	n, width, err := cutVarint(rest)
	if err != nil || width == 0 || len(rest) < width+n {
		return m, errPublish
	}
	properties := rest[width : width+n]
	m.payload = rest[width+n:]
	for len(properties) > 0 {
		kind := properties[0]
		var value []byte
		if value, properties, err = cutText(properties[1:]); err != nil {
			return m, err
		}
		switch kind {
		case mqttResponseTopic:
			m.response = value
		case mqttCorrelationData:
			m.correlation = value
		default: // nothing else was sent, and a broker adds none of its own without subscription identifiers or expiry
			return m, fmt.Errorf("PUBLISH with property %#x", kind)
		}
	}
	return m, nil
}

// mqttReader cuts packets and passes publications on.
type mqttReader struct {
	message func(m publication)
}

func (q mqttReader) read(_ *conn, b []byte) (int, error) {
	used := 0
	for {
		kind, body, size, err := cutPacket(b[used:])
		if err != nil || size == 0 {
			return used, err
		}
		used += size
		switch kind {
		case mqttPublish:
			m, err := cutPublication(body)
			if err != nil {
				return used, err
			}
			q.message(m)
		case mqttDisconnect:
			return used, fmt.Errorf("the broker disconnected: %x", body)
		default:
			return used, fmt.Errorf("the broker sent packet type %d", kind>>4)
		}
	}
}
