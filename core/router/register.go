package router

import (
	"bytes"
	"strconv"

	"subway/core/wire"
)

// register handles REGISTER (PROTOCOL.md section 3).
func (s *Session) register(w *work, ref []byte, now wire.Time) *wire.Fault {
	reg := &w.register
	if f := w.env.Register(reg, &w.scratch); f != nil {
		return f
	}
	behind := reg.ClientType == wire.ClientDevice && reg.HasEdge
	kind, id := reg.ClientType, reg.ClientID
	if behind {
		kind, id = wire.ClientEdge, reg.EdgeID
	}
	if reg.ClientType == wire.ClientEdge && reg.EdgeID != nil && string(reg.EdgeID) != string(id) {
		return s.forbid(ref, "edgeInfo.edgeId is not the edge of this connection", now)
	}
	if s.kind != wire.ClientNone && (s.kind != kind || s.id != string(id)) {
		return s.forbid(ref, "This connection is registered as "+s.kind.String()+" "+s.id, now)
	}
	if kind == wire.ClientBackend {
		s.registerBackend(w, ref, now)
		return nil
	}
	if !s.r.join(s, kind, string(id), behind, w, now) {
		s.refuse(ref, wire.CodeOverloaded, "The Gateway knows as many edges and devices as it can hold", appendRetryAfter(nil, 60), now)
		return nil
	}
	s.r.handOverWaiting(s.edge, now)
	return nil
}

func (s *Session) registerBackend(w *work, ref []byte, now wire.Time) {
	id := string(w.register.ClientID)
	ack := func(epoch int64) {
		w.out = s.appendAck(w.out[:0], w.register.ClientID, wire.ClientBackend, epoch, now)
		s.conn.Append(wire.ClassNotice, w.out, nil, nil)
	}
	if s.kind != wire.ClientNone {
		ack(s.r.epoch.Add(1))
		return
	}
	old, ok := s.r.backends.join(id, s, func() {
		epoch := s.r.epoch.Add(1)
		s.enter(wire.ClientBackend, id, epoch)
		ack(epoch)
	})
	if !ok {
		s.refuse(ref, wire.CodeOverloaded, "As many Backends are connected as may be", appendRetryAfter(nil, 60), now)
		return
	}
	if old != nil {
		old.end(wire.CloseSuperseded, "superseded by a newer connection")
	}
}

// enter makes the session registered.
func (s *Session) enter(kind wire.ClientType, id string, epoch int64) {
	s.kind, s.id, s.entered = kind, id, epoch
	s.r.metrics.connections[kind].Add(1)
}

func (s *Session) appendAck(dst, id []byte, kind wire.ClientType, epoch int64, now wire.Time) []byte {
	name := "s-" + s.r.nonce + "-" + strconv.FormatInt(s.entered, 36)
	return wire.AppendRegisterAck(dst, string(id), kind.String(), name, epoch, s.r.cfg.HeartbeatMs, now)
}

// unregister handles UNREGISTER: of the connection itself, or of a device behind it.
func (s *Session) unregister(w *work, ref []byte, now wire.Time) *wire.Fault {
	id, f := w.env.ClientID(&w.scratch)
	if f != nil {
		return f
	}
	if string(id) == s.id {
		s.r.depart(s, reasonGoodbye, now)
		s.over = true
		s.end(wire.CloseNormal, reasonGoodbye)
		return nil
	}
	r := s.r
	d := r.routes.find(id)
	if s.kind == wire.ClientEdge && (d == nil || d.edge.Load() == nil) {
		return nil
	}
	r.topo.Lock()
	defer r.topo.Unlock()
	if d == nil || !s.routes(d) || s.kind != wire.ClientEdge {
		return s.forbid(ref, "The device is not routed through this connection", now)
	}
	r.dropRoute(d)
	r.tellDevice(d, s.edge, wordOffline, "unregistered", now)
	return nil
}

// routes reports whether this session is the route of d now.
func (s *Session) routes(d *device) bool {
	return s.edge != nil && d.edge.Load() == s.edge && s.edge.session.Load() == s
}

// deviceStatus handles DEVICE_STATUS: kept, the newest per device, and passed on to
// every Backend as it came.
func (s *Session) deviceStatus(w *work, ref []byte, now wire.Time) *wire.Fault {
	var m wire.DeviceStatus
	if f := w.env.DeviceStatus(&m, &w.scratch); f != nil {
		return f
	}
	d := s.r.routes.find(m.ClientID)
	if d == nil || !s.routes(d) {
		return s.forbid(ref, "The device is not routed through this connection", now)
	}
	d.seen.Store(int64(now))
	s.r.keep(d, func(x *deviceExtra) { x.status, x.statusAt = bytes.Clone(m.StatusRaw), now })
	s.r.broadcast(w.env.Msg)
	return nil
}
