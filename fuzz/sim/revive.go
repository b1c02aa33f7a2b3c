package sim

import (
	"cmp"
	"maps"
	"slices"

	"subway/core/router"
	"subway/core/wire"
)

// version is what the book had of a command at the end of a call.
type version struct {
	call     int
	state    router.State
	at       *place
	deadline wire.Time
	kept     bool
}

// routing is the route of a device since a call; nil: none.
type routing struct {
	call int
	at   *place
}

// presence says of a place, since a call, whether it is there, or since when it is away.
type presence struct {
	call    int
	link    bool
	goodbye bool
	vague   bool // the log need not say since when
	since   wire.Time
}

// attempt is a command that was journalled as handed to a place whose way was blocked. A
// further record takes that back.
type attempt struct {
	c    *command
	at   *place
	kept bool
}

// journalled is what the book knows in order to judge a gateway that had a journal.
type journalled struct {
	spans    []int // how many records there were at the end of each call
	changed  []*command
	all      []*command // accepted ones, by acceptance
	places   []*place
	routes   map[string][]routing
	attempts map[int]attempt // by how many records there were then
	trial    *command        // that may be accepted in this call
	began    wire.Time       // the gateway, with what it had read
}

// cut is where a crash cut the log: behind so many whole calls, or within the next.
type cut struct {
	whole int
	torn  bool
}

// counts reports whether what a call did is in the log, and whether it may be.
func (x cut) counts(call int) (sure, maybe bool) {
	return call < x.whole, call < x.whole || x.torn && call == x.whole
}

func (b *book) callsWithin(records int) cut {
	n, _ := slices.BinarySearchFunc(b.spans, records, func(span, records int) int {
		if span <= records {
			return -1
		}
		return 1
	})
	return cut{n, n < len(b.spans) && (n == 0 && records > 0 || n > 0 && b.spans[n-1] < records)}
}

// endCall notes what a call has left behind.
func (b *book) endCall() {
	if b.w.disk == nil {
		return
	}
	for _, c := range b.changed {
		if c.fact == nil {
			c.fact = b.w.disk.facts[c.ref]
		}
		c.past = append(c.past, version{len(b.spans), c.state, c.at, c.deadline + c.slack, c.kept})
	}
	b.changed, b.trial = b.changed[:0], nil
	b.spans = append(b.spans, b.w.disk.count())
}

// change says that a command is not what it was.
func (b *book) change(c *command) {
	if b.w.disk != nil && !slices.Contains(b.changed, c) {
		b.changed = append(b.changed, c)
	}
}

// attempted notes that a command could not be handed over.
func (b *book) attempted(l *link, m *message) {
	c := b.commands[m.ref]
	if t := b.trial; t != nil && (t.ref == "" || t.ref == m.ref) {
		t.ref, c = m.ref, t
	}
	if c != nil && c.state == router.Pending {
		b.attempts[b.w.disk.count()] = attempt{c, l.place, l.place.dedupe}
	}
}

// revive judges what a new gateway knows that has read so many records, and goes on from
// there. Where the log was cut within a call, the book takes what of it the gateway says.
func (b *book) revive(records int) {
	x, before := b.callsWithin(records), b.journalled
	used := b.used
	b.draining = false
	b.reset()
	b.used = used
	b.spans, b.began = before.spans[:x.whole], b.w.now
	for _, p := range before.places {
		b.revivePlace(p, x)
	}
	b.reviveRoutes(before.routes, x)
	if a, ok := before.attempts[records]; ok {
		b.reviveAttempt(&before, a, x)
	}
	b.reviveCommands(before.all, x)
	for _, n := range b.w.outbox.lost(records) {
		b.unnoticed(n.tells.c, records)
	}
	b.endCall()
}

// revivePlace judges a place: all are away.
func (b *book) revivePlace(p *place, x cut) {
	var last *presence
	torn := false
	for i := range p.past {
		sure, maybe := x.counts(p.past[i].call)
		if maybe && !sure {
			torn = true
		} else if sure {
			last = &p.past[i]
		}
	}
	here := b.w.gate.knows(p)
	p.link, p.devices, p.flight, p.replay = nil, map[string]bool{}, map[*command]bool{}, nil
	p.waits = [wire.NumPriorities][]*command{}
	gone := last == nil || last.since == never
	switch {
	case gone && !(torn && here):
		return
	case !gone && !torn && !here && !p.direct:
		b.fault("", p.id, "%s was known before the crash and is not now", p.key())
		return
	case !gone && torn && !here:
		return
	}
	p.since, p.latest, p.goodbye = b.w.now, b.w.now, false
	if !gone && !last.link {
		p.since = last.since
		p.goodbye = last.goodbye && !torn
		if !torn && !last.vague {
			p.latest = last.since
		}
	}
	if torn && gone {
		p.since = 0
	}
	b.went++
	p.went = b.went
	p.past = []presence{{call: x.whole, since: p.since, goodbye: p.goodbye, vague: p.latest != p.since || p.since == b.w.now}}
	b.journalled.places = append(b.journalled.places, p)
	b.places(p.direct)[p.id] = p
	b.tidyAt = min(b.tidyAt, p.since+b.kept())
}

