package router

import (
	"fmt"
)

// broken looks at all of a Router that is at rest and says what does not fit together.
// It is the second, slow book: every counter is counted again.
func broken(r *Router) error {
	r.topo.Lock()
	defer r.topo.Unlock()
	c := &census{r: r, places: map[*record]place{}, owner: map[*record]*edge{}, waiting: map[*device]int32{}, seen: map[*edge]bool{}}
	for _, step := range []func() error{c.routes, c.away, c.edges, c.records, c.devices, c.ended} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type census struct {
	r       *Router
	places  map[*record]place
	owner   map[*record]*edge
	waiting map[*device]int32
	seen    map[*edge]bool
}

// routes checks the route table against the edges' lists of devices.
func (c *census) routes() error {
	routed, extra := 0, int64(0)
	for direct, byID := range map[bool]map[string]*edge{false: c.r.edges, true: c.r.directs} {
		for id, e := range byID {
			if e.id != id || e.direct != direct {
				return fmt.Errorf("edge %q (direct %v) stands under %q", e.id, e.direct, id)
			}
			n := 0
			for d := e.devices; d != nil; d = d.next {
				if d.edge.Load() != e || c.r.routes.find([]byte(d.id)) != d || d.next != nil && d.next.prev != d {
					return fmt.Errorf("device %s of edge %s is not what the table says", d.id, id)
				}
				n++
			}
			if n != e.nDevices {
				return fmt.Errorf("edge %s has %d devices and counts %d", id, n, e.nDevices)
			}
			if e.isAway == e.connected() {
				return fmt.Errorf("edge %s: away %v, connected %v", id, e.isAway, e.connected())
			}
			routed += n
		}
	}
	all := 0
	c.r.routes.each(func(d *device) bool {
		all++
		extra += d.extra.Load().size()
		return true
	})
	if n := c.r.routes.n.Load(); int(n) != all || all != routed+len(c.r.stray) {
		return fmt.Errorf("routes: counted %d, in the table %d, routed %d and stray %d", n, all, routed, len(c.r.stray))
	}
	if h := c.r.extraHeld.Load(); h != extra {
		return fmt.Errorf("extraHeld is %d, the devices hold %d", h, extra)
	}
	for d := range c.r.stray {
		if d.edge.Load() != nil || c.r.routes.find([]byte(d.id)) != d {
			return fmt.Errorf("stray device %s has a route or is not in the table", d.id)
		}
	}
	return nil
}

// away checks the lists of edges that are not connected.
func (c *census) away() error {
	for i, byID := range []map[string]*edge{c.r.edges, c.r.directs} {
		l, devices, n, untold := &c.r.away[i], int64(0), 0, false
		var last *edge
		for e := l.head; e != nil; e = e.anext {
			untold = untold || e == l.untold
			if byID[e.id] != e || !e.isAway || e.aprev != last || last != nil && last.away > e.away {
				return fmt.Errorf("edge %s among those away is ill linked, out of order or unknown", e.id)
			}
			if !untold && e.told == wordOffline && e.speaks() && !e.goodbye {
				return fmt.Errorf("edge %s is past being told of", e.id)
			}
			last, devices, n = e, devices+int64(e.nDevices), n+1
		}
		for _, e := range byID {
			n -= index(e.isAway)
		}
		if last != l.tail || devices != l.devices || n != 0 || untold != (l.untold != nil) {
			return fmt.Errorf("away: %d too many, %d devices, counted %d", n, devices, l.devices)
		}
	}
	return nil
}

// edges walks the lists of every edge that is known, and of those that records name.
func (c *census) edges() error {
	todo := []*edge{c.r.limbo}
	for _, byID := range []map[string]*edge{c.r.edges, c.r.directs} {
		for _, e := range byID {
			todo = append(todo, e)
		}
	}
	for i := range c.r.shards {
		c.r.shards[i].each(func(rec *record) {
			if e := rec.edge.Load(); e != nil {
				todo = append(todo, e)
			}
		})
	}
	for _, e := range todo {
		if c.seen[e] {
			continue
		}
		c.seen[e] = true
		if err := c.edge(e); err != nil {
			return fmt.Errorf("edge %q: %w", e.id, err)
		}
	}
	return nil
}

func (c *census) edge(e *edge) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handing || e.hold {
		return fmt.Errorf("handing %v, hold %v at rest", e.handing, e.hold)
	}
	n, size := 0, int64(0)
	waits := func(rec *record) error {
		n++
		size += int64(rec.msgLen)
		c.waiting[rec.dev]++
		if rec.state != Pending || !rec.kept {
			return fmt.Errorf("%s waits in state %s", rec.ref(), rec.state)
		}
		if to := rec.dev.edge.Load(); to != e && (to != nil || e != c.r.limbo) {
			return fmt.Errorf("%s waits here, its device is elsewhere", rec.ref())
		}
		return nil
	}
	if err := c.list(e, &e.arrived, placeArrived, false, waits); err != nil {
		return err
	}
	if e.arrived.head != nil && e != c.r.limbo || n != e.waiting && e == c.r.limbo {
		return fmt.Errorf("%d of %d have arrived and have no place at rest", n, e.waiting)
	}
	for p := range e.queue {
		err := c.list(e, &e.queue[p], placeQueue, true, func(rec *record) error {
			if int(rec.priority) != p {
				return fmt.Errorf("queue %d holds %s of priority %d", p, rec.ref(), rec.priority)
			}
			return waits(rec)
		})
		if err != nil {
			return err
		}
	}
	if n != e.waiting || size != e.bytes {
		return fmt.Errorf("%d wait with %d bytes, counted %d and %d", n, size, e.waiting, e.bytes)
	}
	handed := func(rec *record) error {
		if rec.state == Pending || rec.state.Final() {
			return fmt.Errorf("%s is among those handed over and %s", rec.ref(), rec.state)
		}
		return nil
	}
	if err := c.list(e, &e.replay, placeReplay, true, handed); err != nil {
		return err
	}
	return c.list(e, &e.flight, placeFlight, false, handed)
}

