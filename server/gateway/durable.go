package gateway

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/callback"
	"subway/server/front"
	"subway/server/journal"
)

// durable keeps the Gateway's journal (PROTOCOL.md section 9): the router and the outbox
// append to it, the port and the outbox wait for it. A nil one is of a Gateway without a
// journal.
type durable struct {
	*journal.Journal
	port atomic.Pointer[front.Server]

	ending context.Context // of the checkpointer
	end    context.CancelFunc
	work   sync.WaitGroup

	// The checkpointer's own.
	marks []markAt
	since uint64 // bytes journalled when the last checkpoint began
	size  uint64 // bytes of the last checkpoint
}

// markAt says what had been journalled at an instant.
type markAt struct {
	at   wire.Time
	mark uint64
}

const (
	segmentBytes = 64 << 20         // of Options.Segment
	mostMarks    = 1024             // beyond, every second one is forgotten
	markSlack    = wire.Time(5e9)   // within which what ends is in the journal
	waitStored   = 5 * time.Second  // what an answer that tells of an end waits for the journal
	waitAccepted = 30 * time.Second // and one that accepts
)

func newDurable() *durable {
	d := &durable{}
	d.ending, d.end = context.WithCancel(context.Background())
	return d
}

// kinds are the kinds of records, each to be taken as a slice.
var kinds = func() (k [256]byte) {
	for i := range k {
		k[i] = byte(i)
	}
	return k
}()

// Append implements router.Journal and callback.Journal. A record begins with its kind.
func (d *durable) Append(kind byte, rec []byte) (mark uint64) {
	return d.Journal.Append(kinds[kind:kind+1:kind+1], rec)
}

// openJournal reads the journal in the directory into the router and the outbox, which
// append to it from then on.
func (g *Gateway) openJournal() error {
	d, now := g.durable, g.clock.now()
	bad, worst := 0, error(nil)
	note := func(err error) {
		if err != nil {
			bad++
			worst = err
		}
	}
	j, err := journal.Open(journal.Options{
		Dir: g.opt.DataDir, SegmentBytes: g.opt.Segment, MaxUnstored: int64(g.opt.Memory / 32), Logger: g.opt.Logger,
	}, func(_ uint64, rec []byte) error {
		switch {
		case len(rec) == 0:
			note(errors.New("an empty record"))
		case callback.Journalled(rec[0]):
			note(g.outbox.Restore(rec[0], rec[1:], g.trackOf))
		default:
			note(g.router.Restore(rec[0], rec[1:], now))
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.Journal = j
	if j.Fresh() && g.data.used {
		g.opt.Logger.Warn("the data directory was used before and there is no journal in it: one without any commands was begun", "directory", filepath.Clean(g.opt.DataDir))
	}
	if bad > 0 {
		g.opt.Logger.Error("records of the journal make no sense and were left out", "records", bad, "one of them", worst)
	}
	j.OnStored(func(uint64) {
		if port := d.port.Load(); port != nil {
			port.JournalStored()
		}
		g.outbox.Stored()
	})
	open := g.router.Restored(now)
	pending, dead := g.outbox.Restored(g.trackOf)
	debug.FreeOSMemory() // what it took to read the journal
	g.opt.Logger.Info("the journal was read", "directory", filepath.Clean(g.opt.DataDir), "open_commands", open, "callbacks", pending, "dead_letters", dead)
	return nil
}

// trackOf returns what keeps the state of a command's callback, as callback.Restore wants it.
func (g *Gateway) trackOf(ref []byte) callback.Tracker {
	if t := g.router.TrackOf(ref); t != nil {
		return t
	}
	return nil
}

// startCheckpoints keeps the journal short until closeJournal.
func (g *Gateway) startCheckpoints() {
	d := g.durable
	d.work.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				g.shorten()
			case <-d.ending.Done():
				return
			}
		}
	})
}

// shorten makes a checkpoint where enough was journalled since the last one, and lets go
// of the head of the journal that is not needed any more.
func (g *Gateway) shorten() {
	d := g.durable
	d.marks = append(d.marks, markAt{g.clock.now(), d.Appended()})
	if len(d.marks) > mostMarks {
		for i := range mostMarks / 2 {
			d.marks[i] = d.marks[2*i]
		}
		d.marks = append(d.marks[:mostMarks/2], d.marks[mostMarks:]...)
	}
	bytes := d.StoredBytes()
	if bytes-d.since < max(uint64(g.opt.Segment), 2*d.size) || d.Failing() != nil {
		return
	}
	d.since = bytes
	begin := d.Appended() // all that is open comes in this group or behind it
	if !g.router.Checkpoint(d.keepUp) || !g.outbox.Checkpoint(d.keepUp) {
		return
	}
	d.size = d.StoredBytes() - bytes
	needed := g.router.OldestEnd(g.clock.now()) - markSlack
	before := uint64(0)
	for _, m := range d.marks {
		if m.at <= needed {
			before = m.mark
		}
	}
	if before = min(before, begin); before > 0 {
		d.Truncate(before)
	}
}

// keepUp waits until what was journalled is stored, so that a checkpoint does not gather in
// memory; false: the Gateway ends.
func (d *durable) keepUp() bool { return d.Wait(d.ending, d.Appended()) == nil }

// closeJournal stores what was journalled last. Nothing is journalled any more.
func (g *Gateway) closeJournal() error {
	d := g.durable
	if d == nil || d.Journal == nil {
		return nil
	}
	d.end()
	d.work.Wait()
	if err := d.Close(); err != nil {
		return fmt.Errorf("what came last is not on the disk: %w", err)
	}
	return nil
}

// toldOnce waits until what was journalled up to mark is on stable storage, since nobody may be
// told of it before. Where that takes too long it says so, and reports false.
func (g *Gateway) toldOnce(ctx *fasthttp.RequestCtx, mark uint64) bool {
	if g.durable == nil || mark <= g.durable.Stored() || front.Hold(ctx, mark) || g.awaitStored(mark, waitStored) {
		return true
	}
	ctx.Response.Header.Del("Preference-Applied")
	g.failRefusal(ctx, refuseUnstored, nil)
	return false
}

var refuseUnstored = &router.Refusal{
	Code: wire.CodeOverloaded, Text: "The Gateway's journal cannot be written now: what is asked for cannot be told yet", Details: []byte(`{"retryAfter":1}`),
}

// appended is the mark of what was journalled last; 0 without a journal.
func (g *Gateway) appended() uint64 {
	if g.durable == nil {
		return 0
	}
	return g.durable.Appended()
}

// acceptedOnce waits until what was accepted with a mark is on stable storage. Where that
// takes too long nothing is answered: the commands may yet be in the journal or not, and
// who got no answer repeats with the same requestRef.
func (g *Gateway) acceptedOnce(ctx *fasthttp.RequestCtx, mark uint64) bool {
	if g.durable == nil {
		return true
	}
	if mark <= g.durable.Stored() || front.Hold(ctx, mark) || g.awaitStored(mark, waitAccepted) {
		return true
	}
	front.Cut(ctx)
	return false
}

func (g *Gateway) awaitStored(mark uint64, most time.Duration) bool {
	t := timers.Get().(*time.Timer)
	defer timers.Put(t)
	defer t.Stop()
	t.Reset(most)
	select {
	case <-g.durable.Done(mark):
		return true
	case <-t.C:
	case <-g.durable.Ended():
	}
	return mark <= g.durable.Stored()
}
