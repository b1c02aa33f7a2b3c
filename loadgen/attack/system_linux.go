package attack

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps in the kernel, to about 0.1 ms.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // cut short by a signal it is only early
}

// sharePorts lets connections to different servers, and later ones to the same, have the
// ports of a source address that others use: the port is chosen when the connection is made.
func sharePorts(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	if err == nil {
		err = failed
	}
	return err
}
