package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"subway/loadgen"
	loadreport "subway/loadgen/report"
)

type loadgenCmd struct {
	Scenario string `arg:"" optional:"" help:"A scenario by name, or a YAML file. --list says which there are." default:"steady"`
	List     bool   `help:"List the scenarios that are built in."`
	Show     bool   `help:"Print the scenario as YAML, with what the flags change, and do not run it."`

	Gateway string `help:"The Gateway (${default})." default:"http://127.0.0.1:18081" placeholder:"URL"`
	Out     string `help:"Directory for report.txt, report.json, report.html and vegeta.txt; it is made." placeholder:"DIR" type:"path"`
	JSON    bool   `name:"json" help:"Print the report as JSON instead of text."`
	Quiet   bool   `help:"No live line." short:"q"`

	Edges    *int           `help:"Edges." placeholder:"N"`
	Devices  *int           `help:"Devices of each edge." placeholder:"N"`
	Direct   *int           `help:"Devices that connect to the Gateway itself." placeholder:"N"`
	Backends *int           `help:"Backends." placeholder:"N"`
	Rate     *float64       `help:"Commands per second over WebSocket, as an open loop." placeholder:"N"`
	Window   *int           `help:"Commands in flight for each Backend: a closed loop, instead of a rate." placeholder:"N"`
	HTTPRate *float64       `name:"http-rate" help:"Commands per second over HTTP." placeholder:"N"`
	HTTPWait *time.Duration `name:"http-wait" help:"Wait for the end in the answer of the POST, instead of a callback." placeholder:"TIME"`
	Time     *time.Duration `help:"How long to measure: one phase, instead of the scenario's." placeholder:"TIME"`
	Warmup   *time.Duration `help:"How long to send before anything is measured." placeholder:"TIME"`
	Payload  *int           `help:"Bytes of each command's value." placeholder:"BYTES"`
	Timeout  *time.Duration `help:"Timeout of each command." placeholder:"TIME"`
	Delay    *time.Duration `help:"How long a device takes for a command." placeholder:"TIME"`
	Progress *int           `help:"Progress updates of each command." placeholder:"N"`
	Prefix   *string        `help:"What every id begins with; two runs at one Gateway need two." placeholder:"TEXT"`
	Repeats  bool           `help:"Allow what only a crash explains: a confirmed callback again, a command again in one session. For runs in which processes are killed."`

	Seed     uint64     `help:"Seed of every choice; 0: a new one, which the report names." default:"0"`
	Loops    int        `help:"Event loops; 0: half of the processors." default:"0"`
	LogLevel slog.Level `help:"debug, info, warn or error; logs go to stderr." default:"warn"`
}

// Help implements kong.HelpProvider.
func (loadgenCmd) Help() string {
	return `Example: subway loadgen mixed --out report

It simulates edges, devices and Backends against any Gateway, measures, and keeps books of every command.

Exit codes:
  0  the books balance: every command that was sent ended once, and was told so
  1  they do not
  2  wrong usage, or no Gateway there`
}

// Run implements the command.
func (c *loadgenCmd) Run(out *console) error {
	if c.List {
		return c.list(out)
	}
	scenario, err := loadgen.ReadScenario(c.Scenario)
	if err != nil {
		return usage(err)
	}
	if c.Time != nil && (scenario.Ramp != nil || scenario.Storm != nil) {
		return usage(fmt.Errorf("--time says how long a phase lasts; in %s the steps or storms decide (a file of your own can change them, see --show)", scenario.Name))
	}
	c.change(&scenario)
	if c.Show {
		return show(out, scenario)
	}
	vegeta, err := c.makeOut()
	if err != nil {
		return usage(err)
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	opt := loadgen.Options{
		URL: strings.TrimSuffix(c.Gateway, "/"), Scenario: scenario, Seed: c.Seed, Loops: c.Loops,
		Log: slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: c.LogLevel})),
	}
	if vegeta != nil {
		defer vegeta.Close()
		opt.Vegeta = vegeta
	}
	if !c.Quiet {
		opt.Live = func(line string) { fmt.Fprintln(out.stderr, line) }
	}
	return untilSignal(func(ctx context.Context) error {
		rep, err := loadgen.Run(ctx, opt)
		switch {
		case errors.Is(err, loadgen.ErrUnreachable), errors.Is(err, loadgen.ErrOptions):
			return usage(err)
		case err != nil:
			return err
		}
		return c.finish(out, rep)
	})
}

func (c *loadgenCmd) list(out *console) error {
	for _, name := range loadgen.Presets() {
		s, err := loadgen.ReadScenario(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out.stdout, "%-16s %s\n", name, s.About)
	}
	return nil
}

func show(out *console, s loadgen.Scenario) error {
	if err := s.Complete(); err != nil {
		return usage(err)
	}
	text, err := yaml.Marshal(s)
	if err != nil {
		return err
	}
	_, err = out.stdout.Write(text)
	return err
}

// change lets the flags win over the scenario.
func (c *loadgenCmd) change(s *loadgen.Scenario) {
	set(&s.Fleet.Edges, c.Edges)
	set(&s.Fleet.Devices, c.Devices)
	set(&s.Fleet.Direct, c.Direct)
	set(&s.Fleet.Backends, c.Backends)
	set(&s.Fleet.Prefix, c.Prefix)
	set(&s.Load.Rate, c.Rate)
	set(&s.Load.Window, c.Window)
	set(&s.Load.Payload, c.Payload)
	set(&s.Load.Timeout, c.Timeout)
	set(&s.HTTP.Rate, c.HTTPRate)
	set(&s.HTTP.Wait, c.HTTPWait)
	set(&s.Warmup, c.Warmup)
	set(&s.Devices.Delay, c.Delay)
	set(&s.Devices.Progress, c.Progress)
	s.Repeats = s.Repeats || c.Repeats
	if c.Time != nil {
		s.Phases = []loadgen.Phase{{For: *c.Time}}
		if s.Idle != nil {
			s.Idle.Silence = *c.Time
		}
	}
	if c.Window == nil && c.Rate != nil {
		s.Load.Window = 0
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// makeOut makes the directory before the run, so that a long one does not end in vain.
func (c *loadgenCmd) makeOut() (*os.File, error) {
	if c.Out == "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(c.Out, "vegeta.txt"))
}

// finish prints and writes the report, and judges the books.
func (c *loadgenCmd) finish(out *console, rep *loadreport.Report) (err error) {
	if c.Out != "" { // first: what reads stdout may be gone
		for name, write := range map[string]func(io.Writer) error{
			"report.txt": rep.WriteText, "report.json": rep.WriteJSON, "report.html": rep.WriteHTML,
		} {
			err = errors.Join(err, writeFile(filepath.Join(c.Out, name), write))
		}
	}
	print := rep.WriteText
	if c.JSON {
		print = rep.WriteJSON
	}
	if err = errors.Join(err, print(out.stdout)); err != nil {
		return err
	}
	if c.Out != "" {
		fmt.Fprintf(out.stderr, "the report is in %s\n", filepath.Join(c.Out, "report.html"))
	}
	if rep.Books != nil && !rep.Books.Balanced {
		return &exitError{exitFail, errors.New("the books do not balance")}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
