package main

import (
	"fmt"
	"slices"

	"subway/bench/proc"
)

// noiseMax is how far a yardstick may be off the median of all before its round is called noisy.
const noiseMax = 0.15

// comparison is everything a report holds; it is what the JSON file has.
type comparison struct {
	Begun   string       `json:"begun"`
	Machine proc.Machine `json:"machine"`
	Mode    string       `json:"mode"`
	Base    string       `json:"base"`
	Skipped []skip       `json:"skipped,omitempty"`
	Floor   spread       `json:"floor_x_nats"`   // of the closed loop; zeros where one of them was not measured
	Void    string       `json:"void,omitempty"` // why the figures are worth nothing, "" where they stand
	Lines   []line       `json:"summary"`
	Rounds  []round      `json:"rounds"`

	flags *flags
}

// line sums up one peer in one scenario: medians over the rounds.
type line struct {
	Peer       string   `json:"peer"`
	Scenario   scenario `json:"scenario"`
	Rounds     int      `json:"rounds"`
	Noisy      int      `json:"noisy_rounds"`
	CPU        spread   `json:"cpu_us_per_command"`
	Normalised float64  `json:"cpu_us_normalised"` // each round's figure divided by how dear its yardstick was
	Ratio      spread   `json:"ratio_to_base"`     // pair by pair, of the same round
	PerSecond  float64  `json:"per_second"`
	P50        float64  `json:"p50_us"`
	P99        float64  `json:"p99_us"`
	Server     float64  `json:"server_share"`
	Driver     float64  `json:"driver_share"`
	Bound      int      `json:"driver_bound_rounds"`
	Allocs     float64  `json:"allocs_per_message"`
	RSS        float64  `json:"server_rss_mib"`
	PerConn    float64  `json:"rss_bytes_per_conn"`
	ConnCPU    float64  `json:"cpu_us_per_conn"`
	ConnRate   float64  `json:"conns_per_second"`
	IdleCPU    float64  `json:"idle_cpu_ms"`

	// Of the modes that measure twice in one server.
	Before       spread  `json:"cpu_us_before"`
	Extra        spread  `json:"cpu_us_extra"` // per command, of the same server
	BeforeP99    float64 `json:"p99_us_before"`
	PerRoute     float64 `json:"rss_bytes_per_route"`
	StuckRefused float64 `json:"stuck_refused"`
	StuckRSS     float64 `json:"stuck_rss_mib"`
}

// spread is a median and the extremes around it.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	return spread{median(values), slices.Min(values), slices.Max(values)}
}

// figure collects one number of each round.
func figure(rounds []round, of func(r *round) float64) []float64 {
	var values []float64
	for i := range rounds {
		values = append(values, of(&rounds[i]))
	}
	return values
}

// summarise marks noisy rounds and makes the lines, in the order of measurement.
func (c *comparison) summarise() {
	user := median(figure(c.Rounds, func(r *round) float64 { return r.Yardstick.User }))
	loopback := median(figure(c.Rounds, func(r *round) float64 { return r.Yardstick.Loopback }))
	off := func(value, middle float64) bool { return value > middle*(1+noiseMax) || value < middle*(1-noiseMax) }
	for i := range c.Rounds {
		y := c.Rounds[i].Yardstick
		c.Rounds[i].Noisy = off(y.User, user) || off(y.Loopback, loopback)
	}
	for i := range c.Rounds {
		first := &c.Rounds[i]
		if first.Number != 1 {
			continue
		}
		mine := c.of(first.Peer, first.Scenario)
		l := c.line(first, mine)
		l.Normalised = median(figure(mine, func(r *round) float64 {
			return r.Result.CPUPerCommand / ((r.Yardstick.User/user + r.Yardstick.Loopback/loopback) / 2)
		}))
		c.Lines = append(c.Lines, l)
	}
}

// of returns the rounds of one peer in one scenario, by number.
func (c *comparison) of(peer string, s scenario) (mine []round) {
	for _, r := range c.Rounds {
		if r.Peer == peer && r.Scenario == s {
			mine = append(mine, r)
		}
	}
	return mine
}

func (c *comparison) line(first *round, mine []round) line {
	middle := func(of func(r *round) float64) float64 { return median(figure(mine, of)) }
	l := line{
		Peer: first.Peer, Scenario: first.Scenario, Rounds: len(mine),
		CPU:       spreadOf(figure(mine, func(r *round) float64 { return r.Result.CPUPerCommand })),
		PerSecond: middle(func(r *round) float64 { return r.Result.PerSecond }),
		P50:       middle(func(r *round) float64 { return r.Result.P50 }),
		P99:       middle(func(r *round) float64 { return r.Result.P99 }),
		Server:    middle(func(r *round) float64 { return r.Result.ServerShare }),
		Driver:    middle(func(r *round) float64 { return r.Result.DriverShare }),
		Allocs:    middle(func(r *round) float64 { return r.Result.AllocsPerMessage }),
		RSS:       middle(func(r *round) float64 { return float64(r.Result.ServerRSS) / (1 << 20) }),
		PerConn:   middle(func(r *round) float64 { return r.Result.RSSPerConn }),
		ConnCPU:   middle(func(r *round) float64 { return r.Result.CPUPerConn }),
		ConnRate:  middle(func(r *round) float64 { return r.Result.ConnsPerSecond }),
		IdleCPU:   middle(func(r *round) float64 { return r.Result.IdleCPU }),
	}
	l.twice(mine)
	for _, r := range mine {
		if r.Noisy {
			l.Noisy++
		}
		if r.Result.DriverBound {
			l.Bound++
		}
	}
	l.Ratio = spreadOf(quotients(mine, c.of(c.Base, first.Scenario)))
	return l
}

// twice fills in what the modes that measure twice have.
func (l *line) twice(mine []round) {
	mine = slices.DeleteFunc(slices.Clone(mine), func(r round) bool { return r.Result.Before == nil })
	l.Before = spreadOf(figure(mine, func(r *round) float64 { return r.Result.Before.CPUPerCommand }))
	l.Extra = spreadOf(figure(mine, func(r *round) float64 { return r.Result.CPUPerCommand - r.Result.Before.CPUPerCommand }))
	l.BeforeP99 = median(figure(mine, func(r *round) float64 { return r.Result.Before.P99 }))
	l.PerRoute = median(figure(mine, func(r *round) float64 { return r.Result.BytesPerRoute }))
	l.StuckRefused = median(figure(mine, func(r *round) float64 { return float64(r.Result.StuckRefused) }))
	l.StuckRSS = median(figure(mine, func(r *round) float64 { return float64(r.Result.StuckRSS) / (1 << 20) }))
}

// String is the median with its extremes.
func (s spread) String() string {
	if s == (spread{}) {
		return "-"
	}
	return fmt.Sprintf("%.2f [%.2f %.2f]", s.Median, s.Min, s.Max)
}
