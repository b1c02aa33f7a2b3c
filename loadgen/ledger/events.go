package ledger

import "hash/fnv"

// Accepted notes that the gateway accepted a command (COMMAND_ACK, HTTP 200).
func (b *Book) Accepted(seq uint64) {
	if c, e := b.find(seq); c != nil {
		if e.marks&accepted == 0 {
			e.marks |= accepted
			b.add(acceptedCount)
		}
		c.mu.Unlock()
	}
}

// Doubtful notes that the sender of a command got no answer, or one that says nothing of
// its end: the connection broke, or the time it waited ran out. It will be asked for.
func (b *Book) Doubtful(seq uint64) {
	if c, e := b.find(seq); c != nil {
		e.marks |= doubtful
		c.mu.Unlock()
	}
}

// Unsent takes a command back that never left, because its connection was gone.
func (b *Book) Unsent(seq uint64, now int64) {
	if c, e := b.find(seq); c != nil {
		before := e.settled()
		e.marks |= unsent
		b.add(unsentCount)
		if e.marks&wantsCallback != 0 {
			b.counts[callbacksDue].Add(^uint64(0))
		}
		b.settleLocked(c, e, before, now)
		c.mu.Unlock()
	}
}

// Arrival is a command as it came to an edge or a direct device.
type Arrival struct {
	Seq     uint64
	Target  uint32 // the device it is for
	Owned   bool   // that device is here
	Dedupe  bool   // the edge says that it recognises a ref
	Session uint16 // of the edge: another number after each registration
}

// Arrived notes a delivery. again is true when the command was here before: a dedupe
// edge must not run it again; answered is what the device said then, if it did.
func (b *Book) Arrived(a Arrival) (again bool, answered Outcome) {
	c, e := b.find(a.Seq)
	if c == nil {
		if a.Seq < b.Opened() {
			b.add(lateDeliveries) // after the grace: too old to be judged
			return true, Unknown
		}
		b.fault(Foreign, a.Seq, "delivered, never sent")
		return true, Unknown
	}
	defer c.mu.Unlock()
	if a.Target != e.target || !a.Owned {
		b.fault(Misrouted, a.Seq, "")
	}
	if e.final == Refused {
		b.fault(Contradiction, a.Seq, "delivered though refused")
	}
	again = e.marks&delivered != 0
	if again {
		b.add(redelivered)
		if !b.o.Repeats && (!a.Dedupe || e.session == a.Session) {
			b.fault(DeliveredTwice, a.Seq, "")
		}
	} else {
		b.add(deliveredCount)
	}
	e.marks |= delivered
	e.session = a.Session
	return again, e.answered
}

// Stepped notes that the device sent a progress step, numbered from 0.
func (b *Book) Stepped(seq uint64, step int) {
	if c, e := b.find(seq); c != nil {
		e.sent = max(e.sent, uint16(step+1))
		b.add(progressSent)
		c.mu.Unlock()
	}
}

// Answered notes what the device is about to answer, before it is sent.
func (b *Book) Answered(seq uint64, o Outcome) {
	if c, e := b.find(seq); c != nil {
		e.answered = o
		b.add(answeredCount)
		c.mu.Unlock()
	}
}

// Progress notes a progress step told on the channel.
func (b *Book) Progress(seq uint64, step int) {
	b.add(progressTold)
	c, e := b.find(seq)
	if c == nil {
		b.forgotten(seq, AfterFinal, "progress")
		return
	}
	defer c.mu.Unlock()
	switch at := uint16(step + 1); {
	case e.final != Unknown:
		b.fault(AfterFinal, seq, "progress")
	case at <= e.told:
		b.fault(Disorder, seq, "progress")
	case at > e.sent:
		b.fault(Contradiction, seq, "progress that no device sent")
	default:
		if at != e.told+1 && !b.breaks.any.Load() {
			b.fault(ProgressLost, seq, "")
		}
		e.told = at
	}
}

