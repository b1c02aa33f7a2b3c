package router

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
)

var (
	rewrite = flag.Bool("rewrite", false, "rewrite the outputs in testdata")
	seed    = flag.Uint64("seed", 0, "replay a randomised test with this seed; 0: a new one")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// t0 is when tests begin.
const t0 = wire.Time(1_705_744_800_000_000_000)

// newRand returns a generator and prints its seed, to be given to -seed.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// way says what a conn answers to commands.
type way int32

const (
	wayClear way = iota
	wayFull
	wayGone
)

// conn is a Conn that gives what is sent on it to hear, one message at a time.
type conn struct {
	mu        sync.Mutex
	way       way
	room      int  // commands that are taken before the way is full; negative: any number
	refuse    int  // commands that find the way full before it is as way and room say
	statusOff bool // status messages are dropped
	closed    uint16
	hear      func(class wire.Class, msg []byte)
	onClose   func(code uint16, reason string)
}

func newConn(hear func(class wire.Class, msg []byte)) *conn { return &conn{room: -1, hear: hear} }

func (c *conn) Append(class wire.Class, a, b, d []byte) wire.Result {
	class &^= wire.Durable
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.way == wayGone || c.closed != 0:
		return wire.Gone
	case class == wire.ClassCommand && c.refuse > 0:
		c.refuse--
		return wire.Full
	case class == wire.ClassCommand && (c.way == wayFull || c.room == 0):
		return wire.Full
	case class == wire.ClassStatus && c.statusOff:
		return wire.Dropped
	}
	if class == wire.ClassCommand && c.room > 0 {
		c.room--
	}
	c.hear(class, append(append(bytes.Clone(a), b...), d...))
	return wire.Accepted
}

func (c *conn) CloseWith(code uint16, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == 0 && c.onClose != nil {
		c.onClose(code, reason)
	}
	c.closed = code
}

// set changes what the connection answers; the caller tells the session.
func (c *conn) set(w way, room int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.way, c.room = w, room
}

// notices is a Callbacks that gives what it is told to hear.
type notices struct{ hear func(n *Notice) }

func (notices) CheckURL(url []byte) error {
	if bytes.Contains(url, []byte("refused")) {
		return errors.New("the address may not be called")
	}
	return nil
}

func (n notices) Notify(x *Notice) {
	if n.hear != nil {
		n.hear(x)
	}
}

// newRouter returns a Router of these limits that starts at t0.
func newRouter(l Limits, c Callbacks) *Router {
	return New(Config{Limits: l, Callbacks: c, OrphanResponses: true, HeartbeatMs: 30000}, t0)
}

// party is a registered session whose messages go nowhere.
func party(r *Router, c *conn, register string, now wire.Time) *Session {
	s := r.Open(c, "192.0.2.1:5000", now)
	s.Receive([]byte(register), now)
	return s
}

func deaf(wire.Class, []byte) {}

func registerBackend(id string) string {
	return fmt.Sprintf(`{"type":"REGISTER","clientId":"%s","clientType":"BACKEND"}`, id)
}

func registerEdge(id string, dedupe bool, devices ...string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"type":"REGISTER","clientId":"%s","clientType":"EDGE"`, id)
	if dedupe {
		b.WriteString(`,"capabilities":["dedupe"]`)
	}
	if devices != nil {
		b.WriteString(`,"devices":[`)
		for i, d := range devices {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q", d)
		}
		b.WriteByte(']')
	}
	return b.String() + "}"
}

func commandTo(ref, target, more string) string {
	return fmt.Sprintf(`{"type":"COMMAND","requestRef":"%s","targetClientId":"%s","command":{"commandType":"T"}%s}`, ref, target, more)
}

const ms = wire.Time(time.Millisecond)

// newRandFrom returns a generator of its own for a goroutine.
func newRandFrom(r *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), 1)) }
