package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"subway/core/wire"
	"subway/server/uplink"
)

// mqttConn carries messages over MQTT 5, to an Edge (docs/devices.md). It implements
// uplink.Transport. The CONNECT is the REGISTER, so it answers that one itself.
type mqttConn struct {
	id     string
	opt    uplink.Options
	client *paho.Client
	in     chan []byte // what the broker published
	ended  chan *uplink.Closed
	wake   chan struct{} // capacity 1
	stop   context.CancelFunc
	ctx    context.Context // of the publisher; ends with the connection

	mu      sync.Mutex
	queue   []*paho.Publish // guarded by mu: what waits to be published
	bytes   int             // guarded by mu: of it
	env     wire.Envelope   // guarded by mu
	closing *uplink.Closed  // guarded by mu: this side asked for the end
	over    bool            // guarded by mu
}

// dialMQTT connects and subscribes to the device's commands.
func dialMQTT(ctx context.Context, host, id string, opt uplink.Options) (uplink.Transport, error) {
	sock, err := dialTCP(ctx, host, opt)
	if err != nil {
		return nil, err
	}
	c := &mqttConn{id: id, opt: opt, in: make(chan []byte), ended: make(chan *uplink.Closed, 1), wake: make(chan struct{}, 1)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.client = paho.NewClient(paho.ClientConfig{
		Conn: sock, PacketTimeout: opt.DialTimeout,
		OnPublishReceived:  []func(paho.PublishReceived) (bool, error){c.published},
		OnServerDisconnect: func(d *paho.Disconnect) { c.end(closedByBroker(d)) },
		OnClientError:      func(err error) { c.end(&uplink.Closed{Code: closeAbnormal, Err: err}) },
	})
	ack, err := c.client.Connect(ctx, c.hello())
	if err != nil {
		c.stop()
		_ = sock.Close()
		if ack != nil && ack.ReasonCode != 0 {
			return nil, &uplink.Closed{Code: codeOfReason(ack.ReasonCode), Err: fmt.Errorf("CONNECT was refused with %#x", ack.ReasonCode)}
		}
		return nil, err
	}
	if err := c.subscribe(ctx, sock); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *mqttConn) subscribe(ctx context.Context, sock net.Conn) error {
	_, err := c.client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: c.topic("command"), QoS: 1}}})
	if err == nil {
		return nil
	}
	c.stop()
	_ = sock.Close()
	<-c.client.Done()
	select {
	case end := <-c.ended:
		if end.Code != closeAbnormal {
			return end
		}
	default:
	}
	return fmt.Errorf("SUBSCRIBE: %w", err)
}

func (c *mqttConn) topic(name string) string { return "subway/" + c.id + "/" + name }

// hello makes the CONNECT: the session ends with the connection, and the will tells that
// the device is offline.
func (c *mqttConn) hello() *paho.Connect {
	window, packet := uint16(64), uint32(c.opt.MaxReceive+4<<10)
	return &paho.Connect{
		ClientID: c.id, CleanStart: true, KeepAlive: uint16(max(c.opt.PingInterval, time.Second) / time.Second),
		Properties: &paho.ConnectProperties{
			ReceiveMaximum: &window, MaximumPacketSize: &packet,
			User: paho.UserProperties{{Key: "model", Value: "simulated"}},
		},
		WillMessage: &paho.WillMessage{Topic: c.topic("status"), QoS: 1, Payload: []byte(`{"online":false}`)},
	}
}

// published takes a message from the client library, which acknowledges it afterwards.
func (c *mqttConn) published(p paho.PublishReceived) (bool, error) {
	select {
	case c.in <- p.Packet.Payload:
	case <-c.ctx.Done():
	}
	return true, nil
}

// end notes the first reason for which the connection ended.
func (c *mqttConn) end(why *uplink.Closed) {
	select {
	case c.ended <- why:
	default:
	}
}

