package callback

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"subway/core/wire"
)

// Journal is a log on stable storage (PROTOCOL.md section 9). Its methods may be called
// from any goroutine and must not block.
type Journal interface {
	// Append adds a record, copied, and returns its mark. Marks never fall.
	Append(kind byte, rec []byte) (mark uint64)
	// Appended is the mark of what was journalled last.
	Appended() uint64
	// Stored is the mark up to which all is on stable storage.
	Stored() uint64
}

// The kinds of records that an Outbox journals. Each concerns a final notice, by a number
// that the notice has for good; progress is not journalled.
const (
	kindNotice byte = 64 + iota // it is to be delivered
	kindDone                    // it was, or is forgotten
	kindDead                    // it is a dead letter
	kindAgain                   // which is sent again
	kindEnd
)

// Journalled reports whether records of this kind are an Outbox's.
func Journalled(kind byte) bool { return kind >= kindNotice && kind < kindEnd }

// Describe names the kind of a record that an Outbox journalled, and says in a line, for
// people, what it is about; "" for what is none or makes no sense.
func Describe(kind byte, rec []byte) (name, line string) {
	if !Journalled(kind) {
		return "", ""
	}
	name = [...]string{"callback", "callback_done", "callback_dead", "callback_again"}[kind-kindNotice]
	switch {
	case kind == kindNotice && len(rec) > noticeHead:
		le := binary.LittleEndian
		urlLen, refLen := int(le.Uint32(rec[noticeURL:])), int(le.Uint32(rec[noticeRef:]))
		if b := rec[noticeHead:]; urlLen >= 0 && refLen >= 0 && urlLen+refLen <= len(b) {
			t, _ := parseURL(b[:urlLen])
			line = fmt.Sprintf("%d: %s to %s", le.Uint64(rec), b[urlLen:urlLen+refLen], t.authority)
		}
	case kind != kindNotice && len(rec) >= 11 && len(rec) >= 11+int(rec[10]):
		line = fmt.Sprintf("%d: %s, %d attempts", binary.LittleEndian.Uint64(rec), rec[11:11+int(rec[10])], rec[9])
		if why := rec[11+int(rec[10]):]; len(why) > 0 {
			line += ": " + string(why)
		}
	}
	return name, line
}

// A record of a notice is a head and its URL, ref and body. All numbers are little-endian.
const (
	noticeNumber  = 0 // uint64
	noticeCreated = 8
	noticeURL     = 16 // uint32, lengths
	noticeRef     = 20
	noticeHead    = 24
)

// noteLocked journals a final notice and returns the mark.
func (o *Outbox) noteLocked(n *notice) uint64 {
	var head [noticeHead]byte
	le := binary.LittleEndian
	le.PutUint64(head[noticeNumber:], n.number)
	le.PutUint64(head[noticeCreated:], uint64(n.created))
	le.PutUint32(head[noticeURL:], uint32(n.urlLen))
	le.PutUint32(head[noticeRef:], uint32(n.refLen))
	o.rec = append(append(o.rec[:0], head[:]...), n.data...)
	mark := o.opt.Journal.Append(kindNotice, o.rec)
	if cap(o.rec) > 64<<10 {
		o.rec = nil
	}
	return mark
}

// fateLocked journals what became of a final notice.
func (o *Outbox) fateLocked(kind byte, n *notice, state uint8, lastError string) {
	if o.opt.Journal == nil || n.number == 0 {
		return
	}
	b := binary.LittleEndian.AppendUint64(o.rec[:0], n.number)
	b = append(b, state, byte(min(n.attempts, 255)), byte(min(n.refLen, 255)))
	o.rec = append(append(b, n.ref()...), lastError...)
	o.opt.Journal.Append(kind, o.rec)
}

// heldNotice is a notice that waits until what it tells of is on stable storage.
type heldNotice struct {
	n    *notice
	mark uint64
}

// holdLocked keeps m back if it has to wait, and reports whether it does. Beyond the bound
// of what is retained a progress is dropped and a final notice becomes a dead letter.
func (o *Outbox) holdLocked(m *notice) bool {
	j := o.opt.Journal
	var mark uint64
	if m.final {
		o.numbers++
		m.number = o.numbers
		mark = o.noteLocked(m)
	} else {
		mark = j.Appended()
	}
	if mark <= j.Stored() && len(o.held) == 0 {
		return false
	}
	if o.bytes+o.heldBytes+m.size() > o.opt.MaxBytes {
		o.counts[Full]++
		if m.final {
			o.buryLocked(m, fmt.Sprintf("%d bytes of callbacks wait for the journal, no room for %d more", o.heldBytes, m.size()))
		} else {
			m.free()
		}
		return true
	}
	o.held = append(o.held, heldNotice{m, mark})
	o.heldBytes += m.size()
	return true
}

// Stored says that Options.Journal has come further: what waited for it is sent. It takes
// the Outbox's lock and does not block.
func (o *Outbox) Stored() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.letGoLocked(o.opt.Journal.Stored())
}

func (o *Outbox) letGoLocked(stored uint64) {
	n := 0
	for ; n < len(o.held) && o.held[n].mark <= stored; n++ {
		m := o.held[n].n
		o.held[n].n = nil
		o.heldBytes -= m.size()
		t, _ := parseURL(m.url()) // it was good before
		o.takeInLocked(m, &t)
	}
	if o.held = o.held[n:]; len(o.held) == 0 {
		o.held = nil
		o.checkDrainedLocked()
	}
}

