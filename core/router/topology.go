package router

import (
	"bytes"

	"subway/core/wire"
)

// The words and reasons of CONNECTION_STATUS.
const (
	wordOnline    = "ONLINE"
	wordOffline   = "OFFLINE"
	wordPermanent = "PERMANENTLY_OFFLINE"

	reasonGoodbye = "goodbye"
)

// join makes s the session of the edge with this id, acknowledges the REGISTER in w,
// applies what it says of devices, and arranges what the edge is to get again. With
// behind, the REGISTER is of a device behind the edge. It reports false, and changes
// nothing, where a bound is passed. The caller hands over what waits afterwards.
func (r *Router) join(s *Session, kind wire.ClientType, id string, behind bool, w *work, now wire.Time) bool {
	reg := &w.register
	r.topo.Lock()
	defer r.topo.Unlock()
	fresh := s.kind == wire.ClientNone
	if !fresh && s.edge.session.Load() != s {
		return true // superseded meanwhile: what it says counts no more
	}
	e := r.edgeFor(id, kind == wire.ClientDevice, w)
	if e == nil {
		return false
	}
	epoch := r.epoch.Add(1)
	if fresh {
		s.enter(kind, id, epoch)
		s.edge = e
	}
	if !behind || fresh {
		e.epoch = epoch
	}
	if behind { // the device's own
		epoch = r.epoch.Add(1)
	}
	old := r.takeOver(s, e, w, fresh, epoch, now)
	if len(reg.EdgeVersion) > 0 {
		e.version = string(reg.EdgeVersion)
	}
	e.seen.Store(int64(now))
	changed := r.applyDevices(e, w, behind, epoch, now)
	r.release(e, fresh)
	if fresh || !behind {
		r.logEdge(e)
	}
	if e.told != wordOnline || changed {
		r.tellEdge(e, wordOnline, "registered", now)
	}
	if old != nil {
		old.end(wire.CloseSuperseded, "superseded by a newer connection")
	}
	return true
}

// takeOver installs s as e's session, its REGISTER_ACK first, and holds what waits. It
// returns the session that was superseded, if any. topo is held.
func (r *Router) takeOver(s *Session, e *edge, w *work, fresh bool, epoch int64, now wire.Time) (old *Session) {
	reg := &w.register
	e.mu.Lock()
	defer e.mu.Unlock()
	w.out = s.appendAck(w.out[:0], reg.ClientID, reg.ClientType, epoch, now)
	s.conn.Append(wire.ClassNotice, w.out, nil, nil)
	e.hold = true
	if reg.ClientType == wire.ClientEdge {
		e.dedupe = reg.Dedupe
	}
	if !fresh {
		return nil
	}
	if reg.ClientType == wire.ClientDevice {
		e.dedupe = reg.Dedupe && e.direct
	}
	old = e.session.Swap(s)
	e.remote, e.goodbye = s.remote, false
	r.awayOf(e).remove(e)
	return old
}

// release ends the hold of takeOver. A new session of a dedupe edge gets again what
// was handed over and whose device is still routed to it, in the order of acceptance.
func (r *Router) release(e *edge, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = false
	e.settle()
	if !fresh {
		return
	}
	again := e.replay.takeAll(nil) // what the session before has not got yet
	if !e.dedupe {
		for _, rec := range again {
			e.flight.push(rec)
			rec.place = placeFlight
		}
		return
	}
	left := len(again)
	for rec := e.flight.head; rec != nil; rec = rec.qnext {
		if rec.kept && r.routedTo(rec, e) {
			again = append(again, rec)
		}
	}
	for _, rec := range again[left:] {
		e.flight.remove(rec)
		rec.place = placeReplay
	}
	inOrder(again)
	for _, rec := range again {
		e.replay.push(rec)
	}
}

// routedTo reports whether the target of rec is routed to e now.
func (r *Router) routedTo(rec *record, e *edge) bool { return r.routeOf(rec) == e }

// routeOf returns the edge to which the target of rec is routed now, or nil.
func (r *Router) routeOf(rec *record) *edge {
	if e := rec.dev.edge.Load(); e != nil {
		return e
	}
	if d := r.routes.find([]byte(rec.dev.id)); d != nil { // it may have gone and come back
		return d.edge.Load()
	}
	return nil
}

