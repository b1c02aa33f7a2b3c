// Package edge is the Edge of PROTOCOL.md sections 3 and 5: what stands between a Gateway
// and the devices of one place, on a small machine, behind a bad link, where power fails.
//
//	e, err := edge.Start(options)   // devices may connect when it returns
//	err = <-e.Failed()              // the port stopped serving
//	err = e.Shutdown(ctx)
//
// # What it promises
//
// A requestRef is on disk before its command is handed to a device, so a command that
// comes again, from a Gateway that does not know what became of it, is never executed
// twice; its answer is kept with it and given again. What devices send while the link is
// down waits on disk and leaves in order. All of that holds over kill -9.
//
// # How it is made
//
// One mutex, Edge.mu, guards one book: devices with their queues (queue.go), refs
// (entry.go) and what waits for the link (backlog.go). Three kinds of goroutines work on it: those
// that read devices (session.go, through the seam of package local), the one that reads the
// link (link.go, commands.go), and the store's committer, which says what is stable. The
// lock is never held over a system call of ours: sockets and disk have goroutines of their
// own. Lock order: Edge.mu, then a connection's or the store's.
//
// A command's way: link -> queue of its device -> store (Remember) -> device. An answer's:
// device -> link and store at the same time; that it arrived is known when the Gateway
// answers the HEARTBEAT that was sent behind it (drain.go).
package edge
