package drive

import (
	"errors"
	"os"
	"testing"
	"time"

	"subway/bench/peers"
)

// installed skips the test where the peer is not there, and fails it in CI, which must have it.
func installed(t *testing.T, p peers.Peer, err error) peers.Peer {
	t.Helper()
	switch {
	case errors.Is(err, peers.ErrMissing) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return p
}

func TestMosquitto(t *testing.T) {
	p, err := peers.Mosquitto()
	s := start(t, installed(t, p, err))
	cfg := small(s, ProtoMQTT)
	mustRun(t, cfg)
	cfg.Count, cfg.Rate = 2000, 10_000
	mustRun(t, cfg)
	cfg.Count, cfg.Rate, cfg.Payload = 50, 0, 300_000
	mustRun(t, cfg)
}

func TestNATS(t *testing.T) {
	p, err := peers.NATS()
	if err != nil {
		t.Skip(err) // no package of the distribution that CI runs on
	}
	mustRun(t, small(start(t, p), ProtoNATS))
}

// TestNode has every answer of the Node gateway checked, in each mode it is measured in.
func TestNode(t *testing.T) {
	p, err := peers.Node("../peers/node")
	s := start(t, installed(t, p, err))
	cfg := small(s, ProtoSubway)
	mustRun(t, cfg)
	cfg.HTTP, cfg.Count = true, 300
	mustRun(t, cfg)
	cfg.Wait = 20 * time.Second
	mustRun(t, cfg)
}