// Checkpoint journals all final notices anew that were not confirmed, dead letters
// included. It calls wait now and then, with no lock held, and ends where that returns
// false. One goroutine at a time.
func (o *Outbox) Checkpoint(wait func() bool) bool {
	o.mu.Lock()
	hosts := make([]*host, 0, len(o.hosts))
	for _, h := range o.hosts {
		hosts = append(hosts, h)
	}
	for _, h := range o.held {
		if h.n.final {
			o.noteLocked(h.n)
		}
	}
	o.mu.Unlock()
	for _, h := range hosts {
		if !wait() {
			return false
		}
		o.mu.Lock()
		for _, f := range h.lanes {
			for n := f.notices.head; n != nil; n = n.order.next {
				if n.final && n.number != 0 {
					o.noteLocked(n)
				}
			}
		}
		o.mu.Unlock()
	}
	for after, more := uint64(0), true; more; {
		if !wait() {
			return false
		}
		after, more = o.checkpointDead(after)
	}
	return wait()
}

// checkpointDead journals some dead letters that follow the one of this serial.
func (o *Outbox) checkpointDead(after uint64) (last uint64, more bool) {
	const some = 64
	o.mu.Lock()
	defer o.mu.Unlock()
	letters := o.dead.letters[o.dead.at(after+1):]
	for _, n := range letters[:min(len(letters), some)] {
		after = n.dead.serial
		if n.number != 0 {
			o.noteLocked(n)
			o.fateLocked(kindDead, n, Dead, n.dead.LastError)
		}
	}
	return after, len(letters) > some
}

// restoring is what is known while the records of a journal are taken in.
type restoring struct {
	notices map[uint64]*restored
	last    uint64
	deaths  int
}

// restored is a final notice as far as the records go that were read.
type restored struct {
	data           []byte
	urlLen, refLen int
	created        wire.Time
	dead           int // the order of its death; 0: it is none
	attempts       int
	lastError      string
}

var errShort = errors.New("the record is too short")

// Restore takes in a record that an Outbox journalled, in the order of the journal and
// before anything else is done with the Outbox; Restored ends that. track returns the
// Tracker of a ref's final notice, or nil. One goroutine.
func (o *Outbox) Restore(kind byte, rec []byte, track func(ref []byte) Tracker) error {
	x := o.restore
	if x == nil {
		x = &restoring{notices: map[uint64]*restored{}}
		o.restore = x
	}
	if len(rec) < 11 {
		return errShort
	}
	le := binary.LittleEndian
	number := le.Uint64(rec)
	x.last = max(x.last, number)
	if kind == kindNotice {
		if len(rec) < noticeHead {
			return errShort
		}
		urlLen, refLen := int(le.Uint32(rec[noticeURL:])), int(le.Uint32(rec[noticeRef:]))
		if urlLen < 0 || refLen < 0 || len(rec)-noticeHead < urlLen+refLen {
			return errShort
		}
		x.notices[number] = &restored{
			data: append([]byte(nil), rec[noticeHead:]...), urlLen: urlLen, refLen: refLen,
			created: wire.Time(le.Uint64(rec[noticeCreated:])),
		}
		return nil
	}
	state, attempts, refLen := rec[8], int(rec[9]), int(rec[10])
	if len(rec) < 11+refLen {
		return errShort
	}
	n := x.notices[number]
	switch kind {
	case kindDone:
		delete(x.notices, number)
		if t := track(rec[11 : 11+refLen]); t != nil {
			t.SetCallback(state, attempts)
		}
	case kindDead:
		if n != nil {
			x.deaths++
			n.dead, n.attempts, n.lastError = x.deaths, attempts, string(rec[11+refLen:])
		}
	case kindAgain:
		if n != nil {
			n.dead, n.attempts = 0, 0
		}
	default:
		return fmt.Errorf("kind %d is not known", kind)
	}
	return nil
}

// Restored ends the restoring: dead letters are there again, and what was not confirmed is
// sent, in the order in which it came. It returns how many notices that are.
func (o *Outbox) Restored(track func(ref []byte) Tracker) (pending, dead int) {
	x := o.restore
	o.restore = nil
	if x == nil {
		return 0, 0
	}
	numbers := slices.Sorted(maps.Keys(x.notices))
	slices.SortStableFunc(numbers, func(a, b uint64) int { return cmp.Compare(x.notices[a].dead, x.notices[b].dead) })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.numbers = x.last
	for _, number := range numbers {
		r := x.notices[number]
		m := &notice{data: r.data, urlLen: r.urlLen, refLen: r.refLen, final: true, created: r.created, number: number}
		t, err := parseURL(m.url())
		if err != nil {
			continue // of a build that took more
		}
		m.restAt, m.restEnd = t.restAt, t.restAt+len(t.rest)
		m.track = track(m.ref())
		if r.dead > 0 {
			m.attempts = r.attempts
			o.keepDeadLocked(m, r.lastError)
			dead++
			continue
		}
		pending++
		m.tell(Pending)
		o.takeInLocked(m, &t)
	}
	return pending, dead
}
