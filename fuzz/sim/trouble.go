package sim

import (
	"slices"
	"time"

	"subway/core/wire"
)

// trouble befalls an edge now and then, until the world calms down.
func (e *edge) trouble() {
	w := e.w
	if w.plan.trouble == 0 {
		return
	}
	w.after(w.around(w.plan.trouble), func() {
		if w.calm {
			return
		}
		e.suffer()
		e.trouble()
	})
}

func (e *edge) suffer() {
	w := e.w
	switch x := w.rng.IntN(100); {
	case e.link == nil:
	case x < 20: // the gateway notices late, or before the edge does
		e.link.sever(w.upTo(2*time.Second), w.upTo(20*time.Second))
	case x < 30: // a new connection while the old one looks alive
		old := e.link
		e.link = nil
		e.connect()
		if w.chance(0.5) {
			old.sever(0, w.upTo(30*time.Second))
			old.left = true
		}
	case x < 40:
		e.crash()
	case x < 46:
		e.bid()
	case x < 50:
		e.link.collapse(wire.CloseTooSlow)
	case x < 60:
		e.again()
	case x < 75:
		e.move()
	case x < 82:
		e.leave()
	case x < 90:
		e.sayf(`{"type":"DEVICE_STATUS","clientId":"%s","status":{"n":%d}}`, w.device(), w.rng.IntN(1000))
	case x < 93:
		e.sayf(`{"type":"HEARTBEAT"}`)
	case x < 94:
		for range 1 + w.rng.IntN(3) {
			e.sayf(`[]`)
		}
	case x < 98:
		for range 1 + w.rng.IntN(3) {
			e.meddle()
		}
	case !e.direct && w.plan.clones:
		e.clone()
	}
}

// crash ends the process, and starts it again after a while. What a device was doing is lost.
func (e *edge) crash() {
	w := e.w
	w.note("%s crashes", e.name)
	e.up, e.acked = false, false
	e.life++
	l := e.link
	e.link = nil
	l.left = true
	l.sever(0, w.upTo(time.Duration(1+w.rng.IntN(2)*59)*time.Second))
	if !e.stable {
		e.seen, e.store = map[string]*job{}, nil
	}
	if w.chance(0.1) { // another version of it
		e.says(!e.dedupe)
	}
	w.after(w.around(3*time.Second), func() {
		e.up = true
		e.connect()
	})
}

// bid says goodbye and comes back.
func (e *edge) bid() {
	e.sayf(`{"type":"UNREGISTER","clientId":"%s"}`, e.id)
	e.w.note("%s says goodbye", e.name)
}

// again registers once more on the same link.
func (e *edge) again() {
	switch e.w.rng.IntN(3) {
	case 0:
		if e.w.chance(0.1) {
			e.says(!e.dedupe)
		}
		e.register()
	case 1:
		if e.w.chance(0.3) {
			e.sayf(`{"type":"REGISTER","clientId":"%s-x","clientType":"EDGE"}`, e.id) // not its own
		}
	default:
		if !e.direct {
			e.snapshot()
		}
	}
}

// move takes a device of another edge: that one says goodbye for it later, or never.
func (e *edge) move() {
	w := e.w
	if e.direct {
		return
	}
	from := w.edges[w.rng.IntN(len(w.edges))]
	if from == e || len(from.devices) == 0 {
		return
	}
	i := w.rng.IntN(len(from.devices))
	d := from.devices[i]
	if slices.Contains(e.devices, d) {
		return
	}
	e.devices = append(e.devices, d)
	w.note("%s moves from %s to %s", d, from.name, e.name)
	e.registerDevice(d)
	if !from.direct && w.chance(0.9) { // else it is at both
		from.devices = slices.Delete(from.devices, i, i+1)
		w.after(w.upTo(3*time.Second), func() {
			if w.chance(0.7) && !slices.Contains(from.devices, d) {
				from.sayf(`{"type":"UNREGISTER","clientId":"%s"}`, d)
			}
		})
	}
}

// leave takes a device away, and mostly brings it back some time.
func (e *edge) leave() {
	if e.direct || len(e.devices) == 0 {
		return
	}
	i := e.w.rng.IntN(len(e.devices))
	d := e.devices[i]
	e.devices = slices.Delete(e.devices, i, i+1)
	e.sayf(`{"type":"UNREGISTER","clientId":"%s"}`, d)
	if e.w.chance(0.4) {
		return
	}
	e.w.after(e.w.around(3*time.Second), func() {
		if !slices.Contains(e.devices, d) {
			e.devices = append(e.devices, d)
			e.registerDevice(d)
		}
	})
}

// meddle answers a command that it may not have got: of its devices, if it can.
func (e *edge) meddle() {
	ref := e.w.recent().ref
	for range 10 {
		if x := e.w.recent(); slices.Contains(e.devices, x.target) && e.seen[x.ref] == nil {
			ref = x.ref
			break
		}
	}
	if e.w.chance(0.5) {
		e.sayf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED"}`, ref)
	} else {
		e.sayf(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":%d.7}`, ref, e.w.rng.IntN(90))
	}
}

// clone starts another machine with the same id and devices, and a memory of its own.
func (e *edge) clone() {
	w := e.w
	if len(w.edges) > w.plan.edges+w.plan.directs+20 {
		return
	}
	x := w.newEdge(e.name+"-clone", e.id, false)
	x.devices = slices.Clone(e.devices)
	w.edges = append(w.edges, x)
	w.note("%s starts", x.name)
	x.connect()
	w.after(w.around(20*time.Second), func() {
		x.up = false
		if x.link != nil {
			x.link.leave()
			x.link = nil
		}
	})
}
