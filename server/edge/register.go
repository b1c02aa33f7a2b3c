package edge

import (
	"bytes"
	"strconv"

	"subway/core/wire"
)

// register handles REGISTER (PROTOCOL.md section 3): an Edge takes devices, with or
// without an edgeInfo that names it.
func (s *session) register(w *work, ref []byte, now wire.Time) *wire.Fault {
	e, reg := s.e, &w.register
	if f := w.env.Register(reg, &w.scratch); f != nil {
		return f
	}
	switch {
	case reg.ClientType != wire.ClientDevice:
		return s.forbid(ref, "Only devices connect to an Edge", now)
	case reg.HasEdge && string(reg.EdgeID) != e.opt.ID:
		return s.forbid(ref, "This is the edge "+e.opt.ID, now)
	case s.id != "" && s.id != string(reg.ClientID):
		return s.forbid(ref, "This connection is registered as DEVICE "+s.id, now)
	}
	id := string(reg.ClientID)
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.devices[id]
	if s.id != "" && (d == nil || d.sess != s) {
		return nil // it was superseded and is about to be closed
	}
	if (d == nil || d.sess == nil) && e.connected >= e.opt.MaxDevices {
		s.refuse(ref, wire.CodeOverloaded, "The edge has as many devices as it can hold", []byte(`{"retryAfter":60}`), now)
		return nil
	}
	if d == nil {
		d = &device{id: id}
		e.devices[id] = d
	}
	e.admit(s, d, reg.DeviceInfoRaw, w, now)
	return nil
}

// admit makes s the connection of d. e.mu is held.
func (e *Edge) admit(s *session, d *device, info []byte, w *work, now wire.Time) {
	old := d.sess
	if old == nil {
		e.connected++
	}
	e.epoch++
	s.id, s.dev, d.sess, d.blocked = d.id, d, s, false
	if s.name == "" {
		s.name = "s-" + e.nonce + "-" + strconv.FormatInt(e.epoch, 36)
	}
	w.out = wire.AppendRegisterAck(w.out[:0], d.id, "DEVICE", s.name, e.epoch, heartbeatMs, now)
	s.conn.Append(wire.ClassNotice, w.out, nil, nil) // before anything else that it is told
	if old != nil && old != s {
		e.count.superseded++
		old.conn.CloseWith(wire.CloseSuperseded, "superseded by a newer connection")
		e.log.Info("a device came on a newer connection", "device", d.id, "remote", s.remote, "before", old.remote)
	}
	e.keepInfo(d, info)
	e.announce(d, info, now)
	if !e.up.registered {
		e.warn(d, now)
	}
	e.pump(d, now)
}

// keepInfo keeps a device's deviceInfo for the next snapshot, within a bound for all.
func (e *Edge) keepInfo(d *device, info []byte) {
	e.infoBytes -= len(d.info)
	d.info = nil
	if len(info) > 0 && e.infoBytes+len(info) <= maxInfo {
		d.info = bytes.Clone(info)
		e.infoBytes += len(info)
	}
}

// unregister handles UNREGISTER: a device's goodbye.
func (s *session) unregister(w *work, ref []byte, now wire.Time) *wire.Fault {
	id, f := w.env.ClientID(&w.scratch)
	if f != nil {
		return f
	}
	if string(id) != s.id {
		return s.forbid(ref, "A device says goodbye for itself only", now)
	}
	s.over = true
	s.e.mu.Lock()
	s.e.leave(s, "goodbye", now)
	s.e.mu.Unlock()
	s.conn.CloseWith(wire.CloseNormal, "goodbye")
	return nil
}

// leave ends a session's time as its device's connection. e.mu is held.
func (e *Edge) leave(s *session, reason string, now wire.Time) {
	d := s.dev
	if d == nil || d.sess != s {
		return
	}
	d.sess = nil
	e.connected--
	e.infoBytes -= len(d.info)
	d.info = nil
	e.log.Debug("a device left", "device", d.id, "reason", reason)
	if d.announced && !e.stopping.Load() {
		e.depart(d.id)
	}
	d.announced = false
	e.tidy(d)
}

