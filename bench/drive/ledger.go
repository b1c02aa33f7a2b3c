package drive

// ledger is the book of one source's commands in flight: a bounded set of slots, each used again and again under a rising
// sequence number. A ref names source, slot and sequence, so a response settles exactly one command, exactly once.
type ledger struct {
	slots []slot
	free  []int32
}

type slot struct {
	sequence uint64
	started  int64 // loop nanoseconds; what latency is counted from
	open     bool
}

func newLedger(window int) ledger {
	b := ledger{slots: make([]slot, window), free: make([]int32, window)}
	for i := range b.free {
		b.free[i] = int32(window - 1 - i)
	}
	return b
}

// open takes a free slot; there must be one.
func (b *ledger) open(started int64) (index int, sequence uint64) {
	last := len(b.free) - 1
	i := b.free[last]
	b.free = b.free[:last]
	s := &b.slots[i]
	s.sequence++
	s.started = started
	s.open = true
	return int(i), s.sequence
}

// settle ends the command and returns when it started. ok is false when no such command is open: an unknown ref or a second
// answer.
func (b *ledger) settle(index int, sequence uint64) (started int64, ok bool) {
	if index < 0 || index >= len(b.slots) {
		return 0, false
	}
	s := &b.slots[index]
	if !s.open || s.sequence != sequence {
		return 0, false
	}
	s.open = false
	b.free = append(b.free, int32(index))
	return s.started, true
}
