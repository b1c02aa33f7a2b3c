package attack

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Attack is one run against one gateway.
type Attack struct {
	opt  Options
	plan *plan // nil: a closed loop
	path string

	instants  chan time.Time // those whose tick no worker has taken yet
	free      chan *flight   // of Workers in all
	flights   []*flight
	transport *http.Transport

	begun   atomic.Pointer[time.Time] // set when Run begins
	running atomic.Bool
	stop    <-chan struct{} // closed when the run is to end; set by Run
	timer   *time.Timer     // the pacer's
}

// New checks the options and makes an Attack that Run then carries out once.
func New(o Options) (*Attack, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &Attack{opt: o, path: o.URL + "/api/commands", transport: newTransport(o.Workers, o.Sources)}
	switch {
	case o.Batch > 1:
		a.path += "/batch"
	case o.Wait > 0:
		a.path += "?wait=" + strconv.FormatInt(o.Wait.Milliseconds(), 10)
	}
	if o.Rate > 0 {
		a.plan = newPlan(o.Rate / float64(o.Batch))
		a.instants = make(chan time.Time, o.Workers+1) // a tick for each worker, and the one on offer
	}
	a.free = make(chan *flight, o.Workers)
	a.flights = make([]*flight, o.Workers)
	for i := range a.flights {
		a.flights[i] = &flight{attack: a, index: []string{strconv.Itoa(i)}}
		a.free <- a.flights[i]
	}
	return a, nil
}

// Run is New and then the method.
func Run(ctx context.Context, o Options) (*Result, error) {
	a, err := New(o)
	if err != nil {
		return nil, err
	}
	return a.Run(ctx)
}

// SetRate changes the rate of an open loop, in commands per second, from now on; 0 makes
// a pause. What was due before stays due. Any goroutine may call it while Run runs. It
// fails for a rate that Options would not allow, in a closed loop, before Run, and after
// 1,024 changes that the pacer could not follow as all workers were busy.
func (a *Attack) SetRate(perSecond float64) error {
	begun := a.begun.Load()
	switch perRequest := perSecond / float64(a.opt.Batch); {
	case a.plan == nil:
		return errors.New("attack: a closed loop has no rate")
	case begun == nil:
		return errors.New("attack: it does not run yet")
	case !goodRate(perRequest):
		return errors.New("attack: no such rate")
	default:
		return a.plan.set(time.Since(*begun), perRequest)
	}
}

// Run sends until ctx ends, waits for the answers under way, each within
// Options.Timeout, and returns. It may be called once.
func (a *Attack) Run(ctx context.Context) (*Result, error) {
	if a.running.Swap(true) {
		return nil, errors.New("attack: it was run before")
	}
	defer a.transport.CloseIdleConnections()
	a.stop, a.timer = ctx.Done(), time.NewTimer(time.Hour)
	attacker := vegeta.NewAttacker(
		vegeta.Workers(uint64(a.opt.Workers)), vegeta.MaxWorkers(uint64(a.opt.Workers)),
		vegeta.Client(&http.Client{Transport: a, CheckRedirect: noRedirect}),
	)
	begun := time.Now()
	a.begun.Store(&begun)
	res := &Result{Began: begun}
	var ended atomic.Pointer[time.Time]
	unhook := context.AfterFunc(ctx, func() {
		now := time.Now()
		ended.Store(&now)
		attacker.Stop() // a tick on offer is withdrawn
	})
	defer unhook()
	for hit := range attacker.Attack(a.target, pacer{a}, 0, "") {
		res.add(hit)
	}
	res.finish()
	if a.plan != nil && ended.Load() != nil {
		res.Unsent = a.plan.due(ended.Load().Sub(begun)) + uint64(len(a.instants))
	}
	return res, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// pacer implements vegeta.Pacer. vegeta calls Pace once for each tick, on one goroutine,
// then sleeps as long as it is told, which cannot be cut short; so it is Pace that waits.
type pacer struct{ *Attack }

// Pace returns when the next request is due, or the run is to end.
func (p pacer) Pace(time.Duration, uint64) (wait time.Duration, stop bool) {
	for {
		select {
		case <-p.stop:
			return 0, true
		default:
		}
		if p.plan == nil {
			return 0, false
		}
		begun := *p.begun.Load()
		now := time.Since(begun)
		next, ok := p.plan.take(now)
		if ok {
			p.instants <- begun.Add(next) // has room: see New
			return 0, false
		}
		p.plan.wait(next-now, p.stop, p.timer)
	}
}

// Rate implements vegeta.Pacer; only its plots ask.
func (p pacer) Rate(time.Duration) float64 { return p.opt.Rate / float64(p.opt.Batch) }

// slotHeader carries a flight's number from target to RoundTrip, as vegeta hands nothing
// else through; it does not leave.
const slotHeader = "X-Subway-Slot"

// target implements vegeta.Targeter: it makes the request that is due.
func (a *Attack) target(t *vegeta.Target) error {
	f := <-a.free // at most Workers are here at a time, each with one flight
	if a.plan != nil {
		f.intended = <-a.instants // put there before the tick
	} else {
		f.intended = time.Now()
	}
	t.Method, t.URL = http.MethodPost, a.path
	t.Header = http.Header{"Content-Type": jsonType, slotHeader: f.index}
	t.Body = f.fill()
	return nil
}

var jsonType = []string{"application/json"}
