package edge

import (
	"bytes"
	"cmp"
	"slices"

	"subway/core/wire"
	"subway/server/edge/store"
)

// What waited for the link leaves in windows. Behind each goes a HEARTBEAT; its
// HEARTBEAT_ACK says that the Gateway has read all before it, for a connection is read in
// order, and only then is it taken from the disk. If the link breaks before, it is sent
// again on the next one: the Gateway counts the second as late.
//
// The same barrier says that answers and status which were sent directly have arrived. The
// answers that are not confirmed when the link breaks are sent again on the next one, in
// their order and before the backlog, and the newest status of each device joins the
// backlog. A Gateway that repeats the command of such an answer after that has gone gets it
// again.

const (
	windowBytes = 1 << 20
	windowReads = 64 // answers read for one window
	barrierWait = wire.Time(1_000_000_000)
	maxBarriers = 4
	maxSpoken   = 16 << 20 // bytes of status and strays that wait for confirmation; more is not sent again
	keepStatus  = 4 << 10  // the largest buffer that a device keeps
)

// barrier is a HEARTBEAT under way and what it confirms.
type barrier struct {
	entries []*entry
	items   []*item
}

// collectUnasked finds the answers that the Gateway may lack, in the order in which they
// were given, to be sent after the REGISTER that is being made. e.mu is held.
func (e *Edge) collectUnasked() {
	e.up.resend = e.up.resend[:0]
	for t := range e.unconfirmed {
		if t.answer > 0 {
			t.unasked = e.up.gen + 1
			e.up.resend = append(e.up.resend, t)
		}
	}
	slices.SortFunc(e.up.resend, func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
}

// spoke notes a status that was sent directly, until a barrier confirms it. e.mu is held.
func (e *Edge) spoke(d *device, msg []byte) {
	u := &e.up
	u.spokenBytes -= len(d.status)
	d.status = d.status[:0]
	if u.spokenBytes+len(msg) > maxSpoken {
		return
	}
	if d.barrier == 0 {
		u.spoken = append(u.spoken, d)
	}
	d.status, d.barrier = append(d.status, msg...), u.sentBarriers+1
	u.spokenBytes += len(msg)
	u.unbarred = true
}

// stray is an answer to a ref that is not known here, sent directly and not confirmed.
type stray struct {
	device, ref string
	msg         []byte
	barrier     int64 // confirms it
}

// strayed notes a stray, until a barrier confirms it. e.mu is held.
func (e *Edge) strayed(device, ref string, msg []byte) {
	u := &e.up
	if u.spokenBytes+len(msg) > maxSpoken {
		return
	}
	u.strays = append(u.strays, stray{device, ref, bytes.Clone(msg), u.sentBarriers + 1})
	u.spokenBytes += len(msg)
	u.unbarred = true
}

// unspeak forgets the status of d: it has arrived, or is in the backlog. e.mu is held.
func (e *Edge) unspeak(d *device) {
	e.up.spokenBytes -= len(d.status)
	if d.status = d.status[:0]; cap(d.status) > keepStatus {
		d.status = nil
	}
}

// heard forgets the status and strays that a barrier confirms. e.mu is held.
func (e *Edge) heard() {
	u := &e.up
	u.reachedBarriers++
	u.strays = slices.DeleteFunc(u.strays, func(s stray) bool {
		if s.barrier > u.reachedBarriers {
			return false
		}
		u.spokenBytes -= len(s.msg)
		return true
	})
	u.spoken = slices.DeleteFunc(u.spoken, func(d *device) bool {
		if d.barrier > u.reachedBarriers {
			return false
		}
		e.unspeak(d)
		d.barrier = 0
		return true
	})
}

// keepSpoken puts the strays and the status that may be lost with the link into the
// backlog. The status that is there of the same device is older. e.mu is held.
func (e *Edge) keepSpoken() {
	u := &e.up
	for _, s := range u.strays {
		e.keepItem(store.Response, s.device, s.ref, s.msg)
		u.spokenBytes -= len(s.msg)
	}
	u.strays = nil
	for _, d := range u.spoken {
		if len(d.status) > 0 && e.devices[d.id] == d {
			e.keepItem(store.Status, d.id, "", d.status)
		}
		e.unspeak(d)
		d.barrier = 0
	}
	u.spoken, u.unbarred, u.sentBarriers, u.reachedBarriers = nil, false, 0, 0
}

// drain sends the next window, if it is its turn. e.mu is held.
func (e *Edge) drain(now wire.Time) {
	u := &e.up
	if !u.registered || !u.draining || u.reading || len(u.barriers) > 0 {
		return
	}
	u.reading = true
	gen := u.gen
	if n := min(len(u.resend), windowReads); n > 0 {
		e.readAnswers(u.resend[:n], gen)
		u.resend = u.resend[n:]
		return
	}
	last := e.backlog.seq
	e.store.ReadItems(u.sentTo, windowBytes, func(items []store.Item, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.up.gen != gen || !e.up.registered {
			return
		}
		e.up.reading = false
		if err != nil {
			e.log.Error("what waits for the link cannot be read", "error", err)
			return // the tick tries again
		}
		if len(items) == 0 {
			e.loseItems(e.up.sentTo, last)
		}
		e.sendItems(items, e.now())
	})
}

// loseItems forgets items that should be in the store and are not: the file was damaged
// under us. e.mu is held.
func (e *Edge) loseItems(after, last int64) {
	for seq, i := range e.backlog.items {
		if seq > after && seq <= last {
			e.log.Error("a message that waited for the link is not in the store any more", "device", i.device, "requestRef", i.ref)
			e.dropItem(i)
		}
	}
	e.up.sentTo = max(after, last)
}

// readAnswers reads the answers to entries and sends them. e.mu is held.
func (e *Edge) readAnswers(entries []*entry, gen int64) {
	for n, t := range entries {
		last := n == len(entries)-1
		e.store.ReadAnswer(t.ref, func(msg []byte, err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.up.gen != gen || !e.up.registered {
				return
			}
			switch {
			case err != nil || msg == nil:
				e.log.Error("an answer cannot be read", "requestRef", t.ref, "error", err)
				t.unasked = 0
			case e.send(msg):
				e.up.sent = append(e.up.sent, t)
				t.unasked = 0
			default:
				e.up.resend = append(e.up.resend, t)
			}
			if last {
				e.up.reading = false
				e.bar(nil, e.now())
				e.settle()
			}
		})
	}
}

// sendItems sends a window of the backlog and the barrier behind it. e.mu is held.
func (e *Edge) sendItems(items []store.Item, now wire.Time) {
	u := &e.up
	var window []*item
	for n := range items {
		i := e.backlog.items[items[n].Seq]
		if i == nil {
			u.sentTo = items[n].Seq // dropped meanwhile
			continue
		}
		if !e.send(items[n].Msg) {
			break // the tick goes on
		}
		u.sentTo = i.seq
		window = append(window, i)
	}
	if len(window) > 0 {
		e.bar(window, now)
	}
	e.settle()
}

// settle ends the drain when everything that waited was sent: what comes now goes behind
// it directly. e.mu is held.
func (e *Edge) settle() {
	if len(e.up.resend) == 0 && (e.backlog.seq <= e.up.sentTo || len(e.backlog.items) == 0) {
		e.up.draining = false
	}
}

// bar sends a barrier that confirms these items and the answers sent since the last one.
// e.mu is held.
func (e *Edge) bar(items []*item, now wire.Time) {
	u := &e.up
	b := barrier{items: items, entries: u.sent}
	if len(b.items) == 0 && len(b.entries) == 0 && !u.unbarred {
		return
	}
	u.barred = now
	if !e.send([]byte(`{"type":"HEARTBEAT"}`)) {
		if len(items) > 0 {
			u.sentTo = items[0].seq - 1 // once more, when there is room
			u.draining = true
		}
		return
	}
	u.sent, u.unbarred = nil, false
	u.sentBarriers++
	u.barriers = append(u.barriers, b)
}

// reached takes a HEARTBEAT_ACK: what was sent before the oldest barrier has arrived.
// e.mu is held.
func (e *Edge) reached(now wire.Time) {
	u := &e.up
	if len(u.barriers) == 0 {
		return
	}
	b := u.barriers[0]
	u.barriers = u.barriers[1:]
	e.heard()
	var refs []string
	confirm := func(t *entry) {
		if t != nil && e.refs[t.ref] == t && !t.confirmed {
			t.confirmed = true
			delete(e.unconfirmed, t)
			refs = append(refs, t.ref)
		}
	}
	for _, t := range b.entries {
		confirm(t)
	}
	seqs := make([]int64, 0, len(b.items))
	for _, i := range b.items {
		if e.backlog.items[i.seq] != i {
			continue
		}
		if t := e.refs[i.ref]; t != nil && i.kind == store.Response {
			t.item = 0
			confirm(t)
		}
		e.backlog.remove(i)
		e.used -= i.cost()
		seqs = append(seqs, i.seq)
	}
	if len(refs) > 0 {
		e.store.Confirm(refs)
	}
	if len(seqs) > 0 {
		e.store.Drop(seqs...)
		e.log.Debug("what had waited for the link has arrived", "messages", len(seqs), "left", len(e.backlog.items))
	}
	e.drain(now)
}
