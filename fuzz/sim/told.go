package sim

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"subway/core/router"
	"subway/core/wire"
)

// sent judges a message that the gateway sends.
func (b *book) sent(l *link, m *message) {
	if l.over {
		b.fault(m.ref, l.name, "%s is told %v %s after its session is over", l.name, m.kind, m.word)
		return
	}
	b.name(m)
	if m.kind != wire.TypeRegisterAck && b.welcomes(l) {
		b.fault(m.ref, l.name, "%s is told %v before its REGISTER_ACK", l.name, m.kind)
	}
	switch m.kind {
	case wire.TypeCommand:
		b.handedOver(l, m)
		return
	case wire.TypeConnectionStatus:
		b.status(l, m)
		return
	case wire.TypeRegisterAck:
		b.epoch(m)
	case wire.TypeError:
		b.timesOut(m.ref, m.word, m.stage)
	}
	if !b.take(func(x *want) bool {
		return x.link == l && x.kind == m.kind && x.ref == m.ref && x.word == wordOf(m) && (x.raw == nil || bytes.Equal(x.raw, m.raw))
	}) {
		b.fault(m.ref, l.name, "%s is told %v %s, for no reason", l.name, m.kind, m.word)
	}
	if c := b.commands[m.ref]; c != nil && m.kind == wire.TypeError && m.stage != "" && m.stage != c.stage.String() {
		b.fault(m.ref, l.name, "the stage told is %s", m.stage)
	}
}

// welcomes reports whether a REGISTER_ACK has still to come on l.
func (b *book) welcomes(l *link) bool {
	return slices.ContainsFunc(b.call.wants, func(x want) bool { return x.link == l && x.kind == wire.TypeRegisterAck })
}

// wordOf is what a want says of a message.
func wordOf(m *message) string {
	switch m.kind {
	case wire.TypeRegisterAck, wire.TypeDeviceStatus:
		return m.id
	case wire.TypeCommandAck, wire.TypeCancel:
		return m.target
	case wire.TypeHeartbeatAck:
		return ""
	}
	return m.word
}

// name gives a command whose ref the gateway makes up that ref.
func (b *book) name(m *message) {
	c := b.call.unnamed
	if c == nil || m.ref == "" || b.commands[m.ref] != nil || m.target != c.target {
		return
	}
	c.ref, b.call.unnamed = m.ref, nil
	b.commands[m.ref] = c
	b.used[m.ref]++
	for i := range b.call.wants {
		if x := &b.call.wants[i]; x.kind == wire.TypeCommandAck && x.ref == "" {
			x.ref = m.ref
		}
	}
}

// closing judges a close by the gateway.
func (b *book) closing(l *link, code uint16) {
	if !b.take(func(x *want) bool { return x.link == l && x.close == code }) {
		b.fault(l.id, l.name, "%s is closed with %d, for no reason", l.name, code)
	}
}

// handedOver judges a COMMAND on its way to an edge.
func (b *book) handedOver(l *link, m *message) {
	p, c := l.place, b.commands[m.ref]
	switch {
	case p == nil || p.link != l:
		b.fault(m.ref, l.name, "handed to %s, which is no edge's session", l.name)
	case c == nil:
		b.fault(m.ref, l.name, "handed to %s and never accepted", l.name)
	case c.state.Final():
		b.fault(m.ref, l.name, "handed to %s after its end", l.name)
	case c.handed[l]:
		b.fault(m.ref, l.name, "handed to %s twice", l.name)
	case c.at != p:
		b.fault(m.ref, l.name, "handed to %s, it is for %s", l.name, c.at.key())
	case m.target != c.target, m.source != c.source, m.command.Priority != c.priority, wire.Time(m.command.TimeoutMs)*1e6 != c.timeout, c.raw != nil && !bytes.Equal(c.raw, m.raw):
		b.fault(m.ref, l.name, "is changed on its way to %s: %s", l.name, m.raw)
	case c.state == router.Pending:
		b.leaves(p, c)
	default:
		b.leavesAgain(p, c)
	}
	if c != nil {
		c.handed[l], c.raw = true, m.raw
	}
}

