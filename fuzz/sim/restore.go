package sim

import (
	"iter"
	"time"

	"subway/core/router"
)

// restore reads the log into a new gateway and the outbox.
func (g *gateway) restore() {
	w := g.w
	for _, x := range w.disk.log {
		if x.kind >= router.KindOther {
			w.outbox.restore(x.kind, x.rec)
		} else if err := g.router.Restore(x.kind, x.rec, w.now); err != nil {
			w.book.fault("", "", "a record of kind %d is not taken in: %v", x.kind, err)
		}
	}
	g.router.Restored(w.now)
	w.outbox.restored(g)
}

// checkpoint begins to journal anew all that is open; it goes on in steps, between which
// all else does. What is not needed any more is let go of when all of it is stored.
func (g *gateway) checkpoint() {
	if g.stop != nil {
		return
	}
	w := g.w
	w.note("a checkpoint begins")
	begin, done := w.disk.appended(), false
	g.next, g.stop = iter.Pull(func(yield func(bool) bool) {
		done = g.router.Checkpoint(func() bool { return yield(true) })
	})
	var step func()
	step = func() {
		more := true
		for n := 1 + w.rng.IntN(30); n > 0 && more; n-- {
			_, more = g.next()
		}
		if !more && done {
			w.outbox.checkpoint()
		}
		w.book.endCall()
		if more {
			w.disk.later(w.upTo(20*time.Millisecond), step)
			return
		}
		g.dropCheckpoint()
		before := w.disk.needed(g.router.OldestEnd(w.now), begin)
		w.disk.at(w.disk.appended(), func() { w.disk.truncate(before) })
	}
	step()
}

// dropCheckpoint ends a checkpoint where it stands.
func (g *gateway) dropCheckpoint() {
	if g.stop != nil {
		g.stop()
		g.stop = nil
	}
}
