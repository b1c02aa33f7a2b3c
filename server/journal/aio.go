package journal

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asyncSync syncs files without a thread that waits: io_submit(2) with IOCB_CMD_FSYNC and an
// eventfd that Go's poller watches. A blocked fsync(2) keeps its processor (P) until Go's
// monitor takes it away, which on an idle process may be ten milliseconds later; where
// there is one processor nothing else runs meanwhile. One goroutine at a time uses it.
type asyncSync struct {
	ctx  uintptr
	fd   int // of bell; File.Fd would make it block
	bell *os.File
}

// iocb and ioEvent are the kernel's (linux/aio_abi.h), little-endian.
type iocb struct {
	_      uint64    // data
	_      [2]uint32 // key, flags of reads and writes
	opcode uint16
	_      int16 // priority
	fd     uint32
	_      [4]uint64 // buffer, bytes, offset, reserved
	flags  uint32
	resFD  uint32
}

type ioEvent struct {
	data, obj uint64
	res, res2 int64
}

const (
	iocbFsync = 2 // IOCB_CMD_FSYNC
	iocbResFD = 1 // IOCB_FLAG_RESFD
)

// newAsyncSync returns nil where the system has no such thing.
func newAsyncSync() *asyncSync {
	a := &asyncSync{}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&a.ctx)), 0); errno != 0 {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		a.destroy()
		return nil
	}
	a.fd, a.bell = fd, os.NewFile(uintptr(fd), "eventfd")
	return a
}

// sync makes a file stable. It reports false, and did nothing, where the system refuses to.
func (a *asyncSync) sync(fd int) (done bool, err error) {
	cb := &iocb{opcode: iocbFsync, fd: uint32(fd), flags: iocbResFD, resFD: uint32(a.fd)}
	list := [1]*iocb{cb}
	n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, a.ctx, 1, uintptr(unsafe.Pointer(&list[0])))
	runtime.KeepAlive(cb)
	if errno != 0 || n != 1 {
		return false, nil
	}
	var b [8]byte
	_, _ = a.bell.Read(b[:])
	var ev ioEvent
	for { // it has come, or the bell is broken: then this waits
		n, _, errno = unix.Syscall6(unix.SYS_IO_GETEVENTS, a.ctx, 1, 1, uintptr(unsafe.Pointer(&ev)), 0, 0)
		if errno != unix.EINTR {
			break
		}
	}
	switch {
	case errno != 0 || n != 1:
		return true, os.NewSyscallError("io_getevents", errno)
	case ev.res < 0:
		return true, os.NewSyscallError("fsync", unix.Errno(-ev.res))
	}
	return true, nil
}

func (a *asyncSync) close() {
	if a != nil {
		a.destroy()
		_ = a.bell.Close()
	}
}

func (a *asyncSync) destroy() { _, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, a.ctx, 0, 0) }
