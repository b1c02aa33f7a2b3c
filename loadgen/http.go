package loadgen

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"subway/loadgen/attack"
	"subway/loadgen/ledger"
	"subway/loadgen/report"
)

// web is the HTTP channel while it runs.
type web struct{ stop func() }

// startHTTP begins to post commands, if the scenario says so.
func (r *run) startHTTP(ctx context.Context) (web, error) {
	h := &r.s.HTTP
	if h.Workers == 0 {
		return web{func() {}}, nil
	}
	p := &poster{run: r, rng: rand.New(rand.NewPCG(r.o.Seed, 2))}
	a, err := attack.New(attack.Options{
		URL: r.o.URL, Rate: h.Rate, Workers: h.Workers, Wait: h.Wait, Batch: h.Batch,
		Timeout: h.Wait + 30*time.Second, Next: p.next, Done: p.done, Late: p.late,
	})
	if err != nil {
		return web{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		res, err := a.Run(ctx)
		if err != nil {
			r.note("the HTTP channel: %v", err)
			return
		}
		if res.Unsent > 0 {
			r.note("%d requests were due over HTTP and never left: all workers were busy", res.Unsent)
		}
		if r.o.Vegeta != nil {
			_ = res.WriteText(r.o.Vegeta) // what cannot be written there is missed by nobody else
		}
	}()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		if h.Rate > 0 {
			p.follow(ctx, a)
		}
	}()
	return web{func() { cancel(); <-ended; <-followed }}, nil
}

// poster makes the commands of the HTTP channel and enters what became of them. vegeta
// calls it on many goroutines.
type poster struct {
	run *run

	mu  sync.Mutex
	rng *rand.Rand // under mu
}

// follow lets the rate go with the phases.
func (p *poster) follow(ctx context.Context, a *attack.Attack) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for last := 1.0; ; {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if now := p.run.factor(); now != last {
			if err := a.SetRate(p.run.s.HTTP.Rate * now); err == nil {
				last = now
			}
		}
	}
}

func (p *poster) next(intended time.Time, c *attack.Command) {
	r := p.run
	waits := r.s.HTTP.Wait > 0
	p.mu.Lock()
	target := r.pick(p.rng)
	if !waits {
		c.Callback = r.callbackURL(p.rng)
	}
	p.mu.Unlock()
	at := r.since(intended)
	seq, ok := r.book.Open(ledger.Terms{Source: ledger.ManySenders, Priority: ledger.Normal, Target: target, Told: waits, Callback: !waits}, at)
	if !ok {
		// vegeta cannot leave one out: it goes under a ref that no book knows, to a
		// device that no edge has, and is refused.
		c.Ref, c.Target, c.Type = "lg-unbooked", r.names.prefix+"-nobody", r.texts.kind
		return
	}
	c.Ref = string(r.book.AppendRef(nil, seq))
	c.Target = string(r.names.appendDevice(nil, target))
	c.Type, c.TimeoutMs = r.texts.kind, r.texts.timeoutMs
	c.Value = strconv.AppendQuote(c.Value[:0], string(r.texts.value(seq)))
	if r.measured(at) {
		r.shard(seq).Sent(r.httpChannel())
	}
}

func (r *run) httpChannel() report.Channel {
	if r.s.HTTP.Wait > 0 {
		return report.HTTPWait
	}
	return report.HTTP
}

func (p *poster) late(d time.Duration) {
	if p.run.measured(p.run.engine.Now() - int64(d)) {
		p.run.shard(uint64(d)).Late(int64(d))
	}
}

// done enters an answer: the command was accepted, refused, ended, or nobody knows.
func (p *poster) done(a *attack.Answer) {
	r := p.run
	seq, ok := r.book.Seq([]byte(a.Ref))
	if !ok {
		if a.Ref != "lg-unbooked" {
			r.foreign("an HTTP answer", []byte(a.Ref))
		}
		return
	}
	now := r.since(a.Answered)
	code := "ACCEPTED"
	switch {
	case a.Unsent:
		r.book.Unsent(seq, now)
		code = attack.Cause(a.Err)
	case a.Err != nil:
		r.book.Doubtful(seq)
		code = attack.Cause(a.Err)
	case !a.Accepted:
		r.book.Final(seq, ledger.ManySenders, ledger.Refused, now)
		code = a.Code
	default:
		r.book.Accepted(seq)
		if r.s.HTTP.Wait > 0 {
			code = p.waited(seq, a, now)
		}
	}
	if r.measured(r.since(a.Intended)) {
		r.shard(seq).Done(r.httpChannel(), r.recorder.Code(code), int64(a.Latency()))
	}
}

// waited enters the final state that an answer carries.
func (p *poster) waited(seq uint64, a *attack.Answer, now int64) (code string) {
	r := p.run
	if end := outcomeOf(a.Status); end == ledger.TimedOut || end == ledger.Cancelled {
		r.plausible(seq, end, int64(a.Latency()))
	}
	switch a.Status {
	case "COMPLETED":
		if !bytes.Equal(a.Result, r.texts.appendResult(nil, seq)) {
			r.book.Fault(ledger.Altered, a.Ref, "the result")
		}
		r.book.Final(seq, ledger.ManySenders, ledger.Completed, now)
	case "FAILED":
		r.book.Final(seq, ledger.ManySenders, ledger.Failed, now)
	case "TIMEOUT", "CANCELLED":
		r.book.Final(seq, ledger.ManySenders, outcomeOf(a.Status), now)
	default:
		r.book.Doubtful(seq) // it outlived the wait; it will be asked for
		return a.Status
	}
	if a.Code != "" {
		return a.Code
	}
	return a.Status
}
