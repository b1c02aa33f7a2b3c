package gateway_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// racing is a race of responses, cancels, timeouts and disconnects.
type racing struct {
	*fixture
	l       *ledger
	urls    []string
	edges   []string
	deletes chan int // commands to be cancelled over HTTP
	stopped chan struct{}
	done    sync.WaitGroup
}

const devicesPerEdge = 8

// TestRace: whatever races, each accepted command has one end, which is told once over
// WebSocket and once by callback, as the same, and no progress after it.
func TestRace(t *testing.T) {
	n := 100_000
	if raced || testing.Short() {
		n = 10_000
	}
	rng := seeded(t)
	r := &racing{fixture: start(t, nil), l: newLedger(t, n, 2000), deletes: make(chan int, 64), stopped: make(chan struct{})}
	for i := range 4 {
		r.urls = append(r.urls, r.l.serve(fmt.Sprintf("127.0.0.%d", 11+i))+"/cb")
		r.edges = append(r.edges, fmt.Sprintf("edge-%d", i))
	}
	began := time.Now()
	for i := range r.edges {
		r.goEdge(i, rand.New(rand.NewPCG(rng.Uint64(), 1)))
	}
	for range 2 {
		r.done.Go(r.deleteSome)
	}
	until(t, "the edges are there", func() bool { return r.metric(`subway_active_connections{node_type="edge"}`) == 4 })
	for i := range 3 {
		r.goBackend(i, n, rand.New(rand.NewPCG(rng.Uint64(), 1)))
	}
	r.finish(t)
	ended := r.l.balance()
	t.Logf("%d commands in %v: %d accepted, ended %v, %d refused, %d times progress", n, time.Since(began).Round(time.Millisecond),
		r.l.finals.Load(), ended, r.l.refused.Load(), r.l.progress.Load())
	varied(t, ended)
}

// finish waits until everything has been told of every command, and ends the parties.
func (r *racing) finish(t *testing.T) {
	settled := make(chan struct{})
	go func() { r.l.left.Wait(); close(settled) }()
	select {
	case <-settled:
	case <-time.After(8 * patience):
		for i := range r.l.books {
			r.l.with(i, func(b *book) {
				if b.sent > 0 && !b.settled {
					t.Errorf("%d is open: %+v, %s", i, *b, r.record(strconv.Itoa(i)).body)
				}
			})
			if t.Failed() {
				break
			}
		}
		t.Fatal("not everything was told")
	}
	close(r.stopped)
	close(r.deletes)
	r.account(t)
	r.stop(0)
	r.done.Wait()
}

// account holds the Gateway's own counts against the ledger's.
func (r *racing) account(t *testing.T) {
	until(t, "the last callback is confirmed", func() bool { return r.metric("subway_callback_queue_length") == 0 })
	ended := map[string]float64{}
	for series, v := range r.metrics() {
		switch name, _, _ := strings.Cut(series, "{"); name {
		case "subway_commands_success_total":
			ended["COMPLETED"] += v
		case "subway_commands_failure_total":
			ended["not"] += v
		case "subway_pending_commands", "subway_dead_letters":
			if v != 0 {
				t.Errorf("%s is %g", series, v)
			}
		}
	}
	if all := ended["COMPLETED"] + ended["not"]; int64(all) != r.l.finals.Load() || ended["COMPLETED"] == 0 {
		t.Errorf("the Gateway counts %v ends, %d were told", ended, r.l.finals.Load())
	}
}

// varied checks that all there is to race did.
func varied(t *testing.T, ended map[string]int) {
	for _, state := range []string{"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"} {
		if ended[state] == 0 {
			t.Errorf("no command ended %s: the race was none", state)
		}
	}
}

// goBackend sends every third command, now and then twice, and cancels some.
func (r *racing) goBackend(which, n int, rng *rand.Rand) {
	c, err := r.joinLean(fmt.Sprintf(`{"type":"REGISTER","clientId":"backend-%d","clientType":"BACKEND"}`, which))
	if err != nil {
		r.t.Fatal(err)
	}
	r.done.Go(func() {
		defer func() { _ = c.conn.Close() }()
		for {
			msg, err := c.read()
			if err != nil {
				return
			}
			if !bytes.HasPrefix(msg, []byte(`{"type":"CONNECTION_STATUS"`)) {
				r.l.hear(msg)
			}
		}
	})
	r.done.Go(func() {
		for i := which; i < n; i += 3 {
			if !r.command(c, i, rng) {
				return
			}
		}
		_ = c.flush()
	})
}

