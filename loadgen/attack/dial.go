package attack

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// dialLimit bounds how long a connection may take to be made, besides the request's own
// time limit.
const dialLimit = 10 * time.Second

// newTransport makes a transport that keeps so many connections and has no other bound
// on them than its callers, one request each.
func newTransport(conns int, sources []netip.Addr) *http.Transport {
	return &http.Transport{
		DialContext:         dialer(sources),
		MaxIdleConns:        conns,
		MaxIdleConnsPerHost: conns,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
}

// dialer connects from each source in turn.
func dialer(sources []netip.Addr) func(ctx context.Context, network, address string) (net.Conn, error) {
	if len(sources) == 0 {
		return (&net.Dialer{Timeout: dialLimit}).DialContext
	}
	dialers := make([]net.Dialer, len(sources))
	for i, s := range sources {
		dialers[i] = net.Dialer{
			Timeout:   dialLimit,
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(s, 0)),
			Control:   sharePorts,
		}
	}
	var turn atomic.Uint32
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialers[int(turn.Add(1)-1)%len(dialers)].DialContext(ctx, network, address)
	}
}
