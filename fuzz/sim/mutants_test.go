package sim

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var onlyMutant = flag.String("mutant", "", "of TestMutants, only those whose name contains this")

// mutant is a bug that core/router might have: a few edits of its source.
type mutant struct {
	name   string
	caught string // what the book says, a pattern
	edits  []edit
}

// edit replaces a piece of a file of core/router that is there exactly once.
type edit struct{ file, from, to string }

// mutants are bugs of such a core, each of which somebody has made somewhere.
var mutants = []mutant{
	{"the goodbye of an old edge takes the new route away", `is not told ERROR FORBIDDEN`, []edit{{"register.go",
		`if d == nil || !s.routes(d) || s.kind != wire.ClientEdge {`,
		`if d == nil || d.edge.Load() == nil || s.kind != wire.ClientEdge {`}}},
	{"the end of an old connection ends the new session", `is told to be OFFLINE, connected: true|EDGE_UNAVAILABLE|FORBIDDEN|waits while`, []edit{{"topology.go",
		`mine := e.session.CompareAndSwap(s, nil)`,
		`mine := e.session.Swap(nil) != nil`}}},
	{"a timeout is told while an answer may still win", `is told COMMAND_RESPONSE|is told PROGRESS_UPDATE|pending|not known`, []edit{{"finish.go",
		`func (r *Router) expire(rec *record, now wire.Time) {`,
		`func (r *Router) expire(rec *record, now wire.Time) {
	if rec.source != nil && rec.state == Dispatched && rec.updated != rec.deadline {
		r.tell(rec, wire.AppendError(nil, "TIMEOUT", "", []byte(` + "`" + `{"stage":"DISPATCHED"}` + "`" + `), rec.ref(), now))
		rec.deadline += wire.Time(rec.timeoutMs) * 1e6
		rec.updated = rec.deadline
		rec.shard.wheel.add(rec)
		return
	}`}}},
	{"progress is passed on after the end", `is told PROGRESS_UPDATE .*for no reason`, []edit{{"finish.go",
		`	w.note = Notice{Type: "PROGRESS_UPDATE", Status: wordInProgress, Progress: m.ProgressRaw}`,
		`	if rec, sh, mine := s.lookup(ref, s.r.hashOf(ref)); rec != nil {
		if mine && rec.state.Final() {
			s.r.tell(rec, w.env.Msg)
		}
		sh.mu.Unlock()
	}
	w.note = Notice{Type: "PROGRESS_UPDATE", Status: wordInProgress, Progress: m.ProgressRaw}`}}},
	{"an answer that came too late is told all the same", `is told COMMAND_RESPONSE .*for no reason`, []edit{{"finish.go",
		`	state, code := Failed, wordFailed
`, `	if rec, sh, mine := s.lookup(ref, hash); rec != nil {
		if mine && rec.state.Final() {
			s.r.tell(rec, w.env.Msg)
		}
		sh.mu.Unlock()
	}
	state, code := Failed, wordFailed
`}}},
	{"a device is told that a command was cancelled that it never got", `is told CANCEL .*for no reason`, []edit{{"finish.go",
		`if rec.state != Pending {
			tell = r.deviceCancelled`,
		`if true {
			tell = r.deviceCancelled`}}},
	{"ended records go only where there are too many", `its record is kept|left at the end`, []edit{{"archive.go",
		`		if x.ended+wire.Time(lim.Retention) > now {`,
		`		if now > 0 {`}}},
	{"an edge that does not dedupe gets a command again", `which does not dedupe`, []edit{
		{"command.go", `			if e.dedupe {
				r.retain(rec, m)`, `			if true {
				r.retain(rec, m)`},
		{"command.go", `rec.state != Pending && (waited || !e.dedupe || !r.routedTo(rec, e))`, `rec.state != Pending && (waited || !r.routedTo(rec, e))`},
		{"topology.go", `	if !e.dedupe {
		for _, rec := range again {`, `	if false {
		for _, rec := range again {`},
	}},
	{"a ref that has ended is taken again", `DUPLICATE_REQUEST|after its end`, []edit{{"command.go",
		`if rec := r.known(sh, hash, c.Ref); rec != nil {`,
		`if rec := sh.find(hash, c.Ref); rec != nil {`}}},
	{"what waits stays behind when its device moves", `waits while|it is for|CONNECTION_LOST|before|answered|OVERLOADED`, []edit{{"topology.go",
		`	for rec := d.waits; rec != nil; {`,
		`	for rec := d.waits; rec != nil && to == r.limbo; {`}}},
	{"LOW may fill the whole queue of an edge", `OVERLOADED|is told COMMAND_ACK .*for no reason`, []edit{{"edge.go",
		`		n, b = n*3/4, b*3/4`,
		`		b = b * 3 / 4`}}},
	{"a snapshot counts as one device where there has to be room", `OVERLOADED|REGISTER_ACK`, []edit{{"forget.go",
		`		most = int64(reg.DeviceCount)`,
		`		most = int64(min(reg.DeviceCount, 1))`}}},
	{"a timer is not set again after progress", `has not ended`, []edit{{"finish.go",
		`	rec.deadline = min(now+wire.Time(rec.timeoutMs)*1e6, rec.created+wire.Time(r.limits.MaxLifetime))
	sh.wheel.add(rec)`,
		`	rec.deadline = min(now+wire.Time(rec.timeoutMs)*1e6, rec.created+wire.Time(r.limits.MaxLifetime))`}}},
	{"the wheel forgets which turn a timer is for", `before its deadline`, []edit{{"shard.go",
		`			if rec.deadline <= now {
				if limit`,
		`			if rec.deadline-now < wheelSlots*wire.Time(wheelTick) {
				if limit`}}},
	{"a Backend that came back hears of no end", `is not told|nobody was told`, []edit{{"backend.go",
		`	return t.find(b.id)
}`,
		`	return nil
}`}}},
	{"the epochs begin anew with each process", `gets epoch`, []edit{{"router.go",
		`	r.epoch.Store(max(cfg.EpochFloor, now.Millis()<<10))`,
		`	r.epoch.Store(1)`}}},
	{"the last progress is kept and not copied", `its record has progress`, []edit{{"finish.go",
		`	rec.progress = append(rec.progress[:0], progress...)`,
		`	rec.progress = progress`}}},
	{"any edge may answer any command", `is not told ERROR FORBIDDEN`, []edit{{"finish.go",
		`	return rec.edge.Load() == s.edge || s.r.routedTo(rec, s.edge)`,
		`	return true`}}},
	{"a refused command counts as pending", `commands are pending`, []edit{{"command.go",
		`	if refusal := r.place(rec, m, c, now); refusal != nil {
		r.pending.Add(-1)`,
		`	if refusal := r.place(rec, m, c, now); refusal != nil {`}}},
	{"what waits leaves in the wrong order of priority", `which comes first`, []edit{{"edge.go",
		`	for p := len(e.queue) - 1; p >= 0; p-- {`,
		`	for p := range e.queue {`}}},
	{"a new session is given what waits when something else comes", `waits while the way|is not handed again`, []edit{{"register.go",
		`	s.r.handOverWaiting(s.edge, now)
	return nil`,
		`	return nil`}}},
	{"an end is told before it is stored", `to have ended, which is not stored`, []edit{{"finish.go",
		`conn.Append(wire.ClassNotice|r.durable, msg, nil, nil) != wire.Gone`,
		`conn.Append(wire.ClassNotice, msg, nil, nil) != wire.Gone`}}},
	{"an acceptance is told before it is stored", `is told of, and is not stored`, []edit{{"command.go",
		`s.conn.Append(wire.ClassNotice|s.r.durable, w.out, nil, nil)`,
		`s.conn.Append(wire.ClassNotice, w.out, nil, nil)`}}},
	{"an edge that does not dedupe gets what is not stored", `is told of, and is not stored`, []edit{{"command.go",
		`				class |= wire.Durable`,
		`				class |= 0`}}},
	{"a command that had waited is handed over and not journalled", `is PENDING after the crash`, []edit{{"command.go",
		`	r.logHanded(rec, e, now, e.dedupe)`,
		``}}},
	{"what was handed over has no message after a crash", `is not handed again`, []edit{{"restore.go",
		`	if len(o.msg) > 0 && !o.once {`,
		`	if len(o.msg) > 0 && o.handed == 0 {`}}},
	{"a checkpoint leaves out what waits", `not known after the crash|gone after the crash`, []edit{{"journal.go",
		`			if x.rec != nil {`,
		`			if x.rec != nil && x.rec.state != Pending {`}}},
	{"what was refused after all is there after a crash", `commands are pending|never accepted|is known as`, []edit{{"restore.go",
		`		delete(r.restore.open, string(rec))
	case kindEnded`,
		`	case kindEnded`}}},
	{"a refusal is told before the record that takes the command back is stored", `was refused, which was told`, []edit{{"command.go",
		`			refusal.Mark = r.logVoid(rec)`,
		`			r.logVoid(rec)`}}},
	{"the order of acceptance begins anew after a crash", `comes first|out of order|records are listed`, []edit{{"restore.go",
		`	r.seq.Store(x.last)`,
		``}}},
	{"a deadline that moved is forgotten in a crash", `before its deadline|commands are pending`, []edit{{"restore.go",
		`		err = r.restore.moved(rec)`,
		`		err = nil`}}},
	{"a route that went is there again after a crash", `is routed to`, []edit{{"topology.go",
		`	r.logUnroute(d)`,
		``}}},
	{"an edge that was connected is long away after a crash", `PERMANENTLY_OFFLINE|its edge away: false|is known`, []edit{{"restore.go",
		`			e.away = now`,
		`			e.away = wire.Time(e.seen.Load())`}}},
}

