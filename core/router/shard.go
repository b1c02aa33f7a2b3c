package router

import (
	"sync"
	"time"

	"subway/core/wire"
)

const (
	numShards = 64
	minSlots  = 64
)

// shard holds the commands whose requestRef hashes to it: a hash table of the records in
// flight, their timers, and where the ended ones stand. mu guards it and the records.
//
// The table is open-addressed, at most half full, and its slots hold the hashes, so that
// a ref that is not there is told without a look at any record.
type shard struct {
	mu     sync.Mutex
	n      int // records in flight
	slots  []slot
	wheel  wheel
	past   pastTable
	tracks map[spot]*Delivery // of the ended ones that have a callback
	free   *record            // records to be used again, linked by wnext
	nFree  int
	_      [40]byte
}

// mostFree bounds the records that a shard keeps to use again.
const mostFree = 64

type slot struct {
	hash uint64
	rec  *record // nil: free
}

func (r *Router) shardOf(hash uint64) *shard { return &r.shards[hash%numShards] }

// home returns the slot where a probe for hash begins; s.mu is held.
func (s *shard) home(hash uint64) uint64 { return (hash / numShards) & uint64(len(s.slots)-1) }

// find returns the record in flight of this ref, or nil; s.mu is held.
func (s *shard) find(hash uint64, ref []byte) *record {
	if len(s.slots) == 0 {
		return nil
	}
	mask := uint64(len(s.slots) - 1)
	for i := s.home(hash); s.slots[i].rec != nil; i = (i + 1) & mask {
		if s.slots[i].hash == hash && string(s.slots[i].rec.ref()) == string(ref) {
			return s.slots[i].rec
		}
	}
	return nil
}

// forget takes an ended record out. No lock is held.
func (s *shard) forget(x archiveEntry) {
	s.mu.Lock()
	s.past.remove(newPastSlot(x.hash, x.at))
	if len(s.tracks) > 0 {
		delete(s.tracks, x.at)
	}
	s.mu.Unlock()
}

// accepted returns the record in flight of this hash and seq, or nil; s.mu is held.
func (s *shard) accepted(hash, seq uint64) *record {
	if len(s.slots) == 0 {
		return nil
	}
	mask := uint64(len(s.slots) - 1)
	for i := s.home(hash); s.slots[i].rec != nil; i = (i + 1) & mask {
		if s.slots[i].hash == hash && s.slots[i].rec.seq == seq {
			return s.slots[i].rec
		}
	}
	return nil
}

// fresh returns an empty record; s.mu is held.
func (s *shard) fresh() *record {
	rec := s.free
	if rec == nil {
		return &record{slot: -1}
	}
	s.free, rec.wnext = rec.wnext, nil
	s.nFree--
	return rec
}

// recycle takes back a record that nobody points to; s.mu is held.
func (s *shard) recycle(rec *record) {
	if s.nFree == mostFree {
		return
	}
	rec.clear()
	rec.wnext, s.free = s.free, rec
	s.nFree++
}

// add puts a record into the table and the wheel; s.mu is held.
func (s *shard) add(rec *record) {
	if 2*(s.n+1) > len(s.slots) {
		s.grow()
	}
	s.insert(slot{rec.hash, rec})
	s.n++
	s.wheel.add(rec)
}

func (s *shard) insert(x slot) {
	mask := uint64(len(s.slots) - 1)
	i := s.home(x.hash)
	for s.slots[i].rec != nil {
		i = (i + 1) & mask
	}
	s.slots[i] = x
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]slot, max(minSlots, 2*len(old)))
	for _, x := range old {
		if x.rec != nil {
			s.insert(x)
		}
	}
}

// remove takes a record out of the table; s.mu is held. The slots behind it move up, so
// that no probe ends too early and no grave is left.
func (s *shard) remove(rec *record) {
	mask := uint64(len(s.slots) - 1)
	i := s.home(rec.hash)
	for s.slots[i].rec != rec {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; s.slots[j].rec != nil; j = (j + 1) & mask {
		if home := s.home(s.slots[j].hash); (j-home)&mask >= (j-i)&mask { // i lies on its way
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = slot{}
	s.n--
}

// wheel is a hashed timer wheel (Varghese and Lauck, scheme 6): a record stands in the
// slot of its deadline modulo one turn, and a visit leaves those of later turns alone.
// Its shard's lock guards it.
type wheel struct {
	slots []*record
	tick  int64 // the last tick that was visited; the router's start at first
}

const (
	wheelTick  = int64(16 * time.Millisecond)
	wheelSlots = 2048
)

func tickOf(t wire.Time) int64 { return int64(t)/wheelTick + 1 } // the first tick not before t

func (w *wheel) add(rec *record) {
	if w.slots == nil {
		w.slots = make([]*record, wheelSlots)
	}
	tick := max(tickOf(rec.deadline), w.tick+1)
	i := int32(tick % wheelSlots)
	rec.slot, rec.wprev, rec.wnext = i, nil, w.slots[i]
	if rec.wnext != nil {
		rec.wnext.wprev = rec
	}
	w.slots[i] = rec
}

func (w *wheel) remove(rec *record) {
	if rec.slot < 0 {
		return
	}
	if rec.wprev != nil {
		rec.wprev.wnext = rec.wnext
	} else {
		w.slots[rec.slot] = rec.wnext
	}
	if rec.wnext != nil {
		rec.wnext.wprev = rec.wprev
	}
	rec.slot, rec.wprev, rec.wnext = -1, nil, nil
}

// due takes up to limit records whose deadline has come out of the wheel and gives
// each to fn. It reports whether it came to the end: if not, there are more.
func (w *wheel) due(now wire.Time, limit int, fn func(*record)) bool {
	last := int64(now) / wheelTick
	if w.slots == nil {
		w.tick = last
		return true
	}
	if last-w.tick > wheelSlots { // after a pause one turn visits every slot
		w.tick = last - wheelSlots
	}
	for w.tick < last {
		rec := w.slots[(w.tick+1)%wheelSlots]
		for rec != nil {
			next := rec.wnext
			if rec.deadline <= now {
				if limit == 0 {
					return false
				}
				limit--
				w.remove(rec)
				fn(rec)
			}
			rec = next
		}
		w.tick++
	}
	return true
}
