// Package ledger keeps the books of a load run: every command that was sent, where it
// arrived, what was told about it, and whether all of that can be true at once. A gateway
// owes each accepted command exactly one final state, told once on each way that was asked
// for, after its progress and in order (PROTOCOL.md sections 4 and 7); what does not add
// up is a [Fault].
//
// Parties call it from their event loops and from the goroutines of the HTTP channel.
// Nothing here reads a clock: instants are nanoseconds since the start of the run.
package ledger

import (
	"sync"
	"sync/atomic"
)

// chunkSize commands share a mutex and are forgotten together.
const chunkSize = 4096

// Options of a Book.
type Options struct {
	// Run goes into every ref, so that two runs against one gateway do not meet.
	Run uint32
	// MaxOpen bounds the commands that are kept: open ones, and ended ones for Grace.
	// 0: 4,194,304 (128 MB when all are used).
	MaxOpen int
	// Grace is how long an ended command is remembered, so that a second end or a
	// late delivery is judged by what came before, in nanoseconds. 0: 30 s.
	Grace int64
	// Repeats allows a callback to come again after it was confirmed, and a command to be
	// delivered again in one session: for runs in which processes are killed.
	Repeats bool
}

// Priority of a command, PROTOCOL.md section 3.
type Priority uint8

// The priorities, lowest first.
const (
	Low Priority = iota
	Normal
	High
)

// ManySenders is the source of commands that leave on many connections at once (HTTP):
// nobody owes them an order among each other.
const ManySenders = 1<<16 - 1

// Terms are what a command is sent under.
type Terms struct {
	Source   uint16 // who sent it: a number of the caller's, or ManySenders
	Priority Priority
	Target   uint32 // device number
	Told     bool   // its final state comes over the channel it was sent on
	Callback bool   // and, or, to a callback URL
}

// Outcome is how a command ended, as coarsely as every channel can tell it.
type Outcome uint8

// The outcomes. Refused is a command that was never accepted.
const (
	Unknown Outcome = iota
	Completed
	Failed
	TimedOut // TIMEOUT and CONNECTION_LOST
	Cancelled
	Refused
	outcomes
)

func (o Outcome) String() string {
	return [outcomes]string{"unknown", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "refused"}[o]
}

// Marks of an entry.
const (
	accepted uint8 = 1 << iota
	delivered
	wantsTold     // a final is due on its channel
	wantsCallback // a final callback is due
	unsent        // it never left
	confirmed     // the final callback was answered with 2xx
	doubtful      // its sender got no answer, so whether it was accepted is unknown
)

type entry struct {
	intended int64
	target   uint32
	id       uint32 // of the final callback, hashed
	source   uint16
	told     uint16 // highest progress step, plus 1, told on the channel
	called   uint16 // the same by callback
	sent     uint16 // the same sent by the device
	session  uint16 // of the edge, when it was last delivered
	marks    uint8
	priority Priority
	final    Outcome // told on the channel
	callback Outcome // told by callback
	answered Outcome // what the device said
}

// settled reports whether nothing more is due.
func (e *entry) settled() bool {
	return e.marks&unsent != 0 || e.final == Refused ||
		(e.marks&wantsTold == 0 || e.final != Unknown) && (e.marks&wantsCallback == 0 || e.callback != Unknown)
}

type chunk struct {
	mu      sync.Mutex
	number  uint64
	used    int
	open    int   // entries of used that are not settled
	newest  int64 // the last instant at which one was settled
	entries [chunkSize]entry
}

// Book is the ledger of one run. All its methods may be called from any goroutine.
type Book struct {
	o      Options
	prefix []byte

	mu   sync.Mutex // guards the growth of ring
	next uint64     // under mu
	ring []atomic.Pointer[chunk]

	counts [counters]atomic.Uint64
	ends   [outcomes]atomic.Uint64
	faults faults
	breaks breaks
}

type counter int