func (c *census) list(e *edge, l *recordList, p place, sorted bool, check func(*record) error) error {
	var last *record
	for rec := l.head; rec != nil; rec = rec.qnext {
		if c.places[rec] != placeNone {
			return fmt.Errorf("%s is in two lists", rec.ref())
		}
		c.places[rec], c.owner[rec] = p, e
		if rec.qprev != last || rec.place != p || rec.edge.Load() != e {
			return fmt.Errorf("%s is ill linked, or names another place or edge", rec.ref())
		}
		if sorted && last != nil && last.seq >= rec.seq {
			return fmt.Errorf("%s is out of order", rec.ref())
		}
		if err := check(rec); err != nil {
			return err
		}
		last = rec
	}
	if l.tail != last {
		return fmt.Errorf("list %d ends elsewhere", p)
	}
	return nil
}

// records checks every record against its lists, the wheel, the order and the counters.
func (c *census) records() (err error) {
	fail := func(rec *record, what string) {
		err = fmt.Errorf("%s (%s): %s", rec.ref(), rec.state, what)
	}
	pending, held, listed := int64(0), int64(0), 0
	for i := range c.r.shards {
		s := &c.r.shards[i]
		n := s.each(func(rec *record) {
			if c.r.order.chunk(rec.seq).slots[rec.seq%chunkSize].Load() != rec.hash || s.accepted(rec.hash, rec.seq) != rec {
				fail(rec, "is not found by its order")
			}
			if rec.state.Final() || rec.shard != s || s.find(rec.hash, rec.ref()) != rec {
				fail(rec, "has ended and is still there, or is not found")
			}
			pending++
			held += excess(rec.mem) + excess(rec.progress)
			if rec.kept {
				held += int64(cap(rec.msg))
			}
			if rec.slot < 0 || c.places[rec] == placeNone {
				fail(rec, "is in no slot of the wheel or in no list")
			}
			listed++
		})
		if n != s.n {
			return fmt.Errorf("shard %d has %d records and counts %d", i, n, s.n)
		}
	}
	switch {
	case err != nil:
		return err
	case listed != len(c.places):
		return fmt.Errorf("%d records in lists, %d in flight", len(c.places), listed)
	case pending != c.r.pending.Load():
		return fmt.Errorf("pending is %d, counted %d", c.r.pending.Load(), pending)
	case held != c.r.held.Load():
		return fmt.Errorf("held is %d, the records hold %d", c.r.held.Load(), held)
	}
	return nil
}

