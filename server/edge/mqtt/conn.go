package mqtt

import (
	"bytes"
	"math"
	"strconv"
	"sync"
	"time"

	broker "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"subway/core/wire"
	"subway/server/edge/local"
)

// conn is one client of the broker. Append and CloseWith are called from any goroutine,
// most of the rest by the goroutine that reads from the client.
type conn struct {
	a        *Adapter
	cl       *broker.Client
	id       string
	topic    string // of its commands
	window   int    // messages under way, until commands are refused
	receives int    // the client's Receive Maximum
	about    []byte // deviceInfo, nil for none
	will     []byte // the payload of a will on the status topic, nil for none

	wake    chan struct{} // capacity 1, for the writer
	written chan struct{} // closed when the writer has ended
	over    chan struct{} // closed when the client has gone
	settled chan struct{} // closed when it has registered or never will
	settle  func()        // closes settled, once
	next    *conn         // guarded by Adapter.mu: the one that took over from it

	sessMu sync.Mutex    // never taken while mu is held
	sess   local.Session // guarded by sessMu; nil before register and after Closed
	shape  shaper        // guarded by sessMu

	mu      sync.Mutex
	closed  bool   // guarded by mu, as all below
	code    uint16 // why this side closed it; 0: it did not
	sub     bool   // it has subscribed to its commands
	acked   bool   // with QoS 1
	ready   bool   // and knows it
	full    bool   // a command was refused: tell when there is room
	out     outbox // what is under way
	refusal string // code of the last ERROR
	env     wire.Envelope
}

func newConn(a *Adapter, cl *broker.Client, pk packets.Packet) *conn {
	c := &conn{
		a: a, cl: cl, id: cl.ID, topic: commandTopic(cl.ID), window: maxWindow, receives: math.MaxUint16, about: aboutDevice(pk.Properties.User),
		wake: make(chan struct{}, 1), written: make(chan struct{}), over: make(chan struct{}),
	}
	c.settled = make(chan struct{})
	c.settle = sync.OnceFunc(func() { close(c.settled) })
	if n := int(cl.Properties.Props.ReceiveMaximum); n > 0 {
		c.window, c.receives = min(c.window, n), n
	}
	if pk.Connect.WillFlag && kindOf(pk.Connect.WillTopic, cl.ID) == kindStatus && len(pk.Connect.WillPayload) > 0 {
		c.will = bytes.Clone(pk.Connect.WillPayload)
	}
	return c
}

// aboutDevice makes deviceInfo of the user properties of an MQTT 5 CONNECT.
func aboutDevice(properties []packets.UserProperty) (info []byte) {
	for _, p := range properties[:min(len(properties), maxProperties)] {
		if len(p.Key) > maxProperty || len(p.Val) > maxProperty {
			continue
		}
		if info == nil {
			info = append(info, '{')
		} else {
			info = append(info, ',')
		}
		info = append(wire.AppendString(info, p.Key), ':')
		info = wire.AppendString(info, p.Val)
	}
	if info != nil {
		info = append(info, '}')
	}
	return info
}

// register tells the edge of the device: its CONNECT was the REGISTER.
func (c *conn) register() {
	c.a.listener.all.Go(c.write)
	now := c.a.door.Now()
	var s local.Session
	if !c.a.listener.isStopped() {
		s = c.a.door.Open(c, c.cl.Net.Remote, now)
	}
	if s == nil {
		c.CloseWith(wire.CloseGoingAway, "the edge is going down")
		return
	}
	msg := wire.AppendString([]byte(`{"type":"REGISTER","clientType":"DEVICE","clientId":`), c.id)
	if c.about != nil {
		msg = append(append(msg, `,"deviceInfo":`...), c.about...)
	}
	registered, late := c.introduce(s, append(msg, '}'), now)
	if late {
		return
	}
	c.settle()
	if !registered {
		c.mu.Lock()
		why := c.refusal
		c.mu.Unlock()
		code := wire.CloseForbidden
		if why == wire.CodeOverloaded.String() {
			code = wire.CloseTryAgain
		}
		c.CloseWith(code, why)
	}
}

// introduce hands REGISTER to the session. late: it did not, for a newer connection of the
// same id has come, which may have registered already.
func (c *conn) introduce(s local.Session, msg []byte, now wire.Time) (registered, late bool) {
	c.a.order.Lock()
	defer c.a.order.Unlock()
	c.sessMu.Lock()
	defer c.sessMu.Unlock()
	c.sess = s
	if c.a.successor(c) != nil {
		return false, true
	}
	s.Receive(msg, now)
	return s.Registered(), false
}

