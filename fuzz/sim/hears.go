package sim

import (
	"maps"
	"slices"
	"strconv"

	"subway/core/router"
	"subway/core/wire"
)

// hears says what must come of a message of a party, before the router gets it.
func (b *book) hears(l *link, m *message) {
	switch {
	case l.closing: // nothing is taken from it any more
	case m.kind == wire.TypeUnknown:
		b.wants(l, wire.TypeError, "", "INVALID_MESSAGE")
		b.invalid(l)
	case m.kind == wire.TypeRegister:
		l.invalid = 0
		b.registers(l, m)
	case l.kind == wire.ClientNone:
		b.wants(l, wire.TypeError, m.ref, "NOT_REGISTERED")
		b.invalid(l)
	default:
		l.invalid = 0
		b.hearsRegistered(l, m)
	}
}

// invalid counts a message that is none, of which so many in a row end the connection.
func (b *book) invalid(l *link) {
	if l.invalid++; l.invalid >= b.limits.MaxInvalid {
		b.wantsClose(l, wire.CloseInvalid)
	}
}

// hearsRegistered is hears once the party is known.
func (b *book) hearsRegistered(l *link, m *message) {
	switch {
	case m.kind == wire.TypeHeartbeat:
		b.wants(l, wire.TypeHeartbeatAck, "", "")
	case m.kind == wire.TypeUnregister:
		b.unregisters(l, m)
	case m.kind == wire.TypeDeviceStatus:
		b.reports(l, m)
	case m.kind == wire.TypeCommand:
		b.commanded(l, m)
	case m.kind == wire.TypeCancel && l.kind != wire.ClientBackend, m.kind != wire.TypeCancel && l.kind == wire.ClientBackend:
		b.wants(l, wire.TypeError, m.ref, "FORBIDDEN")
	case m.kind == wire.TypeCancel:
		if code := b.cancels(m.ref); code != "" {
			b.wants(l, wire.TypeError, m.ref, code)
		}
	default:
		b.answered(l, m)
	}
}

// reports checks a DEVICE_STATUS: every Backend gets it as it came.
func (b *book) reports(l *link, m *message) {
	if p := l.place; p == nil || b.routes[m.id] != p {
		b.wants(l, wire.TypeError, "", "FORBIDDEN")
		return
	}
	for _, id := range slices.Sorted(maps.Keys(b.backends)) {
		if to := b.backends[id]; !to.statusOff {
			b.passes(to, m)
		}
	}
}

// commanded judges a COMMAND of a Backend.
func (b *book) commanded(l *link, m *message) {
	switch {
	case l.kind != wire.ClientBackend:
		b.wants(l, wire.TypeError, m.ref, "FORBIDDEN")
		return
	case !b.withinRate(l):
		b.wants(l, wire.TypeError, m.ref, "RATE_LIMITED")
		return
	case m.source != "" && m.source != l.id:
		b.wants(l, wire.TypeError, m.ref, "FORBIDDEN")
		return
	}
	if code := b.accepts(m, l.id); code != "" {
		b.wants(l, wire.TypeError, m.ref, code)
		return
	}
	if m.command.Ack || m.ref == "" {
		b.wants(l, wire.TypeCommandAck, m.ref, m.target)
	}
}

// withinRate reports whether a Backend may send another command now: it has a second's
// worth, and at least one, that it may spend at once.
func (b *book) withinRate(l *link) bool {
	rate, now := b.limits.Rate, b.w.now
	if rate == 0 {
		return true
	}
	l.spent = max(0, l.spent-float64(now-l.spentAt)/1e9*rate)
	l.spentAt = now
	if l.spent > 0 && l.spent+1 > max(rate, 1) {
		return false
	}
	l.spent++
	return true
}

// submits judges a command over HTTP and returns the code of its refusal, "" for none.
func (b *book) submits(m *message) string { return b.accepts(m, "") }

// accepts says whether a command is accepted, and enters it if so.
func (b *book) accepts(m *message, source string) (code string) {
	p := b.routes[m.target]
	c := newCommand(m, source)
	c.created, c.deadline = b.w.now, b.w.now+c.timeout
	b.trials++
	c.seq, c.call, b.trial = b.trials, len(b.spans), c
	switch {
	case b.draining:
		return "GATEWAY_UNAVAILABLE"
	case m.ref != "" && b.known(m.ref) != nil:
		return "DUPLICATE_REQUEST"
	case p == nil:
		return "TARGET_NOT_FOUND"
	case b.pending >= b.limits.MaxPending, b.w.disk != nil && b.w.disk.refuses:
		return "OVERLOADED"
	}
	idle := p.waiting() == 0 && len(p.replay) == 0
	away := p.link == nil || idle && p.link.closing
	if !idle || away || !p.link.clear() { // it has to wait
		switch {
		case away && !m.command.Queue:
			return "EDGE_UNAVAILABLE"
		case away && p.waitingFor(m.target) >= int(b.limits.DeviceQueue), !p.room(b.limits.EdgeQueue, m.command.Priority):
			return "OVERLOADED"
		}
	}
	b.enter(c, p)
	return ""
}

