package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"subway/core/wire"
)

// edge is an edge with its devices, or a device that is connected directly. One that
// dedupes remembers over a crash what it handed to a device, and what was answered.
type edge struct {
	w       *world
	name    string // of this machine; a clone has the id of another
	id      string
	direct  bool
	dedupe  bool
	stable  bool // it said once that it dedupes, and remembers for good
	style   int  // how it registers
	echo    bool // answers name the callback and the source, as the reference's do
	devices []string

	up      bool
	life    int // a crash begins a new one
	link    *link
	acked   bool
	goodbye bool
	seen    map[string]*job
	store   [][]byte // answers that wait for the link
}

// job is a command at an edge.
type job struct {
	ref, target, callback, source string
	life                          int
	cancelled                     bool
	answer                        []byte // the last; nil: none yet
}

// The ways to register.
const (
	styleSnapshot = iota
	styleSingly   // the edge, and then each device
	styleDevice   // a device first, as the reference does
	numStyles
)

func (w *world) newEdge(name, id string, direct bool) *edge {
	e := &edge{
		w: w, name: name, id: id, direct: direct, dedupe: w.chance(w.plan.dedupe), style: w.rng.IntN(numStyles),
		echo: w.chance(0.3), up: true, seen: map[string]*job{},
	}
	e.says(e.dedupe)
	if direct {
		e.devices = []string{id}
	}
	return e
}

// says changes whether the edge dedupes. As the reference registers it cannot say so.
func (e *edge) says(dedupe bool) {
	e.dedupe, e.stable = dedupe, e.stable || dedupe
	if dedupe && e.style == styleDevice {
		e.style = styleSnapshot
	}
}

// connect opens a link, unless there is one.
func (e *edge) connect() {
	if !e.up || e.link != nil || e.w.over {
		return
	}
	e.link, e.acked, e.goodbye = e.w.dial(e, e.name), false, false
	if e.w.chance(0.02) {
		e.link.say([]byte(`{"type":"HEARTBEAT"}`))
	}
	e.register()
}

// reconnect connects after a while.
func (e *edge) reconnect(after time.Duration) { e.w.after(after, e.connect) }

