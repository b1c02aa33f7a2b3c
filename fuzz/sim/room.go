package sim

import (
	"maps"
	"slices"
	"time"

	"subway/core/wire"
)

// placeFor returns the edge, or the direct device, of an id for a REGISTER, made where there
// is none. Where a bound would be passed, places that are away are forgotten, the longest
// away first; where that is not enough it returns nil, and nothing changes.
func (b *book) placeFor(id string, direct bool, m *message) *place {
	p := b.places(direct)[id]
	if p == nil && b.full(direct) && b.longestAway(direct) == nil || !b.roomFor(p, m) {
		return nil
	}
	if p == nil {
		if b.full(direct) {
			b.forgetPlace(b.longestAway(direct))
		}
		p = &place{id: id, direct: direct, devices: map[string]bool{}, flight: map[*command]bool{}}
		b.places(direct)[id] = p
		b.journalled.places = append(b.journalled.places, p)
	}
	return p
}

// full reports whether as many places are known as may be.
func (b *book) full(direct bool) bool {
	if direct {
		return int64(len(b.directs)) >= b.limits.MaxRoutes
	}
	return len(b.edges) >= b.limits.MaxEdges
}

func (b *book) longestAway(direct bool) (old *place) {
	for _, p := range b.places(direct) {
		if p.link == nil && (old == nil || p.went < old.went) {
			old = p
		}
	}
	return old
}

// named returns the devices that a REGISTER names.
func named(m *message) []string {
	switch {
	case m.register.HasDevices:
		return m.devices
	case m.register.ClientType == wire.ClientDevice:
		return []string{m.id}
	}
	return nil
}

// roomFor makes room for the devices that a REGISTER of p (nil: a new one) adds, or says
// that there is none.
func (b *book) roomFor(p *place, m *message) bool {
	added := b.adds(p, m)
	lack := b.w.gate.router.Gauges(b.w.now).Routes + added - b.limits.MaxRoutes
	if added <= 0 || lack <= 0 {
		return true
	}
	var doomed []*place
	for _, old := range b.away() {
		if lack <= 0 {
			break
		}
		if gain := gain(old, named(m)); old != p && gain > 0 {
			lack -= gain
			doomed = append(doomed, old)
		}
	}
	if lack > 0 {
		return false
	}
	for _, old := range doomed {
		b.forgetPlace(old)
	}
	return true
}

// adds returns by how many a REGISTER of p makes the devices more that are known.
func (b *book) adds(p *place, m *message) (n int64) {
	names := named(m)
	for _, d := range names {
		if b.routes[d] == nil && b.limbo.waitingFor(d) == 0 {
			n++
		}
	}
	if m.register.HasDevices && p != nil {
		for d := range p.devices {
			if !slices.Contains(names, d) {
				n--
			}
		}
	}
	return n
}

// gain returns by how many they become fewer where a place is forgotten: what waits for a
// device keeps it, and one that is named comes back.
func gain(p *place, names []string) (n int64) {
	for d := range p.devices {
		if !slices.Contains(names, d) && p.waitingFor(d) == 0 {
			n++
		}
	}
	return n
}

// away returns the places that are away, the longest first.
func (b *book) away() (all []*place) {
	for _, places := range []map[string]*place{b.edges, b.directs} {
		for _, id := range slices.Sorted(maps.Keys(places)) {
			if places[id].link == nil {
				all = append(all, places[id])
			}
		}
	}
	slices.SortFunc(all, func(p, q *place) int { return p.went - q.went })
	return all
}

// unsure reports whether the book cannot judge a REGISTER: it names a device without a route
// for which the last command has just ended. The router looks once a second for those that it
// can forget, and nobody sees from outside whether it has.
func (b *book) unsure(m *message) bool {
	if m.kind != wire.TypeRegister || b.limits.MaxRoutes >= wide {
		return false
	}
	for _, d := range named(m) {
		if at, ok := b.strayed[d]; ok && b.routes[d] == nil && b.w.now-at <= wire.Time(1200*time.Millisecond) {
			return true
		}
	}
	return false
}

// wide is a bound of routes that no world comes to.
const wide = 1_000_000
