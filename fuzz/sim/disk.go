package sim

import (
	"strings"
	"time"

	"subway/core/router"
	"subway/core/wire"
)

// disk is a journal, and what it is stored on. What is appended gathers in groups; those are
// stored one after the other, at times late, and a crash leaves whole groups alone. It is
// of the world, and outlives its gateways.
type disk struct {
	w       *world
	life    int // of the gateway
	base    int // records let go of, from the head
	log     []logged
	group   uint64 // that gathers
	stored  uint64 // groups
	nStored int    // records
	writing bool
	held    bool // what comes belongs to the group that gathers
	refuses bool // for a while; new commands are refused then
	waits   []wait
	marks   []instant
	facts   map[string]*fact
	cutAt   int // how many records the next crash leaves, if that may be; 0: as it comes
}

// logged is a record in the log.
type logged struct {
	kind  byte
	group uint64
	rec   []byte
}

// wait is what is to be done once a mark is stored.
type wait struct {
	mark uint64
	do   func()
}

// instant says what had been appended at a time.
type instant struct {
	at   wire.Time
	mark uint64
}

// fact says where the log first says that a command was accepted, that it ended, and that it
// was refused after all: how many records there were then. It is what may be told of it once
// it is stored.
type fact struct {
	accepted, ended, refused int
	before                   *fact // of the same ref
}

func newDisk(w *world) *disk { return &disk{w: w, group: 1, facts: map[string]*fact{}} }

// count is the number of records that were ever appended and not lost.
func (d *disk) count() int { return d.base + len(d.log) }

// appended is the mark of what was appended last.
func (d *disk) appended() uint64 {
	if n := len(d.log); n > 0 {
		return d.log[n-1].group
	}
	return d.stored
}

// Append implements router.Journal.
func (d *disk) Append(kind byte, rec []byte) (mark uint64) {
	name, _ := router.Describe(kind, rec)
	void := name == "refused" && !d.held
	if !d.held && (d.w.chance(0.1) || void) { // what came before is on its way already
		d.group++
	}
	if void && d.cutAt == 0 && !d.w.calm { // a moment too short to be met otherwise
		d.cutAt = d.count()
		d.w.after(d.w.upTo(time.Millisecond), func() { d.w.gate.crash() })
	}
	d.log = append(d.log, logged{kind, d.group, append([]byte(nil), rec...)})
	d.learn(kind, rec, d.count())
	if !d.writing {
		d.writing = true
		d.later(d.w.upTo(time.Millisecond), d.write)
	}
	return d.group
}

// Hold implements router.Journal.
func (d *disk) Hold() { d.held = true }

// Release implements router.Journal.
func (d *disk) Release() { d.held = false }

// Stored implements router.Journal.
func (d *disk) Stored() uint64 { return d.stored }

// Full implements router.Journal.
func (d *disk) Full() bool { return d.refuses }

// learn notes what a record says of a command.
func (d *disk) learn(kind byte, rec []byte, n int) {
	name, line := router.Describe(kind, rec)
	ref, _, _ := strings.Cut(line, " ")
	f := d.facts[ref]
	switch {
	case name == "accepted" && (f == nil || f.ended+f.refused > 0):
		d.facts[ref] = &fact{accepted: n, before: f}
	case name == "ended" && f != nil && f.ended == 0:
		f.ended = n
	case name == "refused":
		f.refused = n
	}
}

// later does something after a while, unless the gateway crashes before.
func (d *disk) later(after time.Duration, do func()) {
	life := d.life
	d.w.after(after, func() {
		if life == d.life {
			do()
		}
	})
}

// write begins to store what has gathered.
func (d *disk) write() {
	mark := d.group
	d.group++
	latency := d.w.upTo(d.w.plan.store)
	if d.w.calm {
		latency = d.w.upTo(5 * time.Millisecond)
	}
	d.later(latency, func() { d.land(mark) })
}

// land notes that all up to a mark is stored.
func (d *disk) land(mark uint64) {
	if d.refuses {
		d.later(20*time.Millisecond, func() { d.land(mark) })
		return
	}
	d.stored = mark
	for d.nStored < d.count() && d.log[d.nStored-d.base].group <= mark {
		d.nStored++
	}
	d.w.note("the disk has come to %d", d.nStored)
	if d.writing = d.appended() > mark; d.writing {
		d.write()
	}
	waits := d.waits
	d.waits = nil
	for _, x := range waits {
		d.at(x.mark, x.do)
	}
}

// at does something once a mark is stored, unless the gateway crashes before.
func (d *disk) at(mark uint64, do func()) {
	if mark <= d.stored {
		do()
		return
	}
	d.waits = append(d.waits, wait{mark, do})
}

// refuse has nothing be stored for a while.
func (d *disk) refuse(while time.Duration) {
	d.w.note("the disk takes nothing for %v", while)
	d.refuses = true
	d.w.after(while, func() { d.refuses = false })
}

// crash cuts the log at any byte behind what is stored, and what is left then of a group
// that is not whole. It returns how many records there are still.
func (d *disk) crash() (left int) {
	tail, size := d.log[d.nStored-d.base:], 0
	for _, x := range tail {
		size += len(x.rec)
	}
	switch x := d.w.rng.IntN(4); {
	case x == 0:
		size = 0
	case x > 1:
		size = d.w.rng.IntN(size + 1)
	}
	n := 0
	for i, x := range tail {
		if size -= len(x.rec); size < 0 {
			break
		}
		if i+1 == len(tail) || tail[i+1].group != x.group {
			n = i + 1
		}
	}
	if at := d.cutAt - d.nStored; d.cutAt > 0 && at >= 0 && at < len(tail) {
		n = at
	}
	d.log = d.log[:d.nStored-d.base+n]
	d.life++
	d.stored, d.nStored = d.group, d.count()
	d.group++
	d.writing, d.refuses, d.waits, d.marks = false, false, nil, nil
	for ref, f := range d.facts {
		for f != nil && f.accepted > d.nStored {
			f = f.before
		}
		if d.facts[ref] = f; f == nil {
			delete(d.facts, ref)
			continue
		}
		if f.ended > d.nStored {
			f.ended = 0
		}
		if f.refused > d.nStored {
			f.refused = 0
		}
	}
	d.w.note("of the log %d records are left", d.nStored)
	return d.nStored
}

// mark notes, about once a second, what has been appended.
func (d *disk) mark() {
	now := d.w.now
	if n := len(d.marks); n == 0 || now-d.marks[n-1].at >= wire.Time(time.Second) {
		d.marks = append(d.marks, instant{now, d.appended()})
	}
}

// needed returns the mark before which nothing is needed, where what ended since is and
// all that is open came again from begin on.
func (d *disk) needed(since wire.Time, begin uint64) (before uint64) {
	for _, m := range d.marks {
		if m.at <= since {
			before = m.mark
		}
	}
	return min(before, begin)
}

// truncate lets go of the groups before a mark.
func (d *disk) truncate(before uint64) {
	n := 0
	for n < len(d.log) && d.log[n].group < before {
		n++
	}
	d.log = d.log[n:]
	d.base += n
	d.w.note("the log begins at %d", d.base)
}
