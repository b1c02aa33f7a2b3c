package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"subway/bench/drive"
	"subway/bench/peers"
	"subway/bench/yardstick"
)

// driveSlack is how much longer than its phases the driver may take.
const driveSlack = 90 * time.Second

// round is one peer's run and the yardstick taken just before it on the server's processor.
type round struct {
	Peer      string            `json:"peer"`
	Number    int               `json:"round"`
	Scenario  scenario          `json:"scenario"`
	Yardstick yardstick.Reading `json:"yardstick"`
	Noisy     bool              `json:"noisy"` // the yardstick was off its median by more than noiseMax
	Result    drive.Result      `json:"result"`
}

// measure runs every peer in turn, f.Rounds times.
func (c *comparison) measure(ctx context.Context, s scenario, chosen []peers.Peer) error {
	for number := range c.flags.Rounds {
		for _, p := range chosen {
			r, err := c.flags.one(ctx, s, p)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", p.Name, number+1, err)
			}
			r.Number = number + 1
			c.Rounds = append(c.Rounds, *r)
			fmt.Fprintf(os.Stderr, "round %d %-15s payload %d rate %.0f: %.2f us/command, %.0f/s\n",
				r.Number, r.Peer, s.Payload, s.Rate, r.Result.CPUPerCommand, r.Result.PerSecond)
		}
	}
	return nil
}

// one starts a peer, drives it, and stops it.
func (f *flags) one(ctx context.Context, s scenario, p peers.Peer) (*round, error) {
	r := &round{Peer: p.Name, Scenario: s}
	var err error
	if r.Yardstick, err = yardstick.Take(f.ServerCPU); err != nil {
		return nil, err
	}
	server, err := peers.Start(ctx, p, f.ServerCPU)
	if err != nil {
		return nil, err
	}
	err = f.drive(ctx, s, p, server, &r.Result)
	return r, errors.Join(err, server.Stop())
}

func (f *flags) driveArgs(s scenario, p peers.Peer, server *peers.Process) []string {
	args := []string{
		"--addr", server.Addr.String(), "--proto", p.Proto, "--mode", f.Mode, "--pid", strconv.Itoa(server.PID),
		"--edges", strconv.Itoa(f.Edges), "--devices", strconv.Itoa(f.Devices), "--backends", strconv.Itoa(f.Backends),
		"--window", strconv.Itoa(f.Window), "--payload", strconv.Itoa(s.Payload), "--payload-kind", f.Kind,
		"--rate", strconv.FormatFloat(s.Rate, 'f', -1, 64), "--warmup", f.Warmup.String(), "--time", f.Time.String(),
		"--wait", f.Wait.String(), "--conns", strconv.Itoa(f.Conns), "--idle", f.Idle.String(),
		"--batch", strconv.Itoa(f.Batch), "--routes", strconv.Itoa(f.Routes),
	}
	if p.Proto == drive.ProtoSubway && f.Mode != "idle" && f.Mode != "connect" {
		args = append(args, "--url", "http://"+server.Addr.String())
	}
	return args
}

// drive runs the driver on its processor and reads its one line.
func (f *flags) drive(ctx context.Context, s scenario, p peers.Peer, server *peers.Process, into *drive.Result) error {
	ctx, cancel := context.WithTimeout(ctx, 2*(f.Warmup+f.Time)+f.Idle+driveSlack)
	defer cancel()
	args := append([]string{"-c", strconv.Itoa(f.DriverCPU), filepath.Join(f.Out, "drive")}, f.driveArgs(s, p, server)...)
	cmd := exec.CommandContext(ctx, "taskset", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("driver: %w: %s", err, bytes.TrimSpace(wrong.Bytes()))
	}
	return json.Unmarshal(out.Bytes(), into)
}
