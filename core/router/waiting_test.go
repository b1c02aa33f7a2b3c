package router

import (
	"fmt"
	"testing"

	"subway/core/wire"
)

// many is enough for what is quadratic to show.
const many = 20_000

// crowd is a Router with room for many commands, a Backend, and many devices.
type crowd struct {
	r       *Router
	backend *Session
	devices []string
	got     []string // refs in the order in which edges got them
}

func newCrowd() *crowd {
	c := &crowd{r: newRouter(Limits{EdgeQueue: 4 * many, EdgeQueueBytes: 1 << 30, DeviceQueue: 2 * many}, notices{})}
	c.backend = party(c.r, newConn(deaf), registerBackend("backend-1"), t0)
	for i := range many {
		c.devices = append(c.devices, fmt.Sprintf("td-%d", i))
	}
	return c
}

// edge connects an edge with a room, and all devices or those it has.
func (c *crowd) edge(id string, room int, devices ...string) *Session {
	k := newConn(func(class wire.Class, msg []byte) {
		if class == wire.ClassCommand {
			c.got = append(c.got, member(msg, "requestRef"))
		}
	})
	k.room = room
	return party(c.r, k, registerEdge(id, true, devices...), t0)
}

func (c *crowd) send(ref int, device string) {
	more := fmt.Sprintf(`,"whenOffline":"QUEUE","priority":"%s"`, wire.Priority(ref%3))
	c.backend.Receive([]byte(commandTo(fmt.Sprintf("r%d", ref), device, more)), t0)
}

// check wants few records passed by, and the books in order.
func (c *crowd) check(t *testing.T, most int, edges ...*edge) {
	t.Helper()
	passed := c.r.limbo.passed
	for _, e := range edges {
		passed += e.passed
	}
	t.Logf("%d passed by for %d", passed, many)
	if passed > most {
		t.Errorf("%d records were passed by to find places, want %d at most", passed, most)
	}
	if err := broken(c.r); err != nil {
		t.Error(err)
	}
}

// TestReplayAgain: a dedupe edge drops in the midst of getting many commands again, time
// and again, and gets them in the order of acceptance all the same.
func TestReplayAgain(t *testing.T) {
	c := newCrowd()
	s := c.edge("edge-1", -1, c.devices...)
	for i := range many {
		c.send(i, c.devices[i])
	}
	for range 3 {
		s.Closed(t0, "reset")
		s = c.edge("edge-1", many/2)
	}
	c.got = nil
	s.Closed(t0, "reset")
	s = c.edge("edge-1", -1)
	for i, ref := range c.got {
		if ref != fmt.Sprintf("r%d", i) {
			t.Fatalf("%s comes as number %d", ref, i)
		}
	}
	if len(c.got) != many {
		t.Fatalf("%d came again", len(c.got))
	}
	c.check(t, 100, s.edge)
}

// TestManyMove: many devices, each with commands that wait, lose their edge, go to
// another that has its own, and on to a third that is there.
func TestManyMove(t *testing.T) {
	rng := newRand(t)
	c := newCrowd()
	first := c.edge("edge-1", 0, c.devices...)
	third := c.edge("edge-3", 0, "td-a")
	order := rng.Perm(2 * many)
	for i, k := range order {
		c.send(3*i, c.devices[k%many])
		if i%4 == 0 {
			c.send(3*(i+2*many), "td-a")
		}
	}
	first.Receive([]byte(`{"type":"UNREGISTER","clientId":"edge-1"}`), t0)
	if n := c.r.limbo.waiting; n != 2*many || len(c.r.stray) != many {
		t.Fatalf("%d wait for %d devices without a route", n, len(c.r.stray))
	}
	c.check(t, 0)
	second := c.edge("edge-2", 0, c.devices...)
	c.check(t, 0, second.edge)
	third.Receive([]byte(registerEdge("edge-3", true, append(c.devices, "td-a")...)), t0)
	if n := third.edge.waiting; n != 2*many+many/2 {
		t.Fatalf("%d wait", n)
	}
	c.check(t, many/2, first.edge, second.edge, third.edge) // each that was there, once
}
