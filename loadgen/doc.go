// Package loadgen is a fleet in a box: edges, devices, Backends and business systems, many
// thousands of them in one process, that drive a gateway which speaks PROTOCOL.md, measure
// it, and keep books of every command. `subway loadgen` is its only caller.
//
// A [Scenario] says what there is and what happens; [Run] plays it:
//
//	scenario -> run -> backends, HTTP callers --commands--> gateway --> edges, devices
//	                       \____ ledger (the books), report (the figures) ____/
//
// WebSockets live on the event loops of loadgen/socket: a party (an edge, a device, a
// Backend) belongs to one loop and is touched by nothing else, so parties take no lock.
// The HTTP channel and the callback receivers are loadgen/attack. Latency counts from the
// instant at which a command was intended to leave, so a gateway (or a generator) that
// stalls cannot hide it.
//
// It imports nothing of the gateway but core/wire.
package loadgen