// applyDevices applies what a REGISTER says of devices and reports whether the edge's
// set changed in a way that is told of the edge; topo is held, e is on hold.
func (r *Router) applyDevices(e *edge, w *work, behind bool, epoch int64, now wire.Time) bool {
	reg := &w.register
	switch {
	case behind:
		if d, changed := r.addRoute(e, reg.ClientID, reg.DeviceInfoRaw, epoch, now); changed {
			if e.told != wordOnline {
				r.tellEdge(e, wordOnline, "registered", now)
			}
			r.tellDevice(d, e, wordOnline, "registered", now)
		}
		return false
	case e.direct:
		_, changed := r.addRoute(e, reg.ClientID, reg.DeviceInfoRaw, epoch, now)
		return changed
	case reg.HasDevices:
		return r.applySnapshot(e, w, epoch, now)
	}
	return false
}

// applySnapshot makes the devices of a REGISTER the edge's complete set.
func (r *Router) applySnapshot(e *edge, w *work, since int64, now wire.Time) (changed bool) {
	w.env.EachDevice(func(id, info []byte) bool {
		_, added := r.addRoute(e, id, info, r.epoch.Add(1), now)
		changed = changed || added
		return true
	})
	for d := e.devices; d != nil; {
		next := d.next
		if d.epoch.Load() <= since {
			r.dropRoute(d)
			changed = true
		}
		d = next
	}
	return changed
}

// addRoute routes a device to e and reports whether it was not routed there before;
// topo is held.
func (r *Router) addRoute(e *edge, id, info []byte, epoch int64, now wire.Time) (*device, bool) {
	d := r.routes.findOrAdd(id, func(id string) *device {
		return &device{id: id, kind: r.metrics.kinds.index([]byte(wire.DeviceType(id)))}
	})
	d.epoch.Store(epoch)
	d.seen.Store(int64(now))
	if info != nil && (d.extra.Load() == nil || !bytes.Equal(d.extra.Load().info, info)) {
		r.keep(d, func(x *deviceExtra) { x.info = bytes.Clone(info) })
	}
	from := d.edge.Load()
	if from == e {
		return d, false
	}
	if from != nil {
		r.detach(d, from)
		r.noteMove(d, from, e, now)
	} else {
		from = r.limbo
		delete(r.stray, d)
	}
	e.attach(d)
	r.logRoute(d, e)
	r.reroute(d, from, e)
	return d, true
}

// dropRoute takes a device's route away; what waits for it waits on, without a place to
// go to. topo is held.
func (r *Router) dropRoute(d *device) {
	from := d.edge.Load()
	r.detach(d, from)
	r.logUnroute(d)
	r.reroute(d, from, r.limbo)
	if d.waiting.Load() > 0 {
		r.stray[d] = struct{}{}
		return
	}
	r.forget(d)
}

// forget takes a device without a route out of the table; topo is held. Nothing is kept
// of it from then on, whoever still has it in hand.
func (r *Router) forget(d *device) {
	if r.routes.remove(d) {
		r.extraHeld.Add(-d.extra.Swap(forgotten).size())
	}
	delete(r.flaps, d)
}

// detach takes d out of the list of its edge; topo is held.
func (r *Router) detach(d *device, e *edge) {
	e.detach(d)
	if e.isAway {
		r.awayOf(e).devices--
	}
}

// reroute makes to, which is on hold, or limbo for none, the route of d, and takes what
// waits for d along; topo is held. Two edges' locks are held here and nowhere else: topo
// lets in one mover, and nobody waits for topo or a second edge with one. So whoever
// holds an edge's lock and sees it as d's route knows that all that waits for d is here.
func (r *Router) reroute(d *device, from, to *edge) {
	from.mu.Lock()
	defer from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	if to == r.limbo {
		d.edge.Store(nil)
	} else {
		d.edge.Store(to)
	}
	for rec := d.waits; rec != nil; {
		next := rec.dnext // those that arrive stand before it
		from.unlink(rec)
		to.arrive(rec)
		rec = next
	}
}

// depart ends s as its party's session: its connection is gone, or it said goodbye.
func (r *Router) depart(s *Session, reason string, now wire.Time) {
	if s.backend != nil {
		r.backends.leave(s.backend, s)
	}
	e := s.edge
	if e == nil {
		return
	}
	r.topo.Lock()
	defer r.topo.Unlock()
	e.mu.Lock()
	mine := e.session.CompareAndSwap(s, nil)
	e.mu.Unlock()
	if !mine {
		return
	}
	e.goodbye = reason == reasonGoodbye
	r.awayOf(e).push(e, now)
	r.logEdge(e)
	if e.speaks() {
		r.tellEdge(e, wordOffline, reason, now)
	}
	if !e.goodbye {
		return
	}
	for e.devices != nil {
		r.dropRoute(e.devices)
	}
}
