package sim

import (
	"slices"
	"time"

	"subway/core/router"
	"subway/core/wire"
)

// party is whoever is at the other end of a link.
type party interface {
	hear(l *link, m *message)
	lost(l *link, code uint16) // the link is over; 0: without a close code
}

// link is a connection: the gateway's end of it, which is the router's Conn, the party's,
// and the way between, on which what is sent in one direction stays in order.
type link struct {
	w       *world
	n       int
	name    string
	party   party
	gate    *gateway
	session *router.Session

	lag    time.Duration // on the way, either direction
	pace   time.Duration // between two messages to the party
	window int           // commands on their way to the party, beyond which the way is full

	held      []held // waits until what it tells is stored
	flushed   func() // to be done when nothing is held
	waiting   int    // commands on their way to the party
	blocked   bool   // Append said Full; Writable is due when there is room
	statusOff bool   // status messages are dropped
	shut      bool   // the front closes it by itself: what comes is not read any more
	closing   bool   // the gateway closes, or has learnt of the end: Append says Gone
	ended     bool   // the router was told of the end
	left      bool   // the party takes no more from it
	cut       bool   // nothing arrives any more
	toParty   wire.Time
	toGate    wire.Time

	// What the book knows.
	kind    wire.ClientType
	id      string
	place   *place  // of an edge or a direct device
	over    bool    // superseded, or said goodbye: nothing may come any more
	invalid int     // messages in a row
	spent   float64 // of its rate
	spentAt wire.Time
	told    map[string]string // of a Backend: the last CONNECTION_STATUS per edge
}

// dial opens a link between a party and the gateway.
func (w *world) dial(p party, name string) *link {
	w.links++
	l := &link{w: w, n: w.links, party: p, gate: w.gate, window: w.plan.window}
	l.name = name + "#" + itoa(l.n)
	l.lag = w.upTo(w.plan.lag)
	if w.chance(w.plan.slow) {
		l.pace, l.window = w.upTo(100*time.Millisecond), 1+w.rng.IntN(4)
	}
	l.statusOff = w.chance(0.1)
	w.note("%s dials", l.name)
	w.gate.open(l)
	return l
}

// clear reports whether the way to the party takes a command.
func (l *link) clear() bool { return !l.closing && !l.blocked && l.waiting < l.window }

// Append implements router.Conn.
func (l *link) Append(class wire.Class, a, b, c []byte) wire.Result {
	durable := class&wire.Durable != 0
	class &^= wire.Durable
	if class == wire.ClassCommand && l.w.disk != nil && (l.closing || !l.clear()) {
		l.w.book.attempted(l, l.w.reader.read(slices.Concat(a, b, c)))
	}
	switch {
	case l.ended:
		l.w.book.fault(l.id, l.name, "the router speaks to a connection of whose end it was told")
		return wire.Gone
	case l.closing:
		return wire.Gone
	case class == wire.ClassCommand && !l.clear():
		l.blocked = true
		return wire.Full
	case class == wire.ClassStatus && l.statusOff:
		l.w.book.dropped++
		clear(l.told)
		return wire.Dropped
	}
	raw := append(append(append(make([]byte, 0, len(a)+len(b)+len(c)), a...), b...), c...)
	m := l.w.reader.read(raw)
	if m == nil {
		l.w.book.fault(l.id, l.name, "the gateway sends %q", raw)
		return wire.Accepted
	}
	for _, m := range l.w.bug.passedOn(l, m) {
		l.w.history.message(l.w.now, l.name, " <~ ", m)
		l.w.book.sent(l, m)
		if m.kind == wire.TypeCommand {
			l.waiting++
		}
		l.pass(held{m, l.w.book.reveals(l, m), l.mark(class, durable)})
	}
	return wire.Accepted
}

// deliver lets a message leave.
func (l *link) deliver(x held) {
	l.w.book.told(x.tells)
	m := x.m
	if m.kind == wire.TypeCommand && l.w.book.commands[m.ref] != nil {
		l.w.book.commands[m.ref].left = true
	}
	l.toParty = max(l.toParty+wire.Time(l.pace), l.w.now+wire.Time(l.delay()))
	l.w.at(l.toParty, func() {
		if l.cut {
			return
		}
		if m.kind == wire.TypeCommand {
			l.waiting--
		}
		if !l.left {
			l.w.history.message(l.w.now, l.name, " <- ", m)
			l.party.hear(l, m)
		}
		if l.blocked && l.waiting <= l.window/2 && !l.closing {
			l.blocked = false
			l.gate.writable(l)
		}
	})
}

func (l *link) delay() time.Duration { return l.lag + l.w.upTo(l.lag/4+time.Millisecond) }

// CloseWith implements router.Conn.
func (l *link) CloseWith(code uint16, reason string) {
	if l.closing {
		return
	}
	l.w.note("%s closed by the gateway with %d %s", l.name, code, reason)
	l.w.book.closing(l, code)
	l.closing = true
	l.flushed = func() {
		l.toParty = max(l.toParty, l.w.now+wire.Time(l.delay()))
		l.w.at(l.toParty, func() { l.drop(code) })
		l.w.at(l.toParty+wire.Time(l.delay()), func() { l.gate.closed(l, reason) })
	}
	if len(l.held) == 0 {
		l.flushed()
	}
}

// say sends a message to the gateway. Where the way is cut it is lost.
func (l *link) say(raw []byte) {
	if l.left {
		return
	}
	l.toGate = max(l.toGate, l.w.now+wire.Time(l.delay()))
	l.w.at(l.toGate, func() {
		if !l.cut && !l.ended {
			l.gate.receive(l, raw)
		}
	})
}

// collapse is the front's own end of a link: its party reads too slowly, or is silent.
func (l *link) collapse(code uint16) {
	if l.closing {
		return
	}
	l.w.note("%s closed by the front with %d", l.name, code)
	l.closing, l.shut, l.held = true, true, nil
	l.toParty = max(l.toParty, l.w.now+wire.Time(l.delay()))
	l.w.at(l.toParty, func() { l.drop(code) })
	l.w.after(l.w.upTo(3*time.Second), func() { l.gate.closed(l, "too slow") })
}

// drop tells the party that the link is over.
func (l *link) drop(code uint16) {
	if !l.left && !l.cut {
		l.left = true
		l.party.lost(l, code)
	}
}

// leave is the party's orderly end of a link: what it said before arrives.
func (l *link) leave() {
	l.left = true
	l.toGate = max(l.toGate, l.w.now+wire.Time(l.delay()))
	l.w.at(l.toGate, func() { l.gate.closed(l, "closed") })
}

// sever cuts the way: nothing arrives any more, and either end learns of it at a time of
// its own; the party never, where it has crashed.
func (l *link) sever(party, gate time.Duration) {
	if l.cut {
		return
	}
	l.cut = true
	l.w.note("%s is cut", l.name)
	if !l.left {
		l.w.after(party, func() {
			if !l.left {
				l.left = true
				l.party.lost(l, 0)
			}
		})
	}
	l.w.after(gate, func() { l.gate.closed(l, "reset") })
}
