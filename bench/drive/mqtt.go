package drive

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// MQTT 5 request/response in the same loop, so that the servers are all that differs: sources publish to a device's topic with a
// Response Topic of their own and the ref as Correlation Data; each edge subscribes to its devices with one wildcard and
// publishes the payload to the Response Topic. QoS 0, as none of the other peers acknowledges a message either: QoS 1 would add
// two PUBACKs per hop. mqtt_packet.go
// has what that needs of the packets.

const (
	mqttTopic    = "device/00/0000" // edge, device
	mqttEdgeAt   = len("device/")
	mqttDeviceAt = len("device/00/")
	mqttReply    = "reply/000"
	mqttReplyAt  = len("reply/")
)

type mqttSource struct {
	run    *run
	number int
	conn   *conn
	ref    []byte
	frame  []byte // PUBLISH topic, Response Topic, Correlation Data, payload
	refAt  int
	topic  int    // where the topic stands in frame
	inbox  []byte // the Response Topic
}

type mqttEdge struct {
	run     *run
	number  int
	conn    *conn
	frame   []byte // PUBLISH Response Topic, Correlation Data, payload
	refAt   int
	replyAt int
}

// dialMQTT connects and subscribes; the SUBACK says that the broker knows it.
func (r *run) dialMQTT(id, filter string) (*plainConn, error) {
	p, err := dial(r.cfg.Addr, netip.Addr{})
	if err != nil {
		return nil, err
	}
	if err := p.subscribeMQTT(id, filter); err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	return p, nil
}

func (p *plainConn) subscribeMQTT(id, filter string) error {
	if err := p.write(appendConnect(nil, id)); err != nil {
		return err
	}
	if kind, body, err := p.packet(); err != nil || kind != mqttConnAck || len(body) < 2 || body[1] != 0 {
		return fmt.Errorf("CONNECT was answered with %d %x: %w", kind>>4, body, errors.Join(err, errRefused))
	}
	if err := p.write(appendSubscribe(nil, filter)); err != nil {
		return err
	}
	if kind, body, err := p.packet(); err != nil || kind != mqttSubAck || len(body) < 4 || body[len(body)-1] > 2 {
		return fmt.Errorf("SUBSCRIBE was answered with %d %x: %w", kind>>4, body, errors.Join(err, errRefused))
	}
	return nil
}

// errRefused says that the broker did not want a party.
var errRefused = errors.New("the broker refused")

// packet reads the next packet of a connection on its way into the loop.
func (p *plainConn) packet() (kind byte, body []byte, err error) {
	for {
		kind, body, size, err := cutPacket(p.in)
		if err != nil {
			return 0, nil, err
		}
		if size > 0 {
			p.in = p.in[size:]
			return kind, body, nil
		}
		if err := p.fill(); err != nil {
			return 0, nil, err
		}
	}
}

func (r *run) connectMQTT() error {
	for i := range r.cfg.Edges {
		p, err := r.dialMQTT(fmt.Sprintf("edge-%02d", i), fmt.Sprintf("device/%02d/+", i))
		if err != nil {
			return fmt.Errorf("edge %d: %w", i, err)
		}
		e := &mqttEdge{run: r, number: i, frame: appendPublish(nil, mqttReply, "", refPattern, r.payload)}
		e.refAt, e.replyAt = bytes.Index(e.frame, []byte(refPattern)), bytes.Index(e.frame, []byte(mqttReply))
		if e.conn, err = r.loop.add(p.fd, mqttReader{e.message}, p.in); err != nil {
			return err
		}
	}
	for i := range r.cfg.Backends {
		s := newMQTTSource(r, i)
		p, err := r.dialMQTT(fmt.Sprintf("backend-%02d", i), string(s.inbox))
		if err != nil {
			return fmt.Errorf("requester %d: %w", i, err)
		}
		if s.conn, err = r.loop.add(p.fd, mqttReader{s.message}, p.in); err != nil {
			return err
		}
		r.sources = append(r.sources, s)
	}
	return nil
}

func newMQTTSource(r *run, number int) *mqttSource {
	s := &mqttSource{run: r, number: number, ref: newRef(r.number, number), inbox: []byte(mqttReply)}
	putDigits(s.inbox[mqttReplyAt:], uint64(number))
	s.frame = appendPublish(nil, mqttTopic, string(s.inbox), refPattern, r.payload)
	s.refAt, s.topic = bytes.Index(s.frame, []byte(refPattern)), bytes.Index(s.frame, []byte(mqttTopic))
	return s
}

// issue implements source.
func (s *mqttSource) issue(slot int, sequence uint64) {
	toEdge, device := s.run.pick()
	putRef(s.ref, slot, sequence)
	copy(s.frame[s.refAt:], s.ref)
	putDigits(s.frame[s.topic+mqttEdgeAt:][:2], uint64(toEdge))
	putDigits(s.frame[s.topic+mqttDeviceAt:][:4], uint64(device))
	s.conn.out = append(s.conn.out, s.frame...)
	s.conn.send()
}

func (s *mqttSource) message(m publication) {
	r := s.run
	slot, sequence, ok := cutRef(m.correlation, s.ref)
	if !ok || !bytes.Equal(m.topic, s.inbox) {
		r.result.Stray++
		r.note(m.topic)
		return
	}
	if !bytes.Equal(m.payload, r.payload) {
		r.result.Corrupt++
		r.note(m.payload)
	}
	r.settle(s.number, slot, sequence, true)
}

func (e *mqttEdge) message(m publication) {
	r := e.run
	if len(m.correlation) != refSize || len(m.response) != len(mqttReply) || !bytes.Equal(m.payload, r.payload) || !e.owns(m.topic) {
		r.result.Corrupt++
		r.note(m.topic)
		return
	}
	copy(e.frame[e.refAt:], m.correlation)
	copy(e.frame[e.replyAt:], m.response)
	e.conn.out = append(e.conn.out, e.frame...)
	e.conn.send()
	r.answered++
	r.lastAlive = r.loop.now
}

// owns reports whether a topic is of one of this edge's devices.
func (e *mqttEdge) owns(topic []byte) bool {
	if len(topic) != len(mqttTopic) {
		return false
	}
	number, ok := digits(topic[mqttEdgeAt : mqttEdgeAt+2])
	return ok && int(number) == e.number
}
