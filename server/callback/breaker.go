package callback

import "time"

// A host that many attempts in a row did not reach is left alone for a while: what waits
// for it keeps its attempts, and the slots are for others. Then one attempt at a time
// tries it, until one reaches it.

const (
	breakAfter = 50 // attempts in a row that did not reach the host
	mostBreaks = 8  // times Options.Break: a receiver that is back is found soon
)

// breaker is a host's; Outbox.mu guards it.
type breaker struct {
	missed int           // attempts in a row that did not reach the host
	rest   time.Duration // of the last break; 0: there was none since it was reached
	timer  *time.Timer   // ends the break; nil: there is none
}

// open reports whether the host is left alone now.
func (b *breaker) open() bool { return b.timer != nil }

// allows reports whether another attempt may begin while busy are under way.
func (b *breaker) allows(busy int) bool {
	return b.timer == nil && (b.missed < breakAfter || busy == 0)
}

// noteLocked counts an attempt, and begins a break where it is due.
func (o *Outbox) noteAttemptLocked(h *host, reached bool) {
	b := &h.breaker
	if reached {
		*b = breaker{}
		return
	}
	if b.missed++; b.missed < breakAfter || b.open() || o.stopped {
		return
	}
	b.rest = min(max(2*b.rest, o.opt.Break), mostBreaks*o.opt.Break)
	var t *time.Timer
	t = time.AfterFunc(b.rest, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if b.timer == t {
			b.timer = nil
			o.dispatchLocked(h)
		}
	})
	b.timer = t
}

func (b *breaker) stop() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// slow reports whether more requests wait for the host than two rounds of its slots take:
// then only the newest progress of each is worth its place.
func (h *host) slow() bool { return h.breaker.missed > 0 || h.ready.len > 2*h.limit }
