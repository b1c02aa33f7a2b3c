package callback

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// conn is a connection to a receiver; one worker at a time uses it.
type conn struct {
	raw   net.Conn
	rw    net.Conn // raw, or TLS on it
	used  bool     // a request went over it before
	since time.Time
	in    *registry
}

// close closes the socket and nothing more: a TLS goodbye could block.
func (c *conn) close() {
	c.in.forget(c)
	c.raw.Close()
}

// registry knows the open connections, so that Close can end what waits on them.
type registry struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

// enrol is false when the Outbox has been stopped.
func (r *registry) enrol(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.open == nil {
		r.open = make(map[*conn]struct{})
	}
	r.open[c] = struct{}{}
	return true
}

func (r *registry) forget(c *conn) {
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
}

func (r *registry) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for c := range r.open {
		c.raw.Close()
	}
	clear(r.open)
}

// dial connects to a host the policy allows, by every address its name resolves to in
// turn. An error wraps ErrRefused if the policy says no.
func (o *Outbox) dial(h *host, deadline time.Time) (*conn, error) {
	if err := o.opt.Policy.checkTarget(&h.to); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(o.ctx, deadline)
	defer cancel()
	raw, err := o.dialer.DialContext(ctx, "tcp", h.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{raw: raw, rw: raw, in: &o.conns}
	if !o.conns.enrol(c) {
		raw.Close()
		return nil, net.ErrClosed
	}
	if h.to.tls {
		t := tls.Client(raw, o.tlsConfig(h.name))
		if err := t.HandshakeContext(ctx); err != nil {
			c.close()
			return nil, err
		}
		c.rw = t
	}
	return c, nil
}

func (o *Outbox) tlsConfig(name string) *tls.Config {
	cfg := o.opt.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = name
	}
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}

// popIdleLocked returns the connection that was used last, nil if none is fit.
func (o *Outbox) popIdleLocked(h *host) *conn {
	k := len(h.idle) - 1
	if k < 0 {
		return nil
	}
	c := h.idle[k]
	h.idle[k], h.idle = nil, h.idle[:k]
	o.idle--
	if time.Since(c.since) > o.opt.IdleTimeout {
		c.close()
		return nil
	}
	return c
}

// parkLocked keeps a connection for the host's next attempt, if there is room.
func (o *Outbox) parkLocked(h *host, c *conn) {
	if c == nil {
		return
	}
	if o.stopped || o.idle >= o.opt.MaxConns {
		c.close()
		return
	}
	c.since = time.Now()
	h.idle = append(h.idle, c)
	o.idle++
	if h.reaper == nil {
		h.reaper = time.AfterFunc(o.opt.IdleTimeout, func() { o.reap(h) })
	}
}

// reap closes what has been idle for IdleTimeout and comes again for the rest.
func (o *Outbox) reap(h *host) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h.reaper = nil
	now, n := time.Now(), 0
	for n < len(h.idle) && now.Sub(h.idle[n].since) >= o.opt.IdleTimeout {
		h.idle[n].close()
		n++
	}
	h.idle = append(h.idle[:0], h.idle[n:]...)
	o.idle -= n
	if len(h.idle) > 0 {
		wait := o.opt.IdleTimeout - now.Sub(h.idle[0].since)
		h.reaper = time.AfterFunc(wait, func() { o.reap(h) })
	}
	o.settleLocked(h)
}

func (o *Outbox) dropIdleLocked(h *host) {
	for _, c := range h.idle {
		c.close()
	}
	o.idle -= len(h.idle)
	h.idle = nil
	if h.reaper != nil {
		h.reaper.Stop()
		h.reaper = nil
	}
}
