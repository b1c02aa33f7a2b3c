// Package socket holds the client side of many WebSockets (RFC 6455) on a few event
// loops: the transport of the load generator. A connection that stands costs a descriptor
// and about 1 KiB of heap (1,066 bytes each were measured with 5,000 idle ones, go1.26 on
// amd64), never a goroutine.
//
// Connections are dialled and shake hands on a bounded number of goroutines, then live on
// a loop of gnet until they end. Everything about a connection happens on its loop: its
// [Handler] is called there, and only there may it be sent on. A round is one call that a
// loop makes: what came for a connection, one batch of [Loop.Do], the ticks of
// [Engine.Every] that are due. What was sent on a connection in one round leaves in one
// write at its end.
//
//	e, err := socket.Start(socket.Options{Loops: 2})
//	...
//	e.Dial(e.Loops()[0], socket.Target{Address: "127.0.0.1:18081"}, handler)
//	stop := e.Every(time.Millisecond, func(l *socket.Loop, intended, now int64) { ... })
//	...
//	stop()
//	e.Stop()
//
// What is bounded, and what happens beyond: a message (MaxMessage, ErrTooBig), the bytes
// that wait in a connection (MaxOutbox, ErrOutboxFull), the dials that wait
// (ErrDialsFull), the calls that wait for a loop (ErrLoopFull), the head of a handshake's
// answer (8 KiB) and its time (Target.Timeout), the goodbye (seconds), the ticks a loop is
// behind (10 s; see [Engine.Merged]).
package socket
