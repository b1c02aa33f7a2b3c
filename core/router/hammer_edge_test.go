package router

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"subway/core/wire"
)

// edgeActor is an edge with its devices, or a directly connected device.
type edgeActor struct {
	w       *world
	rng     *rand.Rand
	id      string
	direct  bool
	dedupe  bool
	s       *Session
	c       *edgeConn
	working map[string]int // refs with progress, and how much
	n       int            // progress made so far
}

// edgeConn is an edge's connection: what is handed to it waits in an inbox, and now and
// then the way is full.
type edgeConn struct {
	w       *world
	id      string
	session int64
	dedupe  bool

	mu     sync.Mutex
	rng    *rand.Rand
	inbox  []string
	full   bool
	gone   bool
	closed bool
}

func (c *edgeConn) Append(class wire.Class, a, b, d []byte) wire.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.gone:
		return wire.Gone
	case class != wire.ClassCommand:
		return wire.Accepted
	case !c.full && c.rng.IntN(c.w.blocks) == 0:
		c.full = true
		fallthrough
	case c.full:
		c.w.full.Add(1)
		return wire.Full
	}
	msg := append(append(append(make([]byte, 0, len(a)+len(b)+len(d)), a...), b...), d...)
	ref := member(msg, "requestRef")
	h := handing{stamp: c.w.ledger.stamp.Add(1), edge: c.id, session: c.session, dedupe: c.dedupe}
	c.w.ledger.of(ref, func(x *life) { x.handed = append(x.handed, h) })
	c.inbox = append(c.inbox, ref)
	return wire.Accepted
}

func (c *edgeConn) CloseWith(uint16, string) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}

// set changes a flag.
func (c *edgeConn) set(flag *bool, v bool) {
	c.mu.Lock()
	*flag = v
	c.mu.Unlock()
}

func (c *edgeConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// take returns one of the refs that came, "" for none.
func (c *edgeConn) take() (ref string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.inbox); n > 0 {
		ref = c.inbox[0]
		c.inbox = c.inbox[1:]
	}
	return ref
}

// open opens a connection that is not registered yet.
func (e *edgeActor) open() {
	e.c = &edgeConn{w: e.w, id: e.id, session: e.w.sessions.Add(1), dedupe: e.dedupe, rng: newRandFrom(e.rng)}
	e.s = e.w.r.Open(e.c, "192.0.2.1:5000", e.w.time())
}

func (e *edgeActor) say(format string, args ...any) {
	e.s.Receive(fmt.Appendf(nil, format, args...), e.w.time())
}

func (e *edgeActor) register(devices ...string) {
	switch {
	case e.direct && e.dedupe:
		e.say(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE","capabilities":["dedupe"]}`, e.id)
	case e.direct:
		e.say(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE"}`, e.id)
	default:
		e.s.Receive([]byte(registerEdge(e.id, e.dedupe, devices...)), e.w.time())
	}
}

func (e *edgeActor) some() []string {
	ids := []string{}
	for range 5 + e.rng.IntN(20) {
		ids = append(ids, e.w.device(e.rng))
	}
	return ids
}

func (e *edgeActor) play() {
	e.working = map[string]int{}
	e.open()
	e.register(e.some()...)
	for !e.w.over() {
		if e.c.isClosed() { // superseded, which takes a while to be noticed; then back
			for range e.rng.IntN(200) {
				e.s.Writable(e.w.time())
				runtime.Gosched()
			}
			e.s.Closed(e.w.time(), "superseded")
			e.open()
			e.register()
		}
		switch x := e.rng.IntN(1000); {
		case x < 600:
			e.work()
		case x < 800:
			e.c.set(&e.c.full, false)
			e.s.Writable(e.w.time())
		case x < 830:
			e.devices()
		case x < 850:
			e.links()
		default:
			runtime.Gosched()
		}
	}
	for e.w.r.Pending() > 0 { // some of them answer to the end
		e.c.set(&e.c.full, false)
		e.s.Writable(e.w.time())
		e.work()
		runtime.Gosched()
	}
	e.s.Closed(e.w.time(), "done")
}

// work answers one command, some way or other.
func (e *edgeActor) work() {
	if e.w.rivals && e.rng.IntN(4) == 0 {
		e.meddle()
		return
	}
	ref := e.c.take()
	if ref == "" || e.rng.IntN(5) == 0 {
		for r := range e.working {
			ref = r
			break
		}
	}
	if ref == "" {
		return
	}
	delete(e.working, ref)
	switch x := e.rng.IntN(100); {
	case x < 50:
		e.say(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":{"n":1}}`, ref)
	case x < 60:
		e.say(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"FAILED"}`, ref)
	case x < 65:
		e.say(`{"type":"ERROR","requestRef":"%s","code":"BROKEN","message":"x"}`, ref)
	case x < 90:
		e.n++
		e.say(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":%d.%d}`, ref, e.n%100, e.n)
		e.working[ref] = e.n
	case x < 95:
		e.meddle()
	}
}

// meddle answers commands that it has not got: PENDING, ended or elsewhere.
func (e *edgeActor) meddle() {
	ref := e.w.recent[e.rng.IntN(len(e.w.recent))].Load()
	switch {
	case ref == nil:
	case e.rng.IntN(4) == 0:
		e.say(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED"}`, *ref)
	default:
		e.n++
		e.say(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":%d.%d}`, *ref, e.n%100, e.n)
	}
}

// devices says something of devices.
func (e *edgeActor) devices() {
	d := e.w.device(e.rng)
	switch x := e.rng.IntN(10); {
	case x < 3:
		e.say(`{"type":"DEVICE_STATUS","clientId":"%s","status":{"n":%d}}`, d, e.rng.IntN(1<<30))
	case e.direct:
		e.register()
	case x < 7:
		e.say(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE","edgeInfo":{"edgeId":"%s"},"deviceInfo":{"n":%d}}`, d, e.id, x)
	case x < 8:
		e.say(`{"type":"UNREGISTER","clientId":"%s"}`, d)
	case x < 9:
		e.register(e.some()...)
	default:
		e.register()
	}
}

// links does something to the connection.
func (e *edgeActor) links() {
	now := e.w.time()
	switch x := e.rng.IntN(12); {
	case x < 4: // lost, and back after a while
		e.c.set(&e.c.gone, true)
		if x < 2 {
			runtime.Gosched()
		}
		e.s.Closed(now, "reset")
		for range e.rng.IntN(300) {
			runtime.Gosched()
		}
		e.open()
		e.register()
	case x < 8: // a new connection before the old one's end is noticed
		old := e.s
		e.open()
		if x < 6 {
			e.register()
		} else {
			e.register(e.some()...)
		}
		old.Closed(now, "reset")
	case x < 9:
		e.say(`{"type":"UNREGISTER","clientId":"%s"}`, e.id)
		e.s.Closed(now, "closed")
		e.open()
		e.register(e.some()...)
	}
}