// Final notes the end of a command as its channel told it to source, and returns the time
// from the intended instant and the command's priority, with first set when this was
// the first time.
func (b *Book) Final(seq uint64, source uint16, o Outcome, now int64) (latency int64, p Priority, first bool) {
	c, e := b.find(seq)
	if c == nil {
		b.forgotten(seq, EndedTwice, "final")
		return 0, 0, false
	}
	defer c.mu.Unlock()
	if source != e.source {
		b.fault(Foreign, seq, "told to a Backend that did not send it")
		return 0, 0, false
	}
	if e.final != Unknown {
		b.fault(EndedTwice, seq, e.final.String()+", then "+o.String())
		return 0, 0, false
	}
	b.judge(seq, e, o)
	if o == Refused && e.marks&delivered != 0 {
		b.fault(Contradiction, seq, "refused though delivered")
	}
	if o == Completed && e.told < e.sent && !b.breaks.any.Load() {
		b.fault(ProgressLost, seq, "")
	}
	before := e.settled()
	e.final = o
	b.ends[o].Add(1)
	b.add(toldCount)
	if o == Refused && e.marks&wantsCallback != 0 {
		b.counts[callbacksDue].Add(^uint64(0))
	}
	b.settleLocked(c, e, before, now)
	return now - e.intended, e.priority, true
}

// judge compares an end with what the device said and what the other way told.
func (b *Book) judge(seq uint64, e *entry, o Outcome) {
	if (o == Completed || o == Failed) && e.answered != o && e.answered != Unknown {
		b.fault(Contradiction, seq, "the device said "+e.answered.String()+", told was "+o.String())
	}
	if (o == Completed || o == Failed) && e.answered == Unknown {
		b.fault(Contradiction, seq, o.String()+", though no device answered")
	}
	for _, other := range [...]Outcome{e.final, e.callback} {
		if other != Unknown && other != o {
			b.fault(Contradiction, seq, "two ends: "+other.String()+" and "+o.String())
		}
	}
}

// CallbackProgress notes a progress step told by callback. Steps may be left out
// (a newer notice replaces one that waits for its retry), never come out of order.
func (b *Book) CallbackProgress(seq uint64, step int, again bool) {
	b.add(callbackProgress)
	c, e := b.find(seq)
	if c == nil {
		b.forgotten(seq, AfterFinal, "progress by callback")
		return
	}
	defer c.mu.Unlock()
	switch at := uint16(step + 1); {
	case e.callback != Unknown:
		b.fault(AfterFinal, seq, "progress by callback")
	case at < e.called || at == e.called && !again && !b.o.Repeats:
		b.fault(Disorder, seq, "progress by callback")
	default:
		e.called = at
	}
}

// CallbackFinal notes the end of a command as a callback told it. id is its
// X-Callback-Id; confirm says that it was answered with 2xx.
func (b *Book) CallbackFinal(seq uint64, o Outcome, id []byte, confirm bool, now int64) (latency int64, first bool) {
	h := fnv.New32a()
	_, _ = h.Write(id)
	c, e := b.find(seq)
	if c == nil {
		if b.o.Repeats && seq < b.Opened() {
			b.add(callbackRepeats) // a gateway that was killed may come back later than the grace
			return 0, false
		}
		b.forgotten(seq, CalledTwice, "callback")
		return 0, false
	}
	defer c.mu.Unlock()
	if e.marks&wantsCallback == 0 {
		b.fault(Foreign, seq, "a callback nobody asked for")
		return 0, false
	}
	if e.callback != Unknown {
		b.repeatLocked(seq, e, o, h.Sum32())
		if confirm {
			e.marks |= confirmed
		}
		return 0, false
	}
	b.judge(seq, e, o)
	before := e.settled()
	if e.marks&wantsTold == 0 {
		b.ends[o].Add(1)
	}
	e.callback, e.id = o, h.Sum32()
	if confirm {
		e.marks |= confirmed
	}
	b.add(callbacksEnded)
	b.settleLocked(c, e, before, now)
	return now - e.intended, true
}

func (b *Book) repeatLocked(seq uint64, e *entry, o Outcome, id uint32) {
	b.add(callbackRepeats)
	switch {
	case o != e.callback:
		b.fault(Contradiction, seq, "two ends by callback: "+e.callback.String()+" and "+o.String())
	case id != e.id:
		b.fault(CalledTwice, seq, "under another X-Callback-Id")
	case e.marks&confirmed != 0 && !b.o.Repeats:
		b.fault(CalledTwice, seq, "after it was confirmed")
	}
}

// forgotten judges a notice about a command that is not in the book: one that ended
// longer than the grace ago, or that was never sent.
func (b *Book) forgotten(seq uint64, f Fault, what string) {
	if seq >= b.Opened() {
		f, what = Foreign, what+" of a command never sent"
	}
	b.fault(f, seq, what)
}
