package router

import (
	"container/heap"
	"slices"
	"strings"

	"subway/core/wire"
)

// PartyQuery selects devices or edges for a listing. Zero members select all, but Limit,
// which is at least 1.
type PartyQuery struct {
	Type   string // of device
	Edge   string // id
	Online *bool
	Limit  int
	Cursor string // the last id of the page before
}

// Devices lists devices by id. Every page looks at all of them, or at those of one edge,
// and keeps the smallest; it holds no lock that a message waits for unless q names an
// edge. Any goroutine.
func (r *Router) Devices(q *PartyQuery) (page []wire.Device, next string) {
	best := &smallest[*device]{limit: max(q.Limit, 1) + 1, id: func(d *device) string { return d.id }}
	look := func(d *device) bool {
		e := d.edge.Load()
		if e == nil || d.id <= q.Cursor || q.Edge != "" && e.id != q.Edge {
			return true
		}
		if (q.Type == "" || wire.DeviceType(d.id) == q.Type) && (q.Online == nil || *q.Online == e.connected()) {
			best.add(d)
		}
		return true
	}
	if q.Edge == "" {
		r.routes.each(look)
	} else {
		r.eachOf(q.Edge, look)
	}
	found, more := best.sorted()
	page = make([]wire.Device, 0, len(found))
	for _, d := range found {
		if v := d.view(); v != nil {
			page = append(page, *v)
		}
	}
	if more {
		next = found[len(found)-1].id
	}
	return page, next
}

// eachOf calls fn for the devices of the edge, and of the direct device, of this id.
func (r *Router) eachOf(id string, fn func(*device) bool) {
	r.topo.Lock()
	defer r.topo.Unlock()
	for _, e := range []*edge{r.edges[id], r.directs[id]} {
		if e == nil {
			continue
		}
		for d := e.devices; d != nil; d = d.next {
			fn(d)
		}
	}
}

// Device returns one device, nil where there is no route. Any goroutine.
func (r *Router) Device(id string) *wire.Device {
	d := r.routes.find([]byte(id))
	if d == nil {
		return nil
	}
	v := d.view()
	r.topo.Lock()
	defer r.topo.Unlock()
	if f := r.flaps[d].view(); v != nil && f != nil {
		v.Flapping = f
	}
	return v
}

// view copies a device for the API, nil where it has lost its route.
func (d *device) view() *wire.Device {
	e := d.edge.Load()
	if e == nil {
		return nil
	}
	v := &wire.Device{
		ClientID: d.id, DeviceType: wire.DeviceType(d.id), EdgeID: e.id, Connection: connection(e),
		LastSeen: wire.Time(d.seen.Load()), Epoch: d.epoch.Load(),
	}
	if x := d.extra.Load(); x != nil {
		v.Status, v.StatusAt, v.DeviceInfo = x.status, x.statusAt, x.info
	}
	return v
}

func connection(e *edge) string {
	if e.connected() {
		return wordOnline
	}
	return wordOffline
}

// Edges lists edges by id; directly connected devices are not among them. Any goroutine.
func (r *Router) Edges(q *PartyQuery) (page []wire.Edge, next string) {
	best := &smallest[*edge]{limit: max(q.Limit, 1) + 1, id: func(e *edge) string { return e.id }}
	r.topo.Lock()
	defer r.topo.Unlock()
	for id, e := range r.edges {
		if id <= q.Cursor || q.Edge != "" && id != q.Edge || q.Online != nil && *q.Online != e.connected() {
			continue
		}
		best.add(e)
	}
	found, more := best.sorted()
	page = make([]wire.Edge, 0, len(found))
	for _, e := range found {
		page = append(page, *e.view())
	}
	if more {
		next = found[len(found)-1].id
	}
	return page, next
}

// Edge returns one edge, or nil. Any goroutine.
func (r *Router) Edge(id string) *wire.Edge {
	r.topo.Lock()
	defer r.topo.Unlock()
	if e := r.edges[id]; e != nil {
		return e.view()
	}
	return nil
}

// view copies an edge for the API; topo is held.
func (e *edge) view() *wire.Edge {
	e.mu.Lock()
	queued := e.waiting
	e.mu.Unlock()
	return &wire.Edge{
		EdgeID: e.id, Connection: connection(e), Devices: e.nDevices, Queued: queued,
		LastSeen: wire.Time(e.seen.Load()), Epoch: e.epoch, EdgeVersion: e.version, RemoteAddress: e.remote,
	}
}

// smallest keeps the items with the smallest ids, up to limit, in a heap.
type smallest[T any] struct {
	limit int
	id    func(T) string
	items []T
}

func (h *smallest[T]) Len() int           { return len(h.items) }
func (h *smallest[T]) Less(i, j int) bool { return h.id(h.items[i]) > h.id(h.items[j]) }
func (h *smallest[T]) Swap(i, j int)      { h.items[i], h.items[j] = h.items[j], h.items[i] }
func (h *smallest[T]) Push(x any)         { h.items = append(h.items, x.(T)) }
func (h *smallest[T]) Pop() any {
	last := h.items[len(h.items)-1]
	h.items = h.items[:len(h.items)-1]
	return last
}

func (h *smallest[T]) add(x T) {
	if len(h.items) < h.limit {
		heap.Push(h, x)
	} else if h.limit > 0 && h.id(x) < h.id(h.items[0]) {
		h.items[0] = x
		heap.Fix(h, 0)
	}
}

// sorted returns the items in order but for the one beyond the page, and whether it was there.
func (h *smallest[T]) sorted() (items []T, more bool) {
	slices.SortFunc(h.items, func(a, b T) int { return strings.Compare(h.id(a), h.id(b)) })
	if len(h.items) == h.limit {
		return h.items[:h.limit-1], true
	}
	return h.items, false
}
