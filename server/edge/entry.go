package edge

import (
	"subway/core/wire"
	"subway/server/edge/store"
)

// stage is where a command stands at this edge. It only ever grows.
type stage uint8

const (
	stageQueued     stage = iota // waits for its device
	stageCommitting              // its ref is being made stable
	stageHanded                  // on disk, and with the device or about to be: never handed over again
	stageAnswered                // its answer is known
)

// entry is a requestRef that is known here. Guarded by Edge.mu.
type entry struct {
	ref, device string
	deadline    wire.Time
	stored      wire.Time // the deadline that is on disk
	timeoutMs   int64
	answer      int    // bytes of the answer that is kept
	order       uint64 // of the answers
	stage       stage
	stable      bool     // on disk
	dropped     bool     // cancelled or timed out before it was handed over
	told        bool     // its CANCEL was passed on
	confirmed   bool     // the Gateway has the answer
	item        int64    // the answer in the backlog, 0: it is not there
	unasked     int64    // the link on which the answer will go by itself, see drain.go
	wait        *waiting // while it is queued or committing
}

// waiting is what is needed of a command until it is handed over.
type waiting struct {
	entry      *entry
	dev        *device
	msg        []byte
	priority   wire.Priority
	seq        uint64
	prev, next *waiting
}

// entryCost is what an entry takes in the store besides its strings and its answer, in
// bytes, about.
const entryCost = 160

func (t *entry) cost() int64 { return int64(entryCost + len(t.ref) + len(t.device) + t.answer) }

func (t *entry) record() store.Record {
	return store.Record{Ref: t.ref, Device: t.device, Deadline: t.deadline, TimeoutMs: t.timeoutMs}
}

// bucketSpan is how exactly refs are forgotten.
const bucketSpan = 10_000_000_000

// expiry finds the entries whose time is over. Guarded by Edge.mu.
type expiry struct {
	buckets map[int64][]*entry
	next    int64 // the first bucket that was not looked at
}

func bucketOf(at wire.Time) int64 { return int64(at) / bucketSpan }

func (x *expiry) add(t *entry, keep wire.Time) {
	b := max(bucketOf(t.deadline+keep)+1, x.next)
	x.buckets[b] = append(x.buckets[b], t)
}

// track makes an entry known. e.mu is held.
func (e *Edge) track(t *entry) {
	e.refs[t.ref] = t
	e.used += t.cost()
	e.expiry.add(t, e.keep)
}

// forget ends an entry's time in memory. e.mu is held.
func (e *Edge) forget(t *entry) {
	if e.refs[t.ref] == t {
		delete(e.refs, t.ref)
		e.used -= t.cost()
		delete(e.unconfirmed, t)
	}
}

// expire forgets entries whose command's deadline is Keep ago. e.mu is held.
func (e *Edge) expire(now wire.Time) {
	var gone []string
	for last := bucketOf(now); e.expiry.next <= last; e.expiry.next++ {
		due := e.expiry.buckets[e.expiry.next]
		delete(e.expiry.buckets, e.expiry.next)
		for _, t := range due {
			switch {
			case e.refs[t.ref] != t:
			case t.deadline+e.keep > now || t.wait != nil:
				e.expiry.buckets[max(bucketOf(t.deadline+e.keep), last)+1] = append(e.expiry.buckets[max(bucketOf(t.deadline+e.keep), last)+1], t)
			default:
				e.forget(t)
				gone = append(gone, t.ref)
			}
		}
	}
	if len(gone) > 0 {
		e.store.Forget(gone)
	}
}

// restore takes over what the store held. Called before anything else runs.
func (e *Edge) restore(c *store.Contents, now wire.Time) {
	e.expiry.next = bucketOf(now)
	e.epoch = c.Epoch
	e.distrust = c.Distrust
	if c.Existed && e.opt.Return > 0 {
		e.expected = now + wire.Time(e.opt.Return)
	}
	for _, r := range c.Records {
		t := &entry{
			ref: r.Ref, device: r.Device, deadline: r.Deadline, stored: r.Deadline, timeoutMs: r.TimeoutMs,
			answer: r.Answer, confirmed: r.Confirmed, stable: true, stage: stageHanded,
		}
		if r.Answer > 0 {
			t.stage = stageAnswered
		}
		e.track(t)
		if t.stage == stageAnswered && !t.confirmed {
			e.answers++
			t.order = e.answers
			e.unconfirmed[t] = struct{}{}
		}
	}
	for _, i := range c.Items {
		e.backlog.add(&item{seq: i.Seq, kind: i.Kind, device: i.Device, ref: i.Ref, size: i.Size})
		if t := e.refs[i.Ref]; t != nil && i.Kind == store.Response {
			t.item = i.Seq
			delete(e.unconfirmed, t)
		}
	}
	e.used += e.backlog.bytes
}
