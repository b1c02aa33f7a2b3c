package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"subway/bench/drive"
	"subway/bench/proc"
	"subway/bench/yardstick"
)

// busyBelow is the share of its processor below which a gateway in a closed loop that does not wait for the driver must have waited
// for others.
const busyBelow = 0.85

// summary is everything on the page, and what summary.json holds. Names end in their units; us is microseconds.
type summary struct {
	Begun     time.Time           `json:"begun"`
	Seconds   float64             `json:"seconds"` // what all of it took
	Gateway   version             `json:"gateway"`
	Machine   proc.Machine        `json:"machine"`
	Setting   setting             `json:"setting"`
	Closed    loadFigures         `json:"closed_loop"`
	Open      loadFigures         `json:"open_loop"`
	Idle      idleFigures         `json:"idle"`
	Routes    routeFigures        `json:"routes"`
	Profiled  profiledFigures     `json:"profiled"`
	Micro     []microLine         `json:"micro,omitempty"`
	MicroOf   string              `json:"micro_of,omitempty"` // revision and time
	Yardstick []yardstick.Reading `json:"yardstick"`          // before each run of a loop, closed and open in turns
	Notes     []string            `json:"notes,omitempty"`
}

// version is the gateway's own answer.
type version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

type setting struct {
	Rounds   int     `json:"rounds"`
	Fill     int     `json:"fill_commands"` // before anything was measured
	WarmupS  float64 `json:"warmup_s"`
	TimeS    float64 `json:"time_s"`
	Rate     float64 `json:"open_loop_per_second"`
	IdleForS float64 `json:"idle_s"`
}

// loadFigures are medians over the runs.
type loadFigures struct {
	PerSecond   float64        `json:"commands_per_second"`
	CPU         float64        `json:"cpu_us_per_command"`
	CPUMin      float64        `json:"cpu_us_per_command_min"`
	CPUMax      float64        `json:"cpu_us_per_command_max"`
	P50         float64        `json:"p50_us"`
	P99         float64        `json:"p99_us"`
	P999        float64        `json:"p999_us"`
	Allocs      float64        `json:"allocs_per_command"`
	Server      float64        `json:"server_share"` // of one processor
	Driver      float64        `json:"driver_share"`
	DriverBound int            `json:"driver_bound_runs"`
	Runs        []drive.Result `json:"runs"`
}

type idleFigures struct {
	Conns   int     `json:"conns"`
	Bytes   float64 `json:"rss_bytes_per_conn"`
	OpenCPU float64 `json:"cpu_us_to_open"`
	Share   float64 `json:"server_share"` // of one processor, while nothing happens
}

type routeFigures struct {
	Routes  int     `json:"routes"`
	Edges   int     `json:"edges"`
	IDBytes int     `json:"device_id_bytes"`
	Heap    float64 `json:"heap_bytes_per_route"` // live objects
	RSS     float64 `json:"rss_bytes_per_route"`  // with free memory given back
	CPU     float64 `json:"cpu_us_per_route"`     // of a snapshot
}

// profiledFigures are of the run that was profiled, and no figures of the gateway.
type profiledFigures struct {
	ProfileS float64 `json:"profile_s"`
	RunS     float64 `json:"run_s"`
	CPU      float64 `json:"cpu_us_per_command"`
	Overhead float64 `json:"overhead"` // of CPU, against the closed loop: profiles and the machine's mood together
	OneCPU   bool    `json:"one_processor"`
}

// write writes the page and the JSON beside it.
func (s *summary) write(path string, page []byte) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path+".md", page, 0o644)
}

