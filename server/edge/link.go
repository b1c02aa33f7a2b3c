package edge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"subway/core/wire"
	"subway/server/uplink"
)

// up is the link to the Gateway as the book sees it. Guarded by Edge.mu.
type up struct {
	link       *uplink.Link
	kick       context.CancelFunc // ends the wait for the next attempt
	url        string
	registered bool
	offline    bool      // permanently: the attempts of the schedule are used up
	gen        int64     // counts the registrations
	seen       wire.Time // when the Gateway was last heard of, 0: never
	retryAt    wire.Time // the next attempt

	unannounced bool // a device that is here could not be announced
	out         []byte

	// See drain.go.
	draining bool
	reading  bool
	sentTo   int64    // the last item of the backlog that was sent on this link
	resend   []*entry // answers to be sent unasked before the backlog
	sent     []*entry // answers sent since the last barrier
	barriers []barrier
	barred   wire.Time // when the last one was sent

	spoken          []*device // whose status is not confirmed
	strays          []stray
	spokenBytes     int  // of both
	unbarred        bool // one of them was sent since the last barrier
	sentBarriers    int64
	reachedBarriers int64
}

// runLink keeps the link until ctx ends. A kick begins the schedule anew, at once.
func (e *Edge) runLink(ctx context.Context) {
	for ctx.Err() == nil {
		once, cancel := context.WithCancel(ctx)
		link := e.newLink()
		e.mu.Lock()
		e.up.link, e.up.kick = link, cancel
		e.mu.Unlock()
		link.Run(once)
		cancel()
		e.mu.Lock()
		e.linkLost(e.now())
		e.mu.Unlock()
	}
}

// newLink cannot fail: Start made one of the same configuration.
func (e *Edge) newLink() *uplink.Link {
	link, err := uplink.New(e.linkConfig())
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return link
}

func (e *Edge) linkConfig() uplink.Config {
	return uplink.Config{
		URLs: e.opt.Gateways, Schedule: e.opt.Schedule, Register: e.registration, Up: e.linkUp, Receive: e.receive, Down: e.linkDown,
		Options: uplink.Options{Token: e.opt.Token, Outbox: maxLinkOutbox, ReadBuffer: 64 << 10, PingInterval: e.opt.Ping, MaxSend: maxMessage, CloseTimeout: 2 * time.Second},
	}
}

const (
	maxMessage    = 1 << 20
	maxLinkOutbox = 16 << 20
)

// Retry tries to reach the Gateway at once, if the link is down. Any goroutine may call it.
func (e *Edge) Retry() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.up.registered && e.up.kick != nil {
		e.log.Info("the link is tried now")
		e.up.kick()
	}
}

// registration makes the REGISTER of a new connection. What changes until it is
// acknowledged is told then.
func (e *Edge) registration() []byte {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.collectUnasked()
	if now >= e.expected {
		return e.appendSnapshot(nil, now)
	}
	// Without a snapshot the routes of before the restart stay, and what was in flight on
	// them comes again; devices that are back already are told one by one.
	for _, d := range e.devices {
		d.announced = false
	}
	return appendEnd(e.appendSelf(nil, now), now)
}

// appendSelf begins the edge's own REGISTER.
func (e *Edge) appendSelf(m []byte, now wire.Time) []byte {
	m = append(m, `{"type":"REGISTER","clientId":`...)
	m = append(wire.AppendString(m, e.opt.ID), `,"clientType":"EDGE",`...)
	m = e.appendEdgeInfo(m)
	if e.trusted(now) {
		m = append(m, `,"capabilities":["dedupe"]`...)
	}
	return m
}

// appendSnapshot appends a REGISTER with all devices that are here, in one message of at
// most maxMessage bytes (PROTOCOL.md section 3). e.mu is held.
func (e *Edge) appendSnapshot(m []byte, now wire.Time) []byte {
	here := make([]*device, 0, len(e.devices))
	room := maxMessage - 1024
	for _, d := range e.devices {
		if d.announced = d.sess != nil; d.announced {
			here = append(here, d)
			room -= len(d.id) + 3
		}
	}
	clear(e.departed)
	slices.SortFunc(here, func(a, b *device) int { return strings.Compare(a.id, b.id) })
	m = append(e.appendSelf(m, now), `,"devices":[`...)
	for i, d := range here {
		if i > 0 {
			m = append(m, ',')
		}
		extra := len(d.info) + len(`{"clientId":,"deviceInfo":}`)
		switch {
		case len(d.info) == 0:
			m = wire.AppendString(m, d.id)
		case extra > room: // it follows in a message of its own
			d.announced, e.up.unannounced = false, true
			m = wire.AppendString(m, d.id)
		default:
			room -= extra
			m = append(wire.AppendString(append(m, `{"clientId":`...), d.id), `,"deviceInfo":`...)
			m = append(append(m, d.info...), '}')
		}
	}
	return appendEnd(append(m, ']'), now)
}

// trusted reports whether every ref that was handed over is known, so that the Gateway may
// send again what is in flight. After a store was lost it is not, until the last command
// of before must have ended.
func (e *Edge) trusted(now wire.Time) bool { return now >= e.distrust }

// linkUp is called when REGISTER was acknowledged.
func (e *Edge) linkUp(url string, _ []byte) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	u := &e.up
	u.registered, u.offline, u.url, u.seen = true, false, url, now
	u.gen++
	u.draining = len(e.backlog.items) > 0 || len(u.resend) > 0
	e.log.Info("the link is up", "gateway", url, "devices", e.connected, "waiting", len(e.backlog.items))
	e.catchUp(now)
	e.drain(now)
}

// linkDown is called when a connection ended, or none came about.
func (e *Edge) linkDown(d uplink.Down) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.Registered {
		e.linkLost(now)
		if !errors.Is(d.End, uplink.ErrSilent) {
			e.up.seen = now
		}
		e.log.Warn("the link is down", "gateway", d.URL, "reason", d.End, "next", d.Wait)
	} else {
		e.log.Info("the Gateway is out of reach", "gateway", d.URL, "reason", d.End, "next", d.Wait)
	}
	if d.Offline && !e.up.offline {
		e.log.Error("the edge is PERMANENTLY_OFFLINE: the attempts are used up; it tries on, slowly, and at once at SIGHUP", "next", d.Wait)
	}
	e.up.offline = d.Offline
	e.up.retryAt = now + wire.Time(d.Wait)
}

// linkLost forgets what was under way on the link. e.mu is held.
func (e *Edge) linkLost(wire.Time) {
	u := &e.up
	u.registered, u.draining, u.reading, u.unannounced = false, false, false, false
	u.sentTo, u.resend, u.sent, u.barriers = 0, nil, nil, nil
	e.keepSpoken()
}

// send queues a message for the Gateway. It is false where the link is down or takes no
// more. e.mu is held.
func (e *Edge) send(msg []byte) bool {
	if !e.up.registered {
		return false
	}
	err := e.up.link.Send(msg)
	if errors.Is(err, uplink.ErrTooLarge) {
		e.log.Error("a message is too large for the Gateway", "bytes", len(msg))
		return true // it never fits
	}
	return err == nil
}
