package sim

import (
	"math/rand/v2"
	"time"

	"subway/core/router"
)

// plan is what a world is like, as its seed has it.
type plan struct {
	seed                                       uint64
	edges, directs, devices, backends, callers int
	commands                                   int
	span                                       time.Duration // in which they are sent
	burst                                      int           // commands that come together at times
	trouble                                    time.Duration // between two troubles of one party; 0: none
	lag                                        time.Duration // of a link, at most
	work                                       time.Duration // of a device, at most
	slow, dedupe                               float64       // shares
	window                                     int
	clones                                     bool
	crashes                                    int // of the gateway
	drains                                     bool
	tick                                       time.Duration
	journal                                    bool
	store                                      time.Duration // that the disk takes for a group, at most
	checkpoints, refusals                      int
	limits                                     router.Limits
}

func newPlan(seed uint64, rng *rand.Rand) plan {
	p := plan{
		seed: seed, edges: 1 + rng.IntN(7), directs: rng.IntN(4), devices: 2 + rng.IntN(30), backends: 1 + rng.IntN(4), callers: rng.IntN(4),
		commands: 80 + rng.IntN(300), span: time.Duration(8+rng.IntN(40)) * time.Second, burst: 1 + rng.IntN(30),
	}
	switch x := rng.IntN(100); {
	case x == 0:
		p.edges, p.directs, p.devices, p.backends, p.callers = 200+rng.IntN(200), rng.IntN(100), 2000+rng.IntN(3000), 4+rng.IntN(4), 4
		p.commands, p.span = 4000, 20*time.Second
	case x < 10:
		p.edges, p.directs, p.devices = 10+rng.IntN(40), rng.IntN(20), 100+rng.IntN(400)
		p.commands = 500 + rng.IntN(1000)
	}
	p.trouble = []time.Duration{0, 1, 2, 5, 10, 20, 40}[rng.IntN(7)] * time.Second
	p.lag = []time.Duration{1, 10, 50, 300}[rng.IntN(4)] * time.Millisecond
	p.work = []time.Duration{10, 100, 1000, 5000}[rng.IntN(4)] * time.Millisecond
	p.slow, p.dedupe = []float64{0, .1, .5}[rng.IntN(3)], []float64{0, .5, .5, 1}[rng.IntN(4)]
	p.window = []int{1, 4, 16, 1000}[rng.IntN(4)]
	p.clones, p.drains = rng.IntN(3) == 0, rng.IntN(5) == 0
	if rng.IntN(4) == 0 {
		p.crashes = 1 + rng.IntN(2)
	}
	p.tick = []time.Duration{10, 30, 50}[rng.IntN(3)] * time.Millisecond
	p.limits = newLimits(rng, &p)
	if rng.IntN(3) == 0 {
		p.keepsJournal(rng)
	}
	return p
}

// newLimits chooses bounds, tight ones in some worlds. The book uses all that are set here.
func newLimits(rng *rand.Rand, p *plan) router.Limits {
	l := router.Limits{
		MaxPending: 1_000_000, Retention: 10 * time.Minute, MaxRecords: 500_000, EdgeQueue: 8192, DeviceQueue: 100,
		MaxEdges: 100_000, MaxBackends: 1000, MaxLifetime: 2 * time.Minute, PermanentAfter: 155 * time.Second, RouteRetention: 24 * time.Hour,
		MaxInvalid: 100, MaxRoutes: wide,
	}
	if rng.IntN(5) == 0 {
		l.MaxRoutes = 1 + rng.Int64N(int64(p.devices+p.directs))
	}
	if rng.IntN(3) == 0 {
		l.MaxInvalid = 1 + rng.IntN(3)
	}
	if rng.IntN(3) == 0 {
		l.Retention, l.MaxRecords = time.Duration(2+rng.IntN(20))*time.Second, int64(5+rng.IntN(200))
	}
	if rng.IntN(3) == 0 {
		l.EdgeQueue, l.DeviceQueue = 4+rng.IntN(20), int32(1+rng.IntN(6))
	}
	if rng.IntN(4) == 0 {
		l.MaxPending = int64(5 + rng.IntN(60))
	}
	if rng.IntN(3) == 0 {
		l.PermanentAfter, l.RouteRetention = time.Duration(2+rng.IntN(20))*time.Second, time.Duration(2+rng.IntN(20))*time.Second
	}
	if rng.IntN(5) == 0 {
		l.MaxEdges, l.MaxBackends = 1+rng.IntN(p.edges+2), 1+rng.IntN(p.backends)
	}
	if rng.IntN(6) == 0 {
		l.Rate = 0.5 + 10*rng.Float64()
	}
	return l
}

// keepsJournal gives the gateway a journal, and crashes. How it makes room for places is left
// to other worlds: what is the longest away is not told after a crash.
func (p *plan) keepsJournal(rng *rand.Rand) {
	p.journal = true
	p.store = []time.Duration{1, 5, 30, 300}[rng.IntN(4)] * time.Millisecond
	p.crashes, p.checkpoints, p.refusals = 1+rng.IntN(4), rng.IntN(12), rng.IntN(3)
	if rng.IntN(2) == 0 { // the head of the log goes
		p.limits.Retention, p.limits.MaxRecords = time.Duration(1+rng.IntN(5))*time.Second, int64(5+rng.IntN(50))
	}
	p.limits.MaxRoutes, p.limits.MaxEdges = wide, 100_000
}
