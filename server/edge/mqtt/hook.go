package mqtt

import (
	"time"

	broker "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"subway/core/wire"
)

// hook is what the broker asks and tells. Most calls come from the goroutine that reads
// from the client they are about.
type hook struct {
	broker.HookBase
	a *Adapter
}

// ID implements broker.Hook, as do the following.
func (h *hook) ID() string { return "devices" }

// Provides says which calls are of use.
func (h *hook) Provides(b byte) bool {
	switch b {
	case broker.OnPacketRead, broker.OnConnect, broker.OnConnectAuthenticate, broker.OnACLCheck, broker.OnSessionEstablish, broker.OnSessionEstablished,
		broker.OnDisconnect, broker.OnPublish, broker.OnSubscribed, broker.OnUnsubscribed, broker.OnPacketEncode, broker.OnPacketProcessed:
		return true
	}
	return false
}

// OnPacketRead makes every session a clean one, before the broker sees what was asked for.
func (h *hook) OnPacketRead(_ *broker.Client, pk packets.Packet) (packets.Packet, error) {
	if pk.FixedHeader.Type == packets.Connect {
		pk.Connect.Clean = true
	}
	return pk, nil
}

// OnConnect refuses who cannot be a device, and takes from the CONNECT what the broker
// shall not see: a session that outlives the connection, a long keep-alive, the will.
func (h *hook) OnConnect(cl *broker.Client, pk packets.Packet) error {
	if cl.Properties.Props.AssignedClientID != "" || !wire.ValidID([]byte(cl.ID)) {
		_ = h.a.server.SendConnack(cl, packets.ErrClientIdentifierNotValid, false, nil)
		return packets.ErrClientIdentifierNotValid
	}
	cl.Properties.Props.SessionExpiryInterval = 0
	if longest := uint16(h.a.opt.KeepAlive / time.Second); cl.State.Keepalive == 0 || cl.State.Keepalive > longest {
		cl.State.Keepalive, cl.State.ServerKeepalive = longest, true
	}
	if s, ok := cl.Net.Conn.(*socket); ok {
		s.keep = time.Duration(cl.State.Keepalive) * time.Second
	}
	cl.Properties.Will = broker.Will{}
	return nil
}

// OnConnectAuthenticate lets every device in: there are no credentials yet.
func (h *hook) OnConnectAuthenticate(*broker.Client, packets.Packet) bool { return true }

// OnACLCheck keeps a client to the topics of its own id.
func (h *hook) OnACLCheck(cl *broker.Client, topic string, write bool) bool {
	k := kindOf(topic, cl.ID)
	return k != kindNone && write == (k != kindCommand)
}

// OnSessionEstablish comes before the broker disconnects an older client of the same id.
func (h *hook) OnSessionEstablish(cl *broker.Client, pk packets.Packet) { h.a.connect(cl, pk) }

// OnSessionEstablished comes after the CONNACK.
func (h *hook) OnSessionEstablished(cl *broker.Client, _ packets.Packet) {
	if c := h.a.of(cl); c != nil {
		c.register()
	}
}

// OnDisconnect comes when the client has gone; err is nil where it said so.
func (h *hook) OnDisconnect(cl *broker.Client, err error, _ bool) {
	if c := h.a.of(cl); c != nil {
		c.disconnected(err)
	}
}

// OnPublish takes a device's message; the broker acknowledges it and does nothing else.
func (h *hook) OnPublish(cl *broker.Client, pk packets.Packet) (packets.Packet, error) {
	if c := h.a.of(cl); c != nil {
		c.receive(pk.TopicName, pk.Payload)
	}
	return pk, packets.CodeSuccessIgnore
}

// OnSubscribed notes with which QoS a device takes its commands.
func (h *hook) OnSubscribed(cl *broker.Client, pk packets.Packet, reasons []byte) {
	c := h.a.of(cl)
	for i, f := range pk.Filters {
		if c != nil && i < len(reasons) && reasons[i] <= packets.CodeGrantedQos2.Code && kindOf(f.Filter, cl.ID) == kindCommand {
			c.subscribed(true, f.Qos > 0)
		}
	}
}

// OnUnsubscribed notes that a device takes no commands any more.
func (h *hook) OnUnsubscribed(cl *broker.Client, pk packets.Packet) {
	c := h.a.of(cl)
	for _, f := range pk.Filters {
		if c != nil && kindOf(f.Filter, cl.ID) == kindCommand {
			c.subscribed(false, false)
		}
	}
}

// OnPacketEncode tells MQTT 5 clients how large a packet may be.
func (h *hook) OnPacketEncode(cl *broker.Client, pk packets.Packet) packets.Packet {
	if pk.FixedHeader.Type == packets.Connack && cl.Properties.ProtocolVersion == 5 {
		pk.Properties.MaximumPacketSize = uint32(h.a.opt.MaxMessage + packetRoom)
	}
	return pk
}

// OnPacketProcessed comes after the SUBACK has left: now commands may. A PUBACK is of a
// message of ours, of which the broker knows nothing.
func (h *hook) OnPacketProcessed(cl *broker.Client, pk packets.Packet, err error) {
	c := h.a.of(cl)
	switch {
	case c == nil || err != nil:
	case pk.FixedHeader.Type == packets.Subscribe:
		c.begin()
	case pk.FixedHeader.Type == packets.Puback:
		c.acknowledged(pk.PacketID)
	}
}
