// Package attack is the HTTP channel of the load generator: it posts commands to a
// gateway's HTTP API as a business system does (PROTOCOL.md section 6), receives the
// callbacks (section 7), and asks for what became of single commands. The package
// loadgen calls it; nobody else does.
//
// # How a command travels
//
// vegeta's attacker (github.com/tsenart/vegeta) has the workers, the hits and the
// reports. What it lacks is ours:
//
//	pacer -> instant -> worker: Next fills the commands -> request leaves -> answer -> Done
//
// The pacer follows a rate that may change while it runs, and gives each tick the exact
// instant at which its request was due. vegeta's own latencies begin when a worker takes
// a tick: with all workers busy they leave out the time a request waited for one. Ours
// begin at the instant, and Options.Late is told by how much a request missed it, so a
// server that stalls shows in the percentiles with all that it kept waiting.
//
// What is bounded: requests at a time (Options.Workers), each within Options.Timeout; an
// answer's body (4 MiB); a callback's body (4 MiB) and the Receiver's connections; the
// set of error texts in vegeta's metrics.
package attack
