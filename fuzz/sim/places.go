package sim

import (
	"maps"
	"math"
	"slices"
	"time"

	"subway/core/wire"
)

// place is an edge, or a device that is connected directly, as the book knows it.
type place struct {
	id      string
	direct  bool
	link    *link // of its session; nil: away
	dedupe  bool
	devices map[string]bool

	waits  [wire.NumPriorities][]*command // PENDING, by acceptance
	flight map[*command]bool              // handed over, or with progress
	replay []*command                     // what a new session is to get again, by acceptance

	since   wire.Time // away since
	went    int       // its number among those that went
	goodbye bool

	// With a journal.
	latest wire.Time // it went by then at the latest; 0: at since
	past   []presence
}

func (p *place) key() string {
	if p.direct {
		return "DEVICE " + p.id
	}
	return "EDGE " + p.id
}

// connected reports whether the place has a session.
func (p *place) connected() bool { return p != nil && p.link != nil }

func (p *place) waiting() int {
	return len(p.waits[0]) + len(p.waits[1]) + len(p.waits[2])
}

// first returns the command that is to leave first of those that wait.
func (p *place) first() *command {
	for _, list := range slices.Backward(p.waits[:]) {
		if len(list) > 0 {
			return list[0]
		}
	}
	return nil
}

// room reports whether a command of this priority may wait here.
func (p *place) room(most int, priority wire.Priority) bool {
	switch priority {
	case wire.PriorityLow:
		most = most * 3 / 4
	case wire.PriorityNormal:
		most = most * 7 / 8
	}
	return p.waiting() < most
}

func (p *place) waitingFor(device string) (n int) {
	for _, list := range p.waits {
		for _, c := range list {
			if c.target == device {
				n++
			}
		}
	}
	return n
}

// enqueue puts a PENDING command at its place.
func (p *place) enqueue(c *command) {
	list := p.waits[c.priority]
	i := len(list)
	for i > 0 && list[i-1].seq > c.seq {
		i--
	}
	p.waits[c.priority] = slices.Insert(list, i, c)
	c.at = p
}

func (p *place) dequeue(c *command) {
	list := p.waits[c.priority]
	if i := slices.Index(list, c); i >= 0 {
		p.waits[c.priority] = slices.Delete(list, i, i+1)
	}
}

func (b *book) places(direct bool) map[string]*place {
	if direct {
		return b.directs
	}
	return b.edges
}

// forgetPlace drops a place that is away, with its routes.
func (b *book) forgetPlace(p *place) {
	b.dropRoutes(p)
	delete(b.places(p.direct), p.id)
	b.moved(p, presence{since: never})
}

func (b *book) dropRoutes(p *place) {
	for _, d := range slices.Sorted(maps.Keys(p.devices)) {
		b.dropRoute(d)
	}
}

// route makes p the route of a device and takes along what waits for it.
func (b *book) route(device string, p *place) {
	from := b.routes[device]
	if from == p {
		return
	}
	if from != nil {
		delete(from.devices, device)
	}
	b.routes[device] = p
	p.devices[device] = true
	b.journalled.routes[device] = append(b.journalled.routes[device], routing{len(b.spans), p})
	b.reroute(device, from, p)
}

// dropRoute takes the route of a device away; what waits for it waits on.
func (b *book) dropRoute(device string) {
	from := b.routes[device]
	delete(from.devices, device)
	delete(b.routes, device)
	b.journalled.routes[device] = append(b.journalled.routes[device], routing{len(b.spans), nil})
	b.reroute(device, from, nil)
}

// reroute moves what waits for a device; nil is nowhere.
func (b *book) reroute(device string, from, to *place) {
	if from == nil {
		from = b.limbo
	}
	if to == nil {
		to = b.limbo
	}
	for p, list := range from.waits {
		from.waits[p] = nil
		for _, c := range list {
			if c.target != device {
				from.waits[p] = append(from.waits[p], c)
				continue
			}
			to.enqueue(c)
		}
	}
}

// swept notes that all was handed over to p that the way was clear for: what is not routed
// to it any more, and had its turn, is not handed over again, and nothing is where it says
// now that it does not dedupe.
func (b *book) swept(p *place) {
	for p.link != nil && len(p.replay) > 0 && (!p.dedupe || b.routes[p.replay[0].target] != p) {
		p.replay = p.replay[1:]
	}
}

// tidy drops what has been away for longer than it is kept; the router looks once a second.
func (b *book) tidy(now wire.Time) {
	if now < b.tidyAt {
		return
	}
	b.tidyAt = never
	for _, places := range []map[string]*place{b.edges, b.directs} {
		for _, id := range slices.Sorted(maps.Keys(places)) {
			b.tidyPlace(places[id], now)
		}
	}
}

func (b *book) tidyPlace(p *place, now wire.Time) {
	over := p.since + b.kept()
	switch {
	case p.link != nil:
	case now <= over:
		b.tidyAt = min(b.tidyAt, over)
	case !b.w.gate.knows(p):
		b.forgetPlace(p)
	case now > max(p.since, p.latest)+b.kept()+wire.Time(2*time.Second):
		b.fault("", p.id, "%s is known still, %v after it went", p.key(), time.Duration(now-p.since))
	default:
		b.tidyAt = now
	}
}

// kept is how long a place is known after it went.
func (b *book) kept() wire.Time { return wire.Time(b.limits.PermanentAfter + b.limits.RouteRetention) }

const never = wire.Time(math.MaxInt64)

// moved notes that a place came, went or was forgotten.
func (b *book) moved(p *place, to presence) {
	if b.w.disk != nil {
		to.call = len(b.spans)
		p.past = append(p.past, to)
	}
}
