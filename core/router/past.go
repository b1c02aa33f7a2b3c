package router

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"subway/core/wire"
)

// pastTable says where the archive has the ended records of a shard: an open-addressed
// table, at most half full. A slot holds a part of the hash and the spot, so that a ref
// that is not there, the usual case when a command is accepted, is told from one cache
// line and without a look at any record. Its shard's lock guards it.
type pastTable struct {
	slots []pastSlot
	n     int

	// Where slots stand, for prefetch alone, which holds no lock: a stale pair does no harm.
	base, mask atomic.Uint64
}

// pastSlot is the upper half of a hash above a spot; 0 is free.
type pastSlot uint64

func newPastSlot(hash uint64, at spot) pastSlot { return pastSlot(hash&^(1<<32-1) | uint64(at)) }

// home returns the slot where a probe for a slot's hash begins.
func (t *pastTable) home(x pastSlot) uint64 { return uint64(x) >> 32 & uint64(len(t.slots)-1) }

func (t *pastTable) add(x pastSlot) {
	if 2*(t.n+1) > len(t.slots) {
		t.grow()
	}
	t.insert(x)
	t.n++
}

func (t *pastTable) insert(x pastSlot) {
	mask := uint64(len(t.slots) - 1)
	i := t.home(x)
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = x
}

func (t *pastTable) grow() {
	old := t.slots
	t.slots = make([]pastSlot, max(minSlots, 2*len(old)))
	t.base.Store(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(t.slots)))))
	t.mask.Store(uint64(len(t.slots) - 1))
	for _, x := range old {
		if x != 0 {
			t.insert(x)
		}
	}
}