// page returns the summary for people.
func (s *summary) page() []byte {
	var w bytes.Buffer
	m := s.Machine
	fmt.Fprintf(&w, "# Subway %s\n\n%s. %s, %d CPUs, Linux %s, TCP %s. Gateway built by %s.\n", s.Gateway.Version,
		s.Begun.Format("2006-01-02 15:04 UTC"), m.Processor, m.CPUs, m.Kernel, m.Congestion, s.Gateway.Go)
	fmt.Fprintf(&w, "Medians of %d runs of %.3g s each, after %d commands; CPU is the gateway's, user and system.\n\n",
		s.Setting.Rounds, s.Setting.TimeS, s.Setting.Fill)
	s.loadTable(&w)
	fmt.Fprintf(&w, "\n| memory | bytes | |\n|---|---|---|\n")
	fmt.Fprintf(&w, "| per idle connection | %.0f | growth of RSS, %d devices connected directly; %.1f us CPU to open one, %.1f %% of a processor idle |\n",
		s.Idle.Bytes, s.Idle.Conns, s.Idle.OpenCPU, s.Idle.Share*100)
	r := s.Routes
	fmt.Fprintf(&w, "| per route | %.0f | live heap, %d routes on %d edges, ids of %d bytes; RSS grows by %.0f; %.2f us CPU per route of a snapshot |\n",
		r.Heap, r.Routes, r.Edges, r.IDBytes, r.RSS, r.CPU)
	s.microTable(&w)
	fmt.Fprintf(&w, "\nProfiles (cpu, heap, block, mutex) are in profiles/, their first lines in profiles/top.txt. They are of a closed loop of\n"+
		"its own, %.0f of its %.0f s, where a command cost %.2f us, %+.0f %% against the first table; no figure above is from it.\n",
		s.Profiled.ProfileS, s.Profiled.RunS, s.Profiled.CPU, s.Profiled.Overhead*100)
	if s.Profiled.OneCPU {
		fmt.Fprintf(&w, "Kept to one processor a gateway hardly contends for locks, so an empty mutex profile is to be expected.\n")
	}
	for _, note := range s.Notes {
		fmt.Fprintf(&w, "\nNote: %s.\n", note)
	}
	return w.Bytes()
}

func (s *summary) loadTable(w *bytes.Buffer) {
	c, o := &s.Closed, &s.Open
	fmt.Fprintf(w, "| | closed loop, 8 x 32 in flight | open loop, %.0f/s |\n|---|---|---|\n", s.Setting.Rate)
	line := func(name, format string, of func(l *loadFigures) []any) {
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, fmt.Sprintf(format, of(c)...), fmt.Sprintf(format, of(o)...))
	}
	line("commands/s", "%.0f", func(l *loadFigures) []any { return []any{l.PerSecond} })
	line("CPU us/command [least most]", "%.2f [%.2f %.2f]", func(l *loadFigures) []any { return []any{l.CPU, l.CPUMin, l.CPUMax} })
	line("p50, p99, p99.9 us", "%.0f, %.0f, %.0f", func(l *loadFigures) []any { return []any{l.P50, l.P99, l.P999} })
	line("allocations/command", "%.3f", func(l *loadFigures) []any { return []any{l.Allocs} })
	line("gateway, driver: share of a processor", "%.0f %%, %.0f %%", func(l *loadFigures) []any { return []any{l.Server * 100, l.Driver * 100} })
	if c.DriverBound > 0 {
		fmt.Fprintf(w, "\n%d of the closed runs were driver-bound: the gateway had time to spare, and its CPU figure is too high.\n", c.DriverBound)
	}
	if c.Server < busyBelow && c.DriverBound == 0 {
		fmt.Fprintf(w, "\nThe machine was busy: in the closed loop neither side had its processor. Rates and latencies are not to be trusted.\n")
	}
}

// microTable puts the sizes of one benchmark on one line.
func (s *summary) microTable(w *bytes.Buffer) {
	if len(s.Micro) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| micro-benchmark, ns/op | | n = 1,000 | n = 1,000,000 | allocs/op |\n|---|---|---|---|---|\n")
	for _, l := range s.Micro {
		var cells [3]string
		for i, ns := range []float64{l.NS, l.NSThousand, l.NSMillion} {
			if ns > 0 {
				cells[i] = threeDigits(ns)
			}
		}
		fmt.Fprintf(w, "| %s | %s | %.0f |\n", l.Name, strings.Join(cells[:], " | "), l.Allocs)
	}
	fmt.Fprintf(w, "\nThe micro-benchmarks are of %s.\n", s.MicroOf)
}

// threeDigits writes a figure with no more digits than it is worth.
func threeDigits(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
