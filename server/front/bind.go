package front

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepAlive is after how many seconds without a byte TCP asks a peer for a sign of
// life, five times before it gives up.
const keepAlive = 60

// listen resolves and binds host:port for a number of event loops, each of which has a
// listening socket of its own (SO_REUSEPORT). That would let a second process share
// the port unnoticed, and give each loop another port where the system picks. So the
// first socket is bound the ordinary way.
func listen(address string, loops int) (ports []int, addr *net.TCPAddr, err error) {
	want, err := net.ResolveTCPAddr("tcp", address)
	if err == nil && address == "" {
		err = errors.New("no address")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %q: %w", address, err)
	}
	families := []int{unix.AF_INET6}
	switch {
	case want.IP.To4() != nil:
		families[0] = unix.AF_INET
	case want.IP == nil || want.IP.IsUnspecified():
		want.IP = nil // both families, or the one that there is
		families = append(families, unix.AF_INET)
	}
	for _, family := range families {
		if ports, addr, err = listenAs(family, want, loops); err == nil {
			return ports, addr, nil
		}
		if !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
	}
	return nil, nil, fmt.Errorf("listen on %q: %w", address, err)
}

func listenAs(family int, want *net.TCPAddr, loops int) (ports []int, addr *net.TCPAddr, err error) {
	first, addr, err := bind(family, want, false)
	if err != nil {
		return nil, nil, err
	}
	ports = []int{first}
	// The rest share the first one's port, also where the system picked it.
	want = &net.TCPAddr{IP: want.IP, Port: addr.Port, Zone: want.Zone}
	for len(ports) < loops && err == nil {
		var fd int
		if fd, _, err = bind(family, want, true); err == nil {
			ports = append(ports, fd)
		}
	}
	for i := 0; i < len(ports) && err == nil; i++ {
		err = setUp(ports[i])
	}
	if err != nil {
		closeAll(ports)
		return nil, nil, err
	}
	return ports, addr, nil
}

// setUp has a bound socket listen. What is set here its connections inherit.
func setUp(fd int) error {
	for _, o := range [][3]int{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive / 5},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 5},
	} {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return os.NewSyscallError("listen", unix.Listen(fd, 1<<16-1)) // or as many as the system allows
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// bind makes a socket with an address that others may share from then on, or also
// share already.
func bind(family int, want *net.TCPAddr, share bool) (int, *net.TCPAddr, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return -1, nil, os.NewSyscallError("socket", err)
	}
	if err = bindTo(fd, family, want, share); err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, os.NewSyscallError("getsockname", err)
	}
	addr := &net.TCPAddr{IP: want.IP, Zone: want.Zone}
	switch a := got.(type) {
	case *unix.SockaddrInet4:
		addr.Port = a.Port
		if addr.IP == nil {
			addr.IP = net.IPv4zero
		}
	case *unix.SockaddrInet6:
		addr.Port = a.Port
		if addr.IP == nil {
			addr.IP = net.IPv6unspecified
		}
	}
	return fd, addr, nil
}

func bindTo(fd, family int, want *net.TCPAddr, share bool) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if share {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	var sa unix.Sockaddr
	if family == unix.AF_INET {
		a := &unix.SockaddrInet4{Port: want.Port}
		copy(a.Addr[:], want.IP.To4())
		sa = a
	} else {
		only := 1
		if want.IP == nil {
			only = 0
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		a := &unix.SockaddrInet6{Port: want.Port}
		copy(a.Addr[:], want.IP.To16())
		if ifi, err := net.InterfaceByName(want.Zone); err == nil {
			a.ZoneId = uint32(ifi.Index)
		}
		sa = a
	}
	if err := unix.Bind(fd, sa); err != nil {
		return os.NewSyscallError("bind", err)
	}
	// Also where it was not set before: a port in use was noticed, now others may share this one.
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// addrOf returns the address of a peer.
func addrOf(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(a.Addr).Unmap()
		if a.ZoneId != 0 && ip.Is6() {
			zone := strconv.Itoa(int(a.ZoneId))
			if ifi, err := net.InterfaceByIndex(int(a.ZoneId)); err == nil {
				zone = ifi.Name
			}
			ip = ip.WithZone(zone)
		}
		return netip.AddrPortFrom(ip, uint16(a.Port))
	}
	return netip.AddrPort{}
}

// addrPort is the same of an address of package net.
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// limitDescriptors raises the soft limit on descriptors to the hard one and works
// out how many connections there may be. Where accept fails for want of a descriptor
// the peer waits and never learns why, and whatever else the process opens fails too.
// So connections are shed while a reserve is left, by their count and, as others take
// descriptors too, by the number of the descriptor, since the system always gives out
// the lowest that is free.
func (s *Server) limitDescriptors() {
	var lim unix.Rlimit
	limit := 1024
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		if lim.Cur < lim.Max {
			lim.Cur = lim.Max
			if unix.Setrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
				_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
			}
		}
		limit = int(min(lim.Cur, 1<<24))
	}
	reserve := min(max(64, limit/10), limit/2)
	s.fdGuard = limit - reserve/2
	pick(&s.o.MaxConns, limit-reserve)
	pick(&s.o.MaxHTTP, min(max(s.o.MaxConns/4, 64), 4096))
}