// remove takes out what add put in. The slots behind it move up, so that no probe ends
// too early and no grave is left.
func (t *pastTable) remove(x pastSlot) {
	mask := uint64(len(t.slots) - 1)
	i := t.home(x)
	for t.slots[i] != x {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		if home := t.home(t.slots[j]); (j-home)&mask >= (j-i)&mask { // i lies on its way
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
	t.n--
}

// prefetch has the processor fetch the slots where a probe for hash begins. Any goroutine.
func (t *pastTable) prefetch(hash uint64) {
	i := hash >> 32 & t.mask.Load()
	prefetch(uintptr(t.base.Load())+uintptr(i)*unsafe.Sizeof(pastSlot(0)), 1)
}

// find returns the spot of the ended record that has this hash and that is accepts, or 0.
func (t *pastTable) find(hash uint64, a *archive, is func(past []byte) bool) spot {
	if t.n == 0 {
		return 0
	}
	mask := uint64(len(t.slots) - 1)
	for i := t.home(pastSlot(hash)); t.slots[i] != 0; i = (i + 1) & mask {
		if x := t.slots[i]; uint64(x)>>32 == hash>>32 && is(a.at(spot(x))) {
			return spot(x)
		}
	}
	return 0
}

// An ended record is a head and, one after the other: requestRef and commandType, the ids
// of its source, target and edge, and the JSON of progress, result, error and execution
// time. All numbers are little-endian.
const (
	pastSeq        = 0 // uint64, as are the times
	pastCreated    = 8
	pastHanded     = 16
	pastProgressed = 24
	pastEnded      = 32
	pastTimeout    = 40 // uint32, milliseconds
	pastRef        = 44 // uint8, a length, as are all the following but these three
	pastSource     = 45
	pastTarget     = 46
	pastEdge       = 47
	pastState      = 48
	pastPriority   = 49
	pastFlags      = 50
	pastType       = 52 // uint32, as are those after it
	pastProgress   = 56
	pastResult     = 60
	pastError      = 64
	pastExecution  = 68
	pastMark       = 72 // uint64, of the record in this process's journal; it is not stored there
	pastHead       = 80
)

const (
	flagBackend  = 1 << iota // a Backend sent it
	flagDirect               // it was handed to a device that is connected directly
	flagCallback             // its shard has a Delivery of it
)

func pastRefIs(past, ref []byte) bool {
	return int(past[pastRef]) == len(ref) && string(past[pastHead:pastHead+len(ref)]) == string(ref)
}

func pastSeqIs(past []byte, seq uint64) bool {
	return binary.LittleEndian.Uint64(past[pastSeq:]) == seq
}

func pastTargetOf(past []byte) []byte {
	from := pastHead + int(past[pastRef]) + int(binary.LittleEndian.Uint32(past[pastType:])) + int(past[pastSource])
	return past[from : from+int(past[pastTarget])]
}

// write puts the ended form of a record in flight, whose shard is held, into the archive
// and the journal.
func (r *Router) write(rec *record) {
	edge := rec.edge.Load()
	flags, source := byte(0), ""
	if rec.source != nil {
		flags, source = flagBackend, rec.source.id
	}
	if edge.direct {
		flags |= flagDirect
	}
	if rec.track != nil {
		flags |= flagCallback
	}
	n := pastHead + rec.refLen + len(source) + len(rec.dev.id) + len(edge.id) + rec.typeLen +
		len(rec.progress) + len(rec.result) + len(rec.errorJSON) + len(rec.execution)
	at, all, full := r.archive.reserve(n, rec.hash, rec.seq, rec.ended, &r.limits)
	rec.at, rec.full = at, full
	b, h := all, (*[pastHead]byte)(all)
	le := binary.LittleEndian
	le.PutUint64(h[pastSeq:], rec.seq)
	le.PutUint64(h[pastCreated:], uint64(rec.created))
	le.PutUint64(h[pastHanded:], uint64(rec.handed))
	le.PutUint64(h[pastProgressed:], uint64(rec.progressed))
	le.PutUint64(h[pastEnded:], uint64(rec.ended))
	le.PutUint32(h[pastTimeout:], uint32(rec.timeoutMs))
	h[pastRef], h[pastSource], h[pastTarget], h[pastEdge] = byte(rec.refLen), byte(len(source)), byte(len(rec.dev.id)), byte(len(edge.id))
	h[pastState], h[pastPriority], h[pastFlags] = byte(rec.state), byte(rec.priority), flags
	le.PutUint32(h[pastType:], uint32(rec.typeLen))
	le.PutUint32(h[pastProgress:], uint32(len(rec.progress)))
	le.PutUint32(h[pastResult:], uint32(len(rec.result)))
	le.PutUint32(h[pastError:], uint32(len(rec.errorJSON)))
	le.PutUint32(h[pastExecution:], uint32(len(rec.execution)))
	b = b[pastHead:]
	b = b[copy(b, rec.mem[:rec.refLen+rec.typeLen]):]
	b = b[copy(b, source):]
	b = b[copy(b, rec.dev.id):]
	b = b[copy(b, edge.id):]
	b = b[copy(b, rec.progress):]
	b = b[copy(b, rec.result):]
	b = b[copy(b, rec.errorJSON):]
	copy(b, rec.execution)
	le.PutUint64(h[pastMark:], 0)
	if r.journal != nil {
		rec.mark = r.journal.Append(kindEnded, all)
		le.PutUint64(h[pastMark:], rec.mark)
	}
}

// bury makes an ended record of one in flight that was written, whose shard is held: it
// is in no list and not in the wheel, and everybody was told of its end. It is used again,
// or, while it is in somebody's hand, left to the garbage collector.
func (r *Router) bury(rec *record) (full bool) {
	sh := rec.shard
	full = rec.full
	sh.remove(rec)
	sh.addPast(rec.hash, rec.at, rec.track)
	if rec.place != placeHand {
		sh.recycle(rec)
	}
	return full
}

// addPast enters an ended record; s.mu is held.
func (s *shard) addPast(hash uint64, at spot, track *Delivery) {
	s.past.add(newPastSlot(hash, at))
	if track != nil {
		if s.tracks == nil {
			s.tracks = make(map[spot]*Delivery)
		}
		s.tracks[at] = track
	}
}

// past is what a record that was read back from the archive has in place of an edge.
type past struct {
	edge   []byte // id of the one it was handed to or waited for last; empty for none
	direct bool
}

// exhume reads an ended record back; its shard is held. Nothing of it is the archive's.
func (r *Router) exhume(sh *shard, at spot) *record {
	b := r.archive.at(at)
	h := (*[pastHead]byte)(b)
	le := binary.LittleEndian
	x := &struct {
		rec  record
		past past
	}{}
	rec := &x.rec
	rec.past, rec.shard, rec.slot = &x.past, sh, -1
	rec.seq, rec.state, rec.priority = le.Uint64(h[pastSeq:]), State(h[pastState]), wire.Priority(h[pastPriority])
	rec.timeoutMs, rec.created = int64(le.Uint32(h[pastTimeout:])), wire.Time(le.Uint64(h[pastCreated:]))
	rec.handed, rec.progressed = wire.Time(le.Uint64(h[pastHanded:])), wire.Time(le.Uint64(h[pastProgressed:]))
	rec.ended = wire.Time(le.Uint64(h[pastEnded:]))
	rec.updated, rec.mark = rec.ended, le.Uint64(h[pastMark:])
	rec.refLen, rec.typeLen = int(h[pastRef]), int(le.Uint32(h[pastType:]))
	ids := int(h[pastSource]) + int(h[pastTarget]) + int(h[pastEdge])
	lengths := [...]int{int(le.Uint32(h[pastProgress:])), int(le.Uint32(h[pastResult:])), int(le.Uint32(h[pastError:])), int(le.Uint32(h[pastExecution:]))}
	all := rec.refLen + ids + rec.typeLen
	for _, n := range lengths {
		all += n
	}
	b = append([]byte(nil), b[pastHead:pastHead+all]...)
	next := func(n int) (part []byte) {
		part, b = b[:n:n], b[n:]
		return part
	}
	rec.mem = next(rec.refLen + rec.typeLen)
	if source := next(int(h[pastSource])); h[pastFlags]&flagBackend != 0 {
		rec.source = &backend{id: string(source)}
	}
	target := next(int(h[pastTarget]))
	if rec.dev = r.routes.find(target); rec.dev == nil {
		rec.dev = &device{id: string(target)}
	}
	x.past.edge, x.past.direct = next(int(h[pastEdge])), h[pastFlags]&flagDirect != 0
	for i, part := range []*[]byte{&rec.progress, &rec.result, &rec.errorJSON, &rec.execution} {
		if lengths[i] > 0 {
			*part = next(lengths[i])
		}
	}
	if h[pastFlags]&flagCallback != 0 {
		rec.track = sh.tracks[at]
	}
	return rec
}
