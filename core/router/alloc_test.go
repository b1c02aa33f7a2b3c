package router

import (
	"encoding/binary"
	"strings"
	"testing"

	"subway/core/wire"
)

// silent is a Conn that takes everything and keeps nothing.
type silent struct{ commands, notices int }

func (c *silent) Append(class wire.Class, _, _, _ []byte) wire.Result {
	if class == wire.ClassCommand {
		c.commands++
	} else {
		c.notices++
	}
	return wire.Accepted
}

func (*silent) CloseWith(uint16, string) {}

// course is a Backend, an edge and the messages of commands that differ in their ref.
type course struct {
	r              *Router
	backend, edge  *Session
	told, handed   silent
	now            wire.Time
	n              uint64
	command, reply []byte
}

// refHex is a ref whose last 16 bytes are to be filled in.
const refHex = "cmd-0000000000000000"

func newCourse(l Limits, register string) *course {
	c := &course{r: newRouter(l, notices{}), now: t0}
	c.backend = c.r.Open(&c.told, "", t0)
	c.backend.Receive([]byte(registerBackend("backend-1")), t0)
	c.edge = c.r.Open(&c.handed, "", t0)
	c.edge.Receive([]byte(register), t0)
	c.command = []byte(commandTo(refHex, "td-01", `,"priority":"NORMAL","timeout":30000,"timestamp":"2024-01-20T10:00:00.000Z","version":"1.0"`))
	c.reply = []byte(`{"type":"COMMAND_RESPONSE","requestRef":"` + refHex + `","status":"COMPLETED","result":{"brightness":80},"executionTime":42}`)
	return c
}

// fill writes ref number n into a message.
func fill(msg []byte, at int, n uint64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	for i, x := range b {
		msg[at+2*i], msg[at+2*i+1] = 'a'+x>>4, 'a'+x&15
	}
	return msg
}

// send sends command n.
func (c *course) send(n uint64) {
	c.backend.Receive(fill(c.command, len(`{"type":"COMMAND","requestRef":"cmd-`), n), c.now)
}

// answer answers command n.
func (c *course) answer(n uint64) {
	c.edge.Receive(fill(c.reply, len(`{"type":"COMMAND_RESPONSE","requestRef":"cmd-`), n), c.now)
}

// next sends a command and answers the oldest where so many are in flight.
func (c *course) next(inFlight uint64) {
	c.send(c.n)
	if c.n >= inFlight {
		c.answer(c.n - inFlight)
	}
	if c.n++; c.n%1000 == 0 {
		c.now += 10 * ms
		c.r.Tick(c.now)
	}
}

// TestNoAllocation: a command, its hand-over, its answer and its end allocate nothing
// once the records and tables are there.
func TestNoAllocation(t *testing.T) {
	if raced {
		t.Skip("the race detector makes pools forget")
	}
	for name, of := range map[string]struct {
		dedupe  bool
		payload int
	}{"plain": {false, 0}, "dedupe": {true, 0}, "dedupe, 1,000 bytes": {true, 1000}, "dedupe, 16,000 bytes": {true, 16_000}} {
		c := newCourse(Limits{MaxRecords: 2000}, registerEdge("edge-1", of.dedupe, "td-01"))
		c.command = []byte(commandTo(refHex, "td-01", `,"x":"`+strings.Repeat("x", of.payload)+`","priority":"NORMAL"`))
		for range 20_000 {
			c.next(50)
		}
		const rounds = 100_000
		perRound := testing.AllocsPerRun(1, func() {
			for range rounds {
				c.next(50)
			}
		}) / rounds
		t.Logf("%s: %.5f allocations a command and its answer", name, perRound)
		if perRound > 0.02 {
			t.Errorf("%s: %.4f allocations a command and its answer", name, perRound)
		}
		if want := int(c.n); c.handed.commands != want || c.r.Pending() != 50 {
			t.Errorf("%s: %d of %d commands handed over, %d pending", name, c.handed.commands, want, c.r.Pending())
		}
	}
}
