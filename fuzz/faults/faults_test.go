// Package faults breaks a running system, real processes all of it: a Gateway with a journal, two edges with a
// store each, ten devices, a receiver of callbacks. While a steady load of commands is posted one fault
// strikes, is healed, and then the books must balance: what was accepted = what ended = what was called back,
// no device ran a command twice, and nobody was told what is not so afterwards (PROTOCOL.md sections 4, 5, 7, 9).
//
// `make faults` runs all of it. SEED=n repeats the random choices of the run that printed it: moments are
// counted in accepted commands, so they are about the same, not the same. BINARY=path takes a binary that is there.
package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// faults are what strikes; each returns when it is healed.
var faults = []struct {
	name   string
	shape  shape
	strike func(*system)
}{
	{"gateway killed", shape{}, (*system).killGateway},
	{"edges killed", shape{}, (*system).killEdges},
	{"receiver killed", shape{deaf: true}, (*system).killReceiver},
	{"gateway paused", shape{long: true}, func(s *system) { s.pauses(s.gateway, pauseTime()) }},
	{"edge paused", shape{long: true}, func(s *system) { s.pauses(s.edges[s.rnd.IntN(numEdges)], pauseTime()) }},
	{"black hole", shape{proxied: true, long: true}, (*system).blackHole},
	{"disk full", shape{disk: "100m", payload: 400 << 10}, (*system).fillDisk},
	{"receiver slow", shape{deaf: true}, func(s *system) { s.feel(slow) }},
	{"receiver broken", shape{deaf: true}, func(s *system) { s.feel(broken) }},
	{"receiver garbage", shape{deaf: true}, func(s *system) { s.feel(garbage) }},
	{"receiver mute", shape{deaf: true}, func(s *system) { s.feel(mute) }},
	{"clock steps", shape{stepped: true}, (*system).stepClocks},
	{"clock forward", shape{stepped: true, long: true}, func(s *system) { s.stepBetween(5*time.Minute, 9*time.Minute) }},
	{"clock back", shape{stepped: true}, func(s *system) { s.stepBetween(-time.Hour, -24*time.Hour) }},
	{"descriptors few", shape{files: 256}, (*system).takeDescriptors},
	{"descriptors gone", shape{deaf: true}, (*system).endDescriptors},
	{"several", shape{proxied: true, deaf: true, long: true}, (*system).strikeSeveral},
}

// TestFaults strikes with each fault in turn.
func TestFaults(t *testing.T) {
	if os.Getenv("FAULTS") != "1" {
		t.Skip("takes minutes: make faults runs it (FAULTS=1)")
	}
	findBinary(t)
	seed := seedOf(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			own := fnv.New64a()
			fmt.Fprint(own, seed, f.name)
			began := time.Now()
			s := newSystem(t, f.shape, own.Sum64())
			s.flows(50)
			f.strike(s)
			s.flows(50)
			sum := s.balance()
			fmt.Printf("%-17s accepted %5d = completed %5d + failed %4d + timeout %4d + cancelled %4d; called back %5d, repeats %4d, dead and sent again %3d; refused %5d; %5.1f s\n",
				f.name, sum.accepted, sum.ended["COMPLETED"], sum.ended["FAILED"], sum.ended["TIMEOUT"], sum.ended["CANCELLED"],
				sum.callbacks-sum.repeats, sum.repeats, s.dead, sum.refused, time.Since(began).Seconds())
		})
	}
}

// findBinary builds the program, or takes the one that is named.
func findBinary(t *testing.T) {
	t.Helper()
	if given := os.Getenv("BINARY"); given != "" {
		program = given
		return
	}
	program = filepath.Join(t.TempDir(), "subway")
	if out, err := exec.Command("go", "build", "-o", program, "subway/cmd/subway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("SEED=%d\n", seed)
	return seed
}