// devices checks what each device says of its waiting commands.
func (c *census) devices() (err error) {
	c.r.routes.each(func(d *device) bool {
		listed := int32(0)
		for rec := d.waits; rec != nil; rec = rec.dnext {
			if listed++; rec.dev != d || rec.dnext != nil && rec.dnext.dprev != rec {
				err = fmt.Errorf("the list of device %s is broken at %s", d.id, rec.ref())
			}
		}
		if n := d.waiting.Load(); n != c.waiting[d] || n != listed {
			err = fmt.Errorf("device %s says that %d wait, %d do, %d are listed", d.id, n, c.waiting[d], listed)
		}
		delete(c.waiting, d)
		return err == nil
	})
	if err == nil && len(c.waiting) > 0 {
		err = fmt.Errorf("commands wait for %d devices that are not in the table", len(c.waiting))
	}
	return err
}

// ended checks the archive: its queue, its chunks and the shards' tables of the past.
func (c *census) ended() error {
	a := &c.r.archive
	a.mu.Lock()
	defer a.mu.Unlock()
	n, size, users, tracks := int64(0), int64(0), map[uint32]int{}, 0
	for chunk := a.queue.head; chunk != nil; chunk = chunk.next {
		for _, x := range chunk.entries[chunk.from:chunk.to] {
			sh := c.r.shardOf(x.hash)
			at := sh.past.find(x.hash, a, func(past []byte) bool { return pastSeqIs(past, x.seq) })
			if at != x.at {
				return fmt.Errorf("seq %d is at %d, the queue says %d", x.seq, at, x.at)
			}
			rec := c.r.exhume(sh, at)
			if !rec.state.Final() || rec.ended != x.ended || rec.seq != x.seq || c.r.hashOf(rec.ref()) != x.hash || sh.find(x.hash, rec.ref()) != nil {
				return fmt.Errorf("%s among the ended: %s, or in flight as well", rec.ref(), rec.state)
			}
			if c.r.order.chunk(x.seq).slots[x.seq%chunkSize].Load() != x.hash {
				return fmt.Errorf("%s is not found by its order", rec.ref())
			}
			tracks += index(rec.track != nil)
			users[uint32(at)/chunkSpots]++
			n, size = n+1, size+x.bytes()
		}
	}
	if a.tail != nil {
		users[a.tail.number]++
	}
	slots := int64(0)
	for i := range c.r.shards {
		slots += int64(c.r.shards[i].past.n)
		tracks -= len(c.r.shards[i].tracks)
	}
	if n != a.n || size != a.bytes || slots != n || tracks != 0 {
		return fmt.Errorf("ended: %d with %d bytes, counted %d and %d; %d in tables, %d callbacks too many", n, size, a.n, a.bytes, slots, tracks)
	}
	if a.chunks.Load() == nil {
		return nil
	}
	for i, chunk := range *a.chunks.Load() {
		if chunk == nil && users[uint32(i)] > 0 || chunk != nil && (chunk.users != users[uint32(i)] || int(chunk.number) != i || chunk.used > len(chunk.buf)) {
			return fmt.Errorf("chunk %d has %d users: %+v", i, users[uint32(i)], chunk)
		}
	}
	return nil
}

// each calls fn for every record of the shard and returns their number.
func (s *shard) each(fn func(*record)) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.slots {
		if x.rec != nil {
			n++
			fn(x.rec)
		}
	}
	return n
}
