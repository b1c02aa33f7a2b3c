package loadgen

import (
	"context"
	"errors"
	"sync"
	"time"

	"subway/loadgen/attack"
	"subway/loadgen/ledger"
	"subway/loadgen/report"
)

// askMax bounds the commands that are asked for at the end; askers ask at a time.
const (
	askMax    = 100_000
	askers    = 16
	askWithin = time.Minute
)

// drain waits until nothing more is due, as long as a command may take, and asks the
// gateway about what is still open then.
func (r *run) drain() {
	r.quiesce()
	limit := r.s.Load.Timeout + r.s.Drain
	began := time.Now()
	settled := func() bool { return r.book.Settled() >= r.book.Opened() }
	if err := r.until(context.Background(), limit, settled); err != nil {
		r.note("%d commands were still open %s after the last one was sent", r.book.Opened()-r.book.Settled(), limit)
	} else if took := time.Since(began); took > time.Second {
		r.say("the last command ended %s after the last one was sent", took.Round(100*time.Millisecond))
	}
	r.reconcile()
}

// quiesce returns when no loop can be in a round any more that began while commands were
// sent: what such a round sends is in no book yet.
func (r *run) quiesce() {
	var rounds sync.WaitGroup
	for _, l := range r.lanes {
		rounds.Add(1)
		if l.loop.Do(rounds.Done) != nil {
			rounds.Done() // a loop that takes no call runs no round either, or is hopelessly behind
		}
	}
	rounds.Wait()
}

// reconcile asks the gateway how the open commands ended.
func (r *run) reconcile() {
	open := r.book.Unsettled(askMax)
	if len(open) == 0 {
		return
	}
	r.say("asking the gateway about %d commands that are open", len(open))
	asker, err := attack.NewAsker(r.o.URL, askers)
	if err != nil {
		panic("BUG: " + err.Error()) // the URL was good when the run began
	}
	defer asker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	work := make(chan ledger.Open)
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for o := range work {
				r.ask(ctx, asker, o)
			}
		})
	}
	for _, o := range open {
		work <- o
	}
	close(work)
	all.Wait()
}

func (r *run) ask(ctx context.Context, asker *attack.Asker, o ledger.Open) {
	ref := string(r.book.AppendRef(nil, o.Seq))
	status, _, found, err := asker.Status(ctx, ref)
	if err != nil {
		r.trouble("asking for %s: %v", ref, err)
		r.book.Unasked(o)
		return
	}
	end := ledger.Unknown
	switch status {
	case "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED":
		end = outcomeOf(status)
	}
	r.book.Asked(o, end, found, r.engine.Now())
}

// report closes the books and writes all down.
func (r *run) report(start time.Time, health attack.Health) *report.Report {
	about := report.About{
		Scenario: r.s.Name, Parameters: r.s.parameters(), Seed: r.o.Seed, Start: start, Sending: r.sent,
		Gateway: report.Gateway{URL: r.o.URL, Version: health.Version},
	}
	if r.sent > 0 {
		about.IntendedPerSecond = r.intended / r.sent.Seconds()
		about.NotSentPerSecond = float64(r.skipped.Load()) / r.sent.Seconds()
	}
	first, last := &r.firstSample, &r.lastSample
	if first.CPUSeconds.Known && last.CPUSeconds.Known {
		about.Gateway.CPUSeconds = last.CPUSeconds.V - first.CPUSeconds.V
	}
	about.Gateway.RSSBytes = int64(last.ResidentBytes.V)
	rep := r.recorder.Report(about)
	if done := rep.Rates.DonePerSecond * rep.SendingSeconds; done > 0 && first.Mallocs.Known && last.Mallocs.Known {
		rep.Gateway.AllocationsPerCommand = (last.Mallocs.V - first.Mallocs.V) / done
	}
	rep.Steps, rep.Storms, rep.Idle = r.steps, r.storms, r.idle
	if r.s.Ramp != nil {
		rep.Knee = report.FindKnee(r.steps, float64(r.s.Ramp.P99)/1e6)
	}
	if n := r.skipped.Load(); n > 0 {
		r.note("%d commands were due while their Backend was not connected or 8 MiB waited in it, and were not sent", n)
	}
	if n := r.losses.Load(); n > 0 && r.s.Storm == nil {
		r.note("%d connections were lost or refused", n)
	}
	if n := r.engine.Merged(); n > 0 {
		r.note("%d ticks were left out: the generator was more than 10 s behind", n)
	}
	rep.Notes = r.notes
	rep.Books = r.books()
	return rep
}

// books turns the ledger's balance into the report's.
func (r *run) books() *report.Books {
	lines, balanced, samples := r.book.Balance()
	b := &report.Books{Balanced: balanced, Mismatches: samples}
	for _, l := range lines {
		if l.Name == ledger.NotSent {
			l.Count += r.skipped.Load()
		}
		b.Entries = append(b.Entries, report.Entry{Name: l.Name, Count: int64(l.Count), OK: l.OK, Meaning: l.Meaning})
	}
	return b
}

// close lets everybody say goodbye and ends what was started.
func (r *run) close() {
	if r.engine == nil {
		return
	}
	for _, l := range r.lanes {
		l.loop.Do(func() {
			for _, e := range r.edges {
				if e.lane == l {
					e.goodbye()
				}
			}
			for _, b := range l.backends {
				b.goodbye()
			}
		})
	}
	// A gateway that does not answer a goodbye is left without one.
	_ = r.until(context.Background(), 3*time.Second, func() bool { return r.registered.Load() <= 0 })
	r.engine.Stop()
	var errs error
	for _, rec := range r.receivers {
		errs = errors.Join(errs, rec.Close())
	}
	if errs != nil {
		r.trouble("closing the receivers: %v", errs)
	}
}
