package sim

import (
	"fmt"
	"strings"
	"time"

	"subway/core/wire"
)

// backend is a Backend.
type backend struct {
	w     *world
	id    string
	link  *link
	acked bool
	n     int
	refs  []string // that it sent lately
}

func (b *backend) connect() {
	if b.link != nil || b.w.over {
		return
	}
	b.link, b.acked = b.w.dial(b, b.id), false
	b.link.say(fmt.Appendf(nil, `{"type":"REGISTER","clientId":"%s","clientType":"BACKEND"}`, b.id))
}

// hear implements party.
func (b *backend) hear(l *link, m *message) {
	if l == b.link && m.kind == wire.TypeRegisterAck {
		b.acked = true
	}
	if l == b.link && m.kind == wire.TypeError && m.word == "OVERLOADED" && !b.acked { // no room for it
		l.leave()
		b.link = nil
		b.w.after(b.w.around(5*time.Second), b.connect)
	}
}

// lost implements party.
func (b *backend) lost(l *link, _ uint16) {
	if l == b.link {
		b.link, b.acked = nil, false
		b.w.after(b.w.upTo(3*time.Second), b.connect)
	}
}

// trouble befalls a Backend now and then.
func (b *backend) trouble() {
	w := b.w
	if w.plan.trouble == 0 {
		return
	}
	w.after(w.around(w.plan.trouble), func() {
		if w.calm {
			return
		}
		switch x := w.rng.IntN(10); {
		case b.link == nil:
		case x < 3:
			b.link.sever(w.upTo(2*time.Second), w.upTo(20*time.Second))
		case x < 5: // takes over its own session
			old := b.link
			b.link = nil
			b.connect()
			old.sever(0, w.upTo(30*time.Second))
		case x < 6:
			b.link.leave()
			b.link = nil
			w.after(w.upTo(5*time.Second), b.connect)
		case x < 7:
			b.link.say(fmt.Appendf(nil, `{"type":"UNREGISTER","clientId":"%s"}`, b.id))
		case x < 8:
			b.link.say(fmt.Appendf(nil, `{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED"}`, w.recent().ref))
		default:
			b.link.statusOff = !b.link.statusOff
		}
		b.trouble()
	})
}

// command sends a command, a new one or one of before.
func (b *backend) command() {
	w := b.w
	if b.link == nil || !b.acked {
		return
	}
	var ref string
	switch x := w.rng.IntN(100); {
	case x < 4: // the gateway makes one
	case x < 10 && len(b.refs) > 0:
		ref = b.refs[w.rng.IntN(len(b.refs))]
	default:
		b.n++
		ref = fmt.Sprintf("%s-%d", b.id, b.n)
		b.refs = append(b.refs, ref)
		if len(b.refs) > 50 {
			b.refs = b.refs[25:]
		}
	}
	more := w.options()
	if w.chance(0.6) {
		more += `,"ack":true`
	}
	if w.chance(0.01) {
		more += `,"sourceClientId":"backend-x"`
	}
	b.link.say(w.message(ref, w.device(), more))
	if w.chance(0.05) && len(b.refs) > 0 {
		ref := b.refs[w.rng.IntN(len(b.refs))]
		l := b.link
		w.after(w.upTo(3*time.Second), func() {
			l.say(fmt.Appendf(nil, `{"type":"CANCEL","requestRef":"%s"}`, ref))
		})
	}
}

// caller posts commands over HTTP.
type caller struct {
	w  *world
	id string
	n  int
}

// command posts a command; whoever gets no answer, or does not like it, repeats it.
func (c *caller) command() {
	w := c.w
	c.n++
	ref := fmt.Sprintf("%s-%d", c.id, c.n)
	if w.chance(0.03) {
		ref = w.recent().ref
	}
	raw := w.message(ref, w.device(), w.options())
	c.post(ref, raw)
}

func (c *caller) post(ref string, raw []byte) {
	w := c.w
	w.after(w.upTo(20*time.Millisecond), func() {
		code := w.gate.submit(raw)
		if code == "" && w.chance(0.2) {
			w.book.waitsFor(ref)
		}
	})
	switch x := w.rng.IntN(100); {
	case x < 5: // the answer is lost
		w.after(w.upTo(5*time.Second), func() { w.gate.submit(raw) })
	case x < 12:
		w.after(w.upTo(3*time.Second), func() { w.gate.cancel(ref) })
	case x < 20:
		w.after(w.upTo(20*time.Second), func() { w.book.looksUp(ref) })
	}
}

// message is a COMMAND.
func (w *world) message(ref, target, more string) []byte {
	name := ""
	if ref != "" {
		w.remember(ref, target)
		name = fmt.Sprintf(`"requestRef":"%s",`, ref)
	}
	return fmt.Appendf(nil, `{"type":"COMMAND",%s"targetClientId":"%s","command":{"commandType":"T"}%s}`, name, target, more)
}

// options are the members of a command that have a default.
func (w *world) options() (more string) {
	var timeout time.Duration
	switch x := w.rng.IntN(100); {
	case x < 30:
		timeout = w.upTo(500 * time.Millisecond)
	case x < 70:
		timeout = w.upTo(5 * time.Second)
	case x < 97:
		timeout = w.upTo(40 * time.Second)
	default:
		timeout = w.upTo(80 * time.Second)
	}
	more = fmt.Sprintf(`,"timeout":%d,"priority":"%s"`, 1+timeout/time.Millisecond, wire.Priority(w.rng.IntN(3)))
	if w.chance(0.5) {
		more += `,"whenOffline":"QUEUE"`
	}
	if w.chance(0.02) {
		more += `,"version":null,"pad":"` + strings.Repeat("p", w.rng.IntN(4000)) + `"`
	}
	if w.chance(0.5) {
		more += `,"callback":"http://eudi.example/cb"`
	}
	return more
}
