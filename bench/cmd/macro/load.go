package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"subway/bench/drive"
	"subway/bench/yardstick"
)

const (
	// driveSlack is how much longer than its phases the driver may take.
	driveSlack = 60 * time.Second
	// fillLimit bounds the time to fill a gateway: far more than it takes.
	fillLimit = 30 * time.Second
	// connsFirst is how many idle connections the driver opens before it begins to count.
	connsFirst = 100
	// connsSpare are open files that are no idle connections.
	connsSpare = 200
)

// bench is one run of everything. Its methods are for one goroutine.
type bench struct {
	flags                *flags
	serverCPU, driverCPU int // negative: any
	sum                  summary
}

func (b *bench) note(format string, args ...any) {
	b.sum.Notes = append(b.sum.Notes, fmt.Sprintf(format, args...))
}

// load runs the closed and the open loop in turns, so that what the machine does to one it does to the other. Each round has a
// gateway of its own.
func (b *bench) load(ctx context.Context) error {
	for range b.flags.Rounds {
		err := b.with(ctx, func(g *gateway) error {
			if err := b.fill(ctx, g); err != nil {
				return err
			}
			return errors.Join(b.measure(ctx, g, &b.sum.Closed, 0), b.measure(ctx, g, &b.sum.Open, b.flags.Rate))
		})
		if err != nil {
			return err
		}
	}
	b.sum.Closed.middle()
	b.sum.Open.middle()
	return nil
}

// fill brings a fresh gateway to where it stays: with its table of ended commands full, a new record takes the oldest's place.
func (b *bench) fill(ctx context.Context, g *gateway) error {
	if _, err := b.drive(ctx, g, fillLimit, "--warmup", "0s", "--count", strconv.Itoa(b.flags.Fill)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}

// measure is one run of a loop (rate 0: closed) and the yardstick before it.
func (b *bench) measure(ctx context.Context, g *gateway, into *loadFigures, rate float64) error {
	reading, err := yardstick.Take(b.serverCPU)
	if err != nil {
		return err
	}
	b.sum.Yardstick = append(b.sum.Yardstick, reading)
	r, err := b.drive(ctx, g, b.flags.Time, "--warmup", b.flags.Warmup.String(),
		"--rate", strconv.FormatFloat(rate, 'f', -1, 64), "--url", g.url())
	into.Runs = append(into.Runs, r)
	return err
}

// idle holds silent connections.
func (b *bench) idle(ctx context.Context) error {
	conns, err := b.connsPossible(b.flags.Conns)
	if err != nil {
		return err
	}
	return b.with(ctx, func(g *gateway) error {
		r, err := b.drive(ctx, g, b.flags.Idle, "--mode", "idle", "--conns", strconv.Itoa(conns), "--idle", b.flags.Idle.String())
		b.sum.Idle = idleFigures{r.Conns, r.RSSPerConn, r.CPUPerConn, r.ServerShare}
		return err
	})
}

// drive runs the driver against g and returns its result, which is without a wrong answer.
func (b *bench) drive(ctx context.Context, g *gateway, length time.Duration, args ...string) (r drive.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.flags.Warmup+length+driveSlack)
	defer cancel()
	argv := []string{b.flags.Drive, "--addr", g.Addr.String(), "--pid", strconv.Itoa(g.PID), "--time", length.String()}
	if b.driverCPU >= 0 {
		argv = append([]string{"taskset", "-c", strconv.Itoa(b.driverCPU)}, argv...)
	}
	argv = append(argv, args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("driver: %w: %s", err, bytes.TrimSpace(wrong.Bytes()))
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("driver: %w", err)
	}
	if bad := r.Bad(); bad != "" {
		return r, errors.New("wrong answers: " + bad)
	}
	return r, nil
}

// middle fills the medians in.
func (l *loadFigures) middle() {
	of := func(figure func(r *drive.Result) float64) (values []float64) {
		for i := range l.Runs {
			values = append(values, figure(&l.Runs[i]))
		}
		return values
	}
	l.PerSecond = median(of(func(r *drive.Result) float64 { return r.PerSecond }))
	cpu := of(func(r *drive.Result) float64 { return r.CPUPerCommand })
	l.CPU, l.CPUMin, l.CPUMax = median(cpu), slices.Min(cpu), slices.Max(cpu)
	l.P50 = median(of(func(r *drive.Result) float64 { return r.P50 }))
	l.P99 = median(of(func(r *drive.Result) float64 { return r.P99 }))
	l.P999 = median(of(func(r *drive.Result) float64 { return r.P999 }))
	l.Allocs = 2 * median(of(func(r *drive.Result) float64 { return r.AllocsPerMessage })) // a command is two messages
	l.Server = median(of(func(r *drive.Result) float64 { return r.ServerShare }))
	l.Driver = median(of(func(r *drive.Result) float64 { return r.DriverShare }))
	for i := range l.Runs {
		if l.Runs[i].DriverBound {
			l.DriverBound++
		}
	}
}

// median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
