package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// table is the report as text: the same cells for the terminal and for Markdown.
type table struct {
	head []string
	rows [][]string
}

// table makes the cells that the mode has figures for.
func (c *comparison) table() table {
	switch c.Mode {
	case "idle", "connect":
		return c.connTable()
	case "callback", "routes", "stuck":
		return c.twiceTable()
	}
	t := table{head: []string{"peer", "payload", "rate", "CPU us/command", "normalised", "x " + c.Base, "per s", "p50 us", "p99 us",
		"server", "driver", "allocs/msg", "RSS MiB", "noisy"}}
	for _, l := range c.Lines {
		allocs := "-"
		if l.Allocs > 0 {
			allocs = fmt.Sprintf("%.2f", l.Allocs)
		}
		t.rows = append(t.rows, []string{l.Peer, fmt.Sprint(l.Scenario.Payload), rateText(l.Scenario), l.CPU.String(), fmt.Sprintf("%.2f", l.Normalised),
			l.Ratio.String(), fmt.Sprintf("%.0f", l.PerSecond), fmt.Sprintf("%.0f", l.P50), fmt.Sprintf("%.0f", l.P99),
			fmt.Sprintf("%.0f%%", l.Server*100), fmt.Sprintf("%.0f%%", l.Driver*100), allocs, fmt.Sprintf("%.1f", l.RSS), l.remarks()})
	}
	return t
}

// rateMissed is the part of its rate below which an open loop is said to have been missed.
const rateMissed = 0.95

// remarks says how far a line can be trusted.
func (l *line) remarks() string {
	note := fmt.Sprintf("%d/%d", l.Noisy, l.Rounds)
	if l.Bound > 0 {
		note += fmt.Sprintf(", driver-bound %d", l.Bound)
	}
	if l.PerSecond < l.Scenario.Rate*rateMissed {
		note += ", rate missed"
	}
	return note
}

func (c *comparison) connTable() table {
	t := table{head: []string{"peer", "conns", "bytes/conn", "CPU us to open one", "opened per s", "p99 ms to open", "idle CPU ms", "RSS MiB"}}
	for _, l := range c.Lines {
		toOpen, idle := "-", "-" // a storm is not watched, and who comes one by one does not wait
		if c.Mode == "connect" {
			toOpen = fmt.Sprintf("%.1f", l.P99/1e3)
		} else {
			idle = fmt.Sprintf("%.1f", l.IdleCPU)
		}
		t.rows = append(t.rows, []string{l.Peer, fmt.Sprint(c.flags.Conns), fmt.Sprintf("%.0f", l.PerConn), fmt.Sprintf("%.1f", l.ConnCPU),
			fmt.Sprintf("%.0f", l.ConnRate), toOpen, idle, fmt.Sprintf("%.1f", l.RSS)})
	}
	return t
}

// twiceTable is of the modes that measure the same load before and after a change, in one server.
func (c *comparison) twiceTable() table {
	t := table{head: []string{"peer", "payload", "rate", "CPU us/command before", "after", "extra", "p99 us before", "after", "per s"}}
	switch c.Mode {
	case "routes":
		t.head = append(t.head, "bytes/route")
	case "stuck":
		t.head = append(t.head, "refused", "RSS MiB more")
	}
	t.head = append(t.head, "noisy")
	for _, l := range c.Lines {
		row := []string{l.Peer, fmt.Sprint(l.Scenario.Payload), rateText(l.Scenario), l.Before.String(), l.CPU.String(), l.Extra.String(),
			fmt.Sprintf("%.0f", l.BeforeP99), fmt.Sprintf("%.0f", l.P99), fmt.Sprintf("%.0f", l.PerSecond)}
		switch c.Mode {
		case "routes":
			row = append(row, fmt.Sprintf("%.0f", l.PerRoute))
		case "stuck":
			row = append(row, fmt.Sprintf("%.0f", l.StuckRefused), fmt.Sprintf("%.1f", l.StuckRSS))
		}
		t.rows = append(t.rows, append(row, l.remarks()))
	}
	return t
}

func rateText(s scenario) string {
	if s.Rate > 0 {
		return fmt.Sprintf("%.0f/s", s.Rate)
	}
	return "closed"
}

// preamble is what must be read with the figures: where they are from, and whether they stand.
func (c *comparison) preamble() (lines []string) {
	m := c.Machine
	lines = append(lines, fmt.Sprintf("%s, %d CPUs, Linux %s, %s, TCP %s; mode %s, %d rounds, medians [extremes] over rounds",
		m.Processor, m.CPUs, m.Kernel, m.Go, m.Congestion, c.Mode, c.flags.Rounds))
	for _, s := range c.Skipped {
		lines = append(lines, fmt.Sprintf("skipped: %s (%s)", s.Peer, s.Why))
	}
	if c.Floor != (spread{}) {
		lines = append(lines, fmt.Sprintf("floor x NATS: %s, at most %.2f", c.Floor, floorMax))
	}
	if c.Void != "" {
		lines = append(lines, "VOID: "+c.Void)
	}
	return lines
}

// print writes the table for a terminal.
func (c *comparison) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", strings.Join(c.preamble(), "\n"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	all := c.table()
	for _, row := range append([][]string{all.head}, all.rows...) {
		fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
	}
	t.Flush()
}

// markdown writes the table for docs/performance.md.
func (c *comparison) markdown(w io.Writer) {
	all := c.table()
	fmt.Fprintf(w, "%s\n\n", strings.Join(c.preamble(), "  \n"))
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(all.head, " | "), strings.Repeat("---|", len(all.head)))
	for _, row := range all.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// write leaves compare-MODE.json, with every round in it, and compare.md (for other modes compare-MODE.md) in a directory.
func (c *comparison) write(dir string) error {
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "compare-"+c.Mode+".json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	name := "compare-" + c.Mode + ".md"
	if c.Mode == "load" {
		name = "compare.md"
	}
	var page strings.Builder
	c.markdown(&page)
	return os.WriteFile(filepath.Join(dir, name), []byte(page.String()), 0o644)
}