func newCommand(m *message, source string) *command {
	return &command{
		ref: m.ref, target: m.target, source: source, callback: m.callback != "", priority: m.command.Priority,
		timeout: wire.Time(m.command.TimeoutMs) * 1e6, handed: map[*link]bool{}, executed: map[*edge]int{},
	}
}

func (b *book) enter(c *command, p *place) {
	b.accepted++
	if b.w.disk != nil {
		b.all = append(b.all, c)
	}
	b.change(c)
	b.pending++
	b.watch(c)
	p.enqueue(c)
	b.touch(p)
	if c.ref == "" {
		b.call.unnamed = c
		return
	}
	b.commands[c.ref] = c
	b.used[c.ref]++
}

// cancels says what comes of a cancel and returns the code of its refusal, "" for none.
func (b *book) cancels(ref string) (code string) {
	c := b.known(ref)
	switch {
	case c == nil:
		return "COMMAND_NOT_FOUND"
	case c.state.Final():
		return "ALREADY_ENDED"
	}
	if c.state != router.Pending {
		at := c.at
		if now := b.routes[c.target]; now.connected() {
			at = now
		}
		if at.connected() {
			b.wants(at.link, wire.TypeCancel, ref, c.target)
		}
	}
	b.finish(c, router.Cancelled, "CANCELLED")
	return ""
}

// finish ends a command by the gateway's decision and says who is told.
func (b *book) finish(c *command, state router.State, code string) {
	b.wants(b.backends[c.source], wire.TypeError, c.ref, code)
	b.wantsNotice(c, state.String(), true)
	b.end(c, state)
}

// answered says what must come of an answer: a COMMAND_RESPONSE, a PROGRESS_UPDATE or an ERROR.
func (b *book) answered(l *link, m *message) {
	if m.kind == wire.TypeError && m.ref == "" {
		return
	}
	c := b.known(m.ref)
	switch {
	case c == nil:
		b.orphan(m)
	case !b.mayAnswer(l, c):
		b.wants(l, wire.TypeError, m.ref, "FORBIDDEN")
	case c.state.Final():
		b.late++
	case m.kind == wire.TypeProgressUpdate:
		b.passes(b.backends[c.source], m)
		b.wantsNotice(c, m.word, false)
		b.advance(c)
		c.progress = m.word
	default:
		b.passes(b.backends[c.source], m)
		c.result = m.result
		state, word := router.Failed, m.word
		if m.kind == wire.TypeError {
			word = "FAILED"
		} else if word == "COMPLETED" || word == "SUCCESS" {
			state = router.Completed
		}
		b.wantsNotice(c, word, true)
		b.end(c, state)
	}
}

// mayAnswer reports whether an answer may come on l: from where the command was sent to,
// or from where its target is now.
func (b *book) mayAnswer(l *link, c *command) bool {
	p := l.place
	switch {
	case p == nil || p.link != l:
		return false
	case b.routes[c.target] == p || c.at == p:
		return true
	}
	return c.state.Final() && c.at != nil && c.at.id == p.id && c.at.direct == p.direct
}

// advance notes progress.
func (b *book) advance(c *command) {
	if c.state == router.Pending {
		c.at.dequeue(c)
		c.at.flight[c] = true
		if c.at == b.limbo {
			b.strayed[c.target] = b.w.now
		}
		c.kept = false
		b.touch(c.at)
	}
	c.state, c.stage, c.slack = router.InProgress, router.InProgress, 0
	b.change(c)
	b.unwatch(c)
	c.deadline = min(b.w.now+c.timeout, c.created+wire.Time(b.limits.MaxLifetime))
	b.watch(c)
}

// orphan says what must come of an answer to a command that the gateway does not know.
func (b *book) orphan(m *message) {
	if m.kind == wire.TypeError || m.callback == "" && m.source == "" {
		return
	}
	b.orphans++
	b.used[m.ref]++ // it was the ref of a command once: another end may be told of it
	if m.source != "" {
		b.passes(b.backends[m.source], m)
	}
	if m.callback != "" {
		b.call.wants = append(b.call.wants, want{ref: m.ref, word: m.word, finish: m.kind == wire.TypeCommandResponse})
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
