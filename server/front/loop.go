package front

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"subway/core/wire"
)

const (
	readSize        = 64 << 10 // bytes of a connection that one round takes
	acceptsPerRound = 16

	// A round with so many events is followed by others, so many at most, before anything
	// is written: what they append goes with it, in fewer writes. Where nothing more has
	// come it is written at once.
	gatherFrom   = 2
	gatherRounds = 2
)

// loop is an event loop: a goroutine with a listening socket and the connections that
// it accepted there, or that came back to it from HTTP. Its first group of fields is
// the loop's own, the second belongs to everybody.
//
// A round takes the events that there are, reads each connection once, and then, or after
// a few rounds more, writes to each connection for which something was appended meanwhile,
// by whomever, once.
type loop struct {
	srv      *Server
	poll     poller
	listener int
	paused   bool        // accept failed; tried again at the next tick
	slots    []slot      // the connections
	next     []wire.Time // by slot: when the connection is to be looked at
	free     []int32     // slots without a connection
	spare    []*Conn     // the other of two dirty lists
	asleep   bool        // asked.awake is to be set
	gathered int         // so many of the last rounds wrote nothing
	looked   wire.Time   // when the deadlines were looked over
	ticks    wire.Time   // when they will be again
	buf      []byte      // what one read brought
	prompt   *prompter   // nil: every request has a goroutine

	looks atomic.Uint64 // how often the deadlines were looked over
	mu    sync.Mutex
	asked asked
}

// slot is a place for a connection. Events carry the slot's number and generation, so
// that a late one cannot reach a connection that has the slot since.
type slot struct {
	conn *Conn
	gen  uint32
}

// asked is what others want of a loop, guarded by loop.mu.
type asked struct {
	dirty     []*Conn // their outboxes have something for the loop
	back      []comer // connections that come back from HTTP; no more than Options.MaxHTTP
	held      []*Conn // something of theirs waits for the journal
	stored    bool    // which has come further
	awake     bool    // the loop will look at all this unasked; else the bell is to be rung
	closeCode uint16  // close every WebSocket; 0: no
	closeText string
	drain     bool // close what has sent no request yet
	stop      bool // end the loop
	ended     bool // it has: nobody looks any more
}

func newLoop(s *Server, listener int) (*loop, error) {
	l := &loop{srv: s, listener: listener, looked: s.clock(), buf: make([]byte, readSize)}
	if s.o.HTTP != nil && s.o.Prompt != nil {
		l.prompt = newPrompter(s)
	}
	if err := l.poll.open(s.o.Tick, l.rest); err != nil {
		return nil, err
	}
	if err := l.poll.add(listener, unix.EPOLLIN, tokenListener, 0); err != nil {
		l.poll.close()
		return nil, err
	}
	return l, nil
}

// run is the loop's goroutine. A panic of a session ends the process.
func (l *loop) run() {
	for {
		n, ticked, err := l.poll.wait()
		if err != nil {
			l.srv.fail(err)
			break
		}
		l.wakeUp()
		for i := range n {
			l.event(&l.poll.events[i])
		}
		if ticked {
			l.resume()
			if err := l.tick(l.lookOver(l.srv.clock())); err != nil {
				l.srv.fail(err)
				break
			}
		}
		if n >= gatherFrom && l.gathered < gatherRounds {
			l.gathered++
			continue
		}
		l.gathered = 0
		if !l.finish() {
			break
		}
	}
	l.end()
}

// rest is called when there are no events: the loop may park, unless it is asked for
// something. From then on who asks rings.
func (l *loop) rest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.asked
	if len(a.dirty) > 0 || len(a.back) > 0 || a.closeCode != 0 || a.drain || a.stop || a.stored {
		return false
	}
	l.asleep, a.awake = true, false
	return true
}

func (l *loop) wakeUp() {
	if !l.asleep {
		return
	}
	l.asleep = false
	l.mu.Lock()
	l.asked.awake = true
	l.mu.Unlock()
}

// push puts a connection on the list of dirty ones. Any goroutine.
func (l *loop) push(c *Conn) {
	l.mu.Lock()
	l.asked.dirty = append(l.asked.dirty, c)
	l.rouseLocked()
	l.mu.Unlock()
}

// ask changes what is asked of the loop. It returns false when the loop has ended. Any
// goroutine.
func (l *loop) ask(change func(*asked)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.ended {
		return false
	}
	change(&l.asked)
	l.rouseLocked()
	return true
}

// rouseLocked wakes the loop unless it is awake. The lock is held meanwhile as the
// loop closes the bell, and sets awake for good, under it.
func (l *loop) rouseLocked() {
	if !l.asked.awake {
		l.asked.awake = true
		l.poll.ring()
	}
}

// finish ends a round: it does what was asked and writes what was appended. It returns
// false when the loop is to end.
func (l *loop) finish() bool {
	l.mu.Lock()
	a := l.asked
	if a.stop {
		l.mu.Unlock()
		return false
	}
	l.asked = asked{dirty: l.spare[:0], awake: true}
	if !a.stored {
		l.asked.held = a.held
	}
	l.mu.Unlock()
	if a.stored {
		a.dirty = l.letGo(a.held, a.dirty)
	}
	if len(a.dirty) == 0 && len(a.back) == 0 && a.closeCode == 0 && !a.drain {
		l.spare = a.dirty
		return true
	}
	now := l.srv.clock()
	for _, b := range a.back {
		l.comeBack(b, now)
	}
	if a.closeCode != 0 || a.drain {
		l.closeAll(&a, now)
	}
	for i, c := range a.dirty {
		a.dirty[i] = nil
		c.flush(now)
	}
	l.spare = a.dirty
	return true
}

