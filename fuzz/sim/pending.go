package sim

import (
	"encoding/binary"
	"slices"

	"subway/core/router"
)

// The kinds of records of the outbox. Each is the number of a final notice.
const (
	kindNotice = router.KindOther + iota // it is to be delivered
	kindDone                             // it was, or is given up
)

// journal journals a notice, where it is a final one, and says what it has to wait for.
func (o *outbox) journal(x *notice) {
	d := o.w.disk
	if d == nil {
		return
	}
	if c := o.w.book.commands[x.ref]; c != nil {
		x.tells = tells{c: c, ended: x.final}
	}
	if x.mark = d.appended(); x.final {
		o.log = append(o.log, x)
		x.number = len(o.log)
		x.mark = o.append(kindNotice, x)
		x.at = d.count()
	}
}

func (o *outbox) append(kind byte, x *notice) (mark uint64) {
	return o.w.disk.Append(kind, binary.LittleEndian.AppendUint64(nil, uint64(x.number)))
}

// done journals that nothing more is to be done for a notice.
func (o *outbox) done(x *notice) {
	if x.number > 0 {
		o.append(kindDone, x)
		o.w.book.endCall()
	}
}

// checkpoint journals anew what is to be delivered.
func (o *outbox) checkpoint() {
	for _, x := range o.log {
		if slices.Contains(o.lanes[x.ref], x) {
			o.append(kindNotice, x)
		}
	}
}

// lost takes those notices out whose record is behind so many that are left, and returns them.
func (o *outbox) lost(records int) (all []*notice) {
	for _, x := range o.log {
		if x.at > records {
			x.at = 0
			all = append(all, x)
		}
	}
	return all
}

// restore takes in a record.
func (o *outbox) restore(kind byte, rec []byte) {
	x := o.log[binary.LittleEndian.Uint64(rec)-1]
	switch i := slices.Index(o.again, x); {
	case kind == kindNotice && i < 0:
		o.again = append(o.again, x)
	case kind == kindDone && i >= 0:
		o.again = slices.Delete(o.again, i, i+1)
	}
}

// restored makes again what was not confirmed.
func (o *outbox) restored(g *gateway) {
	for _, x := range o.again {
		x.attempts, x.mark, x.tells = 0, 0, tells{}
		x.track = g.router.TrackOf([]byte(x.ref))
		o.w.note("callback again %s %s", x.ref, x.word)
		o.queue(x)
	}
	o.again = nil
}
