package router

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// routeTable maps device ids to devices. Reads take no lock: a shard's slots are an
// open-addressed array, 3/8 to 3/4 full, that is replaced when it grows and never
// changed otherwise, but that a free slot is taken once and a device's slot becomes a
// grave. A reader that holds an old array misses only what was stored after its read
// began. Writers take the shard's lock.
type routeTable struct {
	seed   maphash.Seed
	shards [routeShards]routeShard
	n      atomic.Int64
}

const (
	routeShards   = 64
	routeMinSlots = 16
)

type routeShard struct {
	slots atomic.Pointer[[]routeSlot]
	mu    sync.Mutex // guards writing; live and used
	live  int        // devices
	used  int        // slots that are not empty: devices and graves
	_     [40]byte   // keeps neighbours off this cache line
}

// routeSlot is a device with the hash of its id, which spares a look at most devices
// that are not the one. hash is written once, before dev, and read after it.
type routeSlot struct {
	dev  atomic.Pointer[device] // nil: free
	hash uint64
}

// grave stands in a slot whose device was removed, so that probes go on past it.
var grave = new(device)

func newRouteTable() *routeTable {
	t := &routeTable{seed: maphash.MakeSeed()}
	for i := range t.shards {
		s := make([]routeSlot, routeMinSlots)
		t.shards[i].slots.Store(&s)
	}
	return t
}

// find returns the device of this id, or nil. Any goroutine; id is not kept.
func (t *routeTable) find(id []byte) *device {
	h := maphash.Bytes(t.seed, id)
	slots := *t.shards[h%routeShards].slots.Load()
	mask := uint64(len(slots) - 1)
	for i := h / routeShards; ; i++ {
		slot := &slots[i&mask]
		d := slot.dev.Load()
		if d == nil {
			return nil
		}
		if slot.hash == h && d.id == string(id) {
			return d
		}
	}
}

// findOrAdd returns the device of this id, made by fresh when there is none.
func (t *routeTable) findOrAdd(id []byte, fresh func(id string) *device) *device {
	if d := t.find(id); d != nil {
		return d
	}
	h := maphash.Bytes(t.seed, id)
	s := &t.shards[h%routeShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := *s.slots.Load()
	if (s.used+1)*4 > len(slots)*3 {
		slots = t.rebuild(s, slots)
	}
	mask := uint64(len(slots) - 1)
	for i := h / routeShards; ; i++ {
		slot := &slots[i&mask]
		d := slot.dev.Load()
		if d == nil {
			d = fresh(string(id))
			slot.hash = h
			slot.dev.Store(d)
			s.live++
			s.used++
			t.n.Add(1)
			return d
		}
		if slot.hash == h && d.id == string(id) {
			return d
		}
	}
}

// rebuild gives the shard a fresh array without graves, at most 3/8 full.
func (t *routeTable) rebuild(s *routeShard, old []routeSlot) []routeSlot {
	size := routeMinSlots
	for s.live*8 > size*3 {
		size *= 2
	}
	slots := make([]routeSlot, size)
	mask := uint64(size - 1)
	for i := range old {
		d := old[i].dev.Load()
		if d == nil || d == grave {
			continue
		}
		j := old[i].hash / routeShards
		for slots[j&mask].dev.Load() != nil {
			j++
		}
		slots[j&mask].hash = old[i].hash
		slots[j&mask].dev.Store(d)
	}
	s.used = s.live
	s.slots.Store(&slots)
	return slots
}

// remove takes this very device out and reports whether it was there.
func (t *routeTable) remove(d *device) bool {
	h := maphash.String(t.seed, d.id)
	s := &t.shards[h%routeShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := *s.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := h / routeShards; ; i++ {
		switch slots[i&mask].dev.Load() {
		case nil:
			return false
		case d:
			slots[i&mask].dev.Store(grave)
			s.live--
			t.n.Add(-1)
			if s.live*16 < len(slots) && len(slots) > routeMinSlots {
				t.rebuild(s, slots)
			}
			return true
		}
	}
}

// each calls fn for every device until it returns false. Devices that come or go
// meanwhile may be seen or not. Any goroutine.
func (t *routeTable) each(fn func(*device) bool) {
	for i := range t.shards {
		slots := *t.shards[i].slots.Load()
		for j := range slots {
			if d := slots[j].dev.Load(); d != nil && d != grave && !fn(d) {
				return
			}
		}
	}
}
