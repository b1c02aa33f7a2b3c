package router

import (
	"time"

	"subway/core/wire"
)

// awayList holds the edges, or the direct devices, that are known and not connected, the
// longest away first; Router.topo guards it.
type awayList struct {
	head, tail *edge
	untold     *edge // the first that PERMANENTLY_OFFLINE was not due for yet
	devices    int64 // routed to them
}

// push notes that e goes now. Clocks of two connections may be read in another order
// than they come here; the list is in order all the same.
func (l *awayList) push(e *edge, now wire.Time) {
	e.isAway, e.away = true, now
	l.devices += int64(e.nDevices)
	if l.tail == nil {
		l.head = e
	} else {
		e.away = max(now, l.tail.away)
		l.tail.anext, e.aprev = e, l.tail
	}
	l.tail = e
	if l.untold == nil {
		l.untold = e
	}
}

// remove takes e out, if it is there: it is back, or is forgotten.
func (l *awayList) remove(e *edge) {
	if !e.isAway {
		return
	}
	if l.untold == e {
		l.untold = e.anext
	}
	if e.aprev == nil {
		l.head = e.anext
	} else {
		e.aprev.anext = e.anext
	}
	if e.anext == nil {
		l.tail = e.aprev
	} else {
		e.anext.aprev = e.aprev
	}
	e.aprev, e.anext, e.isAway = nil, nil, false
	l.devices -= int64(e.nDevices)
}

// awayOf returns the list for edges like e; topo is held.
func (r *Router) awayOf(e *edge) *awayList { return &r.away[index(e.direct)] }

// eachAway calls fn for edges and direct devices that are away, the longest first, until
// it returns false; topo is held.
func (r *Router) eachAway(fn func(*edge) bool) {
	a, b := r.away[0].head, r.away[1].head
	for a != nil || b != nil {
		e := a
		if a == nil || b != nil && b.away < a.away {
			e, b = b, b.anext
		} else {
			a = a.anext
		}
		if !fn(e) {
			return
		}
	}
}

// tidy tells of edges that are gone for good and forgets what has been kept long enough;
// topo is held. It looks at no edge that is not due.
func (r *Router) tidy(now wire.Time) {
	r.tidyFlaps(now)
	for i := range r.away {
		l := &r.away[i]
		for e := l.untold; e != nil && time.Duration(now-e.away) > r.limits.PermanentAfter; e = l.untold {
			l.untold = e.anext
			if !e.goodbye && e.told == wordOffline && e.speaks() {
				r.tellEdge(e, wordPermanent, "gone for longer than any reconnect takes", now)
			}
		}
		for e := l.head; e != nil && time.Duration(now-e.away) > r.limits.PermanentAfter+r.limits.RouteRetention; e = l.head {
			r.forgetEdge(e)
		}
	}
	for d := range r.stray {
		if d.waiting.Load() == 0 {
			delete(r.stray, d)
			r.forget(d)
		}
	}
}
