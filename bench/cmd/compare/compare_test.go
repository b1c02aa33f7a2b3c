package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"subway/bench/drive"
	"subway/bench/peers"
	"subway/bench/yardstick"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMedian(t *testing.T) {
	f := func(want float64, values ...float64) {
		t.Helper()
		if got := median(values); got != want {
			t.Errorf("median of %v: %v, want %v", values, got, want)
		}
	}
	f(0)
	f(3, 3)
	f(2, 3, 1)
	f(2, 9, 2, 1)
	f(2.5, 9, 3, 2, 1)
}

// TestSummary: ratios are taken pair by pair, so a machine that was twice as slow in one round does not show in them, and the
// round is marked.
func TestSummary(t *testing.T) {
	c := comparison{Base: "floor"}
	for number, mood := range []float64{1, 2, 1, 1} {
		for peer, cost := range map[string]float64{"floor": 2, "gateway": 3} {
			c.Rounds = append(c.Rounds, round{Peer: peer, Number: number + 1,
				Yardstick: yardstick.Reading{User: 100 * mood, Loopback: 50 * mood},
				Result:    drive.Result{CPUPerCommand: cost * mood, DriverBound: peer == "floor"}})
		}
	}
	c.summarise()
	if len(c.Lines) != 2 {
		t.Fatalf("%d lines", len(c.Lines))
	}
	for _, l := range c.Lines {
		cost, ratio, bound := 2.0, 1.0, 4
		if l.Peer == "gateway" {
			cost, ratio, bound = 3, 1.5, 0
		}
		if l.Ratio != (spread{ratio, ratio, ratio}) || l.CPU != (spread{cost, cost, 2 * cost}) || l.Normalised != cost ||
			l.Noisy != 1 || l.Rounds != 4 || l.Bound != bound {
			t.Errorf("%+v", l)
		}
	}
}

func TestChoose(t *testing.T) {
	f := flags{Peers: []string{"floor", "nats"}, Peer: []string{"mine=subway:./mine --listen {addr}"}, Mode: "http", Out: t.TempDir()}
	got, skipped, err := f.choose()
	if err != nil || len(got) != 1 || got[0].Name != "mine" || got[0].Proto != "subway" || len(got[0].Argv) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if len(skipped) != 2 || skipped[0].Peer != "floor" || !strings.Contains(skipped[0].Why, "has not been built") || skipped[1].Peer != "nats" {
		t.Errorf("skipped %+v", skipped)
	}
	for _, bad := range []flags{{Peers: []string{"nobody"}}, {Peer: []string{"mine"}}, {Peer: []string{"mine=subway:"}}, {Peers: []string{"floor"}}} {
		if _, _, err := bad.choose(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestSlowFloorIsVoid: the rule looks at the same round, at the closed loop alone, and is seen in table and JSON.
func TestSlowFloorIsVoid(t *testing.T) {
	f := func(void bool, costs map[string][]float64, s scenario) {
		t.Helper()
		c := comparison{Base: "floor", Mode: "load", flags: &flags{}}
		for peer, each := range costs {
			for i, cost := range each {
				c.Rounds = append(c.Rounds, round{Peer: peer, Number: i + 1, Scenario: s,
					Yardstick: yardstick.Reading{User: 100, Loopback: 50}, Result: drive.Result{CPUPerCommand: cost}})
			}
		}
		c.summarise()
		c.judge()
		var text, page bytes.Buffer
		c.print(&text)
		c.markdown(&page)
		if void != (c.Void != "") || void != strings.Contains(text.String(), "VOID") || void != strings.Contains(page.String(), "VOID") {
			t.Errorf("%v at %+v: %q\n%s", costs, s, c.Void, page.String())
		}
	}
	closed := scenario{Payload: 200}
	f(false, map[string][]float64{"floor": {2, 4, 2}, "nats": {6, 12, 6}}, closed)
	f(true, map[string][]float64{"floor": {2, 4, 2.2}, "nats": {6, 6, 6}}, closed)
	f(false, map[string][]float64{"floor": {2, 4, 2}, "nats": {6, 6, 6}}, closed) // one bad round of three
	f(false, map[string][]float64{"floor": {20}, "nats": {30}}, scenario{Payload: 200, Rate: 20_000})
	f(false, map[string][]float64{"floor": {20}, "nats": {30}}, scenario{Payload: 16_000})
	f(false, map[string][]float64{"floor": {20}, "gateway": {30}}, closed)
}

// build makes the binaries that a comparison needs in a directory of the test.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := peers.BuildFloor(t.Context(), "../../peers/floor/floor.c", filepath.Join(dir, "floor"))
	if errors.Is(err, peers.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "../drive", "../../peers/gorilla").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// anyCPU returns the first processor this process may use.
func anyCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	t.Fatal("no processor")
	return 0
}

// TestCompare compares for real, if only for a moment.
func TestCompare(t *testing.T) {
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip("no taskset in PATH")
	}
	cpu := anyCPU(t)
	f := flags{
		Peers: []string{"floor", "gorilla"}, Base: "floor", Rounds: 2, Mode: "load", Payload: []int{200}, Kind: "text", Rate: []float64{0, 500},
		Warmup: 10 * time.Millisecond, Time: 150 * time.Millisecond, Edges: 2, Devices: 4, Backends: 2, Window: 4,
		Conns: 200, Idle: 20 * time.Millisecond, ServerCPU: cpu, DriverCPU: cpu, Limit: 3 * time.Minute, Out: build(t),
	}
	var table bytes.Buffer
	if err := f.run(t.Context(), &table); err != nil {
		t.Fatal(err)
	}
	t.Log(table.String())
	text, err := os.ReadFile(filepath.Join(f.Out, "compare-load.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c comparison
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Lines) != 4 || len(c.Rounds) != 8 {
		t.Fatalf("%d lines, %d rounds", len(c.Lines), len(c.Rounds))
	}
	for _, l := range c.Lines {
		if l.CPU.Median <= 0 || l.Ratio.Median <= 0 || !strings.Contains(table.String(), l.Peer) {
			t.Errorf("%+v", l)
		}
	}
	page, err := os.ReadFile(filepath.Join(f.Out, "compare.md"))
	if err != nil || !strings.Contains(string(page), "| gorilla | 200 | 500/s |") {
		t.Errorf("%v\n%s", err, page)
	}
	f.Rounds, f.Routes, f.Rate = 1, 2000, []float64{0}
	for _, mode := range []string{"idle", "connect", "routes", "http"} {
		f.Mode = mode
		table.Reset()
		if err := f.run(t.Context(), &table); err != nil {
			t.Fatal(err)
		}
		t.Log(table.String())
		if _, err := os.Stat(filepath.Join(f.Out, "compare-"+mode+".md")); err != nil || !strings.Contains(table.String(), "gorilla") {
			t.Errorf("%s: %v", mode, err)
		}
	}
	f.Mode, f.Peers, f.Peer = "load", nil, []string{"false=subway:false"}
	if err := f.run(t.Context(), &table); err == nil {
		t.Error("a peer that ends at once was compared")
	}
}
