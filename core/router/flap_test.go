package router

import (
	"fmt"
	"testing"
	"time"

	"subway/core/wire"
)

type flapConn struct{}

func (flapConn) Append(wire.Class, []byte, []byte, []byte) wire.Result { return wire.Accepted }
func (flapConn) CloseWith(uint16, string)                              {}

// A device id that two edges claim in turn is named once, and shown until it settles.
func TestFlappingDevice(t *testing.T) {
	now := wire.Time(1_700_000_000_000_000_000)
	r := New(Config{}, now)
	claim := func(edge string) {
		s := r.Open(flapConn{}, "", now)
		s.Receive(fmt.Appendf(nil, `{"type":"REGISTER","clientId":"%s","clientType":"EDGE","devices":["td-01","x-%s"]}`, edge, edge), now)
	}
	for i := range 4 {
		if d := r.Device("td-01"); d != nil && d.Flapping != nil {
			t.Fatalf("flapping after %d moves", i)
		}
		claim(fmt.Sprint("edge-", i%2))
		now += wire.Time(10 * time.Second)
	}
	if found := r.TakeFlapping(); found != nil {
		t.Fatalf("three moves and %v is named", found)
	}
	claim("edge-0")
	d := r.Device("td-01")
	if d.Flapping == nil || d.Flapping.Moves != 4 || d.Flapping.Edges[0] != "edge-1" || d.Flapping.Edges[1] != "edge-0" {
		t.Fatalf("flapping: %+v", d.Flapping)
	}
	found := r.TakeFlapping()
	if len(found) != 1 || found[0].ClientID != "td-01" || found[0].Flapping.Moves != 4 {
		t.Fatalf("named: %+v", found)
	}
	claim("edge-1")
	if found := r.TakeFlapping(); found != nil {
		t.Fatalf("named again: %v", found)
	}
	now += wire.Time(flapWindow + 2*time.Second)
	r.Tick(now)
	if d := r.Device("td-01"); d.Flapping != nil || len(r.flaps) != 0 {
		t.Fatalf("after a quiet minute: %+v, %d remembered", d.Flapping, len(r.flaps))
	}
}