// announce tells the Gateway of a device, now or as soon as that is possible. e.mu is held.
func (e *Edge) announce(d *device, info []byte, now wire.Time) {
	delete(e.departed, d.id)
	d.announced = false
	if !e.up.registered {
		return // the next REGISTER, or what follows it, has it
	}
	e.up.out = e.appendDevice(e.up.out[:0], d.id, info, now)
	d.announced = e.send(e.up.out)
	e.up.unannounced = e.up.unannounced || !d.announced
}

// depart tells the Gateway that a device left. e.mu is held.
func (e *Edge) depart(id string) {
	if !e.up.registered || !e.send(appendUnregister(nil, id)) {
		e.departed[id] = struct{}{}
	}
}

// catchUp tells the Gateway of devices that came and went while it could not be told.
// e.mu is held.
func (e *Edge) catchUp(now wire.Time) {
	for id := range e.departed {
		if !e.send(appendUnregister(nil, id)) {
			return
		}
		delete(e.departed, id)
	}
	e.up.unannounced = false
	for _, d := range e.devices {
		if d.sess != nil && !d.announced {
			e.announce(d, d.info, now)
		}
		if e.up.unannounced {
			return
		}
	}
}

// endWait ends the time in which devices of before a restart may come back: those that did
// not are taken from the Gateway's routes, by a snapshot, and what waited for them is
// refused. e.mu is held.
func (e *Edge) endWait(now wire.Time) {
	e.expected = 0
	for _, d := range e.devices {
		if d.sess != nil {
			continue
		}
		for w := d.first(); w != nil; w = d.first() {
			e.dropQueued(w.entry)
			e.notHere(w.entry.ref, d.id, now)
		}
		e.tidy(d)
	}
	if e.up.registered && !e.send(e.appendSnapshot(nil, now)) {
		e.expected = now // with the next tick
	}
}

// warn tells a device that the Gateway is out of reach, if it is. e.mu is held.
func (e *Edge) warn(d *device, now wire.Time) {
	if e.up.registered {
		return
	}
	d.warned = now
	retry := max(int64(e.up.retryAt-now+999_999_999)/1_000_000_000, 1)
	details := append([]byte(nil), `{"service":"gateway","lastSeen":`...)
	if e.up.seen == 0 {
		details = append(details, "null"...)
	} else {
		details = append(wire.AppendTime(append(details, '"'), e.up.seen), '"')
	}
	details = strconv.AppendInt(append(details, `,"retryAfter":`...), retry, 10)
	d.sess.refuse(nil, wire.CodeGatewayUnavailable, "The Gateway is out of reach", append(details, '}'), now)
}

// appendDevice appends the REGISTER that tells the Gateway of a device behind this edge.
func (e *Edge) appendDevice(dst []byte, id string, info []byte, now wire.Time) []byte {
	dst = append(dst, `{"type":"REGISTER","clientId":`...)
	dst = wire.AppendString(dst, id)
	dst = append(dst, `,"clientType":"DEVICE",`...)
	dst = e.appendEdgeInfo(dst)
	if len(info) > 0 {
		dst = append(append(dst, `,"deviceInfo":`...), info...)
	}
	return appendEnd(dst, now)
}

func (e *Edge) appendEdgeInfo(dst []byte) []byte {
	dst = append(dst, `"edgeInfo":{"edgeId":`...)
	dst = wire.AppendString(dst, e.opt.ID)
	dst = append(dst, `,"edgeVersion":`...)
	return append(wire.AppendString(dst, e.opt.Version.Version), '}')
}

func appendEnd(dst []byte, now wire.Time) []byte {
	dst = wire.AppendTime(append(dst, `,"timestamp":"`...), now)
	return append(dst, `","version":"`+wire.Version+`"}`...)
}

func appendUnregister(dst []byte, id string) []byte {
	dst = append(dst, `{"type":"UNREGISTER","clientId":`...)
	return append(wire.AppendString(dst, id), '}')
}
