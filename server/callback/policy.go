package callback

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// Policy decides which addresses callbacks may go to (PROTOCOL.md section 7). The zero
// Policy allows all but link-local and cloud metadata addresses. It is applied to
// literal addresses when a command is posted, and to every address that is dialled, so
// a name that resolves to a forbidden address does not help.
type Policy struct {
	// Allow is always allowed, whatever else says no.
	Allow []netip.Prefix
	// Deny is refused besides what is built in.
	Deny []netip.Prefix
	// DenyPrivate refuses loopback, private, shared and unspecified addresses too: for a
	// gateway whose callers are strangers.
	DenyPrivate bool
	// Hosts, when there are any, are the only hosts allowed: names or literal addresses
	// as in a URL, lower case; a leading dot stands for all names below.
	Hosts []string
}

// builtin is refused unless allowed by name: link-local addresses, among them most
// clouds' metadata services, and the metadata services that live elsewhere.
var builtin = prefixes(
	"169.254.0.0/16", "fe80::/10", // link-local; AWS, Azure, Google, DigitalOcean
	"224.0.0.0/24", "ff02::/16", // link-local multicast
	"fd00:ec2::/32",      // AWS, IPv6
	"100.100.100.200/32", // Alibaba Cloud
	"192.0.0.192/32",     // Oracle Cloud
	"168.63.129.16/32",   // Azure's platform address
	"fd20:ce::254/128",   // Google Cloud, IPv6
	"fd00:42::42/128",    // Scaleway
)

var private = prefixes(
	"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
	"100.64.0.0/10", "fc00::/7", "0.0.0.0/8", "::/128", "198.18.0.0/15",
	"224.0.0.0/4", "ff00::/8", "255.255.255.255/32",
)

func prefixes(texts ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

func within(ps []netip.Prefix, a netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// CheckAddr returns an error that wraps ErrRefused when addr may not be called. An
// address that carries an IPv4 address inside (mapped, NAT64, 6to4) is judged as both.
func (p *Policy) CheckAddr(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	if within(p.Allow, addr) {
		return nil
	}
	if p.denies(addr) {
		return fmt.Errorf("%w: %s", ErrRefused, addr)
	}
	if inner, ok := embedded(addr); ok && p.denies(inner) {
		return fmt.Errorf("%w: %s stands for %s", ErrRefused, addr, inner)
	}
	return nil
}

func (p *Policy) denies(a netip.Addr) bool {
	return within(builtin, a) || within(p.Deny, a) || p.DenyPrivate && within(private, a)
}

// embedded returns the IPv4 address that a router would take out of an IPv6 one:
// RFC 6052 (64:ff9b::/96), RFC 3056 (2002::/16), RFC 4291 section 2.5.5.1 (::/96).
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return a, false
	}
	b := a.As16()
	switch {
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b}:
		return netip.AddrFrom4([4]byte(b[12:])), true
	case [12]byte(b[:12]) == [12]byte{} && b[12] != 0:
		return netip.AddrFrom4([4]byte(b[12:])), true
	}
	return a, false
}

func (p *Policy) checkTarget(t *target) error {
	if len(p.Hosts) > 0 && !p.listed(strings.ToLower(string(t.bareName()))) {
		return fmt.Errorf("%w: %s is not among the hosts configured", ErrRefused, t.name)
	}
	if t.addr.IsValid() {
		return p.CheckAddr(t.addr)
	}
	return nil
}

func (p *Policy) listed(name string) bool {
	for _, h := range p.Hosts {
		if name == h || strings.HasPrefix(h, ".") && strings.HasSuffix(name, h) {
			return true
		}
	}
	return false
}

// control is a net.Dialer's Control: it sees each address after name resolution and
// before a packet leaves.
func (p *Policy) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrRefused, address)
	}
	return p.CheckAddr(at.Addr())
}
