package front

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"subway/core/wire"
)

// Session is what the port's user attaches to a WebSocket connection. Its methods
// are called on the connection's event loop, one at a time, and must not block.
type Session interface {
	// Receive takes one whole message: text, or binary that is valid UTF-8. msg is
	// borrowed until it returns.
	Receive(msg []byte, now wire.Time)
	// Invalid notes a binary message that is not UTF-8.
	Invalid(now wire.Time)
	// Writable says that there is room for commands again after an Append said Full.
	Writable(now wire.Time)
	// Registered, once true, ends the registration deadline (PROTOCOL.md section 2).
	Registered() bool
	// Closed is called once, and nothing after it: when the connection is lost, or
	// as soon as it is to be closed, by whichever side. reason is a short name.
	Closed(now wire.Time, reason string)
}

// state is where a connection stands; it only ever grows.
type state uint8

const (
	stateHead    state = iota // waits for the head of its first request
	stateOpen                 // a WebSocket
	stateClosing              // what is queued leaves, then TCP is half closed
	stateLinger               // our half is closed; what the peer still sends is thrown away
	stateGone                 // the descriptor is not ours any more
)

// Conn is a connection on an event loop. Append, CloseWith and RemoteAddr
// may be called from any goroutine, and at any time; the rest is the loop's.
type Conn struct {
	l      *loop
	remote netip.AddrPort
	sess   Session // nil before the handshake and after Closed
	head   *head   // nil where nothing of the first request has come, and once it is a WebSocket

	fd         int32
	slot       int32 // in loop.slots
	state      state
	registered bool
	upgraded   bool // counted as a WebSocket
	served     bool // answered on the loop, counted as an HTTP connection
	holding    bool // its answers wait for the journal
	unread     bool // meanwhile what it sends stays in the socket
	started    bool // as one, and its end was not counted yet
	broken     bool // the input cannot be parsed any more
	closeHeld  bool // to be closed once nothing waits for the journal any more, until then at the latest
	peerClosed bool // the peer's close frame has come
	blocked    bool // its socket is full, and the loop is told when it has room

	rd     Reader
	opened wire.Time // accepted, answered, or its next request began; then upgraded
	pinged wire.Time
	begun  wire.Time // the message in progress began, 0: none
	until  wire.Time // of stateClosing, stateLinger and closeHeld

	out []byte // pooled: what is being written, from off on
	off int

	sent     int64        // bytes given to the socket
	acked    int64        // of these, acknowledged by the peer's TCP at the last look
	moved    wire.Time    // when acked last grew, 0: nothing is under way
	lastSeen atomic.Int64 // when the last byte came; written by the loop
	closing  atomic.Bool
	raw      uint16 // as in outbox, of out
	outboxMu sync.Mutex
	box      outbox // guarded by outboxMu
}

// RemoteAddr returns the peer's address, also after the connection is closed.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// Handshake returns the request that opened the WebSocket, during Options.Open only.
func (c *Conn) Handshake() *Handshake {
	if c.head == nil {
		return nil
	}
	return c.head.request
}

// receive takes what came, all of it: data is the loop's.
func (c *Conn) receive(data []byte, now wire.Time) {
	c.lastSeen.Store(int64(now))
	if c.state == stateHead {
		c.readHead(data, now)
	} else {
		c.read(data, now)
	}
}

// read takes frames apart and gives the messages to the session.
func (c *Conn) read(data []byte, now wire.Time) {
	if c.broken {
		return
	}
	for {
		ev, n := c.rd.Next(data)
		data = data[n:]
		switch ev.Kind {
		case Nothing:
			c.noteProgress(now)
			return
		case Text, Binary:
			c.begun = 0
			if !c.closing.Load() {
				c.sess.Receive(ev.Payload, now)
			}
		case InvalidBinary:
			c.begun = 0
			if !c.closing.Load() {
				c.sess.Invalid(now)
			}
		case Ping:
			c.pong(ev.Payload)
		case Pong:
		case CloseFrame:
			c.peerCloses(ev, now)
			return
		case Violation:
			c.broken = true
			c.rd.Close()
			c.CloseWith(ev.Code, violationText(ev.Code))
			return
		}
	}
}

// noteProgress keeps the time at which the message in progress began.
func (c *Conn) noteProgress(now wire.Time) {
	if !c.rd.Partial() {
		c.begun = 0
	} else if c.begun == 0 {
		c.begun = now
		c.l.arm(c, now+c.l.srv.o.slowAfter)
	}
}

// peerCloses answers a close frame with its own code (RFC 6455 section 5.5.1), or
// ends the closing that we began.
func (c *Conn) peerCloses(ev Event, now wire.Time) {
	c.broken, c.peerClosed = true, true
	code := ev.Code
	if code == closeNoStatus {
		code = wire.CloseNormal
	}
	c.rd.Close()
	c.closeFor(closedByPeer, code, reasonPeerClosed)
	if c.state == stateLinger {
		c.drop(reasonPeerClosed, now)
	}
}
