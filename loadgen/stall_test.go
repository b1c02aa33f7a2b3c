package loadgen_test

import (
	"fmt"
	"testing"
	"time"

	"subway/loadgen"
	"subway/loadgen/report"
)

const (
	plain    = 20 * time.Millisecond
	stall    = 2 * time.Second
	loadTime = 5 * time.Second
	tries    = 4 // a machine that is busy with others spoils one, coordinated omission spoils all
)

// stalling answers each command after plain, but once, a second and a half from now, stops
// for the time of a stall.
func stalling(t *testing.T) *scripted {
	g := newScripted(t, "")
	begun := time.Now().Add(1500 * time.Millisecond)
	g.delay = func(now time.Time) time.Duration {
		if into := now.Sub(begun); into > 0 && into < stall {
			return stall - into + plain
		}
		return plain
	}
	return g
}

// What the gateway is late with shows in the percentiles as the schedule says, not as
// the generator happened to send: a steady rate for 5 s, of which the commands of 2 s wait
// until a stall is over. Over HTTP all workers are busy after a fifth of a second of it,
// so most of these commands leave long after they were due, and count from there.
func TestStallShows(t *testing.T) {
	for _, tc := range []struct {
		name string
		ws   float64
		http loadgen.HTTP
	}{
		{"WebSocket", 500, loadgen.HTTP{}},
		{"HTTP wait", 0, loadgen.HTTP{Rate: 100, Workers: 20, Wait: 5 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := small()
			s.Load = loadgen.Load{Rate: tc.ws, Payload: 20, Timeout: 10 * time.Second}
			s.HTTP = tc.http
			s.Devices = loadgen.Devices{}
			s.Phases = []loadgen.Phase{{For: loadTime}}
			var wrong []string
			for range tries {
				rep := play(t, stalling(t).URL, s)
				if !rep.Books.Balanced || len(rep.Channels) != 1 {
					t.Fatalf("%d channels, faults %q: %q", len(rep.Channels), bad(rep), rep.Books.Mismatches)
				}
				if wrong = checkStall(t, &rep.Channels[0], tc.ws+tc.http.Rate); wrong == nil {
					return
				}
			}
			t.Errorf("%d tries; the last: %q", tries, wrong)
		})
	}
}

// checkStall knows the schedule: two fifths of the commands waited, evenly spread over 0
// to 2 s; so a fifth of all waited more than a second, a tenth 1.5 s or more, a hundredth
// 1.95 s or more. None of them may look faster than the schedule allows; the upper ends
// leave much room for a machine that is busy itself.
func checkStall(t *testing.T, d *report.Distribution, rate float64) (wrong []string) {
	t.Helper()
	over := slower(d, 1000)
	t.Logf("%d commands, p50 %.1f, p90 %.0f, p99 %.0f, max %.0f ms, %.3f of them over 1 s", d.Count, d.P50Ms, d.P90Ms, d.P99Ms, d.MaxMs, over)
	for _, c := range []struct {
		name           string
		got, from, til float64
	}{
		{"count", float64(d.Count), 0.95 * rate * loadTime.Seconds(), 1.01 * rate * loadTime.Seconds()},
		{"min", d.MinMs, 20, 100},
		{"p50", d.P50Ms, 20, 400},
		{"p90", d.P90Ms, 1480, 2500},
		{"p99", d.P99Ms, 1940, 3500},
		{"max", d.MaxMs, 1990, 6000},
		{"share over 1 s", over, 0.19, 0.35},
	} {
		if c.got < c.from || c.got > c.til {
			wrong = append(wrong, fmt.Sprintf("%s: %.3f, want %.3f to %.3f", c.name, c.got, c.from, c.til))
		}
	}
	return wrong
}

// slower is the share of the commands that took longer than ms, a bound of the buckets.
func slower(d *report.Distribution, ms float64) float64 {
	n := int64(0)
	for _, b := range d.Buckets {
		if b.FromMs >= ms {
			n += b.Count
		}
	}
	return float64(n) / float64(d.Count)
}
