package faults

import (
	"net"
	"sync"
	"testing"
)

// proxy forwards TCP. While it is held it is a black hole: connections stay open and new ones come about, as the
// system makes them, and nothing passes. Afterwards all goes on: TCP loses no byte.
type proxy struct {
	lis    net.Listener
	target string
	all    sync.WaitGroup

	mu     sync.Mutex
	closed bool              // guarded by mu
	conns  map[net.Conn]bool // guarded by mu
	gate   chan struct{}     // guarded by mu: closed while all passes
}

func newProxy(t testing.TB, addr, target string) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{lis: lis, target: target, conns: map[net.Conn]bool{}, gate: make(chan struct{})}
	close(p.gate)
	p.all.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gate)
}

func (p *proxy) passing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

func (p *proxy) serve() {
	for {
		from, err := p.lis.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.join(from) })
	}
}

// join connects a connection onward, once all passes.
func (p *proxy) join(from net.Conn) {
	defer from.Close()
	if !p.keep(from) {
		return
	}
	<-p.passing()
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.keep(to) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { p.pump(to, from) })
	p.pump(from, to)
	back.Wait()
}

// keep notes a connection for close; false: it is too late.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return !p.closed
}

// pump forwards one direction until its end, of which the other side hears, too.
func (p *proxy) pump(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		<-p.passing()
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

func (p *proxy) close() {
	_ = p.lis.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	select {
	case <-p.gate:
	default: // the test ended while it was held
		close(p.gate)
	}
	p.mu.Unlock()
	p.all.Wait()
}
