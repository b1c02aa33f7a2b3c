// Package local is the seam between an edge and whatever its devices speak. An adapter
// takes connections in, each of one device, and turns what comes over them into Subway's
// messages (PROTOCOL.md section 3) and back; the edge sees no difference between them.
// The WebSocket port is the first adapter; MQTT and lines over TCP are others. A third
// party adds one in a file of its own:
//
//	func init() { local.Register("acme", func(address string) (local.Adapter, error) { ... }) }
//
// after which `subway edge --adapter acme=ADDRESS` starts it.
//
// # The life of a connection
//
//	session := door.Open(conn, remote, door.Now())      // nil: the edge is going down
//	session.Receive(register, door.Now())               // the device's first message: REGISTER
//	if session.Registered() { ... }                     // decided when Receive returns
//	session.Receive(response, door.Now())               // COMMAND_RESPONSE, DEVICE_STATUS, ...
//	session.Closed(door.Now(), "peer closed")           // once, also after CloseWith
//
// What the edge answers (REGISTER_ACK, ERROR, HEARTBEAT_ACK) and what it sends (COMMAND,
// CANCEL) comes through Conn.Append. Deadlines belong to the adapter: a connection that
// has not registered within 10 s, one that is silent, one that does not read.
package local

import (
	"context"
	"fmt"
	"net"
	"sort"

	"subway/core/wire"
)

// Conn is a device's connection as the edge sees it. Its methods may be called from any
// goroutine, also while the edge holds its lock: they must not block, and must not call
// the Session before they return.
type Conn interface {
	// Append queues the message a+b+c (borrowed: copy what is kept). A ClassCommand may be
	// refused with wire.Full while the way to the device is blocked; the edge keeps it and
	// the adapter calls Session.Writable when there is room again. A ClassNotice is queued
	// up to the adapter's bound, beyond which it closes the connection. wire.Gone: the
	// connection is closed. An Accepted command counts as handed over: the edge never
	// sends it again.
	Append(class wire.Class, a, b, c []byte) wire.Result
	// CloseWith ends the connection, after what is queued, for the reason of a close code
	// of PROTOCOL.md section 2: 4409 superseded by a newer connection, 4400 too many invalid
	// messages, 1000 the device said goodbye, 1001 the edge is going down.
	CloseWith(code uint16, reason string)
}

// Session is the edge's side of a connection. The adapter calls its methods one at a time;
// they do not block for long and answer through the Conn.
type Session interface {
	// Receive takes one message, a JSON object in UTF-8. msg is borrowed until it returns.
	Receive(msg []byte, now wire.Time)
	// Invalid notes a message that could not be read as text at all.
	Invalid(now wire.Time)
	// Writable says that there is room for commands again after an Append said Full.
	Writable(now wire.Time)
	// Registered reports whether a REGISTER was accepted.
	Registered() bool
	// Closed says that the connection is gone; it is called once and nothing after it.
	// reason is a short name.
	Closed(now wire.Time, reason string)
}

// Door is what an edge offers to adapters. Its methods may be called from any goroutine.
type Door interface {
	// Open begins a connection; remote is the peer's address for logs. Nil: the edge takes
	// no more connections.
	Open(c Conn, remote string, now wire.Time) Session
	// Now is the edge's clock, which never steps back.
	Now() wire.Time
}

// Adapter lets devices of one make in.
type Adapter interface {
	// Start listens and serves until Shutdown; an error is for the operator.
	Start(door Door) (net.Addr, error)
	// Shutdown closes what is open as if by CloseWith(1001) and returns when every
	// goroutine has ended, or, with what is left cut off, when ctx has.
	Shutdown(ctx context.Context) error
}

// Make makes an adapter that will listen on address, host:port; port 0: the system picks.
type Make func(address string) (Adapter, error)

var makers = map[string]Make{}

// Register makes an adapter known by name. It is called from init functions only; a name
// that is taken is a bug.
func Register(name string, make Make) {
	if makers[name] != nil {
		panic("BUG: two adapters are called " + name)
	}
	makers[name] = make
}

// New makes the adapter of that name.
func New(name, address string) (Adapter, error) {
	make := makers[name]
	if make == nil {
		return nil, fmt.Errorf("there is no adapter %q, only %v", name, Names())
	}
	return make(address)
}

// Names lists the adapters that are known, sorted.
func Names() []string {
	names := []string{}
	for name := range makers {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
