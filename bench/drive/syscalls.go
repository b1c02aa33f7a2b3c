package drive

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The loop's system calls go past the Go scheduler: there is one goroutine while a run lasts, so handing its processor to others
// at each call (what unix.Read does) would only cost time. None blocks for longer than pollTimeout.

func rawRead(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

func rawWrite(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

func rawEpollWait(epfd int, events []unix.EpollEvent, timeoutMs int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(timeoutMs), 0, 0)
	return int(n), errno
}