// receive takes what the device published.
func (c *conn) receive(topic string, payload []byte) {
	if len(payload) > c.a.opt.MaxMessage {
		c.CloseWith(closeTooBig, "the message is too large")
		return
	}
	if len(payload) == 0 || c.gone() {
		return // an empty payload clears a retained message: there is none
	}
	now := c.a.door.Now()
	c.tell(func(s local.Session) {
		if !wire.ValidUTF8(payload) {
			s.Invalid(now)
			return
		}
		s.Receive(c.shape.message(kindOf(topic, c.id), c.id, payload), now)
		c.shape.shrink()
	})
}

// disconnected ends the session, with the will where the device did not say goodbye.
func (c *conn) disconnected(err error) {
	c.mu.Lock()
	code := c.code
	c.closed = true
	c.mu.Unlock()
	close(c.over)
	reason := "lost"
	switch {
	case code != 0:
		reason = strconv.Itoa(int(code))
	case err == nil:
		reason = "peer closed"
	}
	c.handOver()
	now := c.a.door.Now()
	c.tell(func(s local.Session) {
		if reason == "lost" && c.will != nil && wire.ValidUTF8(c.will) {
			s.Receive(c.shape.message(kindStatus, c.id, c.will), now)
		}
		s.Closed(now, reason)
		c.sess = nil
	})
	c.a.leave(c)
	c.settle()
}

// handOver waits, where another connection has taken over, until the edge knows of it:
// the device has not left in between (PROTOCOL.md section 2, 4409).
func (c *conn) handOver() {
	next := c.a.successor(c)
	if next == nil {
		return
	}
	late := time.NewTimer(takeoverWait)
	defer late.Stop()
	select {
	case <-next.settled:
	case <-late.C:
	}
}

// tell calls the session, if there is one; one call at a time.
func (c *conn) tell(f func(local.Session)) {
	c.sessMu.Lock()
	defer c.sessMu.Unlock()
	if c.sess != nil {
		f(c.sess)
	}
}

func (c *conn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// superseded ends a client that the broker is about to disconnect for another one, and
// keeps the other from being held up by this one's socket.
func (c *conn) superseded() {
	c.CloseWith(wire.CloseSuperseded, "superseded by a newer connection with the same id")
	cutOff(c.cl.Net.Conn, min(c.a.opt.CloseTimeout, time.Second))
}

// CloseWith implements local.Conn. A 3.1.1 client is not told why: its protocol has no
// word for it.
func (c *conn) CloseWith(code uint16, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed, c.code = true, code
	c.signal()
	c.a.closing.Go(func() { c.dismiss(packets.Code{Code: reasonOf(code), Reason: reason}) })
}

// dismiss ends the connection once what is queued has left.
func (c *conn) dismiss(why packets.Code) {
	late := time.NewTimer(c.a.opt.CloseTimeout)
	defer late.Stop()
	_ = c.cl.Net.Conn.SetWriteDeadline(time.Now().Add(c.a.opt.CloseTimeout))
	select {
	case <-c.written:
	case <-c.over:
	case <-late.C:
	}
	if c.cl.Properties.ProtocolVersion == 5 {
		_ = c.a.server.DisconnectClient(c.cl, why)
	} else {
		c.cl.Stop(why)
	}
}

const closeTooBig uint16 = 1009 // RFC 6455 section 7.4.1

// reasonOf returns the MQTT 5 reason code (section 3.14.2.1) that says what a close code
// of PROTOCOL.md section 2 says.
func reasonOf(code uint16) byte {
	switch code {
	case wire.CloseNormal:
		return packets.CodeDisconnect.Code
	case wire.CloseGoingAway:
		return packets.ErrServerShuttingDown.Code
	case closeTooBig:
		return packets.ErrPacketTooLarge.Code
	case wire.CloseTryAgain:
		return packets.ErrServerBusy.Code
	case wire.CloseInvalid:
		return packets.ErrPayloadFormatInvalid.Code
	case wire.CloseUnauthorized, wire.CloseForbidden:
		return packets.ErrNotAuthorized.Code
	case wire.CloseSuperseded:
		return packets.ErrSessionTakenOver.Code
	case wire.CloseSilent:
		return packets.ErrKeepAliveTimeout.Code
	case wire.CloseTooSlow:
		return packets.ErrQuotaExceeded.Code
	case wire.CloseVersion:
		return packets.ErrUnsupportedProtocolVersion.Code
	}
	return packets.ErrUnspecifiedError.Code
}
