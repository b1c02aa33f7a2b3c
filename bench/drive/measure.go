package drive

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"subway/bench/proc"
)

// gauge is what is read before and after a measurement, with nothing in flight.
type gauge struct {
	loop   int64
	server time.Duration
	system time.Duration
	own    time.Duration
}

func (r *run) readGauge() (g gauge, err error) {
	if r.cfg.PID > 0 {
		if _, g.system, err = proc.CPUSplit(r.cfg.PID); err != nil {
			return g, fmt.Errorf("the server's CPU time: %w", err)
		}
		if g.server, err = proc.CPUTime(r.cfg.PID); err != nil {
			return g, fmt.Errorf("the server's CPU time: %w", err)
		}
	}
	g.own = proc.OwnCPUTime()
	g.loop = r.loop.clock()
	return g, nil
}

// measure is the phase that counts. Nothing is in flight before and after it, so CPU time, allocations and commands belong
// together exactly.
func (r *run) measure() error {
	scrape, before, err := r.scrapeCost()
	if err != nil {
		return err
	}
	warm := r.result
	r.result = Result{Failed: warm.Failed, Stray: warm.Stray, Corrupt: warm.Corrupt, Unexpected: warm.Unexpected, Notes: warm.Notes}
	r.result.Lost = r.issued - r.settled
	r.latency.Reset()
	issued := r.issued
	from, err := r.readGauge()
	if err != nil {
		return err
	}
	if err := r.phase(r.cfg.Time, r.cfg.Count); err != nil {
		return err
	}
	to, err := r.readGauge()
	if err != nil {
		return err
	}
	r.result.Lost = r.issued - r.settled
	r.sum(from, to)
	if r.cfg.URL != "" {
		after, err := mallocs(r.cfg.URL)
		if err != nil {
			return err
		}
		r.result.AllocsPerMessage = max(0, after-before-scrape) / float64(2*max(1, r.issued-issued))
	}
	return nil
}

// sum fills the result from two gauges.
func (r *run) sum(from, to gauge) {
	res := &r.result
	res.Mode, res.Proto, res.Seed, res.Payload, res.Kind = "closed", r.cfg.Proto, r.cfg.Seed, len(r.payload), r.cfg.Kind
	if r.cfg.Rate > 0 {
		res.Mode, res.TargetRate = "open", r.cfg.Rate
	}
	switch {
	case r.cfg.Batch > 0:
		res.Mode = "batch"
	case r.cfg.Callback:
		res.Mode = "callback"
	case r.cfg.Grow > 0:
		res.Mode = "routes"
	case r.cfg.Stuck:
		res.Mode = "stuck"
	case r.cfg.HTTP:
		res.Mode = "http"
	}
	wall := float64(to.loop - from.loop)
	res.Seconds = wall / 1e9
	res.PerSecond = float64(res.Commands) / res.Seconds
	if used := float64(to.server - from.server); used > 0 && res.Commands > 0 {
		res.CPUPerCommand = used / 1e3 / float64(res.Commands)
		res.ServerShare = used / wall
		res.SystemShare = min(1, float64(to.system-from.system)/used)
	}
	res.DriverShare = float64(to.own-from.own) / wall
	res.DriverBound = r.cfg.Rate == 0 && res.DriverShare > 0.9 && res.ServerShare < 0.9
	us := func(percent float64) float64 { return float64(r.latency.ValueAtPercentile(percent)) / 1e3 }
	res.P50, res.P90, res.P99, res.P999 = us(50), us(90), us(99), us(99.9)
	res.Max = float64(r.latency.Max()) / 1e3
	if r.cfg.PID > 0 {
		res.ServerRSS, _ = proc.RSS(r.cfg.PID) // gone already: 0, the figures above stand
	}
}

// scrapeCost reads the allocation counter twice, to know what reading it allocates.
func (r *run) scrapeCost() (cost, now float64, err error) {
	if r.cfg.URL == "" {
		return 0, 0, nil
	}
	first, err := mallocs(r.cfg.URL)
	if errors.Is(err, errNoCounter) {
		r.cfg.URL = ""
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	now, err = mallocs(r.cfg.URL)
	return now - first, now, err
}

// errNoCounter says that the server does not tell what it allocates.
var errNoCounter = errors.New("no go_memstats_mallocs_total in /metrics")

// mallocs reads go_memstats_mallocs_total from URL/metrics.
func mallocs(url string) (float64, error) {
	const name = "go_memstats_mallocs_total"
	client := http.Client{Timeout: dialTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(strings.TrimSuffix(url, "/") + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errNoCounter
}
