package front

import (
	"encoding/binary"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is how many events one round takes from the system.
const maxEvents = 256

// spell is how long a loop works on end while others wait for their turn.
const spell = time.Millisecond

// Tokens of descriptors that are no connections; those have their slot.
const (
	tokenListener int32 = -1 - iota
	tokenBell
)

// poller waits for the descriptors of one event loop. All of it is the loop's own, but
// for ring.
//
// The descriptors are in an epoll set of ours, which is only ever asked without
// waiting. To wait, the goroutine parks in Go's poller until the set has something, as
// if it were reading from it: so an idle loop keeps neither a processor (P) nor a
// thread, and whichever thread polls for the one polls for all, HTTP connections included.
//
// No wake-up is lost, although Go watches the set edge-triggered. syscall.RawConn
// forgets readiness of the past and then calls look. What comes after that call has
// found nothing makes a new edge, and the edge is kept until the goroutine waits for it.
//
// System calls here do not block and are made without telling Go's scheduler. Told, it
// would wake its monitor thread for the first one after each time that all was idle,
// which costs more than the call (docs/adr/0006).
type poller struct {
	set    *os.File // in Go's poller too
	fd     int      // of set
	raw    syscall.RawConn
	look   func(uintptr) bool // p.poll, made once
	rest   func() bool        // called before the loop parks; false: there is work to do
	bell   int                // an eventfd
	parked bool               // since the last round
	since  time.Time          // when it last was
	err    error
	n      int
	events [maxEvents]unix.EpollEvent
}

func (p *poller) open(first time.Duration, rest func() bool) (err error) {
	p.rest, p.look, p.bell = rest, p.ready, -1
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	err = unix.SetNonblock(p.fd, true) // else Go would not take it into its poller
	p.set = os.NewFile(uintptr(p.fd), "events")
	if err == nil {
		p.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil { // edge-triggered: it need not be read
		err = p.add(p.bell, unix.EPOLLIN|unix.EPOLLET, tokenBell, 0)
	}
	if err == nil {
		p.raw, err = p.set.SyscallConn()
	}
	if err == nil {
		err = p.tick(first)
	}
	if err != nil {
		p.close()
	}
	return err
}

func (p *poller) close() {
	if p.bell >= 0 {
		_ = unix.Close(p.bell)
	}
	_ = p.set.Close()
}

// tick has wait return after this time, whatever comes.
func (p *poller) tick(after time.Duration) error {
	return p.set.SetReadDeadline(time.Now().Add(after))
}

// wait parks until there are events, which are in p.events[:n] then, or until rest
// says that there is other work, or the tick is over: tick is to be called again then.
func (p *poller) wait() (n int, ticked bool, err error) {
	p.n, p.err = 0, nil
	if err = p.raw.Read(p.look); err == os.ErrDeadlineExceeded {
		p.poll() // who held us up may have kept bytes waiting: they go first
		ticked, err = true, nil
	}
	if err == nil {
		err = p.err
	}
	return p.n, ticked, err
}

// ready reports whether wait is over. After a long spell of work it says no once, and
// rings: the goroutine parks and others have their turn, but it is Go's poller that
// wakes it, and with it those for whom something has come meanwhile. The events are
// reported again.
func (p *poller) ready(uintptr) bool {
	switch idle := !p.poll() && p.rest(); {
	case p.err != nil:
	case idle:
		p.parked = true
		return false
	case p.parked:
		p.parked, p.since = false, time.Now()
	case time.Since(p.since) > spell:
		p.parked = true
		p.ring()
		return false
	}
	return true
}

// poll takes what events there are, without waiting.
func (p *poller) poll() bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), maxEvents, 0, 0, 0)
	p.n = int(n)
	if errno != 0 {
		p.n = 0
		if errno != unix.EINTR {
			p.err = os.NewSyscallError("epoll_pwait", errno)
		}
	}
	return p.n > 0 || p.err != nil
}

var oneRing = binary.NativeEndian.AppendUint64(nil, 1)

// ring wakes the loop. Any goroutine, but not after close.
func (p *poller) ring() { _, _ = write(p.bell, oneRing) }

func (p *poller) add(fd int, events uint32, token int32, gen uint32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: token, Pad: int32(gen)})
}

func (p *poller) change(fd int, events uint32, token int32, gen uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: token, Pad: int32(gen)})
}

// remove is needed only for a descriptor whose socket lives on under another.
func (p *poller) remove(fd int) { _ = p.control(unix.EPOLL_CTL_DEL, fd, nil) }

func (p *poller) control(op, fd int, ev *unix.EpollEvent) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, ev))
}

// maxRaw is how many bytes are copied by a system call that Go does not know of and
// that its collector therefore has to wait for.
const maxRaw = 64 << 10

// read and write are the system calls, for descriptors that do not block.
func read(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(min(len(b), maxRaw)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func write(fd int, b []byte) (int, error) {
	if len(b) > maxRaw {
		return unix.Write(fd, b)
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
