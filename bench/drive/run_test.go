package drive

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"subway/bench/peers"
)

// floorPeer, startFloor and startGorilla make the peers as compare does.
func floorPeer(t *testing.T) peers.Peer {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "floor")
	err := peers.BuildFloor(t.Context(), "../peers/floor/floor.c", binary)
	if errors.Is(err, peers.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return peers.Peer{Name: "floor", Argv: []string{binary, "{port}"}}
}

func startFloor(t *testing.T) *peers.Process { return start(t, floorPeer(t)) }

func startGorilla(t *testing.T) *peers.Process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "gorilla")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../peers/gorilla").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return start(t, peers.Peer{Name: "gorilla", Argv: []string{binary, "{addr}"}})
}

func start(t *testing.T, p peers.Peer) *peers.Process {
	t.Helper()
	s, err := peers.Start(t.Context(), p, -1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// small is a run short enough for a test.
func small(s *peers.Process, proto string) Config {
	return Config{Addr: s.Addr, PID: s.PID, Proto: proto, Edges: 4, Devices: 8, Backends: 3, Window: 8, Payload: 200, Kind: "json",
		Warmup: 20 * time.Millisecond, Time: 20 * time.Second, Count: 3000, Seed: uint64(time.Now().UnixNano())}
}

func mustRun(t *testing.T, cfg Config) *Result {
	t.Helper()
	res, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *res)
	if bad := res.Bad(); bad != "" {
		t.Error(bad)
	}
	if res.Commands < int64(cfg.Count) || res.Commands > int64(cfg.Count)+int64(cfg.Backends*cfg.Window) {
		t.Errorf("%d commands, wanted %d", res.Commands, cfg.Count)
	}
	if res.CPUPerCommand <= 0 || res.P50 <= 0 || res.P99 < res.P50 || res.Max < res.P99 || res.DriverShare <= 0 {
		t.Error("a figure is missing")
	}
	return res
}

func TestFloorClosedAndOpen(t *testing.T) {
	s := startFloor(t)
	cfg := small(s, ProtoFloor)
	mustRun(t, cfg)
	cfg.Payload = 300_000
	cfg.Count = 50
	mustRun(t, cfg)
	cfg.Payload, cfg.Count, cfg.Rate = 200, 2000, 10_000
	res := mustRun(t, cfg)
	if res.Mode != "open" || res.PerSecond > 10_500 {
		t.Errorf("%s, %f/s", res.Mode, res.PerSecond)
	}
}

func TestGateway(t *testing.T) {
	s := startGorilla(t)
	cfg := small(s, ProtoSubway)
	cfg.URL = "http://" + s.Addr.String()
	if res := mustRun(t, cfg); res.AllocsPerMessage < 1 {
		t.Errorf("gorilla and encoding/json with %f allocations per message", res.AllocsPerMessage)
	}
	cfg.HTTP, cfg.Count = true, 500
	mustRun(t, cfg)
	cfg.Wait = 20 * time.Second
	mustRun(t, cfg)
	res, err := Idle(Config{Addr: s.Addr, PID: s.PID, Proto: ProtoSubway, Conns: 600, IdleFor: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if res.RSSPerConn < 1000 || res.RSSPerConn > 1e6 || res.Seconds < 0.05 {
		t.Errorf("%+v", res)
	}
}

// TestServerGone ends the server under load: an error, no hang.
func TestServerGone(t *testing.T) {
	s, err := peers.Start(t.Context(), floorPeer(t), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }() // says that it ended early
	cfg := small(s, ProtoFloor)
	cfg.Count = 0
	time.AfterFunc(300*time.Millisecond, func() { _ = syscall.Kill(s.PID, syscall.SIGKILL) })
	begun := time.Now()
	if res, err := Run(cfg); err == nil {
		t.Errorf("no error: %+v", res)
	} else {
		t.Logf("after %v: %v", time.Since(begun), err)
	}
}
