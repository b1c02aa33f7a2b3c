package front

import (
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// Everybody waits for the other, so that the loops park all the time: a wake-up that is
// lost leaves the test waiting. No tick comes to the rescue. There are wake-ups by a
// socket and by the bell, alone and both at once, and goroutines that go to and fro
// between processors beside them.
func TestNoWakeUpIsLost(t *testing.T) {
	const pairs, rounds = 6, 4000
	f := serve(t, func(o *Options) { o.Tick, o.HTTP = time.Hour, api })
	var wg sync.WaitGroup
	for range pairs {
		c := f.dial()
		e := f.session()
		wg.Go(func() {
			in, both := text("in"), len("\x81\x02in\x81\x03out")
			got := make([]byte, both)
			read := func(n int) {
				if _, err := io.ReadFull(c.conn, got[:n]); err != nil {
					t.Error(err)
				}
			}
			for i := 0; i < rounds && !t.Failed(); i++ {
				if i%3 != 0 {
					_, _ = c.conn.Write(in)
				}
				if i%3 != 1 {
					e.c.Append(wire.ClassNotice, []byte("out"), nil, nil)
				}
				read([]int{5, 4, both}[i%3])
			}
		})
	}
	wg.Wait()
}

// A loop that always has work parks now and then, and it is the poller that wakes it.
func TestBusyLoopIsWokenByThePoller(t *testing.T) {
	var p poller
	if err := p.open(time.Hour, func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	start := time.Now()
	for rung := 0; rung < 3; {
		n, _, err := p.wait()
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 && p.events[0].Fd == tokenBell { // nobody rings but itself
			rung++
		}
		if time.Since(start) > patience {
			t.Fatal("it never parks")
		}
	}
}

// newPair returns two connected sockets, of which the test closes the second.
func newPair(t *testing.T) [2]int {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(p[1]) })
	return p
}

// stopped returns a loop that nobody runs, and its clock.
func stopped(t *testing.T) (*loop, *clock) {
	now := &clock{}
	s := &Server{o: (&Options{Logger: quiet(), Clock: now.Now}).defaults()}
	s.clock, s.log = s.o.Clock, s.o.Logger
	l, err := newLoop(s, newPair(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.end)
	return l, now
}

// Where nothing is due a loop leaves ticks out, and what becomes due meanwhile is not late
// for that.
func TestTicksLeftOut(t *testing.T) {
	l, now := stopped(t)
	tick := l.srv.o.Tick
	c := &Conn{l: l}
	if err := l.add(c, newPair(t)[0], never); err != nil {
		t.Fatal(err)
	}
	after := func(want time.Duration) {
		t.Helper()
		if got := time.Duration(l.ticks - now.Now()); got != want {
			t.Errorf("the next look is in %v, want %v", got, want)
		}
	}
	look := func() {
		if err := l.tick(l.lookOver(now.Now())); err != nil {
			t.Fatal(err)
		}
	}
	look()
	after(restTicks * tick)
	l.arm(c, now.Now()+wire.Time(restTicks*tick))
	after(restTicks * tick)
	l.arm(c, now.Now()+wire.Time(2*tick))
	after(2 * tick)
	l.arm(c, now.Now()+1)
	after(tick)
	l.next[c.slot] = now.Now() + wire.Time(3*tick)
	look()
	after(3 * tick)
	now.Advance(3*tick - 1)
	look()
	after(tick)
	l.next[c.slot] = never
	look()
	after(restTicks * tick)
	l.pause(unix.EMFILE) // accept failed: it is tried again at the next tick
	after(tick)
	look()
	after(tick)
}

// An event that is late for its connection does not reach the next one in its slot.
func TestLateEvent(t *testing.T) {
	l, now := stopped(t)
	now.Advance(1)
	add := func() (*Conn, int) {
		p := newPair(t)
		c := &Conn{l: l}
		if err := l.add(c, p[0], never); err != nil {
			t.Fatal(err)
		}
		return c, p[1]
	}
	old, _ := add()
	late := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLHUP, Fd: old.slot, Pad: int32(l.slots[old.slot].gen)}
	old.drop(reasonReset, 0)
	c, peer := add()
	if c.slot != old.slot {
		t.Fatalf("slot %d, want %d", c.slot, old.slot)
	}
	if _, err := write(peer, []byte("x")); err != nil {
		t.Fatal(err)
	}
	l.event(&late)
	if c.lastSeen.Load() != 0 || c.state != stateHead {
		t.Error("it reached the next one")
	}
	if n := l.pollNow(t); n != 1 || l.poll.events[0].Fd != c.slot {
		t.Fatalf("%d events", n)
	}
	l.event(&l.poll.events[0])
	if c.lastSeen.Load() == 0 {
		t.Error("its own did not")
	}
}

func (l *loop) pollNow(t *testing.T) int {
	l.poll.poll()
	if l.poll.err != nil {
		t.Fatal(l.poll.err)
	}
	return l.poll.n
}
