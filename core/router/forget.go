package router

import "subway/core/wire"

// edgesBy returns the edges, or the direct devices, by id; topo is held.
func (r *Router) edgesBy(direct bool) map[string]*edge {
	if direct {
		return r.directs
	}
	return r.edges
}

// fullOf reports whether as many edges, or direct devices, are known as may be; topo is
// held.
func (r *Router) fullOf(direct bool) bool {
	bound := int64(r.limits.MaxEdges)
	if direct {
		bound = r.limits.MaxRoutes
	}
	return int64(len(r.edgesBy(direct))) >= bound
}

// edgeFor returns the edge, or direct device, of this id for the REGISTER in w, known or
// new, with room for the devices that it adds. Where a bound is passed, others that are
// away are forgotten, the longest away first; where that is not enough none is, and it
// returns nil. topo is held.
func (r *Router) edgeFor(id string, direct bool, w *work) *edge {
	e, away := r.edgesBy(direct)[id], &r.away[index(direct)]
	if e == nil && r.fullOf(direct) && away.head == nil || !r.roomFor(e, w) {
		return nil
	}
	if e == nil {
		if r.fullOf(direct) { // still
			r.forgetEdge(away.head)
		}
		e = &edge{id: id, direct: direct}
		r.edgesBy(direct)[id] = e
	}
	return e
}

// roomFor makes room for the devices that a REGISTER of e (nil: one not known yet) adds,
// by forgetting other edges that are away, the longest first. Where that is not enough it
// forgets nothing and reports false; topo is held.
func (r *Router) roomFor(e *edge, w *work) bool {
	reg := &w.register
	most := int64(1)
	if reg.HasDevices {
		most = int64(reg.DeviceCount)
	}
	if r.routes.n.Load()+most <= r.limits.MaxRoutes {
		return true
	}
	add := r.adds(e, w)
	lack := r.routes.n.Load() + add - r.limits.MaxRoutes
	if add <= 0 || lack <= 0 {
		return true
	}
	if lack > r.away[0].devices+r.away[1].devices {
		return false
	}
	var doomed []*edge
	r.eachAway(func(old *edge) bool {
		if n := r.gain(old); old != e && n > 0 {
			lack -= n
			doomed = append(doomed, old)
		}
		return lack > 0
	})
	if lack > 0 {
		return false
	}
	for _, old := range doomed {
		r.forgetEdge(old)
	}
	return true
}

// adds returns by how many the REGISTER of e in w makes the known devices more, and marks
// those that it names, each once however often it is named; topo is held.
func (r *Router) adds(e *edge, w *work) (n int64) {
	reg := &w.register
	r.naming++
	unknown := map[string]struct{}{}
	count := func(id, _ []byte) bool {
		d := r.routes.find(id)
		if d == nil {
			if _, twice := unknown[string(id)]; !twice {
				unknown[string(id)] = struct{}{}
				n++
			}
			return true
		}
		if d.named != r.naming && reg.HasDevices && e != nil && d.edge.Load() == e {
			n++ // stays; what does not is taken off below
		}
		d.named = r.naming
		return true
	}
	switch {
	case reg.HasDevices:
		w.env.EachDevice(count)
		if e != nil {
			n -= int64(e.nDevices)
		}
	case reg.ClientType == wire.ClientDevice:
		count(reg.ClientID, nil)
	}
	return n
}

// gain returns by how many the known devices become fewer when e is forgotten: one that
// a command waits for is kept, and one that adds has marked comes back. topo is held.
func (r *Router) gain(e *edge) (n int64) {
	for d := e.devices; d != nil; d = d.next {
		if d.named != r.naming && d.waiting.Load() == 0 {
			n++
		}
	}
	return n
}

// forgetEdge drops an edge that is away and its routes; topo is held. Records that were
// handed to it keep it alive until they end.
func (r *Router) forgetEdge(e *edge) {
	for e.devices != nil {
		r.dropRoute(e.devices)
	}
	r.logForget(e)
	r.awayOf(e).remove(e)
	delete(r.edgesBy(e.direct), e.id)
}
