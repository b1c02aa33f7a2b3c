// Package router is the heart of Subway: it knows which edge holds which device, takes
// commands, hands them to the edges' connections, takes the answers back, and sees to
// it that every accepted command ends exactly once (PROTOCOL.md sections 3 to 5).
//
// It opens no socket, starts no goroutine and reads no clock. Whoever owns the
// connections drives it:
//
//	r := router.New(config, now)
//	s := r.Open(conn, remote, now)   // a connection is there
//	s.Receive(message, now)          // for every message of it, in order
//	s.Writable(now)                  // after Append said Full, once there is room
//	s.Closed(now, reason)            // it is gone; last
//	r.Tick(now)                      // about every 10 ms: timeouts, retention
//
// and the HTTP API calls Submit, Cancel, Wait, Record, Records, Trace, Devices, Device,
// DevicesMatchingAny, Edges and Edge. TakeFlapping is for a log; Gauges and VisitMetrics
// are what is counted.
//
// Effects leave through two small interfaces: Conn (append a message, close) and
// Callbacks. Both are called with locks held and must not block or call back.
//
// All methods of a Router may be called from any goroutine; those of a Session from one
// goroutine at a time. Time is an argument and never steps back.
//
// Locks, in the order in which they are taken: a shard (its records' states, and telling
// of them, so that the order of notices per command is the order of its states) -> topo
// (who is where) -> an edge (its session, its lists of records, and which of its devices
// wait for what) -> whatever Conn and Callbacks lock. No goroutine holds two shards, and
// none but one two edges: reroute, which moves a device with what waits for it. That is
// safe in any order of the two, for it holds topo, so that there is one such goroutine,
// and nobody who holds an edge waits for topo or another edge.
//
// The others are taken for a moment with any of these held, and nothing is taken under
// them: archive.mu, order.mu, labels.mu and the writers' locks of the route table's
// shards, under which a new device looks up its type, with labels.mu. backendTable.mu is
// taken with none held, and only Conn is called under it.
package router
