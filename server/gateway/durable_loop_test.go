package gateway_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// killLoop is a crowd that goes on while the Gateway is killed and started again.
type killLoop struct {
	*tales
	url     string                  // of the receiver
	now     atomic.Pointer[fixture] // the Gateway of this life
	stop    chan struct{}           // closed: nobody begins anything more
	over    chan struct{}           // closed: all end
	callers sync.WaitGroup
	edges   sync.WaitGroup
}

// life waits for another Gateway than the last one; nil: there will be none.
func (k *killLoop) life(last *fixture, end <-chan struct{}) *fixture {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if f := k.now.Load(); f != nil && f != last {
			return f
		}
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestKillLoop: a Gateway is killed at random moments, under load and while it starts.
// In the end each command that was accepted has one final state, and nothing that was
// told anywhere, before or after a crash, contradicts it.
func TestKillLoop(t *testing.T) {
	rng := seeded(t)
	o := durable(t)
	o.Segment = 64 << 10 // rotations in each life, and checkpoints in those of more than a second
	k := &killLoop{tales: newTales(t), stop: make(chan struct{}), over: make(chan struct{})}
	k.url = k.serve()
	p := launch(t, o)
	k.now.Store(p.fixture)
	for i := range 3 {
		k.goEdge(i, rand.New(rand.NewPCG(rng.Uint64(), 1)))
	}
	edges := func() bool { return p.metric(`subway_active_connections{node_type="edge"}`) == 3 }
	until(t, "the edges are there", edges)
	for i := range 3 {
		k.goPoster(i, rand.New(rand.NewPCG(rng.Uint64(), 1)))
	}
	for i := range 2 {
		k.goBackend(i, rand.New(rand.NewPCG(rng.Uint64(), 1)))
	}
	for i := range 12 {
		<-time.After(time.Duration(i%3/2*1000+20+rng.IntN(300)) * time.Millisecond) // the moment
		p.kill()
		if rng.IntN(4) == 0 {
			p = spawn(t, o)
			<-time.After(time.Duration(rng.IntN(80)) * time.Millisecond)
			p.kill()
		}
		p = launch(t, o)
		k.now.Store(p.fixture)
	}
	until(t, "the edges are there again", edges)
	close(k.stop)
	k.callers.Wait()
	until(t, "the last command ends", func() bool { return p.metric("subway_pending_commands") == 0 })
	until(t, "the last callback is confirmed", func() bool { return p.metric("subway_callback_queue_length") == 0 })
	records := p.records()
	t.Logf("%v", k.balance(records))
	p.kill()
	p = launch(t, o)
	after := p.records()
	if k.balance(after); len(after) != len(records) {
		t.Errorf("%d records are %d after another restart", len(records), len(after))
	}
	close(k.over)
	p.end()
	k.edges.Wait()
}

// order makes the members of a command that are the same over HTTP and WebSocket.
func (k *killLoop) order(ref string, rng *rand.Rand) (device, more string) {
	more = fmt.Sprintf(`"timeout":%d,"priority":"%s","whenOffline":"%s"`, 300+rng.IntN(3000),
		[]string{"LOW", "NORMAL", "HIGH"}[rng.IntN(3)], []string{"REJECT", "QUEUE"}[rng.IntN(2)])
	callback := rng.IntN(2) == 0
	k.with(ref, func(c *tale) { c.callback = callback })
	return fmt.Sprintf("td-%d-%d", rng.IntN(3), rng.IntN(3)), more
}

// goPoster posts, reads and cancels over HTTP. What gets no answer it repeats.
func (k *killLoop) goPoster(which int, rng *rand.Rand) {
	k.callers.Go(func() {
		f := k.now.Load()
		for n := 0; !closed(k.stop); n++ {
			ref := fmt.Sprintf("http-%d-%d", which, n)
			device, more := k.order(ref, rng)
			if k.hasCallback(ref) {
				more += `,"callbackUrl":"` + k.url + `"`
			}
			target, body := "/api/commands", fmt.Sprintf(`{"targetClientId":%q,"requestRef":%q,"command":{"commandType":"T"},%s}`, device, ref, more)
			if rng.IntN(3) == 0 {
				target += "?wait=150"
			}
			for {
				a, err := f.try("POST", target, body)
				if err == nil {
					k.posted(ref, a)
					break
				}
				if rng.IntN(10) == 0 {
					break // nobody will know
				}
				if f = k.life(f, k.over); f == nil {
					return
				}
			}
			if rng.IntN(8) == 0 {
				k.look(f, "DELETE", ref)
			} else {
				k.look(f, "GET", fmt.Sprintf("http-%d-%d", which, n-rng.IntN(min(n+1, 50))))
			}
		}
	})
}

func (k *killLoop) hasCallback(ref string) (has bool) {
	k.with(ref, func(c *tale) { has = c.callback })
	return has
}

func (k *killLoop) posted(ref string, a *answer) {
	switch code := a.str("code"); {
	case a.status == 200:
		k.accepted(ref, "POST")
		k.told(ref, a.str("status"), "POST with wait")
	case code == "DUPLICATE_REQUEST":
		k.accepted(ref, "POST as a duplicate")
		k.told(ref, a.str("details.status"), "POST as a duplicate")
	case code == "EDGE_UNAVAILABLE" || code == "OVERLOADED" || code == "GATEWAY_UNAVAILABLE":
		k.refused(ref, "POST with "+code)
	default:
		k.t.Errorf("POST of %s: %d %s", ref, a.status, a.body)
	}
}

// look reads a command that was posted, or cancels it.
func (k *killLoop) look(f *fixture, method, ref string) {
	var known bool
	k.with(ref, func(c *tale) { known = c.accepted != "" || c.ended != "" })
	a, err := f.try(method, "/api/commands/"+ref, "")
	switch {
	case err != nil:
	case a.status == 200:
		k.told(ref, a.str("status"), method)
	case a.status == 409 && method == "DELETE":
		k.told(ref, a.str("details.status"), "DELETE of an ended one")
	case a.status == 404 && !known:
	default:
		k.t.Errorf("%s of %s: %d %s", method, ref, a.status, a.body)
	}
}

// goBackend sends commands in small bursts over WebSocket, and again those that were not
// answered when the Gateway went.
func (k *killLoop) goBackend(which int, rng *rand.Rand) {
	by := fmt.Sprintf("backend-%d", which)
	k.callers.Go(func() {
		open, n := map[string]string{}, 0 // commands by their refs
		done := func() bool { return closed(k.stop) && len(open) == 0 }
		for f := k.now.Load(); f != nil && !done(); f = k.life(f, k.over) {
			c, err := f.joinLean(`{"type":"REGISTER","clientId":"` + by + `","clientType":"BACKEND"}`)
			if err != nil {
				continue
			}
			for _, msg := range open {
				c.add([]byte(msg))
			}
			for err == nil && !done() {
				for len(open) < 5 && !closed(k.stop) {
					ref := fmt.Sprintf("ws-%d-%d", which, n)
					n++
					device, more := k.order(ref, rng)
					if k.hasCallback(ref) {
						more += `,"callback":"` + k.url + `"`
					}
					open[ref] = fmt.Sprintf(`{"type":"COMMAND","ack":true,"requestRef":%q,"targetClientId":%q,"command":{"commandType":"T"},%s}`, ref, device, more)
					c.add([]byte(open[ref]))
				}
				if err = c.flush(); err == nil {
					err = k.listen(c, by, open)
				}
			}
			_ = c.conn.Close()
			if done() {
				return
			}
		}
	})
}

// listen takes one message.
func (k *killLoop) listen(c *lean, by string, open map[string]string) error {
	msg, err := c.read()
	if err != nil {
		return err
	}
	if ref, answers := k.hear(msg, by); answers {
		delete(open, ref)
	}
	return nil
}

// goEdge is an edge of three devices. The first two say dedupe: they execute a ref once
// and answer it from their store when it comes again. The third must not get one again.
func (k *killLoop) goEdge(which int, rng *rand.Rand) {
	devices := []string{fmt.Sprintf("td-%d-0", which), fmt.Sprintf("td-%d-1", which), fmt.Sprintf("td-%d-2", which)}
	id, register := fmt.Sprintf("edge-%d", which), edgeRegister
	if which < 2 {
		register = dedupeRegister
	}
	k.edges.Go(func() {
		store := map[string][]string{} // what was said to a ref
		for f := k.now.Load(); f != nil; f = k.life(f, k.over) {
			c, err := f.joinLean(register(id, devices...))
			seen := map[string]bool{} // in this session
			for err == nil {
				err = k.obey(c, which < 2, store, seen, rng)
			}
			if c != nil {
				_ = c.conn.Close()
			}
		}
	})
}

// obey takes one message.
func (k *killLoop) obey(c *lean, dedupe bool, store map[string][]string, seen map[string]bool, rng *rand.Rand) error {
	msg, err := c.read()
	if err != nil || !bytes.HasPrefix(msg, []byte(`{"type":"COMMAND"`)) && !bytes.Contains(msg, []byte(`"type":"COMMAND"`)) {
		return err
	}
	ref := string(member(msg, "requestRef"))
	answers, again := store[ref]
	if again && !dedupe || seen[ref] {
		k.t.Errorf("%s was handed over twice (dedupe %v, in one session %v)", ref, dedupe, seen[ref])
	}
	if !again {
		var word string
		answers, word = act(ref, rng)
		store[ref] = answers
		k.with(ref, func(c *tale) { c.answer = word })
	}
	seen[ref] = true
	k.with(ref, func(c *tale) { c.handed++ })
	for _, msg := range answers {
		c.add([]byte(msg))
	}
	return c.flush()
}

// act is a device: what it says to a command, and how that ends.
func act(ref string, rng *rand.Rand) (says []string, word string) {
	progress := fmt.Sprintf(`{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":%d}`, ref, rng.IntN(101))
	completed := fmt.Sprintf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"COMPLETED","result":{"of":%q}}`, ref, ref)
	switch k := rng.IntN(20); {
	case k < 12:
		return []string{completed}, "COMPLETED"
	case k < 14:
		return []string{progress, completed}, "COMPLETED"
	case k < 15:
		return []string{fmt.Sprintf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"FAILED"}`, ref)}, "FAILED"
	case k < 16:
		return []string{fmt.Sprintf(`{"type":"ERROR","requestRef":%q,"code":"DEVICE_BROKEN","message":"m"}`, ref)}, "FAILED"
	case k < 18:
		return []string{progress}, ""
	}
	return nil, ""
}
