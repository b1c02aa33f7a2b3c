package edge

import (
	"bytes"
	"container/list"

	"subway/server/edge/store"
)

// item is the index of a message that waits for the link on disk.
type item struct {
	seq         int64
	kind        store.Kind
	device, ref string
	size        int
	at          *list.Element
}

// itemCost is what an item takes in the store besides its message, in bytes, about.
const itemCost = 96

func (i *item) cost() int64 { return int64(itemCost + i.size + len(i.device) + len(i.ref)) }

// backlog is the index of what waits for the link. Guarded by Edge.mu.
type backlog struct {
	items  map[int64]*item
	kinds  map[store.Kind]*list.List // oldest first
	status map[string]*item          // the newest of each device
	bytes  int64
	seq    int64 // the last one given
}

func newBacklog() backlog {
	return backlog{
		items: map[int64]*item{}, status: map[string]*item{},
		kinds: map[store.Kind]*list.List{store.Response: list.New(), store.Progress: list.New(), store.Status: list.New()},
	}
}

func (b *backlog) add(i *item) {
	if b.kinds[i.kind] == nil {
		b.kinds[i.kind] = list.New() // of a version that knows more
	}
	i.at = b.kinds[i.kind].PushBack(i)
	b.items[i.seq] = i
	b.bytes += i.cost()
	b.seq = max(b.seq, i.seq)
	if i.kind == store.Status {
		b.status[i.device] = i
	}
}

func (b *backlog) remove(i *item) {
	b.kinds[i.kind].Remove(i.at)
	delete(b.items, i.seq)
	b.bytes -= i.cost()
	if b.status[i.device] == i {
		delete(b.status, i.device)
	}
}

// keepItem keeps a message until the link is there: the newest status of a device only,
// and where there is no room, the oldest status goes first, then the oldest progress, then
// responses whose command has timed out (PROTOCOL.md section 5). e.mu is held.
func (e *Edge) keepItem(kind store.Kind, device, ref string, msg []byte) bool {
	if e.unsynced > maxUnsynced {
		e.count.dropped[kind]++
		return false
	}
	if old := e.backlog.status[device]; old != nil && kind == store.Status {
		e.dropItem(old)
	}
	i := &item{seq: e.backlog.seq + 1, kind: kind, device: device, ref: ref, size: len(msg)}
	if !e.makeRoom(kind, i.cost()) {
		e.count.dropped[kind]++
		return false
	}
	e.backlog.add(i)
	e.used += i.cost()
	e.unsynced += i.size
	e.store.Keep(store.Item{Seq: i.seq, Kind: kind, Device: device, Ref: ref, Size: i.size, Msg: bytes.Clone(msg)}, func(error) { e.synced(i.size) })
	return true
}

// dropItem removes an item; the answer to a known ref is still in the store. e.mu is held.
func (e *Edge) dropItem(i *item) {
	e.backlog.remove(i)
	e.used -= i.cost()
	e.store.Drop(i.seq)
	if t := e.refs[i.ref]; t != nil && i.kind == store.Response && !t.confirmed {
		t.item = 0
		e.unconfirmed[t] = struct{}{}
	}
}

// makeRoom reports whether an item of this kind and cost may be kept, having dropped what
// had to go for it. Responses may use as much again as all else. e.mu is held.
func (e *Edge) makeRoom(kind store.Kind, cost int64) bool {
	bound := e.opt.StoreBytes
	for _, victims := range []store.Kind{store.Status, store.Progress} {
		l := e.backlog.kinds[victims]
		for e.used+cost > bound && l.Len() > 0 && kind <= victims {
			e.count.dropped[victims]++
			e.dropItem(l.Front().Value.(*item))
		}
	}
	if kind != store.Response {
		return e.used+cost <= bound
	}
	bound *= 2
	now := e.now()
	l := e.backlog.kinds[store.Response]
	for at := l.Front(); at != nil && e.used+cost > bound; {
		next := at.Next()
		if i := at.Value.(*item); e.refs[i.ref] == nil || e.refs[i.ref].deadline < now {
			e.count.dropped[store.Response]++
			e.dropItem(i)
		}
		at = next
	}
	return e.used+cost <= bound
}