// reviveRoutes judges the routes.
func (b *book) reviveRoutes(routes map[string][]routing, x cut) {
	now := map[string]string{}
	for _, d := range b.devices() {
		now[d.ClientID] = d.EdgeID
		if d.Connection != "OFFLINE" {
			b.fault(d.ClientID, d.EdgeID, "is %s right after the crash", d.Connection)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(routes)) {
		want := []*place{nil}
		for _, r := range routes[d] {
			switch sure, maybe := x.counts(r.call); {
			case sure:
				want = []*place{r.at}
			case maybe:
				want = append(want, r.at)
			}
		}
		id := now[d]
		i := slices.IndexFunc(want, func(p *place) bool { return p == nil && id == "" || p != nil && p.id == id })
		delete(now, d)
		if i < 0 {
			b.fault(d, id, "is routed to %q after the crash, not to %v", id, nameOf(want[len(want)-1]))
			continue
		}
		if p := want[i]; p != nil {
			p = b.placeKnown(p)
			b.routes[d] = p
			p.devices[d] = true
		}
		b.journalled.routes[d] = []routing{{x.whole, b.routes[d]}}
	}
	for _, d := range slices.Sorted(maps.Keys(now)) {
		b.fault(d, now[d], "is routed to %s after the crash, and never was before", now[d])
	}
}

func nameOf(p *place) string {
	if p == nil {
		return "nowhere"
	}
	return p.key()
}

// placeKnown returns the place of this id that is there now. There may be none but for a
// command that is at it: such a one is forgotten soon.
func (b *book) placeKnown(p *place) *place {
	now := b.places(p.direct)[p.id]
	if now == nil {
		now = &place{id: p.id, direct: p.direct, devices: map[string]bool{}, flight: map[*command]bool{}, latest: b.w.now}
		b.journalled.places = append(b.journalled.places, now)
		b.places(p.direct)[p.id] = now
		b.tidyAt = 0
	}
	return now
}

// unnoticed judges that the notice of an end is not in the log. It comes right behind the end,
// and what the log ends with may be that end: then its callback is never made.
func (b *book) unnoticed(c *command, records int) {
	if c != nil && c.state.Final() && c.fact != nil && 0 < c.fact.ended && c.fact.ended < records {
		b.fault(c.ref, c.target, "has ended, and its callback is lost in the crash")
	}
}

// reviveAttempt has a command be as if it had been handed over: the record that takes
// that back is lost.
func (b *book) reviveAttempt(before *journalled, a attempt, x cut) {
	if !slices.Contains(before.all, a.c) { // it was refused
		if a.c.refused {
			b.fault(a.c.ref, a.c.target, "was refused, which was told, and is open after the crash")
		}
		before.all = append(before.all, a.c)
		b.used[a.c.ref]++
	}
	a.c.past = slices.DeleteFunc(a.c.past, func(v version) bool { return v.call >= x.whole })
	a.c.past = append(a.c.past, version{x.whole - 1, router.Dispatched, a.at, a.c.created + a.c.timeout, a.kept})
}

// reviveCommands judges the commands: of each ref it is the last that is looked up.
func (b *book) reviveCommands(all []*command, x cut) {
	lost := []*command{}
	for _, c := range slices.Backward(all) {
		var sure, maybe *version
		for i := range c.past {
			v := &c.past[i]
			if s, m := x.counts(v.call); s {
				sure = v
			} else if m {
				maybe = v
			}
		}
		c.waiter = nil
		if sure == nil && maybe == nil || b.commands[c.ref] == nil && !b.reviveCommand(c, sure, maybe) {
			lost = append(lost, c)
			continue
		}
		b.all = append(b.all, c)
		if b.commands[c.ref] == nil {
			b.commands[c.ref] = c
		}
	}
	slices.Reverse(b.all)
	for _, c := range b.all {
		if c.state.Final() {
			b.nEnded++
		}
		c.past = []version{{x.whole, c.state, c.at, c.deadline + c.slack, c.kept}}
	}
	for _, c := range lost {
		b.used[c.ref]--
		if c.told {
			b.fault(c.ref, c.target, "was accepted, which was told, and is gone after the crash")
		}
	}
	for _, c := range b.all {
		if c.endsHigh = min(c.endsHigh, b.nEnded); b.commands[c.ref] == c {
			b.known(c.ref)
		}
	}
}

// reviveCommand judges a command, of which the log holds one version for sure and another
// one perhaps, and reports whether it is there.
func (b *book) reviveCommand(c *command, sure, maybe *version) bool {
	rec := b.w.gate.record(c.ref)
	if rec != nil && rec.CreatedAt != c.created {
		rec = nil // that is another one
	}
	low, high := sure, maybe
	if low == nil {
		if rec == nil {
			return false
		}
		low = &version{at: b.limbo, deadline: c.created + c.timeout}
	}
	if high == nil {
		high = low
	}
	if rec == nil && low.state.Final() || rec == nil && high.state.Final() && c.ended+wire.Time(b.limits.Retention) <= b.w.now {
		c.state = cmp.Or(low.state, high.state)
		if high.state.Final() {
			c.state = high.state
		}
		return true
	}
	if rec == nil {
		b.fault(c.ref, c.target, "is %v in the log and not known after the crash", low.state)
		return true
	}
	state, _ := router.ParseState(rec.Status)
	if !fits(state, low.state, high.state) {
		b.fault(c.ref, c.target, "is %v after the crash, it was %v, or %v", state, low.state, high.state)
	}
	switch {
	case c.toldEnd && !state.Final():
		b.fault(c.ref, c.target, "is %v after the crash, and its end was told", state)
	case c.left && state == router.Pending:
		b.fault(c.ref, c.target, "is PENDING after the crash, and its edge may have it")
	}
	c.state = state
	if !state.Final() {
		b.reopen(c, low, high)
	}
	return true
}

// fits reports whether a state may be what came of a call that led from low to high, or of a
// part of it. Progress need not be in the log.
func fits(state, low, high router.State) bool {
	switch {
	case low.Final() || state.Final():
		return state == low || state == high
	case low == router.InProgress:
		low = router.Dispatched
	}
	if high.Final() {
		high = router.InProgress
	}
	return low <= state && state <= max(high, low, router.InProgress)
}

// reopen puts a command that has not ended back where it was.
func (b *book) reopen(c *command, low, high *version) {
	v := low
	if c.state != router.Pending && low.state == router.Pending {
		v = high
	}
	c.stage, c.progress, c.result, c.ended, c.kept = c.state, "", "", 0, v.kept
	first := c.created + c.timeout
	c.deadline = low.deadline
	if c.deadline > first { // as it was stored, which may be half a timeout behind
		c.deadline = max(first, low.deadline-c.timeout/2)
	}
	c.slack = max(low.deadline, high.deadline) - c.deadline
	b.pending++
	b.watch(c)
	if c.state != router.Pending {
		c.at = b.placeKnown(v.at)
		c.at.flight[c] = true
		return
	}
	c.kept = false
	p := b.routes[c.target]
	if p == nil {
		p = b.limbo
	}
	p.enqueue(c)
}

// tells is what a message tells of a command: nobody may be told before the log says so.
type tells struct {
	c       *command
	ended   bool
	refused bool
	records int // that must be stored beside what tells of it
}

// reveals returns what a message to l tells, before it is passed on.
func (b *book) reveals(l *link, m *message) (t tells) {
	c := b.commands[m.ref]
	if b.w.disk == nil || m.ref == "" {
		return tells{}
	}
	if t := b.trial; c == nil && t != nil && t.ref == m.ref && m.kind == wire.TypeError {
		return tells{c: t, refused: true}
	}
	if c == nil {
		return tells{}
	}
	switch m.kind {
	case wire.TypeCommand:
		if fresh := c.call == len(b.spans); c.left || fresh && l.place.dedupe {
			return tells{}
		}
		return tells{c: c, records: b.w.disk.count()}
	case wire.TypeCommandAck, wire.TypeProgressUpdate, wire.TypeCancel:
		return tells{c: c, ended: m.kind == wire.TypeCancel}
	case wire.TypeCommandResponse:
		return tells{c: c, ended: true}
	case wire.TypeError:
		if m.stage != "" || m.word == "JAMMED" || m.word == "DEVICE_NOT_FOUND" || m.word == "ALREADY_ENDED" || m.word == "DUPLICATE_REQUEST" {
			return tells{c: c, ended: c.state.Final()}
		}
	}
	return tells{}
}

// told notes that somebody is told of a command, now.
func (b *book) told(t tells) {
	c, d := t.c, b.w.disk
	if c == nil {
		return
	}
	if t.refused {
		c.refused = true
		return
	}
	f := c.fact
	if f == nil { // it is being accepted
		f = d.facts[c.ref]
	}
	switch {
	case f == nil || f.accepted > d.nStored || t.records > d.nStored:
		b.fault(c.ref, c.target, "is told of, and is not stored")
	case t.ended && (f.ended == 0 || f.ended > d.nStored):
		b.fault(c.ref, c.target, "is told to have ended, which is not stored")
	}
	c.told, c.toldEnd = true, c.toldEnd || t.ended
}
