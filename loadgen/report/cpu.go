package report

import (
	"encoding/json"
	"runtime"

	"golang.org/x/sys/unix"
)

// Share is a part of the processors that a process may use, 1 being all of them all the
// time. Negative means that it is not known, and is null in JSON.
type Share float64

const unknown Share = -1

// Known tells a share that was measured.
func (s Share) Known() bool { return s >= 0 }

// MarshalJSON writes null for a share that is not known.
func (s Share) MarshalJSON() ([]byte, error) {
	if !s.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(round(float64(s), 4))
}

func defaultCores() float64 { return float64(runtime.GOMAXPROCS(0)) }

// processCPU is the user and system time of this process, in nanoseconds.
func processCPU() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0 // it has no error for RUSAGE_SELF
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// gatewayCPU turns readings of a growing counter into shares.
type gatewayCPU struct {
	read    bool
	at      int64   // ns since start, of the last reading
	seconds float64 // the last reading
	share   Share   // over the time up to the last reading
	used    float64 // between the readings
}

// GatewayCPU takes the CPU seconds that the gateway used since it started, as read now.
// From the second reading on, the seconds have the gateway's share. A reading below the
// one before it (the gateway was restarted) begins anew.
func (r *Recorder) GatewayCPU(seconds float64) {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &r.gate
	g.share = unknown
	if took := float64(now-g.at) / 1e9; g.read && seconds >= g.seconds {
		if took <= 0 {
			return // twice in one instant says nothing
		}
		g.used += seconds - g.seconds
		g.share = Share((seconds - g.seconds) / took / r.gateCores)
	}
	g.read, g.at, g.seconds = true, now, seconds
}

// shares sums the seconds' shares for mean and maximum.
type shares struct {
	seconds, sum float64
	over         float64 // seconds at more than busyShare
	max          Share
}

func (s *shares) add(share Share, seconds float64) {
	if !share.Known() || seconds <= 0 {
		return
	}
	s.seconds += seconds
	s.sum += float64(share) * seconds
	s.max = max(s.max, share)
	if share > busyShare {
		s.over += seconds
	}
}

func (s *shares) mean() Share {
	if s.seconds == 0 {
		return unknown
	}
	return Share(s.sum / s.seconds)
}
