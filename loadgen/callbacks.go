package loadgen

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"subway/loadgen/attack"
	"subway/loadgen/ledger"
	"subway/loadgen/report"
)

// openReceivers gives each customer an address of its own: a gateway bounds callbacks by
// address, and one slow customer is to be slow alone.
func (r *run) openReceivers() error {
	if !r.s.callsBack() {
		return nil
	}
	for i := range r.s.Customers {
		c := &r.s.Customers[i]
		rec, err := attack.Receive(attack.ReceiverOptions{
			Got:    func(cb *attack.Callback) { r.called(cb) },
			Answer: func(_ string, cb *attack.Callback) (int, time.Duration) { return r.reply(c, cb), c.Delay },
		})
		if err != nil {
			return fmt.Errorf("customer %s: %w", c.Name, err)
		}
		r.receivers = append(r.receivers, rec)
	}
	return nil
}

// reply is the customer's answer; which callbacks it refuses depends on the callback and
// the attempt, so that a retry has its chance.
func (r *run) reply(c *Customer, cb *attack.Callback) int {
	if c.Refuse > 0 {
		h := maphash.Comparable(r.hash, [2]any{cb.ID, cb.Attempt})
		if float64(h>>11)/(1<<53) < c.Refuse {
			return 503
		}
	}
	return 200
}

// callbackURL chooses a customer.
func (r *run) callbackURL(rng *rand.Rand) string {
	v := rng.Float64()
	for i, c := range r.s.Customers {
		if v -= c.Share; v < 0 {
			return r.receivers[i].CallbackURL(c.Name)
		}
	}
	return r.receivers[0].CallbackURL(r.s.Customers[0].Name)
}

// called enters a callback in the books.
func (r *run) called(cb *attack.Callback) {
	seq, ok := r.book.Seq([]byte(cb.Ref))
	if !ok || cb.Err != nil {
		r.book.Fault(ledger.Foreign, string(clip([]byte(cb.Ref))), fmt.Sprintf("a callback: %v", cb.Err))
		return
	}
	if cb.Type == "PROGRESS_UPDATE" {
		step, ok := r.texts.step(cb.Progress)
		if !ok {
			r.book.Fault(ledger.Altered, cb.Ref, "progress by callback")
			return
		}
		r.book.CallbackProgress(seq, step, cb.Attempt > 1)
		return
	}
	code := cb.Status
	if cb.Code != "" {
		code = cb.Code
	}
	end := outcomeOf(cb.Status)
	if cb.Code == "CONNECTION_LOST" || cb.Code == "TIMEOUT" {
		end = ledger.TimedOut
	}
	if end == ledger.Completed && !bytes.Equal(cb.Result, r.texts.appendResult(nil, seq)) {
		r.book.Fault(ledger.Altered, cb.Ref, "the result by callback")
	}
	now := r.since(cb.Arrived)
	latency, first := r.book.CallbackFinal(seq, end, []byte(cb.ID), cb.Confirmed, now)
	if first {
		r.plausible(seq, end, latency)
	}
	if first && r.measured(now-latency) {
		r.shard(seq).Done(report.Callback, r.recorder.Code(code), latency)
	}
}
