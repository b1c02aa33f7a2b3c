package router

import "subway/core/wire"

// Bucket is a token bucket for the commands of one client (PROTOCOL.md section 3,
// RATE_LIMITED): it holds a second's worth, and at least one. The zero value is full.
// One goroutine at a time.
type Bucket struct {
	spent float64 // of the burst
	at    wire.Time
}

// Take reports whether n more commands are within perSecond, and counts them if so.
// Where perSecond is 0 there is no bound. More than the burst at once is let through
// when nothing has been spent, and waited for afterwards.
func (b *Bucket) Take(n int, perSecond float64, now wire.Time) bool {
	if perSecond <= 0 {
		return true
	}
	burst := max(perSecond, 1)
	b.spent = max(0, b.spent-float64(now-b.at)/1e9*perSecond)
	b.at = now
	if b.spent > 0 && b.spent+float64(n) > burst {
		return false
	}
	b.spent += float64(n)
	return true
}

// RefuseRate is for a client's commands beyond its rate.
func RefuseRate() *Refusal {
	return &Refusal{Code: wire.CodeRateLimited, Text: "More commands than this client may send", Details: appendRetryAfter(nil, 1)}
}