const (
	opened counter = iota
	settledCount
	acceptedCount
	deliveredCount
	redelivered
	answeredCount
	progressSent
	progressTold
	toldCount
	callbacksDue
	callbacksEnded
	callbackProgress
	callbackRepeats
	unsentCount
	fullCount
	askedCount
	neverAccepted
	lateDeliveries
	strays
	counters
)

func (b *Book) add(c counter) { b.counts[c].Add(1) }

// New returns an empty book.
func New(o Options) *Book {
	if o.MaxOpen <= 0 {
		o.MaxOpen = 4 << 20
	}
	if o.Grace <= 0 {
		o.Grace = 30e9
	}
	b := &Book{o: o, prefix: appendHex([]byte("lg-"), o.Run)}
	b.prefix = append(b.prefix, '-')
	b.ring = make([]atomic.Pointer[chunk], o.MaxOpen/chunkSize+2)
	return b
}

// Open enters a command that is about to be sent and returns its number. intended is
// when it should have been sent; latency counts from there. It is false when the book is
// full: the oldest of its commands are still open. The command must not be sent then.
func (b *Book) Open(t Terms, intended int64) (seq uint64, ok bool) {
	b.mu.Lock()
	c := b.currentLocked(intended)
	if c == nil {
		b.mu.Unlock()
		b.add(fullCount)
		return 0, false
	}
	seq = b.next
	b.next++
	c.mu.Lock()
	b.mu.Unlock()
	e := &c.entries[seq%chunkSize]
	*e = entry{intended: intended, target: t.Target, source: t.Source, priority: t.Priority}
	if t.Told {
		e.marks |= wantsTold
	}
	if t.Callback {
		e.marks |= wantsCallback
		b.add(callbacksDue)
	}
	c.used++
	c.open++
	c.mu.Unlock()
	b.add(opened)
	return seq, true
}

// currentLocked returns the chunk that the next command goes into, nil when its place in
// the ring is still taken. The caller holds b.mu.
func (b *Book) currentLocked(now int64) *chunk {
	place := &b.ring[b.next/chunkSize%uint64(len(b.ring))]
	old := place.Load()
	number := b.next / chunkSize
	if old != nil && old.number == number {
		return old
	}
	if old != nil && !old.retire(now-b.o.Grace) {
		return nil
	}
	place.Store(&chunk{number: number})
	b.forgetLocked(now)
	return place.Load()
}

// forgetLocked frees the chunks that are over.
func (b *Book) forgetLocked(now int64) {
	current := b.next / chunkSize
	for i := range b.ring {
		c := b.ring[i].Load()
		if c != nil && c.number != current && c.retire(now-b.o.Grace) {
			b.ring[i].Store(nil)
		}
	}
}

// retire reports whether nothing is due of a full chunk since before then.
func (c *chunk) retire(then int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used == chunkSize && c.open == 0 && c.newest < then
}

// find locks the chunk of a command that is still kept. Unlock it with c.mu.Unlock.
func (b *Book) find(seq uint64) (c *chunk, e *entry) {
	number := seq / chunkSize
	c = b.ring[number%uint64(len(b.ring))].Load()
	if c == nil || c.number != number {
		return nil, nil
	}
	c.mu.Lock()
	if int(seq%chunkSize) >= c.used {
		c.mu.Unlock()
		return nil, nil
	}
	return c, &c.entries[seq%chunkSize]
}

// settleLocked closes an entry that became settled; the caller holds the chunk's lock.
func (b *Book) settleLocked(c *chunk, e *entry, before bool, now int64) {
	if !before && e.settled() {
		c.open--
		c.newest = max(c.newest, now)
		b.add(settledCount)
	}
}

// Opened is the number of commands entered; Settled of those that nothing is due of.
func (b *Book) Opened() uint64 { return b.counts[opened].Load() }

// Settled is the number of commands that nothing more is due of.
func (b *Book) Settled() uint64 { return b.counts[settledCount].Load() }
