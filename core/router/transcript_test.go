package router

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"subway/core/wire"
)

// TestTranscripts plays testdata/*.txt: lines at the margin are done, what comes of them
// stands indented below them, and -rewrite writes that anew. After every line the
// router's books are audited. The lines:
//
//	limits Name=value ...           of the Router, before anything else
//	orphans off                     likewise
//	C > {json}                      connection C, opened if need be, sends a message
//	C > REGISTER EDGE id {more}     ... written shorter, see shorthand
//	C room N | full | gone | ready  what C answers to commands from now on
//	C status off                    C drops status messages
//	C close reason                  C is gone
//	http REF TARGET {more}          a command over HTTP
//	cancel REF                      a cancel over HTTP
//	tick 500ms                      time passes, with a Tick about every 10 ms
//	wait 500ms                      time passes and no Tick comes
//	drain on | off
//	record REF | trace REF | commands k=v ... | devices k=v ... | edges k=v ...
//	device ID | edge ID | matching PREFIX N | gauges | metrics
//	repeat N LINE                   LINE N times, with # for the number, from 1
//	quiet LINE                      LINE without its outputs
//
// In a line %N% stands for N bytes of text. What a tick brings is sorted: commands that
// end at one time do so in any order.
//
// Times are written as t+1.5s, epochs from the first as 1, session ids as S and
// made-up refs as REF1, REF2, ...
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if got == string(want) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s differs:\n%s", file, firstDifference(string(want), got))
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, a, b)
		}
	}
	return ""
}

// stage is one transcript being played.
type stage struct {
	t        *testing.T
	out      strings.Builder
	r        *Router
	cfg      Config
	now      wire.Time
	conns    map[string]*conn
	sessions map[string]*Session
	refs     map[string]string
	outputs  []string // of the line being done
	quiet    bool
}

func play(t *testing.T, script string) string {
	st := &stage{t: t, now: t0, conns: map[string]*conn{}, sessions: map[string]*Session{}, refs: map[string]string{}}
	st.cfg = Config{OrphanResponses: true, HeartbeatMs: 30000, Callbacks: notices{st.notice}}
	for n, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		st.out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		st.do(patternText.ReplaceAllStringFunc(line, func(n string) string {
			return strings.Repeat("p", st.number(strings.Trim(n, "%")))
		}))
		st.flush(strings.HasPrefix(line, "tick"))
		if st.r == nil {
			continue
		}
		if err := broken(st.r); err != nil {
			t.Errorf("line %d: %s: %v", n+1, line, err)
		}
	}
	return st.out.String()
}

// flush writes the outputs of a line.
func (st *stage) flush(sorted bool) {
	if sorted {
		slices.Sort(st.outputs)
	}
	for _, s := range st.outputs {
		st.out.WriteString("  " + s + "\n")
	}
	st.outputs = st.outputs[:0]
}

func (st *stage) do(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "limits", "orphans":
		st.configure(word, rest)
		return
	case "quiet":
		st.quiet = true
		st.do(rest)
		st.quiet = false
		return
	case "repeat":
		count, what, _ := strings.Cut(rest, " ")
		for i := range st.number(count) {
			st.do(strings.ReplaceAll(what, "#", strconv.Itoa(i+1)))
		}
		return
	}
	if st.r == nil {
		st.r = New(st.cfg, t0)
	}
	switch word {
	case "tick", "wait":
		st.pass(word, rest)
	case "http":
		st.submit(rest)
	case "cancel":
		st.refusal(st.r.Cancel([]byte(rest), st.now))
	case "drain":
		st.r.SetDraining(rest == "on")
	default:
		if !st.ask(word, rest) {
			st.party(word, rest)
		}
	}
}

func (st *stage) configure(word, rest string) {
	if word == "orphans" {
		st.cfg.OrphanResponses = rest == "on"
		return
	}
	l := &st.cfg.Limits
	for _, f := range strings.Fields(rest) {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "MaxPending":
			l.MaxPending = int64(st.number(value))
		case "PendingBytes":
			l.PendingBytes = int64(st.number(value))
		case "Retention":
			l.Retention = st.duration(value)
		case "MaxRecords":
			l.MaxRecords = int64(st.number(value))
		case "RecordBytes":
			l.RecordBytes = int64(st.number(value))
		case "EdgeQueue":
			l.EdgeQueue = st.number(value)
		case "EdgeQueueBytes":
			l.EdgeQueueBytes = int64(st.number(value))
		case "MaxRoutes":
			l.MaxRoutes = int64(st.number(value))
		case "MaxEdges":
			l.MaxEdges = st.number(value)
		case "MaxBackends":
			l.MaxBackends = st.number(value)
		case "DeviceBytes":
			l.DeviceBytes = int64(st.number(value))
		default:
			st.t.Fatalf("no limit %s", name)
		}
	}
}

func (st *stage) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		st.t.Fatal(err)
	}
	return n
}