func (r *racing) command(c *lean, i int, rng *rand.Rand) bool {
	times := 1
	if rng.IntN(20) == 0 {
		times = 2
	}
	if len(r.l.open) == cap(r.l.open) && c.flush() != nil {
		return false
	}
	r.l.begin(i, times)
	edge := rng.IntN(len(r.edges))
	msg := fmt.Appendf(nil, `{"type":"COMMAND","requestRef":"%d","targetClientId":"td-%d-%d","command":{"commandType":"T%d"},"priority":"%s","timeout":%d,"whenOffline":"%s","callback":"%s"}`,
		i, edge, rng.IntN(devicesPerEdge), rng.IntN(3), []string{"LOW", "NORMAL", "HIGH"}[rng.IntN(3)], 20+rng.IntN(400),
		[]string{"REJECT", "QUEUE"}[rng.IntN(2)], r.urls[rng.IntN(len(r.urls))])
	for range times {
		c.add(msg)
	}
	switch rng.IntN(10) {
	case 0, 1:
		c.addf(`{"type":"CANCEL","requestRef":"%d","targetClientId":"td-0-0"}`, i)
	case 2:
		select {
		case r.deletes <- i:
		default:
		}
	}
	if len(c.out) > 4<<10 || rng.IntN(8) == 0 {
		return c.flush() == nil
	}
	return true
}

func (r *racing) deleteSome() {
	for i := range r.deletes {
		a, err := r.try("DELETE", "/api/commands/"+strconv.Itoa(i), "")
		if err == nil && a.status != 200 && a.status != 404 && a.status != 409 {
			r.t.Errorf("DELETE: %d %s", a.status, a.body)
		}
	}
}

// goEdge answers in every way, and loses its connection now and then. The even ones
// say dedupe and answer what they saw.
func (r *racing) goEdge(which int, rng *rand.Rand) {
	var devices []string
	for i := range devicesPerEdge {
		devices = append(devices, fmt.Sprintf("td-%d-%d", which, i))
	}
	register := edgeRegister(r.edges[which], devices...)
	if which%2 == 0 {
		register = strings.Replace(register, `"devices"`, `"capabilities":["dedupe"],"devices"`, 1)
	}
	r.done.Go(func() {
		e := &racer{rng: rng}
		for {
			c, err := r.joinLean(register)
			if err != nil {
				return // the end: nobody listens any more
			}
			e.lean = c
			for e.turn() == nil {
			}
			_ = c.conn.Close()
			select {
			case <-r.stopped:
				return
			default:
			}
		}
	})
}

// racer is an edge in a race.
type racer struct {
	*lean
	rng  *rand.Rand
	held []string // refs to be answered later
}

// turn takes one message and says something, or ends the connection.
func (e *racer) turn() error {
	if e.br.Buffered() == 0 {
		e.release()
		if err := e.flush(); err != nil {
			return err
		}
	}
	msg, err := e.read()
	if err != nil || !bytes.HasPrefix(msg, []byte(`{"type":"COMMAND"`)) {
		return err
	}
	ref := string(member(msg, "requestRef"))
	switch k := e.rng.IntN(1000); {
	case k < 550:
		e.respond(ref, "COMPLETED")
	case k < 650:
		e.respond(ref, "COMPLETED")
		e.respond(ref, "FAILED")
	case k < 750:
		e.progress(ref)
		e.respond(ref, "COMPLETED")
	case k < 800:
		e.progress(ref)
		e.progress(ref)
		e.respond(ref, "FAILED")
		e.progress(ref)
	case k < 850:
		e.addf(`{"type":"ERROR","requestRef":"%s","code":"DEVICE_BROKEN","message":"m"}`, ref)
		e.respond(ref, "COMPLETED")
	case k < 920:
		e.held = append(e.held, ref)
	case k < 998:
		// no answer: its time runs out
	default:
		_ = e.flush()
		return fmt.Errorf("the link is lost")
	}
	return nil
}

// release answers some of what was held, late or not.
func (e *racer) release() {
	for len(e.held) > 0 && e.rng.IntN(3) > 0 {
		e.progress(e.held[0])
		e.respond(e.held[0], "COMPLETED")
		e.held = e.held[1:]
	}
}

func (e *racer) respond(ref, status string) {
	e.addf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"%s","result":{"ok":true}}`, ref, status)
}

func (e *racer) progress(ref string) {
	e.addf(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":%d}`, ref, e.rng.IntN(101))
}
