package mqtt

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
)

const acceptPause = 100 * time.Millisecond

// listener is the broker's listener with what its own lacks: a bound on connections, a
// deadline for the CONNECT, and an end that can be waited for.
type listener struct {
	a   *Adapter
	l   net.Listener
	all sync.WaitGroup // the accepting goroutine and those that serve connections

	mu      sync.Mutex
	socks   map[net.Conn]struct{} // guarded by mu
	stopped bool                  // guarded by mu
}

func newListener(a *Adapter, l net.Listener) *listener {
	n := &listener{a: a, l: l, socks: map[net.Conn]struct{}{}}
	n.all.Add(1) // Serve, which the broker starts
	return n
}

// ID implements listeners.Listener, as do the following.
func (n *listener) ID() string { return "devices" }

// Address returns where the listener is.
func (n *listener) Address() string { return n.l.Addr().String() }

// Protocol names the transport.
func (n *listener) Protocol() string { return "tcp" }

// Init has nothing left to do.
func (n *listener) Init(*slog.Logger) error { return nil }

// Close is called by the broker, when everything has been closed.
func (n *listener) Close(listeners.CloseFn) { n.stop() }

// Serve accepts until stop. Other errors pass: descriptors that are used up now are free
// again later.
func (n *listener) Serve(establish listeners.EstablishFn) {
	defer n.all.Done()
	for {
		accepted, err := n.l.Accept()
		sock := &socket{Conn: accepted} // of nothing where err is set
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			<-time.After(acceptPause)
		case n.take(sock):
			n.all.Go(func() {
				_ = establish(n.ID(), sock) // the hook has seen what there was to see
				n.a.forget(sock)
				_ = sock.Close()
				n.mu.Lock()
				delete(n.socks, sock)
				n.mu.Unlock()
			})
		default:
			_ = sock.Close()
		}
	}
}

func (n *listener) take(sock net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped || len(n.socks) >= n.a.opt.MaxConnections {
		return false
	}
	n.socks[sock] = struct{}{}
	_ = sock.SetDeadline(time.Now().Add(n.a.opt.RegisterTimeout)) // the keep-alive's takes its place
	return true
}

// stop takes no more connections in, and closes those that have not said who they are.
func (n *listener) stop() {
	n.mu.Lock()
	n.stopped = true
	socks := slices.Collect(maps.Keys(n.socks))
	n.mu.Unlock()
	_ = n.l.Close()
	for _, sock := range socks {
		if !n.a.has(sock) {
			_ = sock.Close()
		}
	}
}

func (n *listener) isStopped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stopped
}

// cut breaks every connection that is left.
func (n *listener) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for sock := range n.socks {
		_ = sock.Close()
	}
}
