package mqtt

import "math"

// message is one on its way to a device.
type message struct {
	payload []byte
	size    int    // bytes of it; the payload is let go once it was written
	id      uint16 // its Packet Identifier; 0: QoS 0
}

func (m *message) qos() byte {
	if m.id == 0 {
		return 0
	}
	return 1
}

// outbox holds what is under way to one device: written and not acknowledged, or not even
// written. It is guarded by conn.mu, which also bounds it.
type outbox struct {
	waiting []message
	unacked map[uint16]message // written, or about to be
	writing int                // with QoS 0, being written: 0 or 1
	acked   int                // of all, those with QoS 1
	bytes   int                // of all
	last    uint16             // Packet Identifier
}

func (o *outbox) count() int { return len(o.waiting) + len(o.unacked) + o.writing }

// push takes a message in, which it keeps.
func (o *outbox) push(payload []byte, acked bool) {
	m := message{payload: payload, size: len(payload)}
	if acked {
		o.acked++
		m.id = o.nextID()
	}
	o.bytes += m.size
	o.waiting = append(o.waiting, m)
}

// nextID returns a Packet Identifier that is not in use: there are fewer messages under way
// than it steps over in one round.
func (o *outbox) nextID() uint16 {
	for {
		if o.last == math.MaxUint16 {
			o.last = 0
		}
		o.last++
		if _, used := o.unacked[o.last]; !used {
			return o.last
		}
	}
}

// take returns the oldest message that waits, which is settled later.
func (o *outbox) take() (m message, some bool) {
	if len(o.waiting) == 0 {
		return message{}, false
	}
	m = o.waiting[0]
	o.waiting[0].payload = nil
	o.waiting = o.waiting[1:]
	if m.id == 0 {
		o.writing = 1
		return m, true
	}
	if o.unacked == nil {
		o.unacked = map[uint16]message{}
	}
	o.unacked[m.id] = message{size: m.size, id: m.id}
	return m, true
}

// settle ends the way of a message that was taken.
func (o *outbox) settle(m message) {
	o.bytes -= m.size
	if m.id == 0 {
		o.writing = 0
		return
	}
	o.acked--
	delete(o.unacked, m.id)
}
