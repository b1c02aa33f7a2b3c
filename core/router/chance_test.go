package router

import (
	"fmt"
	"slices"
	"testing"

	"subway/core/wire"
)

// With a seed two Routers say the same, byte for byte; without one they do not.
func TestSeed(t *testing.T) {
	if a, b := saidWith(1), saidWith(1); !slices.Equal(a, b) {
		t.Errorf("with one seed:\n%q\n%q", a, b)
	}
	if a, b := saidWith(1), saidWith(2); slices.Equal(a, b) {
		t.Error("with two seeds the same is said")
	}
	if a, b := saidWith(0), saidWith(0); slices.Equal(a, b) {
		t.Error("without a seed the same is said twice")
	}
}

// saidWith returns what a Router says to a Backend: a session id, refs that it makes up,
// and commands that end at one tick.
func saidWith(seed uint64) (said []string) {
	r := New(Config{Callbacks: notices{}, Seed: seed}, t0)
	b := party(r, newConn(func(_ wire.Class, msg []byte) { said = append(said, string(msg)) }), registerBackend("b"), t0)
	party(r, newConn(deaf), registerEdge("e", false, "td-1"), t0)
	for i := range 20 {
		b.Receive([]byte(commandTo(fmt.Sprint("r", i), "td-1", `,"timeout":100`)), t0)
		b.Receive([]byte(`{"type":"COMMAND","targetClientId":"td-1","command":{"commandType":"T"}}`), t0)
	}
	r.Tick(t0 + 200*ms)
	return said
}
