// Package yardstick times two fixed pieces of work, so that a figure taken on a shared machine can be told from the machine's
// mood: the same work that costs more CPU time than a minute ago says that the next figure will be too high as well.
package yardstick

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The work, some 20 to 60 ms each on a processor of 2024.
const (
	userSteps  = 20_000_000
	roundTrips = 4_000
	packet     = 2 << 10
)

// Reading is what the two pieces of work took, in microseconds.
type Reading struct {
	User         float64 `json:"user_us"`          // CPU time of arithmetic alone
	Loopback     float64 `json:"loopback_us"`      // CPU time of 2 KiB round trips over TCP on 127.0.0.1
	UserWall     float64 `json:"user_wall_us"`     // more than User: others had the processor
	LoopbackWall float64 `json:"loopback_wall_us"` // likewise
}

// Take does the work on processor cpu (negative: any), blocking its caller. It may be called from any goroutine.
func Take(cpu int) (r Reading, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cpu >= 0 {
		var before, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return r, fmt.Errorf("sched_getaffinity: %w", err)
		}
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return r, fmt.Errorf("processor %d: %w", cpu, err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, &before) }() // it was allowed a moment ago
	}
	r.User, r.UserWall, err = timed(func() error { spin(); return nil })
	if err != nil {
		return r, err
	}
	a, b, err := pair()
	if err != nil {
		return r, err
	}
	defer unix.Close(a)
	defer unix.Close(b)
	r.Loopback, r.LoopbackWall, err = timed(func() error { return bounce(a, b) })
	return r, err
}

// timed returns the CPU time of this thread and the wall time of f, in microseconds.
func timed(f func() error) (cpu, wall float64, err error) {
	var from, to unix.Timespec
	begun := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &from); err != nil {
		return 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, err
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &to); err != nil {
		return 0, 0, err
	}
	return float64(to.Nano()-from.Nano()) / 1e3, float64(time.Since(begun)) / 1e3, nil
}

func spin() {
	x := uint64(88172645463325252)
	for range userSteps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	runtime.KeepAlive(x) // else the compiler may drop the loop
}

// pair returns two ends of a TCP connection on loopback, blocking for at most 5 s per call.
func pair() (a, b int, err error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, 0, err
	}
	if err := unix.Listen(l, 1); err != nil {
		return 0, 0, err
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return 0, 0, err
	}
	if a, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	if err = unix.Connect(a, at); err == nil {
		b, _, err = unix.Accept(l)
	}
	if err != nil {
		unix.Close(a)
		return 0, 0, err
	}
	limit := unix.Timeval{Sec: 5}
	for _, fd := range []int{a, b} {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	}
	return a, b, nil
}

// bounce sends a packet back and forth, by one thread: nobody is woken.
func bounce(a, b int) error {
	var buffer [packet]byte
	for range roundTrips {
		for _, way := range [2][2]int{{a, b}, {b, a}} {
			if _, err := unix.Write(way[0], buffer[:]); err != nil {
				return fmt.Errorf("loopback write: %w", err)
			}
			for got := 0; got < packet; {
				n, err := unix.Read(way[1], buffer[got:])
				if err != nil || n == 0 {
					return fmt.Errorf("loopback read of %d: %w", n, err)
				}
				got += n
			}
		}
	}
	return nil
}
