package drive

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// pacer is the schedule of the open loop: one command every 1/rate s, evenly, by a timer of the kernel in the loop, as epoll's own
// timeout counts in milliseconds.
type pacer struct {
	fd       int
	next     int64 // loop time at which the next command is due
	begun    int64
	count    int64
	interval float64 // nanoseconds
}

// tickMin keeps the timer itself from being the load.
const tickMin = 5 * time.Microsecond

func newPacer(l *loop) (pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return pacer{}, fmt.Errorf("timerfd_create: %w", err)
	}
	_, err = l.add(fd, ticks{}, nil)
	return pacer{fd: fd}, err
}

// start begins a schedule at the loop time now.
func (p *pacer) start(now int64, rate float64) error {
	p.begun, p.next, p.count, p.interval = now, now, 0, 1e9/rate
	tick := unix.NsecToTimespec(max(int64(p.interval), int64(tickMin)))
	err := unix.TimerfdSettime(p.fd, 0, &unix.ItimerSpec{Interval: tick, Value: tick}, nil)
	if err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	return nil
}

func (p *pacer) advance() {
	p.count++
	p.next = p.begun + int64(float64(p.count)*p.interval)
}

// ticks reads the timer's counter and forgets it: what is due is told by the clock.
type ticks struct{}

func (ticks) read(_ *conn, b []byte) (int, error) { return len(b), nil }
