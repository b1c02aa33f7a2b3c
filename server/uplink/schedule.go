package uplink

import (
	"math/rand/v2"
	"time"

	"subway/core/wire"
)

// Schedule says when a connection that was lost is tried again (PROTOCOL.md section 5).
// Zero values mean the defaults.
type Schedule struct {
	First      time.Duration // before the first attempt, doubled before each further one; 5 s
	Attempts   int           // of these; then the party counts as permanently offline; 5
	Slow       time.Duration // between attempts from then on, and after 4401, 4403 and 4426; 5 min
	GoingAway  time.Duration // at most, after 1001; 1 s
	Superseded time.Duration // at least, after 4409; 60 s
	Jitter     float64       // the fraction by which a delay may be shortened; 0.25
	Random     func() float64
}

func (s Schedule) withDefaults() Schedule {
	s.First = orDefault(s.First, 5*time.Second)
	s.Attempts = min(orDefault(s.Attempts, 5), 16)
	s.Slow = orDefault(s.Slow, 5*time.Minute)
	s.GoingAway = orDefault(s.GoingAway, time.Second)
	s.Superseded = orDefault(s.Superseded, time.Minute)
	if s.Jitter <= 0 || s.Jitter > 1 {
		s.Jitter = 0.25
	}
	if s.Random == nil {
		s.Random = rand.Float64
	}
	return s
}

// retry follows a schedule. One goroutine uses it.
type retry struct {
	Schedule
	failed  int  // delays of the schedule used up
	hurried bool // 1001 was answered by a quick attempt
	refused bool // the server does not want this party
}

// registered begins the schedule anew: the connection was of use.
func (r *retry) registered() { r.failed, r.hurried, r.refused = 0, false, false }

// next returns how long to wait before the next attempt after an end with this code, and
// whether the attempts of the schedule are used up.
func (r *retry) next(code uint16) (wait time.Duration, offline bool) {
	switch code {
	case wire.CloseUnauthorized, wire.CloseForbidden, wire.CloseVersion:
		r.refused = true
	case wire.CloseSuperseded:
		return r.Superseded + r.part(r.Superseded), false
	case wire.CloseGoingAway:
		if !r.hurried {
			r.hurried = true
			return time.Duration(r.Random() * float64(r.GoingAway)), false
		}
	}
	if r.refused || r.failed >= r.Attempts {
		return r.Slow, r.failed >= r.Attempts
	}
	wait = r.First << r.failed
	r.failed++
	return wait - r.part(wait), false
}

// part is a random part of d, up to Jitter of it: clients that were lost together do not
// come back together.
func (r *retry) part(d time.Duration) time.Duration {
	return time.Duration(r.Random() * r.Jitter * float64(d))
}
