// Package proc reads what the kernel knows about a process: its CPU time and its resident memory. All functions may be called
// from any goroutine. It reads Linux's /proc and the CPU clocks of clock_getres(2), nothing else.
package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, 100 on every Linux architecture Go runs on.
const ticksPerSecond = 100

// CPUTime returns the user and system time of the process in all, by its CPU clock (nanoseconds), or by /proc/PID/stat
// (10 ms steps) where that clock is not to be had. Children are not counted.
func CPUTime(pid int) (time.Duration, error) {
	var ts unix.Timespec
	// A process's CPU clock has the id ~pid<<3 | CPUCLOCK_SCHED (clock_getcpuclockid(3)).
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err == nil {
		return time.Duration(ts.Nano()), nil
	}
	user, system, err := CPUSplit(pid)
	return user + system, err
}

// CPUSplit returns the user and the system time of the process from /proc/PID/stat, in steps of 10 ms.
func CPUSplit(pid int) (user, system time.Duration, err error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	// The second field is the name in parentheses and may hold anything; utime and stime are the 12th and 13th behind it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	var ticks [2]int64
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(string(fields[11+i]), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	const tick = time.Second / ticksPerSecond
	return time.Duration(ticks[0]) * tick, time.Duration(ticks[1]) * tick, nil
}

// RSS returns the resident memory of the process in bytes, by /proc/PID/smaps_rollup (exact), else by the VmRSS of
// /proc/PID/status (which may lag by some pages per thread). Memory of the kernel, socket buffers among it, is in neither.
func RSS(pid int) (int64, error) {
	n, err := sizeIn(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Rss:")
	if err == nil {
		return n, nil
	}
	return sizeIn(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
}

// sizeIn returns the value of a "Name:   123 kB" line in bytes.
func sizeIn(path, name string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 2 || string(fields[0]) != name {
			continue
		}
		kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
		return kib << 10, err
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}

// OwnCPUTime returns the CPU time of the calling process.
func OwnCPUTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
