package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"subway/loadgen/attack"
	"subway/loadgen/report"
	"subway/loadgen/socket"
)

// connectWithin bounds how long all parties may take to connect and register.
const connectWithin = 2 * time.Minute

// play does what the scenario says, in order.
func (r *run) play(ctx context.Context) error {
	stopTicks := r.engine.Every(tick, func(l *socket.Loop, intended, _ int64) { r.laneOf[l].tick(intended) })
	defer stopTicks()
	watch := r.watch()
	defer watch()
	if err := r.connect(ctx); err != nil {
		return err
	}
	r.sample(&r.firstSample)
	if r.slow != nil {
		r.slow.start()
		defer r.slow.stop()
	}
	if r.s.sends() {
		if err := r.load(ctx); err != nil {
			return err
		}
	} else if err := r.events(ctx); err != nil && !r.interrupted(ctx) {
		return err
	}
	r.sample(&r.lastSample)
	return nil
}

// load sends, from the warm-up to the last command's end.
func (r *run) load(ctx context.Context) error {
	if r.s.Warmup == 0 {
		r.from.Store(0) // all is measured, from the first command on
	}
	web, err := r.startHTTP(ctx)
	if err != nil {
		return err
	}
	r.sending.Store(true)
	if err = r.warmUp(ctx); err == nil {
		began := r.engine.Now()
		err = r.events(ctx)
		r.sent = time.Duration(r.engine.Now() - began)
	}
	r.sending.Store(false)
	web.stop()
	if r.interrupted(ctx) {
		err = nil
	}
	r.drain()
	return err
}

// warmUp sends for a while and measures from its end on.
func (r *run) warmUp(ctx context.Context) error {
	if r.s.Warmup == 0 {
		return nil
	}
	r.say("warming up for %s: in the books, not in the figures", r.s.Warmup)
	if err := r.pause(ctx, r.s.Warmup); err != nil {
		return err
	}
	r.sample(&r.firstSample) // before anything is measured: a gateway may take its time
	r.from.Store(r.engine.Now())
	return nil
}

// interrupted says whether somebody ended the run, and notes it.
func (r *run) interrupted(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	r.note("interrupted: the run was cut short")
	return true
}

// events is the measured part: phases, a ramp, a storm or silence.
func (r *run) events(ctx context.Context) error {
	churned := r.churn(ctx)
	defer churned()
	switch {
	case r.s.Ramp != nil:
		return r.ramp(ctx)
	case r.s.Storm != nil:
		if err := r.storm(ctx); err != nil {
			return err
		}
	case r.s.Idle != nil:
		return r.silence(ctx)
	}
	for _, p := range r.s.Phases {
		r.setPhase(p)
		if err := r.pause(ctx, p.For); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) setPhase(p Phase) {
	r.setFactor(p.Factor)
	if p.Name != "" {
		r.say("%s: %g x the rate for %s", p.Name, p.Factor, p.For)
	}
}

// pause waits, and counts what should be sent meanwhile.
func (r *run) pause(ctx context.Context, d time.Duration) error {
	began := r.engine.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if r.s.Load.Window == 0 && (r.s.HTTP.Rate > 0 || r.s.HTTP.Workers == 0) && r.measured(began) {
		passed := time.Duration(r.engine.Now() - began).Seconds()
		r.intended += (r.s.Load.Rate + r.s.HTTP.Rate) * r.factor() * passed
	}
	return err
}

// until polls a condition, every 10 ms, for at most the time given.
func (r *run) until(ctx context.Context, d time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !done() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// say shows a line between the live ones.
func (r *run) say(format string, args ...any) {
	if r.o.Live != nil {
		r.o.Live(fmt.Sprintf(format, args...))
	}
}

// watch closes a second of the report at a time and shows it; the function returned ends it.
func (r *run) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-second.C:
			case <-ctx.Done():
				return
			}
			r.readGateway(ctx)
			s := r.recorder.Tick(r.engine.Now())
			if r.o.Live != nil {
				r.o.Live(s.Line())
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// readGateway takes the gateway's CPU time, where it tells. Reading it costs the gateway
// about a millisecond, which is why it is done every second and not more often.
func (r *run) readGateway(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
	defer cancel()
	if s, err := attack.Scrape(ctx, r.o.URL); err == nil && s.CPUSeconds.Known {
		r.recorder.GatewayCPU(s.CPUSeconds.V)
	}
}

func (r *run) sample(to *attack.Sample) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := attack.Scrape(ctx, r.o.URL)
	if err != nil {
		r.trouble("the gateway's metrics: %v", err)
	}
	*to = s
}

// connect brings all parties in at once, and notes how long it took.
func (r *run) connect(ctx context.Context) error {
	all := int64(len(r.edges) + len(r.backends))
	began := r.engine.Now()
	for _, b := range r.backends {
		b.lane.loop.Do(b.connect)
	}
	for _, e := range r.edges {
		e.lane.loop.Do(e.connect)
	}
	within := connectWithin
	if r.s.Storm != nil {
		within = max(within, r.s.Storm.Within)
	}
	if err := r.until(ctx, within, func() bool { return r.registered.Load() >= all }); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		registered, why := r.registered.Load(), errNotAll
		if registered == 0 {
			why = ErrUnreachable // it answers HTTP, and is no gateway for all that
		}
		return fmt.Errorf("%w: %d of %d connections registered within %s", why, registered, all, within)
	}
	if all == 0 {
		return nil
	}
	r.awaitRoutes(ctx, 10*time.Second)
	took := time.Duration(r.engine.Now() - began)
	r.say("%d connections and %d routes in %s", all, r.routes(), took.Round(time.Millisecond))
	r.storms = append(r.storms, report.Storm{
		Name: "connect", Connections: all, Routes: int64(r.routes()), AllBackSeconds: took.Seconds(),
		Failures: int64(r.losses.Load()),
	})
	return nil
}

var errNotAll = errors.New("not everybody could connect")

// routes is how many devices the fleet has.
func (r *run) routes() int { return r.s.Fleet.Edges*r.s.Fleet.Devices + r.s.Fleet.Direct }

// awaitRoutes waits until the gateway's own count of routes is complete, where it tells.
func (r *run) awaitRoutes(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_ = r.until(ctx, within, func() bool {
		s, err := attack.Scrape(ctx, r.o.URL)
		return err != nil || !s.Routes.Known || s.Routes.V >= float64(r.routes())
	}) // a gateway that never tells is no reason to stop: the acknowledgements are all there
}
