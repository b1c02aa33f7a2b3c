package front

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"subway/core/wire"
)

const (
	never       = wire.Time(math.MaxInt64)
	heldUpAfter = wire.Time(3e9)
)

// lookOver looks at the connections whose instant has come. Nothing is moved when
// bytes arrive: an instant may be too early, and what comes of it is worked out then.
//
// Where the loop, or the whole machine, was held up, the peers' bytes may be waiting
// in their sockets: one look is left out, so that they are read first and nobody is
// taken for silent because we were.
//
// It returns the earliest instant that is left.
func (l *loop) lookOver(now wire.Time) (earliest wire.Time) {
	heldUp := now-l.looked > heldUpAfter
	l.looked = now
	l.looks.Add(1)
	if heldUp {
		return now
	}
	l.ticks = now // whatever is armed meanwhile, the tick is set afterwards
	earliest = never
	for i, due := range l.next {
		if now >= due {
			c := l.slots[i].conn
			l.next[i] = never // what is done about it may arm the connection again
			l.arm(c, c.look(now))
			due = l.next[i]
		}
		earliest = min(earliest, due)
	}
	return earliest
}

// restTicks is how many ticks lie between two looks where nothing is due: each would wake
// an idle process.
const restTicks = 4

// tick sets when the deadlines are looked over next.
func (l *loop) tick(earliest wire.Time) error {
	now, tick := l.srv.clock(), wire.Time(l.srv.o.Tick)
	l.ticks = min(max(earliest, now+tick), now+restTicks*tick)
	if l.paused {
		l.ticks = now + tick
	}
	return l.poll.tick(time.Duration(l.ticks - now))
}

// hasten brings the next look forward to due, or to a tick from now.
func (l *loop) hasten(due wire.Time) {
	if due >= l.ticks {
		return
	}
	if now := l.srv.clock(); l.ticks-now > wire.Time(l.srv.o.Tick) {
		if err := l.tick(due); err != nil {
			l.srv.fail(err)
		}
	}
}

// look enforces the deadlines of a connection and returns when to look again.
func (c *Conn) look(now wire.Time) wire.Time {
	o := &c.l.srv.o
	switch c.state {
	case stateHead:
		due := c.opened + o.headAfter
		if c.served && c.head == nil {
			due = c.opened + o.idleAfter
		}
		if c.holding {
			due = c.opened + o.holdAfter
		}
		if now < due {
			return due
		}
		if c.head == nil || c.holding {
			c.drop(reasonTooSlow, now)
		} else {
			c.refuse(refuseSlow, now)
		}
	case stateOpen:
		return c.lookOpen(o, now)
	case stateClosing, stateLinger:
		if now < c.until {
			return c.until
		}
		if c.off < len(c.out) {
			_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // it reads nothing: the kernel need not keep what is left
		}
		c.drop(reasonTooSlow, now)
	}
	return never
}

// lookOpen enforces the deadlines of a WebSocket (PROTOCOL.md section 2).
func (c *Conn) lookOpen(o *options, now wire.Time) wire.Time {
	if c.closeHeld {
		if now < c.until {
			return c.until
		}
		c.outboxMu.Lock()
		c.box.dropHeld()
		c.outboxMu.Unlock()
		c.flush(now)
		return never
	}
	due := never
	wait := func(t wire.Time) bool { due = min(due, t); return now < t }

	if !c.registered {
		if c.registered = c.sess.Registered(); !c.registered && !wait(c.opened+o.registerAfter) {
			c.CloseWith(wire.CloseUnregistered, reasonUnregistered)
			return never
		}
	}
	if !wait(wire.Time(c.lastSeen.Load()) + o.silentAfter) {
		c.CloseWith(wire.CloseSilent, reasonSilent)
		return never
	}
	if c.begun != 0 && !wait(c.begun+o.slowAfter) {
		if c.rd.Taken()*int64(1e9) < int64(now-c.begun)*o.SlowRate {
			c.CloseWith(wire.CloseTooSlow, reasonTooSlow)
			return never
		}
		due = min(due, now+o.slowLook)
	}
	if c.moved != 0 && !c.lookMoved(now) {
		if !wait(c.moved + o.stallAfter) {
			c.CloseWith(wire.CloseTooSlow, reasonTooSlow)
			return never
		}
		due = min(due, now+o.stallLook)
	}
	if !wait(c.pinged + o.pingEvery) {
		c.ping(now)
		due = min(due, now+o.pingEvery)
	}
	return due
}

// lookMoved looks how far the peer's TCP has come with what we wrote, and reports
// whether all of it arrived. Data may well wait in the kernel alone, where the
// outbox does not know of it.
func (c *Conn) lookMoved(now wire.Time) bool {
	waits, err := unix.IoctlGetInt(int(c.fd), unix.SIOCOUTQ)
	if err != nil {
		return false
	}
	if acked := c.sent - int64(waits); acked != c.acked {
		c.acked, c.moved = acked, now
	}
	if waits == 0 && c.off == len(c.out) {
		c.moved = 0
		return true
	}
	return false
}

// ping asks the peer for a sign of life, unless something waits for it already.
func (c *Conn) ping(now wire.Time) {
	c.pinged = now
	c.outboxMu.Lock()
	wake := false
	if !c.box.shut && c.box.waiting == c.box.heldBytes() { // what waits for the journal is no sign of life
		c.box.control(opPing, nil)
		wake = c.box.queue()
	}
	c.outboxMu.Unlock()
	if wake {
		c.l.push(c)
	}
}