func (l *loop) closeAll(a *asked, now wire.Time) {
	for i := range l.slots {
		switch c := l.slots[i].conn; {
		case c == nil:
		case c.state == stateOpen && a.closeCode != 0:
			c.CloseWith(a.closeCode, a.closeText)
		case c.state == stateHead && a.drain && c.holding:
			c.closeHeld = true
		case c.state == stateHead && a.drain:
			c.drop(reasonGoing, now)
		}
	}
}

// end cuts every connection.
func (l *loop) end() {
	now := l.srv.clock()
	for i := range l.slots {
		if c := l.slots[i].conn; c != nil {
			c.drop(reasonGoing, now)
		}
	}
	l.mu.Lock()
	l.asked.ended, l.asked.awake = true, true
	back := l.asked.back
	l.asked.back = nil
	l.mu.Unlock()
	for _, b := range back {
		_ = unix.Close(b.fd)
		l.srv.stats.total.Add(-1)
	}
	_ = unix.Close(l.listener)
	l.poll.close()
}

// event handles what the system says of one descriptor.
func (l *loop) event(ev *unix.EpollEvent) {
	if ev.Fd < 0 {
		if ev.Fd == tokenListener {
			l.accept()
		}
		return
	}
	s := &l.slots[ev.Fd]
	c := s.conn
	if c == nil || s.gen != uint32(ev.Pad) {
		return
	}
	now := l.srv.clock()
	if ev.Events&unix.EPOLLOUT != 0 {
		c.flush(now)
	}
	if ev.Events&^unix.EPOLLOUT != 0 && c.state != stateGone {
		l.receive(c, ev.Events, now)
	}
}

// receive reads once: the next round has the rest, after the others had their turn.
func (l *loop) receive(c *Conn, events uint32, now wire.Time) {
	n, err := read(int(c.fd), l.buf)
	switch {
	case n > 0:
		c.receive(l.buf[:n], now)
	case err == nil:
		c.drop(reasonPeerClosed, now)
	case err == unix.EINTR, err == unix.EAGAIN && events&unix.EPOLLERR == 0:
	default:
		c.drop(reasonReset, now)
	}
}

// accept takes in new connections.
func (l *loop) accept() {
	for range acceptsPerRound {
		fd, from, err := unix.Accept4(l.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.welcome(fd, from)
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED, unix.ECONNRESET:
		default: // no descriptors, no memory: it stays ready, and we would spin
			l.pause(err)
			return
		}
	}
}

func (l *loop) pause(why error) {
	l.srv.log.Warn("accept failed, trying again", "in", l.srv.o.Tick, "error", why)
	l.paused = l.poll.change(l.listener, 0, tokenListener, 0) == nil
	l.hasten(l.srv.clock())
}

// resume accepts again what pause left waiting.
func (l *loop) resume() {
	if l.paused {
		l.paused = l.poll.change(l.listener, unix.EPOLLIN, tokenListener, 0) != nil
	}
}

func (l *loop) welcome(fd int, from unix.Sockaddr) {
	s := l.srv
	if s.shed(fd) {
		_ = unix.Close(fd)
		return
	}
	now := s.clock()
	c := s.newConn(l, addrOf(from))
	c.opened = now
	if err := l.add(c, fd, now+s.o.headAfter); err != nil {
		s.log.Warn("no place for a connection", "error", err)
		_ = unix.Close(fd)
		s.stats.leave(&s.stats.waiting)
	}
}

// add takes a connection in, to be looked at when due.
func (l *loop) add(c *Conn, fd int, due wire.Time) error {
	if n := len(l.free); n > 0 {
		c.slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		c.slot = int32(len(l.slots))
		l.slots, l.next = append(l.slots, slot{}), append(l.next, never)
	}
	c.fd = int32(fd)
	s := &l.slots[c.slot]
	s.conn, l.next[c.slot] = c, due
	l.hasten(due)
	err := l.poll.add(fd, unix.EPOLLIN, c.slot, s.gen)
	if err != nil {
		l.remove(c)
	}
	return err
}

// remove forgets a connection. Its descriptor is the caller's.
func (l *loop) remove(c *Conn) {
	s := &l.slots[c.slot]
	s.conn, l.next[c.slot] = nil, never
	s.gen++
	l.free = append(l.free, c.slot)
	c.fd, c.state = -1, stateGone
}

// arm has the connection looked at no later than due, but for a tick.
func (l *loop) arm(c *Conn, due wire.Time) {
	if c.state != stateGone && due < l.next[c.slot] {
		l.next[c.slot] = due
		l.hasten(due)
	}
}

// block has the loop told when a connection's socket has room again, or no more so.
func (l *loop) block(c *Conn, blocked bool) error {
	if c.blocked == blocked {
		return nil
	}
	c.blocked = blocked
	events := uint32(unix.EPOLLIN)
	if blocked {
		events |= unix.EPOLLOUT
	}
	return l.poll.change(int(c.fd), events, c.slot, l.slots[c.slot].gen)
}
