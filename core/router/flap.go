package router

import (
	"time"

	"subway/core/wire"
)

// A device that goes to and fro between edges is most likely two devices with one id.
// It is routed as the contract says, the newest registration wins, and named.

const (
	flapWindow = time.Minute // between two moves that belong together
	flapMoves  = 4           // moves within such windows that make a device suspicious
	maxFlaps   = 10_000      // devices whose moves are remembered; beyond, newer ones are not
)

// flap is what is remembered of a device's moves; Router.topo guards it.
type flap struct {
	moves       int
	since, last wire.Time
	from, to    *edge
}

// noteMove remembers that a device went from one edge to another; topo is held.
func (r *Router) noteMove(d *device, from, to *edge, now wire.Time) {
	f := r.flaps[d]
	switch {
	case f == nil && len(r.flaps) >= maxFlaps:
		return
	case f == nil || time.Duration(now-f.last) > flapWindow:
		f = &flap{since: now}
		r.flaps[d] = f
	}
	f.moves++
	f.last, f.from, f.to = now, from, to
	if f.moves == flapMoves && len(r.flapping) < maxFlaps {
		r.flapping = append(r.flapping, d)
	}
}

// view copies a flap for the API, nil where it is none or over.
func (f *flap) view() *wire.Flapping {
	if f == nil || f.moves < flapMoves {
		return nil
	}
	return &wire.Flapping{Moves: f.moves, Since: f.since, Edges: []string{f.from.id, f.to.id}}
}

// TakeFlapping returns the devices that were found to go to and fro between edges since
// it was last called, for a log. Any goroutine.
func (r *Router) TakeFlapping() []wire.Device {
	r.topo.Lock()
	defer r.topo.Unlock()
	var found []wire.Device
	for _, d := range r.flapping {
		if v := d.view(); v != nil {
			v.Flapping = r.flaps[d].view()
			found = append(found, *v)
		}
	}
	r.flapping = nil
	return found
}

// tidyFlaps forgets moves that are long ago; topo is held.
func (r *Router) tidyFlaps(now wire.Time) {
	for d, f := range r.flaps {
		if time.Duration(now-f.last) > flapWindow {
			delete(r.flaps, d)
		}
	}
}
