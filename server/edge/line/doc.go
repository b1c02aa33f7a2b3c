// Package line lets devices in that have no more than a bare socket: one JSON object a line
// over TCP, in UTF-8, ended by \n or \r\n (docs/devices.md). It is an adapter of the edge.
//
//	adapter, err := line.New("127.0.0.1:0")
//	addr, err := adapter.Start(door)
//	err = adapter.Shutdown(ctx)
//
// The first message is REGISTER; from then on what goes over the line is what goes over a
// WebSocket (PROTOCOL.md section 3). An empty line is no message, but a sign of life. There
// is no close frame: the last line before this side closes is an ERROR whose
// `details.closeCode` is the code of PROTOCOL.md section 2.
//
// Two goroutines serve a connection: one reads and talks to the edge, one writes what the
// outbox holds, which is bounded. Session.Writable comes from the second, so a lock keeps
// the calls to a session apart.
package line
