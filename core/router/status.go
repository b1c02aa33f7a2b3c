package router

import "subway/core/wire"

// tellEdge tells every Backend of an edge or a direct device; topo is held.
func (r *Router) tellEdge(e *edge, word, reason string, now wire.Time) {
	e.told = word
	kind := wire.ClientEdge
	if e.direct {
		kind = wire.ClientDevice
	}
	r.tellStatus(&wire.ConnectionStatus{
		ClientID: e.id, ClientType: kind.String(), EdgeID: e.id, Status: word, Reason: reason,
		LastSeen: wire.Time(e.seen.Load()), Devices: e.nDevices,
	}, now)
}

// tellDevice tells every Backend of a device that came or went alone; topo is held.
func (r *Router) tellDevice(d *device, e *edge, word, reason string, now wire.Time) {
	r.tellStatus(&wire.ConnectionStatus{
		ClientID: d.id, ClientType: wire.ClientDevice.String(), EdgeID: e.id, Status: word, Reason: reason,
		LastSeen: wire.Time(d.seen.Load()),
	}, now)
}

func (r *Router) tellStatus(c *wire.ConnectionStatus, now wire.Time) {
	if len(*r.backends.all.Load()) > 0 {
		r.broadcast(wire.AppendConnectionStatus(nil, c, now))
	}
}

// broadcast sends a status message to every Backend that is not too far behind.
func (r *Router) broadcast(msg []byte) {
	for _, b := range *r.backends.all.Load() {
		if s := b.session.Load(); s != nil && s.conn.Append(wire.ClassStatus, msg, nil, nil) == wire.Dropped {
			r.metrics.statusDropped.Add(1)
		}
	}
}

// forgotten stands in a device that is in the table no more.
var forgotten = new(deviceExtra)

// keep changes what is kept of a device, as far as the bound for all of them allows;
// beyond it nothing is kept of the device, rather than something old.
func (r *Router) keep(d *device, change func(*deviceExtra)) {
	for {
		old := d.extra.Load()
		if old == forgotten {
			return
		}
		x := new(deviceExtra)
		if old != nil {
			*x = *old
		}
		change(x)
		if r.extraHeld.Load()+x.size()-old.size() > r.limits.DeviceBytes {
			x = nil
		}
		if d.extra.CompareAndSwap(old, x) {
			r.extraHeld.Add(x.size() - old.size())
			return
		}
	}
}
