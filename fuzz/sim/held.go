package sim

import "subway/core/wire"

// held is a message that leaves once a mark is stored; 0: at once.
type held struct {
	m     *message
	tells tells
	mark  uint64
}

// mark returns what a message has to wait for, 0 for nothing, as wire.Durable has it:
// commands keep their order, and other messages that need not wait pass those that do.
func (l *link) mark(class wire.Class, durable bool) uint64 {
	d, n := l.w.disk, len(l.held)
	switch {
	case d == nil:
	case durable && (n > 0 || d.appended() > d.stored):
		return d.appended()
	case !durable && n > 0 && class == wire.ClassCommand:
		return l.held[n-1].mark
	}
	return 0
}

// pass lets a message leave, or holds it back.
func (l *link) pass(x held) {
	if x.mark == 0 {
		l.deliver(x)
		return
	}
	l.held = append(l.held, x)
	l.w.disk.at(x.mark, l.letGo)
}

// letGo lets leave what need not wait any more.
func (l *link) letGo() {
	for len(l.held) > 0 && l.held[0].mark <= l.w.disk.stored && !l.ended {
		x := l.held[0]
		l.held = l.held[1:]
		l.deliver(x)
		if len(l.held) == 0 && l.closing && l.flushed != nil {
			l.flushed()
		}
	}
}
