package loadgen

import (
	"context"
	"fmt"
	"time"

	"subway/loadgen/attack"
	"subway/loadgen/report"
)

// ramp raises the rate step by step until one does not pass.
func (r *run) ramp(ctx context.Context) error {
	ramp := r.s.Ramp
	r.recorder.Phase()
	for factor := 1.0; ramp.From*factor <= ramp.To; factor *= ramp.Factor {
		rate := ramp.From * factor
		r.setFactor(factor)
		if err := r.pause(ctx, ramp.Step); err != nil {
			return err
		}
		s := r.step(rate)
		r.say("step %.0f/s: %.0f/s done, p99 %.2f ms, passed: %t", rate, s.AchievedPerSecond, s.P99Ms, s.Passed)
		r.steps = append(r.steps, s)
		if !s.Passed {
			break
		}
	}
	return nil
}

// step judges the step that ends now: it passes when p99 is within the bound, 98 % of the
// rate was done and at most 1 % of it failed.
func (r *run) step(rate float64) report.Step {
	r.recorder.Tick(r.engine.Now())
	p := r.recorder.Phase()
	s := report.Step{RatePerSecond: rate, P50Ms: p.P50Ms, P99Ms: p.P99Ms, Errors: p.Errors}
	if p.Seconds > 0 {
		s.AchievedPerSecond = float64(p.Done) / p.Seconds
	}
	bound := float64(r.s.Ramp.P99) / 1e6
	s.Passed = p.P99Ms <= bound && s.AchievedPerSecond >= 0.98*rate && float64(p.Errors) <= 0.01*float64(p.Done)
	return s
}

// storm drops its share of the fleet at one instant, again and again.
func (r *run) storm(ctx context.Context) error {
	storm := r.s.Storm
	stormyEdges, stormyDirect := storm.takes(r.s.Fleet.Edges), storm.takes(r.s.Fleet.Direct)
	hit := append(r.edges[:stormyEdges:stormyEdges], r.edges[r.s.Fleet.Edges:r.s.Fleet.Edges+stormyDirect]...)
	repeats := storm.Repeat
	if !r.s.sends() {
		repeats-- // a fleet without load connects in a storm as it is
	}
	for i := range repeats {
		if err := r.pause(ctx, storm.Every); err != nil {
			return err
		}
		if err := r.strike(ctx, i+1, hit); err != nil {
			return err
		}
	}
	return r.pause(ctx, storm.Every)
}

// strike is one storm.
func (r *run) strike(ctx context.Context, number int, hit []*edge) error {
	r.recorder.Tick(r.engine.Now())
	r.recorder.Phase()
	all := int64(len(r.edges) + len(r.backends))
	losses := r.losses.Load()
	before := r.cpuSeconds()
	began := r.engine.Now()
	for _, l := range r.lanes {
		l.loop.Do(func() {
			for _, e := range hit {
				if e.lane == l && e.conn != nil {
					e.stormy = true
					e.conn.Abort()
				}
			}
		})
	}
	gone := func() bool { return r.losses.Load()-losses >= uint64(len(hit)) }
	err := r.until(ctx, r.s.Storm.Within, func() bool { return gone() && r.registered.Load() >= all })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		r.awaitRoutes(ctx, r.s.Storm.Within)
	}
	took := time.Duration(r.engine.Now() - began)
	r.recorder.Tick(r.engine.Now())
	p := r.recorder.Phase()
	missing := max(0, all-r.registered.Load())
	s := report.Storm{
		Name: fmt.Sprintf("storm %d", number), Connections: int64(len(hit)), Routes: int64(r.routesOf(hit)),
		AllBackSeconds: took.Seconds(), Failures: missing, LoadP99Ms: p.P99Ms,
	}
	r.storms = append(r.storms, s)
	cost := ""
	if after := r.cpuSeconds(); before.Known && after.Known {
		cost = fmt.Sprintf(", %.2f s of the gateway's CPU, load included", after.V-before.V)
		r.note("storm %d: %.2f s of the gateway's CPU, with the load meanwhile", number, after.V-before.V)
	}
	r.say("storm %d: %d connections with %d routes back in %s, %d missing, p99 of the load %.2f ms%s",
		number, s.Connections, s.Routes, took.Round(time.Millisecond), missing, p.P99Ms, cost)
	return nil
}

func (r *run) routesOf(hit []*edge) (n int) {
	for _, e := range hit {
		n += int(e.count)
	}
	return n
}

func (r *run) cpuSeconds() attack.Value {
	var s attack.Sample
	r.sample(&s)
	return s.CPUSeconds
}

// churn lets devices leave at the scenario's rate, until the function returned is called.
func (r *run) churn(ctx context.Context) (stop func()) {
	if r.s.Churn == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(time.Duration(float64(time.Second) / min(r.s.Churn.Rate, 1000)))
		defer every.Stop()
		each := max(1, int(r.s.Churn.Rate/1000))
		for next := uint32(0); ; {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
			for range each {
				next = (next + 7919) % uint32(r.routes()) // a prime: it comes to each before it comes again
				device, e := next, r.edgeOf(next)
				e.lane.loop.Do(func() { e.leave(device, r.s.Churn.Away) })
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		r.note("%d times a device left and came back", r.left.Load())
	}
}

// edgeOf finds the edge of a device.
func (r *run) edgeOf(device uint32) *edge {
	f := &r.s.Fleet
	if base := uint32(f.Edges * f.Devices); device >= base {
		return r.edges[uint32(f.Edges)+device-base]
	}
	return r.edges[device/uint32(f.Devices)]
}

// idleFirst is how many connections are there before memory is read: what the first ones
// make the gateway allocate for good is not theirs.
const idleFirst = 100

// silence connects devices and lets them sit there.
func (r *run) silence(ctx context.Context) error {
	want := r.s.Idle.Connections
	base := r.routes()
	for i := range want + idleFirst {
		r.edges = append(r.edges, r.directDevice(uint32(base+i)))
	}
	r.s.Fleet.Direct += want + idleFirst
	parties := r.edges[len(r.edges)-want-idleFirst:]
	if err := r.join(ctx, parties[:idleFirst]); err != nil {
		return err
	}
	var before, full, after attack.Sample
	r.sample(&before)
	if err := r.join(ctx, parties[idleFirst:]); err != nil {
		return err
	}
	r.say("%d connections are there; silence for %s", want, r.s.Idle.Silence)
	r.sample(&full)
	began := r.engine.Now()
	if err := r.pause(ctx, r.s.Idle.Silence); err != nil {
		return err
	}
	r.sample(&after)
	seconds := time.Duration(r.engine.Now() - began).Seconds()
	r.idle = &report.Idle{
		Connections:        int64(want),
		BytesPerConnection: (max(full.ResidentBytes.V, after.ResidentBytes.V) - before.ResidentBytes.V) / float64(want),
		Goroutines:         int64(after.Goroutines.V),
		CPUShare:           report.Share((after.CPUSeconds.V - full.CPUSeconds.V) / seconds),
	}
	return nil
}

// join connects parties and waits until all are registered.
func (r *run) join(ctx context.Context, parties []*edge) error {
	all := r.registered.Load() + int64(len(parties))
	for _, e := range parties {
		e.lane.loop.Do(e.connect)
	}
	if err := r.until(ctx, connectWithin, func() bool { return r.registered.Load() >= all }); err != nil {
		return fmt.Errorf("%w: %d of %d connections registered", errNotAll, r.registered.Load(), all)
	}
	return nil
}