// TestMutants puts bugs into the core, one at a time, and holds the book to it that it
// catches each. It builds this test with the changed source in place of the real one.
func TestMutants(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("it builds the core anew for each, and without the race detector")
	}
	turn := make(chan bool, runtime.GOMAXPROCS(0))
	for _, m := range mutants {
		if !strings.Contains(m.name, *onlyMutant) {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			turn <- true
			defer func() { <-turn }()
			m.test(t)
		})
	}
}

// mostSeeds is how many worlds a bug may take to be caught.
const mostSeeds = "200"

func (m *mutant) test(t *testing.T) {
	bin := m.build(t)
	out, err := exec.Command(bin, "-test.run=^TestSim$", "-test.cpu=1", "-test.timeout=2m", "-seeds="+mostSeeds).CombinedOutput()
	if err == nil {
		t.Fatalf("not caught in %s worlds", mostSeeds)
	}
	_, faults, _ := strings.Cut(string(out), "seed ")
	faults, _, _ = strings.Cut(faults, "\n        -- ")
	if !regexp.MustCompile(m.caught).MatchString(faults) || !strings.Contains(faults, "replay: make sim SEED=") {
		t.Fatalf("caught otherwise than as %q:\n%.4000s", m.caught, out)
	}
	first, _, _ := strings.Cut(faults, "\n")
	t.Log("seed", first)
}

// build builds this test with the bug in the core and returns the binary.
func (m *mutant) build(t *testing.T) string {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join("..", "..", "core", "router", e.file))
		if err != nil {
			t.Fatal(err)
		}
		changed, source := filepath.Join(dir, e.file), path
		if overlay.Replace[path] != "" {
			source = changed
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.from); n != 1 {
			t.Fatalf("the bug %q applies no more: %s has %d times\n%s", m.name, e.file, n, e.from)
		}
		if err := os.WriteFile(changed, []byte(strings.Replace(string(text), e.from, e.to, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = changed
	}
	list, _ := json.Marshal(overlay)
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "sim.test")
	out, err := exec.Command("go", "test", "-c", "-o", bin, "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), ".").CombinedOutput()
	if err != nil {
		t.Fatalf("the bug does not build: %v\n%s", err, out)
	}
	return bin
}
