package router

import (
	"slices"
	"sync"
	"sync/atomic"
)

// order finds records by the order of their acceptance: an array of their hashes over seq,
// in chunks, each of which goes when all of its records have. Every seq that is given out must be
// dropped once, whether or not a record was put there.
type order struct {
	tail   atomic.Pointer[chunk] // the last that was made: nearly always the right one
	mu     sync.RWMutex          // guards chunks
	chunks map[uint64]*chunk
}

// chunkSize is a compromise: one record that stays keeps a chunk, some 2 KB, and every
// chunk is a look-up in the map.
const chunkSize = 256

type chunk struct {
	base  uint64 // seq / chunkSize
	gone  atomic.Int32
	slots [chunkSize]atomic.Uint64 // the record's hash; 0: none
}

// chunk returns the chunk of seq, made if need be.
func (o *order) chunk(seq uint64) *chunk {
	base := seq / chunkSize
	if c := o.tail.Load(); c != nil && c.base == base {
		return c
	}
	o.mu.RLock()
	c := o.chunks[base]
	o.mu.RUnlock()
	if c != nil {
		return c
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c = o.chunks[base]; c == nil {
		c = &chunk{base: base}
		if base == 0 {
			c.gone.Store(1) // no record has seq 0
		}
		if o.chunks == nil {
			o.chunks = make(map[uint64]*chunk)
		}
		o.chunks[base] = c
		if t := o.tail.Load(); t == nil || t.base < base {
			o.tail.Store(c)
		}
	}
	return c
}

// put enters a record; its shard is held.
func (o *order) put(seq, hash uint64) { o.chunk(seq).slots[seq%chunkSize].Store(hash) }

// drop ends the use of seq. Where a record was put there it cannot be found any more.
func (o *order) drop(seq uint64) {
	c := o.chunk(seq)
	c.slots[seq%chunkSize].Store(0)
	o.leave(c, 1)
}

// dropAll is drop for many, most of which follow one another.
func (o *order) dropAll(gone []archiveEntry) {
	var c *chunk
	n := int32(0)
	for _, x := range gone {
		if base := x.seq / chunkSize; c == nil || c.base != base {
			o.leave(c, n)
			c, n = o.chunk(x.seq), 0
		}
		c.slots[x.seq%chunkSize].Store(0)
		n++
	}
	o.leave(c, n)
}

// leave ends the use of n seqs of c, which goes with the last.
func (o *order) leave(c *chunk, n int32) {
	if n == 0 || c.gone.Add(n) < chunkSize {
		return
	}
	o.mu.Lock()
	delete(o.chunks, c.base)
	o.mu.Unlock()
}

// bases returns the chunks' bases up to that of seq, the newest first.
func (o *order) bases(seq uint64) []uint64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	var bs []uint64
	for b := range o.chunks {
		if b <= seq/chunkSize {
			bs = append(bs, b)
		}
	}
	slices.Sort(bs)
	slices.Reverse(bs)
	return bs
}

// walk gives fn the records that q selects, by its filters alone, and that were accepted
// before seq, newest first and each with its shard held, until fn returns false or limit
// places were looked at, also those of records that are gone or not selected. It returns
// the seq of the last place and how many there were.
func (r *Router) walk(q *RecordQuery, before uint64, limit int, fn func(*record) bool) (last uint64, looked int) {
	last = before
	for _, base := range r.order.bases(before) {
		r.order.mu.RLock()
		c := r.order.chunks[base]
		r.order.mu.RUnlock()
		if c == nil {
			continue
		}
		seq := (base + 1) * chunkSize
		if base == before/chunkSize {
			seq = before
		}
		for ; seq > base*chunkSize; looked++ {
			if looked == limit {
				return last, looked
			}
			seq--
			if last = seq; !r.look(c, seq, q, fn) {
				return last, looked + 1
			}
		}
	}
	return last, looked
}

// look gives fn the record of seq, if it is there and selected, and returns what fn does,
// else true.
func (r *Router) look(c *chunk, seq uint64, q *RecordQuery, fn func(*record) bool) (more bool) {
	hash := c.slots[seq%chunkSize].Load()
	if hash == 0 {
		return true
	}
	sh := r.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if rec := sh.accepted(hash, seq); rec != nil {
		return !q.selects(rec.state, rec.dev.id) || fn(rec)
	}
	at := sh.past.find(hash, &r.archive, func(past []byte) bool { return pastSeqIs(past, seq) })
	if at == 0 || !q.selectsPast(r.archive.at(at)) { // 0: it went meanwhile
		return true
	}
	return fn(r.exhume(sh, at))
}

// any reports whether a record accepted before seq may be there: one is, or limit places
// are not enough to tell.
func (r *Router) any(before uint64, limit int) (found bool) {
	_, looked := r.walk(&RecordQuery{}, before, limit, func(*record) bool {
		found = true
		return false
	})
	return found || looked == limit
}
