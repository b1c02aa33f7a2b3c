package front

import (
	"github.com/panjf2000/gnet/v2/pkg/pool/byteslice"

	"subway/core/wire"
)

// Journal says how far a log of groups has come, by marks that rise: what was journalled
// with a mark is on stable storage once Stored has reached it. Its methods may be called
// from any goroutine; see Server.JournalStored.
type Journal interface {
	// Appended is the mark of what was journalled last; 0 before the first.
	Appended() uint64
	// Stored is the mark up to which all is on stable storage.
	Stored() uint64
}

// heldBack is what waits for one mark: whole frames in pooled memory.
type heldBack struct {
	mark uint64
	buf  []byte
}

// mark returns what a message has to wait for, 0 for nothing. One that need not wait goes
// behind those that do where it is a command: commands keep their order.
func (box *outbox) mark(class wire.Class, durable bool, j Journal) uint64 {
	n := len(box.held)
	if !durable {
		if n > 0 && class == wire.ClassCommand {
			return box.held[n-1].mark
		}
		return 0
	}
	if mark := j.Appended(); mark > j.Stored() || n > 0 {
		return mark // where something is held, what comes later must not pass it
	}
	return 0
}

// hold keeps a message until its mark; first says that nothing was held before.
func (box *outbox) hold(mark uint64, a, b, e []byte) (first bool) {
	h, first := box.heldFor(mark)
	size := len(a) + len(b) + len(e)
	had := len(h.buf)
	h.buf = reserve(h.buf, size+maxHead)
	h.buf = append(append(append(appendHeader(h.buf, opText, size), a...), b...), e...)
	box.waiting += len(h.buf) - had
	return first
}

// holdBytes is hold for bytes that are no message.
func (box *outbox) holdBytes(mark uint64, b []byte) {
	h, _ := box.heldFor(mark)
	h.buf = append(reserve(h.buf, len(b)), b...)
	box.waiting += len(b)
}

// heldFor returns what is held for a mark, made if need be; first says that nothing was held.
func (box *outbox) heldFor(mark uint64) (h *heldBack, first bool) {
	n := len(box.held)
	if n == 0 || box.held[n-1].mark != mark {
		box.held = append(box.held, heldBack{mark: mark})
	}
	return &box.held[len(box.held)-1], n == 0
}

func (box *outbox) heldBytes() (n int) {
	for i := range box.held {
		n += len(box.held[i].buf)
	}
	return n
}

// letGo moves what waited for no more than stored to what leaves next, and reports
// whether anything did.
func (box *outbox) letGo(stored uint64) (some bool) {
	n := 0
	for ; n < len(box.held) && box.held[n].mark <= stored; n++ {
		h := &box.held[n]
		if box.buf == nil {
			box.buf = h.buf
		} else {
			box.reserve(len(h.buf))
			box.buf = append(box.buf, h.buf...)
			byteslice.Put(h.buf)
		}
		h.buf = nil
	}
	if n == len(box.held) {
		box.held = box.held[:0]
	} else {
		box.held = append(box.held[:0], box.held[n:]...)
	}
	return n > 0
}

// dropHeld throws away what is held.
func (box *outbox) dropHeld() {
	for _, h := range box.held {
		byteslice.Put(h.buf)
	}
	box.held = nil
}

// pushHeld puts a connection on the list of those that wait for the journal. Any goroutine.
func (l *loop) pushHeld(c *Conn, mark uint64) {
	l.mu.Lock()
	l.asked.held = append(l.asked.held, c)
	if l.srv.o.Journal.Stored() >= mark { // it came there meanwhile, and may not tell again
		l.asked.stored = true
		l.rouseLocked()
	}
	l.mu.Unlock()
}

// JournalStored says that Options.Journal has come further. Any goroutine; it does not block.
func (s *Server) JournalStored() {
	for _, l := range s.loops {
		l.mu.Lock()
		if len(l.asked.held) > 0 {
			l.asked.stored = true
			l.rouseLocked()
		}
		l.mu.Unlock()
	}
}

// letGo has the connections that waited send what they may, by adding them to those that
// are dirty; the others wait on.
func (l *loop) letGo(waiting, dirty []*Conn) []*Conn {
	stored := l.srv.o.Journal.Stored()
	left := waiting[:0]
	for _, c := range waiting {
		c.outboxMu.Lock()
		box := &c.box
		some := box.letGo(stored)
		if len(box.held) > 0 {
			left = append(left, c)
		}
		some = some && (box.queue() || box.shut)
		c.outboxMu.Unlock()
		if some {
			dirty = append(dirty, c)
		}
	}
	clear(waiting[len(left):])
	if len(left) > 0 {
		l.mu.Lock()
		l.asked.held = append(left, l.asked.held...)
		l.asked.stored = l.asked.stored || l.srv.o.Journal.Stored() > stored // told while the list was empty
		l.mu.Unlock()
	}
	return dirty
}
