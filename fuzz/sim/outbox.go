package sim

import (
	"bytes"
	"errors"
	"time"

	"subway/core/router"
)

// outbox is a model of the one that calls back, and of the receivers: the notices of a
// request in their order, each tried three times, under one id.
type outbox struct {
	w     *world
	life  int // of the gateway
	lanes map[string][]*notice
	got   map[string]*receipts
	log   []*notice // final ones that were journalled, by number
	again []*notice // while restoring
}

// notice is a callback on its way.
type notice struct {
	ref, word, id string
	final         bool
	attempts      int
	track         *router.Delivery
	firstID       string // of its first attempt
	number        int    // of a final one, in the journal
	at            int    // how many records there were with its own
	mark          uint64 // it waits for this
	tells         tells
}

// receipts are what a receiver has got of a request.
type receipts struct{ final *notice }

func newOutbox(w *world) *outbox {
	return &outbox{w: w, lanes: map[string][]*notice{}, got: map[string]*receipts{}}
}

// CheckURL implements router.Callbacks.
func (o *outbox) CheckURL(url []byte) error {
	if bytes.Contains(url, []byte("refused")) {
		return errors.New("the address may not be called")
	}
	return nil
}

// Notify implements router.Callbacks.
func (o *outbox) Notify(n *router.Notice) {
	for _, n := range o.w.bug.noticed(n) {
		o.take(n)
	}
}

func (o *outbox) take(n *router.Notice) {
	x := &notice{ref: string(n.Ref), word: string(n.Status), final: n.Final, track: n.Track}
	if x.id = "cb-" + x.ref; !x.final {
		x.word += " " + string(n.Progress)
		x.id += "-" + string(n.Progress)
	}
	o.w.note("callback <~ %s %s", x.ref, x.word)
	o.w.book.noticed(n)
	o.journal(x)
	o.queue(x)
}

// queue puts a notice behind the others of its request.
func (o *outbox) queue(x *notice) {
	lane := append(o.lanes[x.ref], x)
	o.lanes[x.ref] = lane
	if len(lane) == 1 {
		o.try(x, o.w.upTo(20*time.Millisecond))
	}
}

// crash ends what is on its way. Receivers remember where a journal remembers for them.
func (o *outbox) crash() {
	o.lanes = map[string][]*notice{}
	if o.w.disk == nil {
		o.got = map[string]*receipts{}
	}
	o.life++
}

// try makes an attempt after a while.
func (o *outbox) try(x *notice, delay time.Duration) {
	life := o.life
	o.w.after(delay, func() {
		if life != o.life {
			return
		}
		if d := o.w.disk; d != nil && d.stored < x.mark {
			d.at(x.mark, func() { o.try(x, 0) })
			return
		}
		o.w.book.told(x.tells)
		x.attempts++
		id := o.w.bug.callbackID(x)
		o.w.note("callback -> %s %s %s attempt %d", id, x.ref, x.word, x.attempts)
		answered := o.w.chance(0.85)
		if answered || o.w.chance(0.5) { // else it does not arrive; or its answer does not
			o.receive(x, id)
		}
		o.judge(x, answered)
	})
}

// judge goes on after an attempt.
func (o *outbox) judge(x *notice, answered bool) {
	superseded := !x.final && len(o.lanes[x.ref]) > 1
	if !answered && x.attempts < 3 && !superseded {
		o.try(x, time.Second<<(x.attempts-1))
		return
	}
	if x.track != nil && answered {
		x.track.SetCallback(router.CallbackDelivered, x.attempts)
	} else if x.track != nil {
		x.track.SetCallback(router.CallbackDead, x.attempts)
	}
	o.done(x)
	lane := o.lanes[x.ref][1:]
	o.lanes[x.ref] = lane
	if len(lane) == 0 {
		delete(o.lanes, x.ref)
		return
	}
	o.try(lane[0], o.w.upTo(20*time.Millisecond))
}

// receive is the receiver's side: it dedupes by id, and is told nothing after the end.
func (o *outbox) receive(x *notice, id string) {
	r := o.got[x.ref]
	if r == nil {
		r = &receipts{}
		o.got[x.ref] = r
	}
	if x.firstID == "" {
		x.firstID = id
	}
	switch {
	case id == "" || id != x.firstID:
		o.w.book.fault(x.ref, "", "attempt %d of a callback has id %q, the first had %q", x.attempts, id, x.firstID)
	case r.final != nil && !x.final && o.w.book.used[x.ref] < 2:
		o.w.book.fault(x.ref, "", "its callback gets progress after the end")
	case r.final != nil && r.final != x && o.w.book.used[x.ref] < 2:
		o.w.book.fault(x.ref, "", "its callback gets a second end")
	}
	if x.final {
		r.final = x
	}
}