// Send implements uplink.Transport: it queues a message for its topic.
func (c *mqttConn) Send(msg []byte) error {
	if len(msg) > c.opt.MaxSend {
		return uplink.ErrTooLarge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.closing != nil {
		return uplink.ErrDown
	}
	topic := c.topicOf(msg)
	if topic == "" {
		return nil
	}
	if c.bytes+len(msg) > c.opt.Outbox {
		return uplink.ErrFull
	}
	c.bytes += len(msg)
	c.queue = append(c.queue, &paho.Publish{Topic: topic, QoS: 1, Payload: append([]byte(nil), msg...)})
	c.signal()
	return nil
}

// topicOf returns where a message goes, "" for those that MQTT itself says.
func (c *mqttConn) topicOf(msg []byte) string {
	_ = c.env.Scan(msg, wire.DefaultMaxDepth)
	t := c.env.Type
	c.env.Msg = nil
	switch t {
	case wire.TypeCommandResponse, wire.TypeError:
		return c.topic("response")
	case wire.TypeProgressUpdate:
		return c.topic("progress")
	case wire.TypeDeviceStatus:
		return c.topic("status")
	}
	return ""
}

// Close implements uplink.Transport.
func (c *mqttConn) Close(code uint16, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil || c.over {
		return
	}
	c.closing = &uplink.Closed{Code: code, Reason: reason, Local: true}
	c.signal()
}

func (c *mqttConn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Serve implements uplink.Transport.
func (c *mqttConn) Serve(receive func(msg []byte)) *uplink.Closed {
	receive(wire.AppendRegisterAck(nil, c.id, "DEVICE", "mqtt", 0, int(c.opt.PingInterval/time.Millisecond), wire.Time(time.Now().UnixNano())))
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	var end *uplink.Closed
	for end == nil {
		select {
		case msg := <-c.in:
			receive(msg)
		case end = <-c.ended:
		case <-written:
			end = &uplink.Closed{Code: closeAbnormal, Err: errors.New("the connection ended")}
		}
	}
	c.mu.Lock()
	c.over = true
	if c.closing != nil {
		end = c.closing
	}
	c.mu.Unlock()
	c.stop()
	_ = c.client.Disconnect(&paho.Disconnect{})
	<-c.client.Done()
	<-written
	return end
}

// write publishes what waits, one after the other, until the connection or the work ends.
func (c *mqttConn) write() {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		for {
			p, last := c.next()
			if p == nil && last {
				return
			}
			if p == nil {
				break
			}
			ctx, cancel := context.WithTimeout(c.ctx, c.opt.StallTimeout)
			r, err := c.client.Publish(ctx, p)
			cancel()
			if err != nil && r == nil {
				c.end(&uplink.Closed{Code: closeAbnormal, Err: err})
				return
			}
		}
	}
}

// next takes the oldest message out; last says that no more will come.
func (c *mqttConn) next() (p *paho.Publish, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil, c.closing != nil
	}
	p = c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	c.bytes -= len(p.Payload)
	return p, false
}

// closedByBroker says what a DISCONNECT of the Edge means.
func closedByBroker(d *paho.Disconnect) *uplink.Closed {
	end := &uplink.Closed{Code: codeOfReason(d.ReasonCode)}
	if d.Properties != nil {
		end.Reason = d.Properties.ReasonString
	}
	return end
}

// codeOfReason returns the close code of PROTOCOL.md section 2 that says what an MQTT 5
// reason code says (section 2.4).
func codeOfReason(reason byte) uint16 {
	switch reason {
	case 0x84:
		return wire.CloseVersion
	case 0x86, 0x8a, 0x8c:
		return wire.CloseUnauthorized
	case 0x85, 0x87:
		return wire.CloseForbidden
	case 0x88, 0x89:
		return wire.CloseTryAgain
	case 0x8b:
		return wire.CloseGoingAway
	case 0x8d:
		return wire.CloseSilent
	case 0x8e:
		return wire.CloseSuperseded
	case 0x95:
		return 1009
	case 0x97:
		return wire.CloseTooSlow
	case 0x99:
		return wire.CloseInvalid
	}
	return closeAbnormal
}
