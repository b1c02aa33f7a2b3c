package router

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"subway/core/wire"
)

// State is where a command is in its life (PROTOCOL.md section 4).
type State uint8

// The states; those from Completed on are final.
const (
	Pending State = iota
	Dispatched
	InProgress
	Completed
	Failed
	TimedOut
	Cancelled
	numStates
)

var stateNames = [numStates]string{"PENDING", "DISPATCHED", "IN_PROGRESS", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}

func (s State) String() string { return stateNames[s] }

// Final reports whether s ends a command's life.
func (s State) Final() bool { return s >= Completed }

// ParseState reads a state's name as section 6 writes it.
func ParseState(name string) (State, bool) {
	for i, n := range stateNames {
		if n == name {
			return State(i), true
		}
	}
	return 0, false
}

// place says which list of its edge holds a record.
type place uint8

const (
	placeNone place = iota
	placeQueue
	placeReplay
	placeFlight
	placeArrived
	placeHand // taken out by the goroutine that is handing it over
)

// record is a command in flight, from its acceptance until its end; what is kept of it
// afterwards is bytes in the archive. Its shard's lock guards it, but for the list links
// and place, which its edge's lock guards. Records are recycled: seq tells one life from
// the next.
type record struct {
	wprev, wnext *record // slot of the wheel
	qprev, qnext *record // list of the edge
	dprev, dnext *record // those that wait for the device

	hash     uint64
	seq      uint64 // order of acceptance
	shard    *shard
	slot     int32 // of the wheel, -1: none
	place    place
	priority wire.Priority
	state    State
	queued   bool // in hand, it still counts among those that wait
	kept     bool // msg holds the message

	// edge is the one that it waits for or was handed to. It is written with that
	// edge's lock held, and with the old one's where it moves.
	edge     atomic.Pointer[edge]
	dev      *device  // its target
	source   *backend // nil: HTTP
	counters *typeCounters
	track    *Delivery // of its final callback; nil: it has none
	past     *past     // of one that was read back from the archive

	timeoutMs  int64
	deadline   wire.Time
	created    wire.Time
	handed     wire.Time // to the edge's connection; 0: not yet
	progressed wire.Time // last progress; 0: none
	ended      wire.Time
	updated    wire.Time
	stored     wire.Time // deadline as it was journalled last

	// mem holds requestRef, commandType and callback URL one after the other.
	mem             []byte
	refLen, typeLen int
	msg             []byte  // the COMMAND as it is sent, while it may have to be sent (again)
	large           *buffer // what msg is in, where that is more than keepCap
	msgLen          int     // stays when msg goes
	progress        []byte  // JSON of the last progress
	waiter          *Waiter // told of the end, made by the first who waits

	at   spot   // where its ended form stands, once it is concluded
	full bool   // more ended records are kept than may be
	mark uint64 // in the journal, of its acceptance, then of its end; 0: none, or of another process

	// JSON, of its end. Until it is concluded they are borrowed from whoever ends it.
	result, errorJSON, execution []byte
}

func (rec *record) ref() []byte         { return rec.mem[:rec.refLen] }
func (rec *record) commandType() []byte { return rec.mem[rec.refLen : rec.refLen+rec.typeLen] }
func (rec *record) callback() []byte    { return rec.mem[rec.refLen+rec.typeLen:] }

// keepCap is the capacity up to which a recycled record keeps a buffer. What records in
// flight hold in larger ones counts against Limits.PendingBytes, and so do their messages.
const keepCap = 512

// excess is the memory behind b where that is more than keepCap.
func excess(b []byte) int64 {
	if cap(b) <= keepCap {
		return 0
	}
	return int64(cap(b))
}

// holdMore counts n more bytes as held for commands in flight.
func (r *Router) holdMore(n int64) {
	if n != 0 {
		r.held.Add(n)
	}
}

// emptied returns b without what it holds, or nothing where it is too large to be kept.
func emptied(b []byte) []byte {
	if cap(b) > keepCap {
		return nil
	}
	return b[:0]
}

// buffer is pooled memory for messages of more than keepCap.
type buffer struct{ b []byte }

// bufferPools have buffers by the number of bits of their size, so that no small message
// sits in a large one.
var bufferPools [17]sync.Pool

// newBuffer returns a buffer with room for size bytes.
func newBuffer(size int) *buffer {
	class := bits.Len(uint(size - 1))
	if class >= len(bufferPools) {
		return &buffer{make([]byte, 0, size)}
	}
	if b, ok := bufferPools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, 0, 1<<class)}
}

// free gives the buffer back; one that is larger than any pool's is left to the garbage
// collector.
func (b *buffer) free() {
	if class := bits.Len(uint(cap(b.b) - 1)); class < len(bufferPools) {
		bufferPools[class].Put(b)
	}
}

// clear makes the record ready for another life; all but its empty buffers is zero.
func (rec *record) clear() {
	*rec = record{slot: -1, mem: emptied(rec.mem), msg: emptied(rec.msg), progress: emptied(rec.progress)}
}

// Delivery is the state of a command's final callback. The outbox writes it, readers
// of the record read it; any goroutine.
type Delivery struct{ v atomic.Uint64 }

// The states of a Delivery.
const (
	CallbackPending uint8 = iota
	CallbackDelivered
	CallbackDead
)

// SetCallback stores the state and the number of attempts made so far.
func (d *Delivery) SetCallback(state uint8, attempts int) {
	d.v.Store(uint64(state)<<32 | uint64(uint32(attempts)))
}

// Load returns the state's name as section 6 writes it and the number of attempts.
func (d *Delivery) Load() (state string, attempts int) {
	v := d.v.Load()
	return [...]string{"PENDING", "DELIVERED", "DEAD"}[v>>32], int(uint32(v))
}

// view is Load as the API tells it; d may be nil.
func (d *Delivery) view() *wire.CallbackState {
	if d == nil {
		return nil
	}
	state, attempts := d.Load()
	return &wire.CallbackState{State: state, Attempts: attempts}
}