func (e *edge) register() {
	capabilities := ""
	if e.dedupe {
		capabilities = `,"capabilities":["dedupe"]`
	}
	switch {
	case e.direct:
		e.sayf(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE"%s}`, e.id, capabilities)
	case e.style == styleSnapshot:
		e.snapshot()
	default:
		if e.style == styleSingly || len(e.devices) == 0 {
			e.sayf(`{"type":"REGISTER","clientId":"%s","clientType":"EDGE"%s}`, e.id, capabilities)
		}
		for _, d := range e.devices {
			e.registerDevice(d)
		}
	}
}

func (e *edge) snapshot() {
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":"REGISTER","clientId":"%s","clientType":"EDGE","devices":[`, e.id)
	asObjects, twice := e.w.chance(0.3), e.w.chance(0.05) && e.w.plan.limits.MaxRoutes >= wide
	for i, d := range e.devices {
		if i > 0 {
			b.WriteByte(',')
		}
		if twice {
			fmt.Fprintf(&b, "%q,", d)
		}
		if asObjects {
			fmt.Fprintf(&b, `{"clientId":"%s","deviceInfo":{"n":%d}}`, d, i)
		} else {
			fmt.Fprintf(&b, "%q", d)
		}
	}
	b.WriteByte(']')
	if e.dedupe {
		b.WriteString(`,"capabilities":["dedupe"]`)
	}
	e.sayf("%s}", b.String())
}

func (e *edge) registerDevice(d string) {
	e.sayf(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE","edgeInfo":{"edgeId":"%s"}}`, d, e.id)
}

// sayf says something, if there is a link.
func (e *edge) sayf(format string, args ...any) {
	if e.link != nil {
		e.link.say(fmt.Appendf(nil, format, args...))
	}
}

// hear implements party.
func (e *edge) hear(l *link, m *message) {
	if l != e.link {
		return
	}
	switch m.kind {
	case wire.TypeRegisterAck:
		if !e.acked {
			e.acked = true
			for _, raw := range e.store {
				l.say(raw)
			}
			e.store = nil
		}
	case wire.TypeError:
		if m.word == "OVERLOADED" && m.ref == "" && !e.acked { // no room for it
			l.leave()
			e.link = nil
			e.reconnect(e.w.around(5 * time.Second))
		}
	case wire.TypeCommand:
		e.take(m)
	case wire.TypeCancel:
		if j := e.seen[m.ref]; j != nil && e.w.chance(0.7) {
			j.cancelled = true
		}
	}
}

// lost implements party.
func (e *edge) lost(l *link, code uint16) {
	if l != e.link {
		return
	}
	e.link, e.acked = nil, false
	switch {
	case code == wire.CloseSuperseded:
		e.reconnect(time.Second + e.w.upTo(60*time.Second))
	case e.w.chance(0.9):
		e.reconnect(50*time.Millisecond + e.w.upTo(5*time.Second))
	default:
		e.reconnect(e.w.upTo(2 * e.w.plan.limits.PermanentAfter))
	}
}

// take takes a command: one that dedupes, or once did, hands a ref to its device once.
func (e *edge) take(m *message) {
	if j := e.seen[m.ref]; j != nil && e.stable {
		if j.answer != nil {
			e.answer(j, j.answer)
		}
		return
	}
	j := &job{ref: m.ref, target: m.target, callback: m.callback, source: m.source, life: e.life}
	e.seen[m.ref] = j
	if !slices.Contains(e.devices, m.target) {
		e.w.after(e.w.upTo(10*time.Millisecond), func() {
			e.answer(j, fmt.Appendf(nil, `{"type":"ERROR","requestRef":"%s","code":"DEVICE_NOT_FOUND","message":"gone"}`, j.ref))
		})
		return
	}
	e.execute(j)
}

// execute is what the device does: some progress, and an end of some kind, mostly.
func (e *edge) execute(j *job) {
	w := e.w
	w.note("%s executes %s at %s", j.target, j.ref, e.name)
	w.book.executes(e, j.ref)
	t := w.upTo(w.plan.work)
	if w.chance(0.05) {
		t *= 20
	}
	if w.chance(0.4) {
		for n := range 1 + w.rng.IntN(4) {
			t += w.upTo(w.plan.work)
			e.answerAt(t, j, fmt.Sprintf(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":%d.%d`, j.ref, n, w.rng.IntN(1000)))
		}
	}
	t += w.upTo(w.plan.work)
	end := fmt.Sprintf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","executionTime":%d,"status":`, j.ref, t/time.Millisecond)
	switch x := w.rng.IntN(100); {
	case x < 78:
		end += fmt.Sprintf(`"COMPLETED","result":{"n":%d}`, w.rng.IntN(1000))
	case x < 82:
		end += `"SUCCESS"`
	case x < 88:
		end += `"FAILED","error":{"code":"BROKEN"}`
	case x < 91:
		end += `"REFUSED"`
	case x < 94:
		end = fmt.Sprintf(`{"type":"ERROR","requestRef":"%s","code":"JAMMED","message":"x"`, j.ref)
	default:
		return // silent
	}
	e.answerAt(t, j, end)
	if w.chance(0.05) { // twice
		e.answerAt(t+w.upTo(3*time.Second), j, end)
	}
	if w.chance(0.05) { // progress after the end
		e.answerAt(t+w.upTo(3*time.Second), j, fmt.Sprintf(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":99.%d`, j.ref, w.rng.IntN(1000)))
	}
}

// answerAt answers after a while, unless the edge crashes before; raw lacks its brace.
func (e *edge) answerAt(after time.Duration, j *job, raw string) {
	if e.echo && j.callback != "" {
		raw += fmt.Sprintf(`,"callback":%q`, j.callback)
	}
	if e.echo && j.source != "" {
		raw += fmt.Sprintf(`,"sourceClientId":%q`, j.source)
	}
	e.w.after(after, func() {
		if e.life == j.life && !j.cancelled {
			e.answer(j, []byte(raw+"}"))
		}
	})
}

// answer passes on what a device says, or keeps it until there is a link.
func (e *edge) answer(j *job, raw []byte) {
	if !strings.HasPrefix(string(raw), `{"type":"PROGRESS`) {
		j.answer = raw
	}
	switch {
	case e.link != nil && e.acked:
		e.link.say(raw)
	case e.up && (e.dedupe || e.echo):
		e.store = append(e.store, raw)
	}
}
