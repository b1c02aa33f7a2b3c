// Package front is a listening port that speaks HTTP and WebSocket on one socket
// (PROTOCOL.md section 2). It owns the sockets, RFC 6455 and the limits; it knows
// nothing of Subway's messages. The gateway uses it for everything it serves, an
// edge for its devices.
//
//	srv, err := front.Listen(front.Options{
//		Listen: ":18081",
//		Open:   func(c *front.Conn, now wire.Time) front.Session { ... },
//		HTTP:   handler,
//	})
//	...
//	srv.StopAccepting()
//	srv.CloseAll(wire.CloseGoingAway, "going down")
//	srv.Shutdown(ctx)
//
// # Two roads
//
// A connection waits on an event loop, without a goroutine or a buffer, until the
// head of its first request is complete. If that asks for a WebSocket it is
// answered there and the connection stays (loop.go, conn.go). Anything else is
// handed to fasthttp on a goroutine of its own (httpconn.go); an upgrade that
// comes later on such a connection comes back to the loop (upgrade.go). TLS, when
// it comes, takes the same two roads on goroutines.
//
// # Who owns what
//
// A Conn belongs to one event loop: only that loop reads and writes its socket and
// calls its Session. Everybody else appends to its outbox (outbox.go), which is
// guarded by a mutex, bounded in bytes, and written out once per round of the loop.
// A loop that has nothing to do parks in Go's poller, as any goroutine that reads
// does (poll.go). Deadlines cost no timer: each loop looks over one slice of instants, four
// times a second or, where nothing is due, once (deadline.go).
package front