func (st *stage) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		st.t.Fatal(err)
	}
	return d
}

// pass lets time pass: exactly so much, with a Tick at the end.
func (st *stage) pass(word, rest string) {
	d := st.duration(rest)
	end := st.now + wire.Time(d)
	if word == "tick" {
		step := wire.Time(max(10*time.Millisecond, d/1000))
		for st.now+step < end {
			st.now += step
			st.r.Tick(st.now)
		}
	}
	st.now = end
	if word == "tick" {
		st.r.Tick(end)
	}
}

func (st *stage) submit(rest string) {
	ref, rest, _ := strings.Cut(rest, " ")
	target, more, _ := strings.Cut(rest, " ")
	var env wire.Envelope
	var scratch wire.Scratch
	var c wire.Command
	msg := []byte(commandTo(ref, target, members(more)))
	if err := env.Scan(msg, wire.DefaultMaxDepth); err != nil {
		st.t.Fatal(err)
	}
	if f := env.Command(&c, &scratch); f != nil {
		st.t.Fatal(f)
	}
	st.refusal(st.r.Submit(&c, msg, st.now))
}

func (st *stage) refusal(f *Refusal) {
	if f == nil {
		st.print("ok")
	} else {
		st.print("%d %s %q %s", f.Code.HTTPStatus(), f.Code, f.Text, f.Details)
	}
}

// party does a line of a connection.
func (st *stage) party(name, rest string) {
	s := st.sessions[name]
	if s == nil {
		c := newConn(func(_ wire.Class, msg []byte) { st.print("%s < %s", name, msg) })
		c.onClose = func(code uint16, reason string) { st.print("%s closed %d %s", name, code, reason) }
		s = st.r.Open(c, "192.0.2.1:5000", st.now)
		st.conns[name], st.sessions[name] = c, s
	}
	c := st.conns[name]
	word, arg, _ := strings.Cut(rest, " ")
	switch word {
	case ">":
		s.Receive([]byte(shorthand(arg)), st.now)
	case "garbled":
		s.Invalid(st.now)
	case "room":
		c.set(wayClear, st.number(arg))
		s.Writable(st.now)
	case "full":
		c.set(wayFull, -1)
	case "gone":
		c.set(wayGone, -1)
	case "ready":
		c.set(wayClear, -1)
		s.Writable(st.now)
	case "status":
		c.statusOff = arg == "off"
	case "close":
		s.Closed(st.now, arg)
		delete(st.sessions, name)
	default:
		st.t.Fatalf("no such line: %s %s", name, rest)
	}
}

// members is what is written between braces, to follow other members.
func members(more string) string {
	if more = strings.TrimSuffix(strings.TrimPrefix(more, "{"), "}"); more != "" {
		return "," + more
	}
	return ""
}

// shorthand writes a message in full: TYPE, its usual members in a fixed order, and more.
func shorthand(s string) string {
	if strings.HasPrefix(s, "{") {
		return s
	}
	head, more, _ := strings.Cut(s, " {")
	f := append(strings.Fields(head), "", "", "")
	more = members(more)
	switch f[0] {
	case "REGISTER":
		return fmt.Sprintf(`{"type":"REGISTER","clientId":"%s","clientType":"%s"%s}`, f[2], f[1], more)
	case "UNREGISTER":
		return fmt.Sprintf(`{"type":"UNREGISTER","clientId":"%s"%s}`, f[1], more)
	case "COMMAND":
		return commandTo(f[1], f[2], more)
	case "RESPONSE":
		return fmt.Sprintf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"%s"%s}`, f[1], f[2], more)
	case "PROGRESS":
		return fmt.Sprintf(`{"type":"PROGRESS_UPDATE","requestRef":"%s","progress":%s%s}`, f[1], f[2], more)
	case "ERROR":
		return fmt.Sprintf(`{"type":"ERROR","requestRef":"%s","code":"%s","message":"broken"%s}`, f[1], f[2], more)
	case "CANCEL":
		return fmt.Sprintf(`{"type":"CANCEL","requestRef":"%s"%s}`, f[1], more)
	case "STATUS":
		return fmt.Sprintf(`{"type":"DEVICE_STATUS","clientId":"%s"%s}`, f[1], more)
	}
	return s
}

func (st *stage) notice(n *Notice) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "callback %s %s of %s: %s %s", n.URL, n.Ref, n.Target, n.Type, n.Status)
	for _, x := range []struct {
		name string
		v    []byte
	}{{"result", n.Result}, {"error", n.Error}, {"progress", n.Progress}, {"time", n.ExecutionTime}, {"at", n.Timestamp}} {
		if x.v != nil {
			fmt.Fprintf(&b, " %s=%s", x.name, x.v)
		}
	}
	if n.Final {
		fmt.Fprintf(&b, " final")
	}
	if n.Track != nil {
		n.Track.SetCallback(CallbackDelivered, 1)
	}
	st.print("%s", b.String())
}
