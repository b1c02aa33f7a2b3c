// Package callback delivers the HTTP callbacks of PROTOCOL.md section 7. The gateway
// gives an [Outbox] each notice of a command, from an event loop and with the command's
// lock held; the Outbox copies it, and everything that can block happens on its own
// goroutines. Nobody else calls it but the HTTP API, which lists and re-sends dead
// letters.
//
// # How a notice travels
//
// The notices of one request form a lane, in the order of the calls to Notify; at most
// one of a lane is under way. The lanes of one scheme, host and port form a host, which
// has the bounds: connections, notices, bytes. A lane whose head may be sent is ready; a
// worker goroutine takes it when the host and the Outbox have a slot free, makes one
// attempt, files the verdict and goes on with the next ready lane on the same
// connection. No lane ready: the worker ends. A lane that waits for a retry holds a
// timer and no slot, so one failing URL stops no other request of its host.
//
//	Notify -> lane -> ready -> attempt -> delivered
//	            ^                 |-----> dropped (progress) or dead letter (final)
//	            '--- retry timer -'
//
// A host begins with 4 slots and gains one with each success up to PerHostConns; a
// network failure or a timeout halves them, down to 2. The last quarter of all slots is
// kept for hosts that have none. So a hundred dead receivers, each holding what it has
// for the whole of an attempt's time limit, leave room for the one that answers.
//
// # Locks
//
// Outbox.mu guards hosts, lanes, notices, slots and dead letters; it is held for short
// steps and never across a system call that may block. The order is: the caller's
// command, Outbox.mu, the connection registry.
package callback
