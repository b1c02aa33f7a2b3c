package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short returns flags for phases of a second, with binaries made for the test.
func short(t *testing.T) *flags {
	t.Helper()
	dir := t.TempDir()
	for _, b := range [][2]string{{"../../..", "./cmd/subway"}, {"../..", "./cmd/drive"}} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", b[1])
		cmd.Dir = b[0]
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return &flags{
		Rounds: 1, Fill: 2000, Warmup: 200 * time.Millisecond, Time: time.Second, Rate: 2000, Profile: time.Second,
		Conns: 200, Idle: time.Second, Routes: 5000, Micro: filepath.Join(dir, "micro.txt"), Limit: 3 * time.Minute,
		Out: filepath.Join(dir, "out"), Subway: filepath.Join(dir, "subway"), Drive: filepath.Join(dir, "drive"), Go: "go",
	}
}

// TestMacro measures a real gateway, if only for a moment: every file is there, and no figure is beyond what can be.
func TestMacro(t *testing.T) {
	f := short(t)
	if err := os.WriteFile(f.Micro, []byte(microText), 0o644); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := f.run(t.Context(), &page); err != nil {
		t.Fatal(err)
	}
	t.Log(page.String())
	for _, name := range []string{"cpu.pb.gz", "heap.pb.gz", "block.pb.gz", "mutex.pb.gz", "top.txt"} {
		if info, err := os.Stat(filepath.Join(f.Out, "profiles", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	top, err := os.ReadFile(filepath.Join(f.Out, "profiles", "top.txt"))
	if err != nil || strings.Count(string(top), "== ") != 5 || !strings.Contains(string(top), "subway/core/router") {
		t.Errorf("top.txt: %v\n%.500s", err, top)
	}
	if text, err := os.ReadFile(filepath.Join(f.Out, "summary.md")); err != nil || !bytes.Equal(text, page.Bytes()) {
		t.Errorf("summary.md is not what was printed: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(f.Out, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	checkFigures(t, &s)
}

func checkFigures(t *testing.T, s *summary) {
	within := func(name string, value, least, most float64) {
		t.Helper()
		if !(value >= least && value <= most) {
			t.Errorf("%s is %v, not from %v to %v", name, value, least, most)
		}
	}
	within("closed rate", s.Closed.PerSecond, 1000, 1e7)
	within("open rate", s.Open.PerSecond, 1000, 2100)
	for _, l := range []loadFigures{s.Closed, s.Open} {
		within("CPU per command", l.CPU, 0.3, 1000)
		within("p50", l.P50, 1, 1e6)
		within("p99", l.P99, l.P50, 1e7)
		within("p99.9", l.P999, l.P99, 1e7)
		within("allocations", l.Allocs, 0, 100)
	}
	within("profiled CPU", s.Profiled.CPU, 0.3, 1000)
	within("profiled span", s.Profiled.RunS, s.Profiled.ProfileS, 60)
	within("idle connections", float64(s.Idle.Conns), 200, 200)
	within("bytes per connection", s.Idle.Bytes, 0, 100_000)
	within("heap per route", s.Routes.Heap, 30, 2000)
	within("CPU per route", s.Routes.CPU, 0.01, 1000)
	if s.Gateway.Go == "" || s.Machine.Kernel == "" || len(s.Yardstick) != 2 {
		t.Errorf("not said: %+v %+v %+v", s.Gateway, s.Machine, s.Yardstick)
	}
}

const microText = `# revision abc
goos: linux
pkg: subway/core/router
BenchmarkPending/1000-2     100	 30 ns/op	 0 B/op	 0 allocs/op
BenchmarkPending/1000000-2  100	700 ns/op	 0 B/op	 1 allocs/op
BenchmarkPending/1000-2     100	 32 ns/op	 0 B/op	 0 allocs/op
BenchmarkPending/1000-2     100	 99 ns/op	 0 B/op	 0 allocs/op
no result
pkg: subway/core/wire
BenchmarkScan/1KB           100	800 ns/op	 0 B/op	 0 allocs/op
BenchmarkBare               100	  5 ns/op
`

// TestMicro: medians, both sizes on one line, and a page without them where they were not run.
func TestMicro(t *testing.T) {
	file := filepath.Join(t.TempDir(), "micro.txt")
	if err := os.WriteFile(file, []byte(microText), 0o644); err != nil {
		t.Fatal(err)
	}
	b := bench{flags: &flags{Micro: file}}
	if err := b.micro(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []microLine{{"core/router Pending", 0, 32, 700, 1}, {"core/wire Scan/1KB", 800, 0, 0, 0}}
	if len(b.sum.Micro) != 2 || b.sum.Micro[0] != want[0] || b.sum.Micro[1] != want[1] {
		t.Errorf("%+v, want %+v", b.sum.Micro, want)
	}
	page := string(b.sum.page())
	if !strings.Contains(page, "| core/router Pending |  | 32.0 | 700 | 1 |") || !strings.Contains(page, "are of abc.") {
		t.Error(page)
	}
	b = bench{flags: &flags{Micro: file + "x"}}
	if err := b.micro(t.Context()); err != nil || len(b.sum.Notes) != 1 || !strings.Contains(string(b.sum.page()), "Note: no micro") {
		t.Errorf("%v %q", err, b.sum.Notes)
	}
}

// TestBusy: a page says where its figures are not to be trusted.
func TestBusy(t *testing.T) {
	f := func(want string, share float64, bound int) {
		t.Helper()
		s := summary{Closed: loadFigures{Server: share, DriverBound: bound}}
		page := string(s.page())
		for _, mark := range []string{"machine was busy", "driver-bound"} {
			if strings.Contains(page, mark) != (mark == want) {
				t.Errorf("share %v, driver-bound %d: %q is not as wanted", share, bound, mark)
			}
		}
	}
	f("", 0.97, 0)
	f("machine was busy", 0.7, 0)
	f("driver-bound", 0.7, 2)
}

// TestRefused: what cannot be done is said before anything has begun.
func TestRefused(t *testing.T) {
	good := flags{Rounds: 1, Fill: 1, Warmup: 1, Time: 1, Rate: 1, Profile: time.Second, Conns: 200, Idle: 1, Routes: 5000, Subway: "true", Drive: "true", Go: "true"}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	f := func(want string, spoil func(f *flags)) {
		t.Helper()
		bad := good
		spoil(&bad)
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q", err, want)
		}
	}
	f("rounds", func(f *flags) { f.Rounds = 0 })
	f("fill", func(f *flags) { f.Fill = 0 })
	f("profile", func(f *flags) { f.Profile = 1500 * time.Millisecond })
	f("rate", func(f *flags) { f.Rate = 0 })
	f("conns", func(f *flags) { f.Conns = connsFirst })
	f("routes", func(f *flags) { f.Routes = 5001 })
	f("make bench", func(f *flags) { f.Subway = filepath.Join(t.TempDir(), "subway") })
	good.Subway, good.Limit, good.Rounds, good.Out = "false", time.Minute, 1, t.TempDir()
	if err := good.run(t.Context(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "load: gateway: ended") {
		t.Errorf("a gateway that ends at once: %v", err)
	}
}

// TestNoTaskset: it goes on without, and says so.
func TestNoTaskset(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var b bench
	b.place()
	if b.serverCPU >= 0 || b.driverCPU >= 0 || len(b.sum.Notes) != 1 || !strings.Contains(b.sum.Notes[0], "taskset") {
		t.Errorf("%d %d %q", b.serverCPU, b.driverCPU, b.sum.Notes)
	}
}
