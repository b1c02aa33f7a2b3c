// Package uplink keeps a party (a device, an edge, a backend) connected to a Gateway or
// an Edge over WebSocket: PROTOCOL.md sections 2 and 5 from the client's side. It knows
// REGISTER, REGISTER_ACK and ERROR, as far as they decide whether a connection is of use,
// and no other message.
//
//	link, err := uplink.New(uplink.Config{URLs: urls, Register: register, Receive: receive})
//	go link.Run(ctx)            // connects, registers, connects again; until ctx ends
//	err = link.Send(message)    // from any goroutine; ErrDown between two connections
//
// [Conn] is one connection: two goroutines (the caller of Serve reads, one more writes),
// an outbox of ready frames that is bounded in bytes, one write for all that waits.
// [Link] is the loop around it that holds to the schedule of section 5; when to try again
// is decided in schedule.go, which reads no clock.
//
// Time is the time package's: tests run in testing/synctest with Options.NetDial.
package uplink
