package router

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"subway/core/wire"
)

// archive keeps the records of ended commands until their retention is over or a bound
// is passed, the oldest out first (PROTOCOL.md section 4). They are bytes in chunks,
// written one after the other as commands end and never changed: half a million of them
// hold no pointer for the garbage collector, and the processor meets no cold memory but
// what it writes in a row. Each shard's table of the past says where they stand.
//
// mu guards the places, not the bytes: a record is written, and read, with its shard held,
// and its place is used again only after it was taken out of the shard's table.
type archive struct {
	chunks atomic.Pointer[[]*archiveChunk] // by number; grows with mu held

	mu    sync.Mutex
	free  []uint32 // numbers without a chunk
	tail  *archiveChunk
	spare [][]byte // of chunks that went, mostSpare at most
	queue entryQueue
	n     int64
	bytes int64
	early wire.Time // end of the newest record that went before its time
}

// archiveChunk is memory for records, or for one that is large.
type archiveChunk struct {
	number uint32
	users  int // records in it, and one more while it takes others
	used   int // bytes
	buf    []byte
}

// spot says where in the archive a record stands: the number of the chunk and the offset
// in it in units of spotUnit bytes. Number 0 is no chunk's, so the zero spot is none.
type spot uint32

const (
	spotUnit   = 16
	chunkBytes = 256 << 10
	chunkSpots = chunkBytes / spotUnit
	largeBytes = chunkBytes / 8 // a record of more has a chunk of its own, so that little is left unused
	mostChunks = 1 << 31 / chunkSpots
	mostSpare  = 4 // chunks come and go in turns, but for the records that are let go of together
)

// entryShare is what a record costs beside its bytes: its place in the queue, in its
// shard's table and in the order of acceptance.
const entryShare = 80

// archiveEntry is what it takes to let go of a record without a look at it.
type archiveEntry struct {
	hash, seq uint64
	ended     wire.Time
	at        spot
	units     uint32 // bytes counted for it, in units of spotUnit
}

func (x archiveEntry) bytes() int64 { return int64(x.units) * spotUnit }

// reserve gives out room for a record of n bytes that ended now; the caller fills it,
// with the record's shard held all the time. full says that a bound is passed now.
func (a *archive) reserve(n int, hash, seq uint64, ended wire.Time, lim *Limits) (at spot, room []byte, full bool) {
	size := (n + spotUnit - 1) &^ (spotUnit - 1)
	x := archiveEntry{hash: hash, seq: seq, ended: ended, units: uint32((size + entryShare) / spotUnit)}
	a.mu.Lock()
	c := a.tail
	switch {
	case size > largeBytes:
		c = a.newChunk(make([]byte, size))
	case c == nil || c.used+size > len(c.buf):
		c = a.nextTail()
	}
	from := c.used
	c.used += size
	c.users++
	x.at = spot(c.number*chunkSpots + uint32(from/spotUnit))
	a.queue.push(x)
	a.n++
	a.bytes += x.bytes()
	full = a.full(lim)
	a.mu.Unlock()
	if ahead := from + 2*size; ahead < len(c.buf) { // where the next will be written
		prefetch(uintptr(unsafe.Pointer(&c.buf[from+size])), uintptr(size))
	}
	return x.at, c.buf[from : from+n], full
}

// full reports whether a bound is passed; mu is held, and something was kept already.
func (a *archive) full(lim *Limits) bool {
	return a.n > lim.MaxRecords || a.bytes > lim.RecordBytes || len(*a.chunks.Load())-len(a.free) > mostChunks
}

// nextTail makes a new chunk the one that takes records; mu is held.
func (a *archive) nextTail() *archiveChunk {
	if a.tail != nil {
		a.leave(a.tail)
	}
	var c *archiveChunk
	if n := len(a.spare); n > 0 {
		c = a.newChunk(a.spare[n-1])
		a.spare = a.spare[:n-1]
	} else {
		c = a.newChunk(make([]byte, chunkBytes))
	}
	c.users++
	a.tail = c
	return c
}

// newChunk gives memory a number; mu is held.
func (a *archive) newChunk(b []byte) *archiveChunk {
	c := &archiveChunk{buf: b}
	old := a.chunks.Load()
	if n := len(a.free); n > 0 {
		c.number = a.free[n-1]
		a.free = a.free[:n-1]
		(*old)[c.number] = c
		return c
	}
	grown := []*archiveChunk{nil}
	if old != nil {
		grown = *old
	}
	c.number = uint32(len(grown))
	grown = append(grown, c)
	a.chunks.Store(&grown)
	return c
}

// leave ends one use of a chunk, whose memory and number are free after the last; mu is
// held.
func (a *archive) leave(c *archiveChunk) {
	if c.users--; c.users > 0 {
		return
	}
	(*a.chunks.Load())[c.number] = nil
	a.free = append(a.free, c.number)
	if len(c.buf) == chunkBytes && len(a.spare) < mostSpare {
		a.spare = append(a.spare, c.buf)
	}
}

// at returns what stands from a spot on; the record's shard is held.
func (a *archive) at(p spot) []byte {
	return (*a.chunks.Load())[p/chunkSpots].buf[p%chunkSpots*spotUnit:]
}

// evictions is how many records are let go of together, where many are kept: their places
// in the tables, cold by then, are fetched side by side.
const evictions = 64

// doomed is what take takes out.
type doomed [evictions]archiveEntry

// take takes the oldest entries out whose time is over or that are beyond a bound, and a
// few more where many are kept; it returns their number. The caller takes them out of
// their shards' tables, and gives them to gone then.
func (a *archive) take(d *doomed, now wire.Time, lim *Limits) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	more := 0 // that go with one that is beyond a bound
	for n < len(d) && a.n > 0 {
		x := a.queue.first()
		if x.ended+wire.Time(lim.Retention) > now {
			if a.full(lim) {
				more = min(int(a.n>>12), len(d))
			}
			if more--; more < 0 && !a.full(lim) {
				break
			}
			a.early = max(a.early, x.ended)
		}
		a.queue.pop()
		a.n--
		a.bytes -= x.bytes()
		d[n] = x
		n++
	}
	return n
}

// gone says that nobody can find these records any more.
func (a *archive) gone(entries []archiveEntry) {
	a.mu.Lock()
	for _, x := range entries {
		a.leave((*a.chunks.Load())[x.at/chunkSpots])
	}
	a.mu.Unlock()
}

// entryQueue is a queue in chunks, so that the entries that come next are known.
type entryQueue struct {
	head, tail *entryChunk
	spare      *entryChunk // the last that became empty
}

type entryChunk struct {
	next     *entryChunk
	from, to int // what is in use of entries
	entries  [chunkEntries]archiveEntry
}

const chunkEntries = 255 // a chunk fills 8 KiB

func (q *entryQueue) push(x archiveEntry) {
	t := q.tail
	if t == nil || t.to == chunkEntries {
		t = q.grow()
	}
	t.entries[t.to] = x
	t.to++
}

func (q *entryQueue) grow() *entryChunk {
	c := q.spare
	q.spare = nil
	if c == nil {
		c = new(entryChunk)
	}
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
	return c
}

// first returns the oldest entry; there is one.
func (q *entryQueue) first() archiveEntry { return q.head.entries[q.head.from] }

// pop takes the oldest out.
func (q *entryQueue) pop() {
	h := q.head
	if h.from++; h.from < h.to {
		return
	}
	if h.next == nil { // the only one: used again from its start
		h.from, h.to = 0, 0
		return
	}
	q.head, h.next, h.from, h.to = h.next, nil, 0, 0
	q.spare = h
}
