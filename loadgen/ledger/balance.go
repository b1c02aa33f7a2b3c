package ledger

// Open is a command of which something is due.
type Open struct {
	Seq                          uint64
	Source                       uint16
	Intended                     int64
	Told, Callback               bool // what is due
	Accepted, Delivered, Excused bool // Excused: its sender lost its connection since
}

// Unsettled lists the commands of which something is due, oldest first, at most so many.
// Call it when nothing is sent any more.
func (b *Book) Unsettled(most int) []Open {
	var list []Open
	b.mu.Lock()
	next := b.next
	b.mu.Unlock()
	first := uint64(0)
	if span := uint64(len(b.ring)) * chunkSize; next > span {
		first = next - span
	}
	for seq := first; seq < next && len(list) < most; seq++ {
		c, e := b.find(seq)
		if c == nil {
			seq |= chunkSize - 1 // the whole chunk is settled
			continue
		}
		if !e.settled() {
			list = append(list, Open{
				Seq: seq, Source: e.source, Intended: e.intended,
				Told: e.marks&wantsTold != 0 && e.final == Unknown, Callback: e.marks&wantsCallback != 0 && e.callback == Unknown,
				Accepted: e.marks&accepted != 0 || e.told > 0, Delivered: e.marks&delivered != 0,
				Excused: e.marks&doubtful != 0,
			})
		}
		c.mu.Unlock()
	}
	for i := range list {
		list[i].Excused = list[i].Excused || b.brokenAfter(list[i].Source, list[i].Intended)
	}
	return list
}

// Asked enters what the gateway said of an open command when it was asked (GET
// /api/commands/{ref}) after everything had had its time. found is false for 404.
func (b *Book) Asked(o Open, end Outcome, found bool, now int64) {
	ref := o.Seq
	b.add(askedCount)
	switch {
	case !found && (o.Accepted || o.Delivered):
		b.fault(Lost, ref, "unknown to the gateway")
	case !found && !o.Excused:
		b.fault(Lost, ref, "sent on a connection that stood, and unknown to the gateway")
	case !found:
		b.add(neverAccepted)
	case end == Unknown:
		b.fault(Lost, ref, "not final after its time")
	case o.Told && !o.Excused:
		b.fault(Untold, ref, end.String())
	case o.Callback:
		b.fault(Uncalled, ref, end.String())
	}
	c, e := b.find(o.Seq)
	if c == nil {
		return
	}
	defer c.mu.Unlock()
	if e.settled() {
		return
	}
	if found && end != Unknown {
		b.judge(o.Seq, e, end)
		if e.final == Unknown && e.callback == Unknown {
			b.ends[end].Add(1)
		}
	}
	before := e.settled()
	e.marks = e.marks &^ (wantsTold | wantsCallback)
	b.settleLocked(c, e, before, now)
}

// Unasked enters an open command that could not be asked about.
func (b *Book) Unasked(o Open) { b.fault(Lost, o.Seq, "the gateway could not be asked") }

// Line is a row of the closed books.
type Line struct {
	Name, Meaning string
	Count         uint64
	OK            bool // false: this count must be 0 and is not, or a sum does not add up
}

// NotSent is the row of what the generator could not send. A caller adds what it never
// entered in the book.
const NotSent = "not sent"

// Balance closes the books: the rows, whether they balance, and samples of what does not.
func (b *Book) Balance() (lines []Line, balanced bool, samples []string) {
	n := func(c counter) uint64 { return b.counts[c].Load() }
	row := func(name string, count uint64, meaning string) {
		lines = append(lines, Line{Name: name, Count: count, Meaning: meaning, OK: true})
	}
	sent := n(opened) - n(unsentCount)
	row("sent", sent, "commands that were sent")
	ends := n(neverAccepted)
	for o := Completed; o < outcomes; o++ {
		count := b.ends[o].Load()
		ends += count
		row(o.String(), count, "ended so")
	}
	row("never accepted", n(neverAccepted), "lost with a connection before they were accepted; no trace at the gateway or any edge")
	row("told when asked", n(askedCount), "their notice did not come; the gateway was asked")
	row("delivered", n(deliveredCount), "commands that reached their edge")
	row("delivered again", n(redelivered), "sent again to a returning edge")
	row("delivered late", n(lateDeliveries), "reached their edge after they had ended and were forgotten here")
	row("of other runs", n(strays), "notices about commands of another run, left at the gateway when it was cut off")
	row("progress sent", n(progressSent), "progress steps the devices sent")
	row("progress told", n(progressTold), "progress steps told to Backends; who posts a command hears of them by callback")
	row("callbacks due", n(callbacksDue), "final callbacks that had to come")
	row("callbacks", n(callbacksEnded), "final callbacks that came")
	row("callback repeats", n(callbackRepeats), "came again, which is allowed until one is confirmed")
	row(NotSent, n(fullCount)+n(unsentCount), "the generator could not send them: its book was full or the connection gone")
	balanced = sent == ends
	lines = append(lines, Line{Name: "sent = ended", Count: ends, Meaning: "every command that was sent has exactly one end", OK: balanced})
	for f := range faultKinds {
		count := b.Faults(f)
		if count > 0 {
			balanced = false
		}
		lines = append(lines, Line{Name: f.String(), Count: count, Meaning: faultNames[f].meaning, OK: count == 0})
	}
	b.faults.mu.Lock()
	defer b.faults.mu.Unlock()
	return lines, balanced, append([]string(nil), b.faults.samples...)
}
