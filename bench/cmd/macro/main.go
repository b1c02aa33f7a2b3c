// Command macro measures the whole gateway as its own process and writes a page about it: what a command costs, how long it takes,
// what an idle connection and a route take of memory, and profiles of the steady run. `make bench` runs it after the
// micro-benchmarks, whose results it puts on the same page. To compare gateways with others is cmd/compare's work.
//
// No figure is from a run that was being profiled: the profiles come from a run of their own, and what they cost it is said.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"subway/bench/proc"

	"github.com/alecthomas/kong"
)

type flags struct {
	Rounds  int           `help:"Runs of the closed and of the open loop, in turns; figures are medians." default:"3"`
	Fill    int           `help:"Commands to a fresh gateway before anything is measured: as many as it keeps records of ended ones, since filling that table allocates." default:"500000"`
	Warmup  time.Duration `help:"Load before each measurement." default:"1s"`
	Time    time.Duration `help:"Length of each measurement." default:"3s"`
	Rate    float64       `help:"Commands per second of the open loop." default:"20000"`
	Profile time.Duration `help:"Length of the profiles, whole seconds." default:"5s"`
	Conns   int           `help:"Idle connections." default:"10000"`
	Idle    time.Duration `help:"How long to watch them." default:"3s"`
	Routes  int           `help:"Routes, over 100 edges." default:"1000000"`

	Micro  string        `help:"Results of the micro-benchmarks, for the page; none where there is no such file." default:"out/micro.txt"`
	Limit  time.Duration `help:"Of everything." default:"3m"`
	Out    string        `help:"Directory of the report." default:"out"`
	Subway string        `help:"The gateway's binary." default:"../bin/subway"`
	Drive  string        `help:"The driver's binary." default:"out/drive"`
	Go     string        `help:"The go command, for go tool pprof." default:"go"`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("macro"), kong.Description("Measures the gateway and writes a page about it."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := f.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "macro:", err)
		os.Exit(1)
	}
}

// check refuses what the phases cannot do, before any of them has begun.
func (f *flags) check() error {
	switch {
	case f.Rounds < 1 || f.Rounds > 100:
		return errors.New("rounds must be 1 to 100")
	case f.Fill < 1 || f.Fill > 100_000_000:
		return errors.New("fill must be 1 to 100000000")
	case f.Profile < time.Second || f.Profile > time.Minute || f.Profile%time.Second != 0:
		return errors.New("profile must be whole seconds, 1s to 1m")
	case f.Rate <= 0:
		return errors.New("rate must be above 0")
	case f.Conns < connsFirst+1:
		return fmt.Errorf("conns must be above %d", connsFirst)
	case f.Routes <= routesFirst || f.Routes > routesMax || f.Routes%routeEdges != 0:
		return fmt.Errorf("routes must be a multiple of %d, above %d and up to %d", routeEdges, routesFirst, routesMax)
	}
	for _, binary := range []string{f.Subway, f.Drive, f.Go} {
		if _, err := exec.LookPath(binary); err != nil {
			return fmt.Errorf("%w (make bench builds what it needs)", err)
		}
	}
	return nil
}

// run carries out the phases, each with gateways of its own, and prints the page it has written.
func (f *flags) run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.Limit)
	defer cancel()
	if err := f.check(); err != nil {
		return err
	}
	b := bench{flags: f}
	b.sum.Begun = time.Now().UTC()
	b.sum.Machine = proc.DescribeMachine()
	b.sum.Setting = setting{f.Rounds, f.Fill, f.Warmup.Seconds(), f.Time.Seconds(), f.Rate, f.Idle.Seconds()}
	b.place()
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{{"load", b.load}, {"profiles", b.profile}, {"idle", b.idle}, {"routes", b.routes}, {"micro", b.micro}} {
		begun := time.Now()
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, errors.Join(err, context.Cause(ctx)))
		}
		fmt.Fprintf(os.Stderr, "%s: %.1f s\n", phase.name, time.Since(begun).Seconds())
	}
	b.sum.Seconds = time.Since(b.sum.Begun).Seconds()
	page := b.sum.page()
	if err := b.sum.write(filepath.Join(f.Out, "summary"), page); err != nil {
		return err
	}
	_, err := w.Write(page)
	return err
}
