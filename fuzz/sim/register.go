package sim

import (
	"maps"
	"slices"

	"subway/core/wire"
)

// registers applies a REGISTER.
func (b *book) registers(l *link, m *message) {
	reg := &m.register
	kind, id := reg.ClientType, m.id
	behind := kind == wire.ClientDevice && reg.HasEdge
	if behind {
		kind, id = wire.ClientEdge, string(reg.EdgeID)
	}
	if l.kind != wire.ClientNone && (l.kind != kind || l.id != id) {
		b.wants(l, wire.TypeError, m.ref, "FORBIDDEN")
		return
	}
	if kind == wire.ClientBackend {
		b.registersBackend(l, id)
		return
	}
	p := b.placeFor(id, kind == wire.ClientDevice, m)
	if p == nil {
		b.wants(l, wire.TypeError, "", "OVERLOADED")
		return
	}
	fresh := l.kind == wire.ClientNone
	b.wants(l, wire.TypeRegisterAck, "", m.id)
	if reg.ClientType == wire.ClientEdge || fresh {
		p.dedupe = reg.Dedupe && !behind
	}
	if fresh {
		b.takesOver(l, p)
		l.kind, l.id = kind, id
	}
	switch {
	case behind || p.direct:
		b.route(m.id, p)
	case reg.HasDevices:
		b.snapshot(p, m.devices)
	}
	if fresh {
		b.replays(p)
	}
	b.touch(p)
	b.call.swept = p
}

// takesOver makes l the session of p.
func (b *book) takesOver(l *link, p *place) {
	if p.link != nil {
		b.wantsClose(p.link, wire.CloseSuperseded)
		p.link.over = true
	}
	l.place, p.link, p.latest = p, l, 0
	b.moved(p, presence{link: true})
}

func (b *book) registersBackend(l *link, id string) {
	if l.kind == wire.ClientNone {
		if b.backends[id] == nil && len(b.backends) >= b.limits.MaxBackends {
			b.wants(l, wire.TypeError, "", "OVERLOADED")
			return
		}
		if old := b.backends[id]; old != nil {
			b.wantsClose(old, wire.CloseSuperseded)
			old.over = true
		}
		l.kind, l.id, l.told = wire.ClientBackend, id, map[string]string{}
		b.backends[id] = l
	}
	b.wants(l, wire.TypeRegisterAck, "", id)
}

// snapshot makes these devices all that p has.
func (b *book) snapshot(p *place, devices []string) {
	stays := map[string]bool{}
	for _, d := range devices {
		b.route(d, p)
		stays[d] = true
	}
	for _, d := range slices.Sorted(maps.Keys(p.devices)) {
		if !stays[d] {
			b.dropRoute(d)
		}
	}
}

// replays arranges what a new session of p gets again.
func (b *book) replays(p *place) {
	left := p.replay
	p.replay = nil
	if !p.dedupe {
		return
	}
	for c := range p.flight {
		if c.kept && (b.routes[c.target] == p || slices.Contains(left, c)) {
			p.replay = append(p.replay, c)
		}
	}
	slices.SortFunc(p.replay, func(x, y *command) int { return x.seq - y.seq })
}

// unregisters applies an UNREGISTER.
func (b *book) unregisters(l *link, m *message) {
	switch {
	case m.id == l.id:
		b.wantsClose(l, wire.CloseNormal)
		l.over = true
		b.departs(l, true)
	case l.kind == wire.ClientEdge && b.routes[m.id] == nil:
	case l.kind != wire.ClientEdge || b.routes[m.id] != l.place:
		b.wants(l, wire.TypeError, m.ref, "FORBIDDEN")
	default:
		b.dropRoute(m.id)
	}
}

// ends notes that the gateway learns of the end of a link.
func (b *book) ends(l *link) {
	if !l.over {
		b.departs(l, false)
	}
	l.over = true
}

// departs ends the session of a link.
func (b *book) departs(l *link, goodbye bool) {
	if b.backends[l.id] == l {
		delete(b.backends, l.id)
	}
	p := l.place
	if p == nil || p.link != l {
		return
	}
	b.went++
	p.link, p.since, p.goodbye, p.went = nil, b.w.now, goodbye, b.went
	b.moved(p, presence{since: p.since, goodbye: goodbye})
	b.tidyAt = min(b.tidyAt, p.since+b.kept())
	if goodbye {
		b.dropRoutes(p)
	}
}
