package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"subway/bench/drive"
)

const (
	blockRate     = 10_000 // ns: one sample per 10 us blocked
	mutexFraction = 10     // one contention in ten
	steadyWithin  = 20 * time.Second
	steadyEvery   = 20 * time.Millisecond
	// loadBeyond is how much longer than the profiles the load lasts: they begin in its warm-up, and the heap is read after them.
	loadBeyond = 2 * time.Second
)

// profile takes CPU, heap, block and mutex profiles of the gateway during a closed loop of its own.
func (b *bench) profile(ctx context.Context) error {
	dir := filepath.Join(b.flags.Out, "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := b.with(ctx, func(g *gateway) error {
		if err := b.fill(ctx, g); err != nil {
			return err
		}
		rates := fmt.Sprintf("%s/debug/rates?block=%d&mutex=%d", g.debug, blockRate, mutexFraction)
		if _, err := call(ctx, http.MethodPost, rates); err != nil {
			return err
		}
		return b.profileLoad(ctx, g, dir)
	})
	if err != nil {
		return err
	}
	return b.tops(ctx, dir)
}

// profileLoad runs the load and, while it lasts, the profiles.
func (b *bench) profileLoad(ctx context.Context, g *gateway, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var r drive.Result
	var driveErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, driveErr = b.drive(ctx, g, b.flags.Profile+loadBeyond, "--warmup", b.flags.Warmup.String())
	}()
	err := g.awaitSteady(ctx, done)
	if err == nil {
		err = g.takeProfiles(ctx, dir, b.flags.Profile)
	}
	select {
	case <-done:
		err = errors.Join(err, errors.New("the load ended before the profiles"))
	default:
	}
	if err != nil {
		cancel() // nothing is to be had from this load any more
	}
	<-done
	b.sum.Profiled = profiledFigures{b.flags.Profile.Seconds(), r.Seconds, r.CPUPerCommand, r.CPUPerCommand/b.sum.Closed.CPU - 1, b.serverCPU >= 0}
	return errors.Join(driveErr, err)
}

// awaitSteady polls until commands are in flight.
func (g *gateway) awaitSteady(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	tick := time.NewTicker(steadyEvery)
	defer tick.Stop()
	for {
		text, err := call(ctx, http.MethodGet, g.url()+"/metrics")
		if err != nil {
			return err
		}
		if pending, err := number(text, "subway_pending_commands", " "); err != nil || pending > 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("the load ended before it had begun")
		case <-ctx.Done():
			return errors.New("no command in flight")
		}
	}
}

// takeProfiles fetches CPU, block and mutex profiles of the same span, and the heap's at its end.
func (g *gateway) takeProfiles(ctx context.Context, dir string, span time.Duration) error {
	query := "?seconds=" + strconv.Itoa(int(span.Seconds()))
	fetch := func(path, name string) error {
		body, err := call(ctx, http.MethodGet, g.debug+"/debug/pprof/"+path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name+".pb.gz"), body, 0o644)
	}
	var wait sync.WaitGroup
	var errs [3]error
	wait.Go(func() { errs[0] = fetch("profile"+query, "cpu") })
	wait.Go(func() { errs[1] = fetch("block"+query, "block") })
	wait.Go(func() { errs[2] = fetch("mutex"+query, "mutex") })
	wait.Wait()
	return errors.Join(append(errs[:], fetch("heap", "heap"))...)
}

// tops writes top.txt: the first lines of each profile.
func (b *bench) tops(ctx context.Context, dir string) error {
	var text []byte
	for _, t := range []struct{ file, index string }{
		{"cpu", "cpu"}, {"heap", "inuse_space"}, {"heap", "alloc_space"}, {"block", "delay"}, {"mutex", "delay"},
	} {
		cmd := exec.CommandContext(ctx, b.flags.Go, "tool", "pprof", "-top", "-nodecount=30", "-sample_index="+t.index, t.file+".pb.gz")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("go tool pprof %s: %w: %s", t.file, err, out)
		}
		text = fmt.Appendf(text, "== %s, %s ==\n%s\n", t.file, t.index, out)
	}
	return os.WriteFile(filepath.Join(dir, "top.txt"), text, 0o644)
}
