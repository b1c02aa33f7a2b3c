package ledger

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Fault is a kind of thing that cannot be when the gateway does what PROTOCOL.md says.
type Fault int

// The faults.
const (
	Lost           Fault = iota // accepted, and nobody knows how it ended
	Untold                      // it ended, and its channel was never told
	Uncalled                    // it ended, and its callback never came
	EndedTwice                  // two final notices on one channel
	CalledTwice                 // a final callback came again after it was confirmed
	AfterFinal                  // progress after the end
	Disorder                    // progress out of order, or twice
	ProgressLost                // a progress step was never told
	Overtaken                   // a later command of one source and priority arrived first
	DeliveredTwice              // one command came twice to one session, or to an edge without dedupe
	Misrouted                   // it came to an edge that does not have the device
	Altered                     // its bytes, or those of its answer, changed
	Contradiction               // two notices that exclude each other
	Foreign                     // about a command that was never sent
	faultKinds
)

var faultNames = [faultKinds]struct{ name, meaning string }{
	{"lost", "accepted, and the gateway does not know how it ended"},
	{"untold", "ended, and its sender was never told"},
	{"uncalled", "ended, and its callback never came"},
	{"ended twice", "a second final notice came for one command"},
	{"called twice", "a final callback came again after it was confirmed"},
	{"after the final", "progress was told after the end"},
	{"out of order", "progress came out of order or twice"},
	{"progress lost", "a progress step of the device was never told"},
	{"overtaken", "a later command of one sender and priority arrived first"},
	{"delivered twice", "a command came to its edge a second time"},
	{"misrouted", "a command came to an edge that does not have its device"},
	{"altered", "the bytes of a command or of its answer changed"},
	{"contradiction", "two notices that exclude each other"},
	{"foreign", "a notice about a command that was never sent"},
}

func (f Fault) String() string { return faultNames[f].name }

// samplesMax bounds the faults that are kept as text.
const samplesMax = 20

type faults struct {
	counts  [faultKinds]atomic.Uint64
	mu      sync.Mutex
	samples []string
}

func (b *Book) fault(f Fault, seq uint64, what string) {
	b.Fault(f, string(b.AppendRef(nil, seq)), what)
}

// Fault enters what a party saw that the book itself cannot see: Altered, Misrouted, Foreign.
func (b *Book) Fault(f Fault, ref, what string) {
	b.faults.counts[f].Add(1)
	b.faults.mu.Lock()
	defer b.faults.mu.Unlock()
	if len(b.faults.samples) < samplesMax {
		s := fmt.Sprintf("%s: %s", f, ref)
		if what != "" {
			s += " (" + what + ")"
		}
		b.faults.samples = append(b.faults.samples, s)
	}
}

// Faults is the number of faults of a kind so far.
func (b *Book) Faults(f Fault) uint64 { return b.faults.counts[f].Load() }

// breaks remembers when a source last lost its connection: a notice over WebSocket may
// be lost with it (PROTOCOL.md section 9), so what it had sent until then is asked for.
type breaks struct {
	any atomic.Bool
	mu  sync.Mutex
	at  map[uint16]int64
}

// Broken notes that a source lost its connection now.
func (b *Book) Broken(source uint16, now int64) {
	b.breaks.any.Store(true)
	b.breaks.mu.Lock()
	defer b.breaks.mu.Unlock()
	if b.breaks.at == nil {
		b.breaks.at = map[uint16]int64{}
	}
	b.breaks.at[source] = now
}

// EdgeBroken notes that an edge or device lost its connection: progress may be lost.
func (b *Book) EdgeBroken() { b.breaks.any.Store(true) }

func (b *Book) brokenAfter(source uint16, intended int64) bool {
	b.breaks.mu.Lock()
	defer b.breaks.mu.Unlock()
	at, ok := b.breaks.at[source]
	return ok && at >= intended
}

// Order watches the order in which the commands of each source come to one edge; it
// belongs to the edge's goroutine. A gateway hands them on first come first served
// within a priority (PROTOCOL.md section 3).
type Order struct {
	last [][High + 1]uint64 // by source; number + 1
}

// Reset forgets what came before: after a new registration commands are sent again.
func (o *Order) Reset() { clear(o.last) }

// Arrived checks one command against those before it.
func (o *Order) Arrived(b *Book, seq uint64) {
	c, e := b.find(seq)
	if c == nil {
		return
	}
	source, priority := int(e.source), e.priority
	c.mu.Unlock()
	if source == ManySenders {
		return
	}
	for source >= len(o.last) {
		o.last = append(o.last, [High + 1]uint64{})
	}
	last := &o.last[source][priority]
	if seq+1 < *last {
		b.fault(Overtaken, seq, "")
		return
	}
	*last = seq + 1
}