// leaves judges and notes that a PENDING command is handed over.
func (b *book) leaves(p *place, c *command) {
	if first := p.first(); first != c {
		b.fault(c.ref, first.ref, "handed to %s before %s, which comes first", p.key(), first.ref)
	}
	for _, x := range p.replay {
		if b.routes[x.target] == p {
			b.fault(c.ref, x.ref, "handed to %s before %s, which it is to get again", p.key(), x.ref)
			break
		}
	}
	p.dequeue(c)
	p.flight[c] = true
	c.state, c.stage, c.kept = router.Dispatched, router.Dispatched, p.dedupe
	b.change(c)
	b.touch(p)
}

// leavesAgain judges that a command is handed over once more.
func (b *book) leavesAgain(p *place, c *command) {
	if !p.dedupe {
		b.fault(c.ref, p.id, "handed again to %s, which does not dedupe", p.key())
		return
	}
	for i, x := range p.replay {
		if x == c {
			p.replay = p.replay[i+1:]
			return
		}
		if b.routes[x.target] == p {
			b.fault(c.ref, x.ref, "handed again to %s before %s", p.key(), x.ref)
		}
	}
	b.fault(c.ref, p.id, "handed again to %s, for no reason", p.key())
}

// timesOut judges, in a Tick, the end of a command, of which somebody is told first.
func (b *book) timesOut(ref, code, stage string) {
	c := b.commands[ref]
	if !b.ticking || c == nil || c.state.Final() {
		return
	}
	early := c.deadline - wire.Time(10*time.Millisecond)
	lost := c.at != nil && c.at != b.limbo && !c.at.connected()
	switch {
	case b.w.now < early:
		b.fault(ref, c.target, "ends as %s %v before its deadline", code, time.Duration(c.deadline-b.w.now))
	case lost != (code == "CONNECTION_LOST") || !lost && code != "TIMEOUT":
		b.fault(ref, c.target, "ends as %s, its edge away: %v", code, lost)
	case stage != c.stage.String():
		b.fault(ref, c.target, "the stage told is %s", stage)
	}
	b.finish(c, router.TimedOut, code)
}

// epoch checks that the epochs of a party rise.
func (b *book) epoch(m *message) {
	if last := b.epochs[m.id]; m.epoch <= last {
		b.fault("", m.id, "%s gets epoch %d after %d", m.id, m.epoch, last)
	}
	b.epochs[m.id] = m.epoch
	b.lastEpoch = max(b.lastEpoch, m.epoch)
}

// status judges a CONNECTION_STATUS of an edge.
func (b *book) status(l *link, m *message) {
	if l.kind != wire.ClientBackend {
		b.fault("", l.name, "%s, no Backend, is told who is connected", l.name)
	}
	if !strings.HasPrefix(m.id, "edge-") {
		return
	}
	p, last := b.edges[m.id], l.told[m.id]
	l.told[m.id] = m.word
	switch {
	case p == nil:
		b.fault(m.id, "", "is told to be %s and is not known", m.word)
	case p.connected() != (m.word == "ONLINE"):
		b.fault(m.id, "", "is told to be %s, connected: %v", m.word, p.connected())
	case m.word != "ONLINE" && m.word == last:
		b.fault(m.id, "", "is told to be %s twice", m.word)
	case m.word == "PERMANENTLY_OFFLINE" && (p.goodbye || b.w.now-p.since <= wire.Time(b.limits.PermanentAfter)):
		b.fault(m.id, "", "is told to be %s, goodbye %v, %v after it went", m.word, p.goodbye, time.Duration(b.w.now-p.since))
	}
}

// noticed judges a notice for a callback.
func (b *book) noticed(n *router.Notice) {
	ref, word := string(n.Ref), string(n.Status)
	if !n.Final {
		word = string(n.Progress)
	}
	if n.Type == "ERROR" && n.Final {
		b.timesOut(ref, codeIn(n.Error), stageOf(n.Error))
	}
	if n.Type == "PROGRESS_UPDATE" && n.Final {
		b.fault(ref, "", "progress is noticed as the end")
	}
	if !b.take(func(x *want) bool { return x.link == nil && x.ref == ref && x.word == word && x.finish == n.Final }) {
		b.fault(ref, "", "a notice %q for its callback, for no reason", word)
	}
}

// codeIn returns the code of an error's JSON.
func codeIn(err []byte) string {
	_, rest, _ := strings.Cut(string(err), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}
