package socket

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit lets this process open want files, the hard limit too where that is
// permitted, and returns how many it may open now. raised says that the limit was
// changed; where got is below want the error says why.
func RaiseFileLimit(want uint64) (got uint64, raised bool, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, false, fmt.Errorf("reading the limit of open files: %w", err)
	}
	before := l.Cur
	if before >= want {
		return before, false, nil
	}
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(l.Max, want)}); err == nil {
		return want, true, nil
	}
	err = fmt.Errorf("raising the limit of open files to %d (the hard limit is %d): %w", want, l.Max, err)
	if l.Max <= before || unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max}) != nil {
		return before, false, err
	}
	return l.Max, true, err
}

// Sources returns n loopback addresses, 127.0.0.2 and on; at most 254.
func Sources(n int) []netip.Addr {
	n = max(0, min(n, 254))
	list := make([]netip.Addr, n)
	for i := range list {
		list[i] = netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)})
	}
	return list
}
