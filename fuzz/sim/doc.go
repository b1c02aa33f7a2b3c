// Package sim plays whole worlds around the core, each of them from one seed: Backends,
// HTTP callers, edges with their devices and receivers of callbacks, under a clock of its
// own, with connections that are slow, fill up, are cut, or are dead for a while without
// anybody's knowing. TestSim runs it; whoever finds a seed that fails replays it:
//
//	make sim SEEDS=1000     many seeds, all cores
//	make sim SEED=17        one, with its history where it fails
//
// # How a world runs
//
// A world is one goroutine: an agenda of events in the order of their time, a generator of
// random numbers, and the gateway, which is the router of core/router with nothing around
// it. The same seed gives the same history, byte for byte. The world owns the gateway and
// may put a new one in its place at any event (gateway.crash). In a third of the worlds the
// gateway has a journal, on a disk that is the world's, and the new one begins with what of it
// was stored, and any part of what was not.
//
//	party --say--> link --gateway.receive--> Session.Receive
//	party <-hear-- link <------Append------- Router
//
// Everything between the router and the parties passes the book on its way.
//
// # How it is judged
//
// The book is a second, dumb implementation of PROTOCOL.md sections 3 to 5. It reads what
// the parties send and what the gateway tells them, and the answers of the HTTP API, and
// nothing else: no lock, no list of the router's. It knows who is where and what each
// command waits for, says before each call what has to come of it, and finds fault with
// whatever else comes, or does not. So it also knows what must never happen: two ends, a
// word after the end, a second execution, a message to a session that is over, a bound that
// is passed, something left at the end, something told that a crash can undo, something lost
// in one that was stored.
package sim
