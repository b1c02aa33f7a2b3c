package drive

import (
	"bytes"
	"fmt"
	"net/netip"
	"time"

	"subway/bench/proc"
)

// Some figures are differences: the same load is measured, something changes, and it is measured again, in the same server.

const (
	changeTimeout = 30 * time.Second
	stuckCommands = 4_000   // to the stuck edge
	stuckPayload  = 8 << 10 // 32 MiB in all: twice what may wait for one edge (PROTOCOL.md section 3)
	stuckSettle   = 5 * time.Second
)

// change returns what happens between the two measurements, nil when there is one only.
func (r *run) change() func() error {
	switch {
	case r.cfg.Callback:
		return r.startCallbacks
	case r.cfg.Grow > 0:
		return r.grow
	case r.cfg.Stuck:
		return r.block
	}
	return nil
}

// again keeps the figures so far, changes what is to be changed, and measures once more.
func (r *run) again(change func() error) error {
	was := r.result
	if err := change(); err != nil {
		return err
	}
	kept := r.result // what change measured
	if err := r.warmAndMeasure(); err != nil {
		return err
	}
	r.result.Before = &Before{was.CPUPerCommand, was.PerSecond, was.P50, was.P99}
	r.result.BytesPerRoute = kept.BytesPerRoute
	r.result.StuckRefused, r.result.StuckSent, r.result.StuckRSS = kept.StuckRefused, kept.StuckSent, kept.StuckRSS
	return nil
}

// turnUntil turns the loop until done, for at most so long.
func (r *run) turnUntil(limit time.Duration, done func() bool) (bool, error) {
	for end := r.loop.clock() + int64(limit); !done(); {
		if r.loop.clock() > end {
			return false, nil
		}
		if _, err := r.loop.round(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// grow registers every edge again with more devices. Nothing is in flight, so what the server's memory grows by is the routes
// (and what reading the frames left).
func (r *run) grow() error {
	before, err := r.rss()
	if err != nil {
		return err
	}
	for _, e := range r.edges {
		e.conn.out = appendFrame(e.conn.out, opText, edgeRegister(e.number, r.cfg.Grow))
		e.conn.send()
		r.acksDue++
		if err := r.loop.flush(); err != nil {
			return err
		}
		done, err := r.turnUntil(changeTimeout, func() bool { return r.acksDue == 0 })
		if err != nil || !done {
			return fmt.Errorf("edge %d was not registered again: %w", e.number, err)
		}
	}
	after, err := r.rss()
	if err != nil {
		return err
	}
	if added := (r.cfg.Grow - r.cfg.Devices) * r.cfg.Edges; added > 0 {
		r.result.BytesPerRoute = float64(after-before) / float64(added)
	}
	r.cfg.Devices = r.cfg.Grow
	return nil
}

func (r *run) rss() (int64, error) {
	if r.cfg.PID == 0 {
		return 0, nil
	}
	return proc.RSS(r.cfg.PID)
}

// flood is the Backend whose commands go to the stuck edge. Nobody answers them; refusals are counted.
type flood struct {
	refused int64
}

func (f *flood) message(_ *conn, msg []byte) error {
	if bytes.Contains(msg, []byte(`"ERROR"`)) {
		f.refused++
	}
	return nil
}

// block has edge 0 stop reading, and another Backend fill its queue. The commands outlive the run, so that no timeout falls into
// the measurement.
func (r *run) block() error {
	before, err := r.rss()
	if err != nil {
		return err
	}
	if err := r.edges[0].conn.deaf(); err != nil {
		return err
	}
	register := []byte(`{"type":"REGISTER","clientId":"backend-flood","clientType":"BACKEND","version":"1.0"}`)
	p, err := dialWebSocket(r.cfg.Addr, netip.Addr{}, r.greeting('B', 0, register))
	if err != nil {
		return err
	}
	f := &flood{}
	c, err := r.loop.add(p.fd, framing{f}, p.in)
	if err != nil {
		return err
	}
	fill := payload("text", stuckPayload)
	for i := range stuckCommands {
		c.out = appendFrame(c.out, opText, fmt.Appendf(nil, `{"type":"COMMAND","requestRef":"flood-%d-%d","targetClientId":"td-000000",`+
			`"command":{"commandType":"SHOW","data":%s},"timeout":3600000,"version":"1.0"}`, r.number, i, fill))
	}
	c.send()
	if err := r.loop.flush(); err != nil {
		return err
	}
	// A gateway that stops reading instead of refusing never takes it all: then the time is the end.
	var quiet int64
	last := int64(-1)
	if _, err := r.turnUntil(stuckSettle, func() bool {
		if len(c.out) > 0 || f.refused != last {
			last, quiet = f.refused, r.loop.clock()
		}
		return r.loop.clock()-quiet > int64(500*time.Millisecond)
	}); err != nil {
		return err
	}
	after, err := r.rss()
	r.result.StuckRefused, r.result.StuckSent, r.result.StuckRSS = f.refused, stuckCommands, after-before
	return err
}
