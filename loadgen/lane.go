package loadgen

import (
	"container/heap"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"subway/core/wire"
	"subway/loadgen/ledger"
	"subway/loadgen/report"
	"subway/loadgen/socket"
)

// tick is the grain of time: commands of an open loop leave in bursts of a tick, and what
// devices do later is done at the tick after it is due.
const tick = time.Millisecond

// lane is one event loop with all that lives on it. Only its loop touches it.
type lane struct {
	run      *run
	loop     *socket.Loop
	shard    *report.Shard
	rng      *rand.Rand
	backends []*backend
	agenda   agenda

	env     wire.Envelope
	scratch [128]byte // a ref in the first half, a word of a message in the second
	buf     []byte    // the message that is being made
	inner   []byte    // the bytes that are expected
}

// task is something a party does later. The agenda is bounded by the commands in flight
// and the parties there are.
type task struct {
	at     int64
	do     func() // or, for a command that runs:
	edge   *edge
	seq    uint64
	device uint32
	step   int
	begun  int64
	took   int64
}

type agenda []task

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push and Pop implement heap.Interface.
func (a *agenda) Push(x any) { *a = append(*a, x.(task)) }

// Pop removes the last.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	t := (*a)[last]
	(*a)[last] = task{}
	*a = (*a)[:last]
	return t
}

func (l *lane) later(d time.Duration, do func()) {
	heap.Push(&l.agenda, task{at: l.loop.Now() + int64(d), do: do})
}

// execute lets a device run a command: at once, or step by step.
func (l *lane) execute(e *edge, seq uint64, device uint32) {
	d := &l.run.s.Devices
	took := int64(d.Delay)
	if spread := int64(d.DelayMax - d.Delay); spread > 0 {
		took += l.rng.Int64N(spread)
	}
	if took == 0 {
		for step := range d.Progress {
			e.progress(seq, step)
		}
		e.answer(seq, l.outcome(), 0)
		return
	}
	t := task{edge: e, seq: seq, device: device, begun: l.loop.Now(), took: took}
	t.at = t.due(d.Progress)
	heap.Push(&l.agenda, t)
}

// due is when the task's step is due: steps are spread evenly over the command's time.
func (t *task) due(steps int) int64 { return t.begun + t.took*int64(t.step+1)/int64(steps+1) }

func (l *lane) outcome() ledger.Outcome {
	if fail := l.run.s.Devices.Fail; fail > 0 && l.rng.Float64() < fail {
		return ledger.Failed
	}
	return ledger.Completed
}

// tick does what is due.
func (l *lane) tick(intended int64) {
	for len(l.agenda) > 0 && l.agenda[0].at <= l.loop.Now() {
		t := heap.Pop(&l.agenda).(task)
		switch steps := l.run.s.Devices.Progress; {
		case t.do != nil:
			t.do()
		case t.step < steps:
			t.edge.progress(t.seq, t.step)
			t.step++
			t.at = t.due(steps)
			heap.Push(&l.agenda, t)
		default:
			t.edge.answer(t.seq, l.outcome(), time.Duration(t.took))
		}
	}
	if !l.run.sending.Load() {
		return
	}
	share := l.run.ratePerBackend() * tick.Seconds()
	for _, b := range l.backends {
		b.pace(share, l.run.s.Load.Window, intended)
	}
}

func (l *lane) priority() ledger.Priority {
	load := &l.run.s.Load
	if load.High == 0 && load.Low == 0 {
		return ledger.Normal
	}
	switch v := l.rng.Float64(); {
	case v < load.High:
		return ledger.High
	case v < load.High+load.Low:
		return ledger.Low
	}
	return ledger.Normal
}

// isDead says whether a device never answers: the same ones all through the run.
func (r *run) isDead(device uint32) bool {
	share := r.s.Devices.Dead
	return share > 0 && float64(maphash.Comparable(r.hash, device)>>11)/(1<<53) < share
}
