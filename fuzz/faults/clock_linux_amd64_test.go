package faults

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A clock of its own for one process, without touching the system's: the kernel maps into each process a small
// library, the vDSO, and Go reads the time by calling its clock_gettime. While a process that we started
// has not run its first instruction, clock_gettime is led to the code below, which asks the kernel and adds some
// seconds to the wall clock, as a step does: CLOCK_MONOTONIC goes on as it was. Where a page is written in
// this way the kernel copies it first, so nobody else sees it.
//
// A time namespace will not do, as it has no offset for CLOCK_REALTIME, nor will LD_PRELOAD for a static binary.

// ownClock is that code: clock_gettime(edi: clock, rsi: where to).
var ownClock = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov $228, %eax: clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test %edi, %edi: CLOCK_REALTIME is 0
	0x75, 0x0a, // jne to the ret
	0x48, 0x8b, 0x0d, 6, 0, 0, 0, // mov offset(%rip), %rcx
	0x48, 0x01, 0x0e, // add %rcx, (%rsi): the seconds
	0xc3,       // ret
	0x90, 0x90, // up to where the offset is aligned
}

// ownClockSize is the code and, behind it, the offset in seconds.
var ownClockSize = len(ownClock) + 8

// steppable is the wall clock of one process.
type steppable struct {
	pid    int
	offset int64 // where the offset is in its memory
}

// step sets the wall clock to the system's and this much. The process may be running.
func (c steppable) step(by time.Duration) error {
	return poke(c.pid, c.offset, binary.LittleEndian.AppendUint64(nil, uint64(int64(by/time.Second))))
}

// startStepped starts a process, by a function that has the kernel stop it at its first instruction, with a
// wall clock that is off by this much.
func startStepped(start func(*syscall.SysProcAttr) (pid int, err error), by time.Duration) (steppable, error) {
	runtime.LockOSThread() // only the thread that traces it may let it go
	defer runtime.UnlockOSThread()
	pid, err := start(&syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL})
	if err != nil {
		return steppable{}, err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil || !status.Stopped() {
		return steppable{}, fmt.Errorf("the process did not stop: status %v, %v", status, err)
	}
	clock, err := leadClock(pid)
	if err == nil {
		err = clock.step(by)
	}
	return clock, errors.Join(err, syscall.PtraceDetach(pid))
}

// leadClock leads clock_gettime of a stopped process to ownClock.
func leadClock(pid int) (steppable, error) {
	at, image, err := vdso(pid)
	if err != nil {
		return steppable{}, err
	}
	lib, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return steppable{}, err
	}
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		return steppable{}, err
	}
	cave := len(image) - ownClockSize // the last page is not used to its end
	cave -= cave % 8
	if len(bytes.Trim(image[cave:], "\x00")) > 0 {
		return steppable{}, errors.New("the vDSO has no room")
	}
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		const jumpSize = 5
		jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(cave)-int32(s.Value)-jumpSize))
		err := errors.Join(poke(pid, at+int64(cave), ownClock), poke(pid, at+int64(s.Value), jump))
		return steppable{pid, at + int64(cave+len(ownClock))}, err
	}
	return steppable{}, errors.New("the vDSO has no clock_gettime")
}

// vdso returns where a process has the vDSO, and its bytes.
func vdso(pid int) (at int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var end int64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &at, &end); err != nil {
			return 0, nil, err
		}
		mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, nil, err
		}
		defer mem.Close()
		image = make([]byte, end-at)
		_, err = mem.ReadAt(image, at)
		return at, image, err
	}
	return 0, nil, errors.New("the process has no vDSO")
}

// poke writes into the memory of a process, whatever its pages allow.
func poke(pid int, at int64, b []byte) error {
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = mem.WriteAt(b, at)
	return errors.Join(err, mem.Close())
}
