package sim

import (
	"maps"
	"slices"

	"subway/core/router"
	"subway/core/wire"
)

// executes notes an execution at an edge: one that dedupes executes a ref once, and what
// does not gets it once.
func (b *book) executes(e *edge, ref string) {
	c := b.commands[ref]
	if c == nil || b.used[ref] > 1 {
		return // the gateway has forgotten it, or is another one; or it is of a command before this one
	}
	if c.executed[e]++; c.executed[e] > 1 {
		b.fault(ref, e.name, "is executed %d times at %s", c.executed[e], e.name)
	}
	if len(c.executed) > 1 && !b.w.plan.clones {
		b.fault(ref, e.name, "is executed at %s and elsewhere", e.name)
	}
}

// waitsFor has somebody wait for the end of a command.
func (b *book) waitsFor(ref string) {
	c, waiter := b.commands[ref], b.w.gate.router.Wait([]byte(ref))
	if c == nil {
		return
	}
	if c.state.Final() != (waiter == nil) {
		b.fault(ref, "", "is %v, and one can wait for it: %v", c.state, waiter != nil)
	}
	c.waiter = waiter
}

// looksUp compares a record with the book.
func (b *book) looksUp(ref string) {
	if ref == "" {
		return
	}
	c, rec := b.known(ref), b.w.gate.record(ref)
	switch {
	case c == nil && rec != nil:
		b.fault(ref, "", "is known as %s, and was never accepted", rec.Status)
	case c != nil && rec == nil:
		b.fault(ref, c.target, "is %v, and is not known", c.state)
	case c != nil && (rec.Status != c.state.String() || rec.TargetClientID != c.target):
		b.fault(ref, c.target, "is %v, and its record says %s for %s", c.state, rec.Status, rec.TargetClientID)
	case c != nil && (string(rec.Progress) != c.progress || string(rec.Result) != c.result):
		b.fault(ref, c.target, "its record has progress %s and result %s, want %s and %s", rec.Progress, rec.Result, c.progress, c.result)
	}
}

// compare compares the books while no command is in flight: records, routes, edges and
// what is counted.
func (b *book) compare() {
	for _, ref := range slices.Sorted(maps.Keys(b.commands)) {
		if c := b.commands[ref]; !c.state.Final() {
			b.fault(ref, c.target, "is %v, and nothing is pending", c.state)
		}
		b.looksUp(ref)
	}
	g := b.w.gate.router.Gauges(b.w.now)
	for _, x := range []struct {
		name      string
		got, want uint64
	}{
		{"late answers", g.Late, b.late}, {"orphans", g.Orphans, b.orphans}, {"status messages dropped", g.StatusDropped, b.dropped},
		{"routes beyond the bound", uint64(max(0, g.Routes-b.limits.MaxRoutes)), 0},
		{"routes", uint64(g.Routes), uint64(len(b.routes))}, {"pending", uint64(g.Pending), 0},
	} {
		if x.got != x.want {
			b.fault("", "", "%s: %d are counted, want %d", x.name, x.got, x.want)
		}
	}
	b.compareRoutes()
	b.compareCounts()
	b.compareRecords()
}

// compareRecords turns the pages of the listing of commands, newest first.
func (b *book) compareRecords() {
	q, n, last := router.RecordQuery{Limit: 50}, 0, 1<<62
	for {
		page, next, _ := b.w.gate.router.Records(&q)
		for _, rec := range page {
			c := b.commands[rec.RequestRef]
			if n++; c == nil || c.seq >= last || rec.Status != c.state.String() {
				b.fault(rec.RequestRef, "", "is listed as %s, out of order or in error", rec.Status)
				return
			}
			last = c.seq
		}
		if q.Cursor = next; next == "" {
			break
		}
	}
	if n != len(b.commands) || int64(n) > b.limits.MaxRecords {
		b.fault("", "", "%d records are listed, want %d and at most %d", n, len(b.commands), b.limits.MaxRecords)
	}
}

// compareRoutes compares the listings of devices and edges.
func (b *book) compareRoutes() {
	all := router.PartyQuery{Limit: 1 << 20}
	devices := b.devices()
	for _, d := range devices {
		p := b.routes[d.ClientID]
		if p == nil || p.id != d.EdgeID || p.connected() != (d.Connection == "ONLINE") {
			b.fault(d.ClientID, d.EdgeID, "is routed to %s, %s", d.EdgeID, d.Connection)
		}
	}
	if len(devices) != len(b.routes) {
		b.fault("", "", "%d devices are listed, want %d", len(devices), len(b.routes))
	}
	edges, _ := b.w.gate.router.Edges(&all)
	for _, e := range edges {
		p := b.edges[e.EdgeID]
		if p == nil || p.connected() != (e.Connection == "ONLINE") || len(p.devices) != e.Devices || e.Queued != 0 {
			b.fault(e.EdgeID, "", "is listed as %s with %d devices, %d commands wait", e.Connection, e.Devices, e.Queued)
		}
	}
	if len(edges) != len(b.edges) {
		b.fault("", "", "%d edges are listed, want %d", len(edges), len(b.edges))
	}
}

// devices turns the pages of the listing of devices.
func (b *book) devices() (all []wire.Device) {
	q := router.PartyQuery{Limit: 100}
	for {
		page, next := b.w.gate.router.Devices(&q)
		all = append(all, page...)
		if q.Cursor = next; next == "" {
			return all
		}
	}
}

// compareCounts compares the counters of ends, and of connections.
func (b *book) compareCounts() {
	var completed, others uint64
	connected := map[string]int64{}
	b.w.gate.router.VisitMetrics(&router.Visitor{
		RouteLatency: func(_, _ string, _ *router.Histogram) {}, Duration: func(_, _ string, _ *router.Histogram) {},
		Success:       func(_, _ string, n uint64) { completed += n },
		Failure:       func(_, _ string, n uint64) { others += n },
		Connections:   func(kind string, n int64) { connected[kind] = n },
		RoutingErrors: func(string, uint64) {},
	})
	var want uint64
	for _, n := range b.results[1:] {
		want += n
	}
	if completed != b.results[0] || others != want {
		b.fault("", "", "%d completed and %d otherwise ended are counted, want %d and %d", completed, others, b.results[0], want)
	}
	open := map[string]int64{"backend": 0, "edge": 0, "device": 0}
	for _, l := range b.w.gate.links {
		open[map[wire.ClientType]string{wire.ClientBackend: "backend", wire.ClientEdge: "edge", wire.ClientDevice: "device"}[l.kind]]++
	}
	delete(open, "")
	if !maps.Equal(open, connected) {
		b.fault("", "", "%v connections are counted, want %v", connected, open)
	}
}

// empty checks that nothing is left when everybody has gone and all retention is over.
func (b *book) empty() {
	r := b.w.gate.router
	g := r.Gauges(b.w.now)
	records, _, _ := r.Records(&router.RecordQuery{Limit: 10})
	edges, _ := r.Edges(&router.PartyQuery{Limit: 10})
	devices, _ := r.Devices(&router.PartyQuery{Limit: 10})
	if g.Pending != 0 || g.Routes != 0 || len(records)+len(edges)+len(devices) > 0 {
		b.fault("", "", "left at the end: %d pending, %d routes, %d records, %d edges, %d devices", g.Pending, g.Routes, len(records), len(edges), len(devices))
	}
	b.compareCounts()
}
