package mqtt

import (
	"errors"

	"github.com/mochi-mqtt/server/v2/packets"

	"subway/core/wire"
	"subway/server/edge/local"
)

// Append implements local.Conn. A command goes out while fewer than window messages and
// 64 KiB are under way; the rest waits at the edge, in the order of its priorities. A
// device that has not subscribed yet has no room.
func (c *conn) Append(class wire.Class, x, y, z []byte) wire.Result {
	c.mu.Lock()
	r := c.appendLocked(class, x, y, z)
	c.mu.Unlock()
	if r == wire.Full && class == wire.ClassNotice {
		c.CloseWith(wire.CloseTooSlow, "the device does not read")
		return wire.Gone
	}
	return r
}

func (c *conn) appendLocked(class wire.Class, x, y, z []byte) wire.Result {
	if c.closed {
		return wire.Gone
	}
	if class == wire.ClassCommand && !c.roomLocked() {
		c.full = true
		return wire.Full
	}
	msg := append(append(append(make([]byte, 0, len(x)+len(y)+len(z)), x...), y...), z...)
	if class != wire.ClassCommand {
		if !c.wantsLocked(msg) {
			return wire.Accepted
		}
		if c.out.count() >= c.window+maxNotices {
			return wire.Full
		}
	}
	c.out.push(msg, c.acked && c.out.acked < c.receives)
	c.signal()
	return wire.Accepted
}

// wantsLocked says whether a message that is no command is of use to the device: CONNACK
// and PINGRESP have told it what REGISTER_ACK and HEARTBEAT_ACK say.
func (c *conn) wantsLocked(msg []byte) bool {
	_ = c.env.Scan(msg, wire.DefaultMaxDepth)
	if c.env.Type == wire.TypeError {
		code, _ := c.env.Str(wire.MemberCode, nil)
		c.refusal = string(code)
	}
	t := c.env.Type
	c.env.Msg = nil
	return c.ready && t != wire.TypeRegisterAck && t != wire.TypeHeartbeatAck
}

func (c *conn) roomLocked() bool {
	return c.ready && c.out.count() < c.window && c.out.bytes <= maxWindowBytes
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write publishes what the outbox holds, until the client has gone or, with nothing left
// in it, the connection is closing.
func (c *conn) write() {
	defer close(c.written)
	for {
		c.mu.Lock()
		m, some := c.out.take()
		closing := c.closed
		c.mu.Unlock()
		if !some && closing {
			return
		}
		if !some {
			select {
			case <-c.wake:
				continue
			case <-c.over:
				return
			}
		}
		err := c.cl.WritePacket(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: m.qos()}, TopicName: c.topic, Payload: m.payload, PacketID: m.id,
		})
		// A message too large for the client counts as if it had arrived (MQTT 5 section
		// 3.1.2.11.4): nothing will acknowledge it.
		tooLarge := errors.Is(err, packets.ErrPacketTooLarge)
		if err != nil && !tooLarge {
			return
		}
		if m.id == 0 || tooLarge {
			c.mu.Lock()
			c.out.settle(m)
			c.mu.Unlock()
			c.room()
		}
	}
}

// acknowledged notes that the device has a message.
func (c *conn) acknowledged(id uint16) {
	c.mu.Lock()
	m, found := c.out.unacked[id]
	if found {
		c.out.settle(m)
	}
	c.mu.Unlock()
	if found {
		c.room()
	}
}

// subscribed notes whether and how the device takes commands. None leave before begin.
func (c *conn) subscribed(on, acked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sub, c.acked = on, acked
	c.ready = c.ready && on
}

// begin begins the flow of commands.
func (c *conn) begin() {
	c.mu.Lock()
	c.ready = c.sub
	c.mu.Unlock()
	c.room()
}

// room tells the edge where there is room that it waits for.
func (c *conn) room() {
	c.mu.Lock()
	tell := c.full && !c.closed && c.roomLocked()
	if tell {
		c.full = false
	}
	c.mu.Unlock()
	if tell {
		c.tell(func(s local.Session) { s.Writable(c.a.door.Now()) })
	}
}
