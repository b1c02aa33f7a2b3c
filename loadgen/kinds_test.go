package loadgen_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"subway/loadgen"
	"subway/loadgen/report"
)

// kind is a kind of scenario as its file would say it, and what its report must have.
type kind struct {
	name, text string
	check      func(t *testing.T, r *report.Report)
}

var kinds = []kind{
	{"open loop", `{fleet: {edges: 4, devices: 5, direct: 2, backends: 2}, load: {rate: 300, high: 0.1, low: 0.1}, warmup: 300ms, phases: [{for: 1s}]}`, checkOpen},
	{"phases", `{fleet: {edges: 4, devices: 5, backends: 2}, load: {rate: 200}, phases: [{for: 500ms}, {for: 1s, factor: 2}]}`, checkPhases},
	{"no dedupe", `{fleet: {edges: 5, devices: 4, backends: 2, noDedupe: true}, load: {rate: 300}, phases: [{for: 1s}]}`, checkSent},
	{"http, phases", `{fleet: {edges: 5, devices: 4}, http: {rate: 200}, phases: [{for: 500ms}, {for: 500ms, factor: 2}]}`, checkSent},
	{"closed loop", `{fleet: {edges: 4, devices: 5, backends: 2}, load: {window: 8}, phases: [{for: 500ms}]}`, checkClosed},
	{"window of one", `{fleet: {edges: 1, devices: 1, backends: 1}, load: {window: 1}, phases: [{for: 300ms}]}`, checkClosed},
	{"ramp", `{fleet: {edges: 4, devices: 5, backends: 2}, warmup: 300ms, ramp: {from: 200, to: 10000, factor: 2, step: 500ms, p99: 1ns}}`, checkRamp},
	{"connect-storm", `{fleet: {edges: 20, devices: 10, direct: 20, backends: 1}, storm: {repeat: 1, every: 200ms}}`, checkConnectStorm},
	{"reconnect-storm", `{fleet: {edges: 20, devices: 10, direct: 4, backends: 2}, load: {rate: 200, calm: true}, storm: {share: 0.5, repeat: 2, every: 300ms}}`, checkStorm},
	{"slow-consumer", `{fleet: {edges: 4, devices: 5, backends: 2}, load: {rate: 200, timeout: 500ms}, slow: {edges: 1, backends: 1, bytes: 500}, phases: [{for: 1s}]}`, checkSlow},
	{"churn", `{fleet: {edges: 4, devices: 5, backends: 2}, load: {rate: 300}, churn: {rate: 40, away: 100ms}, phases: [{for: 1s}]}`, checkChurn},
	{"churn of direct devices", `{fleet: {direct: 5, backends: 1, reconnect: 30s}, load: {rate: 300, timeout: 500ms}, churn: {rate: 20, away: 20ms}, phases: [{for: 2s}]}`, checkDirectChurn},
	{"program", `{fleet: {edges: 4, devices: 5, backends: 2}, load: {rate: 40, type: PROGRAM, callbacks: 1}, devices: {delay: 100ms, delayMax: 200ms, progress: 20}, phases: [{for: 1s}]}`, checkProgram},
	{"idle", `{fleet: {}, idle: {connections: 100, silence: 300ms}}`, checkIdle},
	{"mixed", `{fleet: {edges: 4, devices: 20, direct: 5, backends: 2}, load: {rate: 200, timeout: 700ms, high: 0.1, low: 0.2, callbacks: 0.2}, http: {rate: 50},
  devices: {delay: 1ms, delayMax: 9ms, progress: 1, fail: 0.05, dead: 0.05},
  customers: [{name: quick, share: 0.8}, {name: slow, share: 0.1, delay: 50ms}, {name: moody, share: 0.1, refuse: 0.2}],
  phases: [{for: 400ms}, {name: burst, for: 200ms, factor: 4}, {for: 400ms}]}`, checkMixed},
	{"http with wait", `{fleet: {edges: 4, devices: 5}, http: {rate: 200, workers: 8, wait: 2s}, devices: {delay: 1ms, delayMax: 5ms}, phases: [{for: 1s}]}`, checkWait},
	{"http, closed", `{fleet: {edges: 4, devices: 5}, http: {workers: 4, wait: 2s}, phases: [{for: 500ms}]}`, checkWait},
	{"batch", `{fleet: {edges: 4, devices: 5}, http: {rate: 400, batch: 20}, phases: [{for: 1s}]}`, checkBatch},
}

// Every kind of scenario runs against the real gateway; its books balance, and its report
// has the parts that belong to it and no others.
func TestKinds(t *testing.T) {
	_, url := startGateway(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s, err := readScenario(t, k.text)
			if err != nil {
				t.Fatal(err)
			}
			rep := play(t, url, s)
			if !rep.Books.Balanced {
				t.Fatalf("faults %q: %q", bad(rep), rep.Books.Mismatches)
			}
			parts := []bool{rep.Steps != nil, rep.Idle != nil, rep.Rates.IntendedPerSecond > 0}
			want := []bool{s.Ramp != nil, s.Idle != nil, s.Load.Rate > 0 || s.HTTP.Rate > 0 || s.Ramp != nil}
			for i := range parts {
				if parts[i] != want[i] {
					t.Errorf("steps, idle, intended rate: %v, want %v", parts, want)
				}
			}
			k.check(t, rep)
		})
	}
}

// near fails unless got is within a share of want.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if got < want*(1-share) || got > want*(1+share) {
		t.Errorf("%s: %.1f, want %.1f within %.0f %%", what, got, want, 100*share)
	}
}

// counts gives how many commands ended, or callbacks came, by channel.
func counts(r *report.Report) map[string]int64 {
	n := map[string]int64{}
	for _, c := range r.Channels {
		n[c.Channel.String()] += c.Count
	}
	return n
}

func checkOpen(t *testing.T, r *report.Report) {
	near(t, "intended", r.Rates.IntendedPerSecond, 300, 0.01)
	near(t, "sent", r.Rates.SentPerSecond, 300, 0.5)
	if sent := count(r, "sent"); sent < 250 || sent > 600 || len(counts(r)) != 2 { // 1.3 s, HIGH apart
		t.Errorf("%d sent, channels %v", sent, counts(r))
	}
}

func checkPhases(t *testing.T, r *report.Report) {
	near(t, "intended", r.Rates.IntendedPerSecond, (0.5*200+400)/1.5, 0.1)
	near(t, "sent", float64(count(r, "sent")), 500, 0.5)
}

func checkSent(t *testing.T, r *report.Report) {
	if sent := count(r, "sent"); sent < 20 || count(r, "COMPLETED") != sent {
		t.Errorf("books %+v", r.Books.Entries)
	}
}

func checkClosed(t *testing.T, r *report.Report) {
	if sent := count(r, "sent"); sent < 50 || counts(r)["WebSocket"] != sent {
		t.Errorf("%d sent, channels %v", sent, counts(r))
	}
}

func checkRamp(t *testing.T, r *report.Report) {
	if len(r.Steps) != 1 || r.Steps[0].Passed || r.Steps[0].RatePerSecond != 200 {
		t.Errorf("steps %+v", r.Steps)
	}
	near(t, "sent with the warm-up", float64(count(r, "sent")), 0.8*200, 0.5)
}

func checkConnectStorm(t *testing.T, r *report.Report) {
	if len(r.Storms) != 1 || r.Storms[0].Routes != 220 || r.Storms[0].Connections != 41 || r.Storms[0].Failures != 0 || count(r, "sent") != 0 {
		t.Errorf("storms %+v", r.Storms)
	}
}

func checkStorm(t *testing.T, r *report.Report) {
	if len(r.Storms) != 3 || count(r, "sent") < 60 {
		t.Fatalf("%d sent, storms %+v", count(r, "sent"), r.Storms)
	}
	for _, s := range r.Storms[1:] {
		if s.Connections != 12 || s.Routes != 102 || s.Failures != 0 || s.AllBackSeconds <= 0 {
			t.Errorf("storm %+v", s)
		}
	}
}

func checkSlow(t *testing.T, r *report.Report) {
	if count(r, "TIMEOUT") == 0 || count(r, "COMPLETED") < 40 {
		t.Errorf("books %+v", r.Books.Entries)
	}
}

func checkChurn(t *testing.T, r *report.Report) {
	if count(r, "COMPLETED") < 40 || count(r, "refused") == 0 {
		t.Errorf("books %+v", r.Books.Entries)
	}
}

// checkDirectChurn: five devices leave forty times in all and are back after 20 ms, long before
// a connection that is lost would be dialled again; when back they run commands.
func checkDirectChurn(t *testing.T, r *report.Report) {
	if count(r, "COMPLETED") < count(r, "sent")/3 {
		t.Errorf("books %+v", r.Books.Entries)
	}
	for _, n := range r.Notes {
		if strings.Contains(n, "were lost") {
			t.Errorf("a goodbye was taken for a loss: %s", n)
		}
	}
}

func checkProgram(t *testing.T, r *report.Report) {
	if sent := count(r, "sent"); sent < 20 || count(r, "progress told") != 20*sent || count(r, "callbacks") != sent || counts(r)["Callback"] != sent {
		t.Errorf("books %+v, channels %v", r.Books.Entries, counts(r))
	}
}

func checkIdle(t *testing.T, r *report.Report) {
	if r.Idle.Connections != 100 || r.Idle.Goroutines <= 0 || count(r, "sent") != 0 {
		t.Errorf("idle %+v", r.Idle)
	}
}

func checkMixed(t *testing.T, r *report.Report) {
	n := counts(r)
	if n["WebSocket"] < 100 || n["HTTP"] < 30 || n["Callback"] < 30 || count(r, "FAILED") == 0 || count(r, "callbacks") != count(r, "callbacks due") {
		t.Errorf("books %+v, channels %v", r.Books.Entries, n)
	}
}

func checkWait(t *testing.T, r *report.Report) {
	if n := counts(r); len(n) != 1 || n["HTTP with wait"] != count(r, "sent") || count(r, "COMPLETED") != count(r, "sent") || count(r, "sent") < 50 {
		t.Errorf("books %+v, channels %v", r.Books.Entries, n)
	}
}

func checkBatch(t *testing.T, r *report.Report) {
	near(t, "sent", float64(count(r, "sent")), 400, 0.5)
	if n := counts(r); n["HTTP"] != count(r, "sent") || n["Callback"] != count(r, "sent") {
		t.Errorf("books %+v, channels %v", r.Books.Entries, n)
	}
}

// A run that sends nothing is reported too when somebody ends it.
func TestInterruptedSilence(t *testing.T) {
	_, url := startGateway(t)
	s, err := readScenario(t, `{fleet: {edges: 2, devices: 3}, idle: {connections: 20, silence: 1h}}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rep, err := loadgen.Run(ctx, loadgen.Options{URL: url, Scenario: s, Loops: 1, Log: slog.New(slog.DiscardHandler), Live: func(line string) {
		if strings.Contains(line, "silence for") {
			cancel()
		}
	}})
	if err != nil || !rep.Books.Balanced || rep.Idle != nil || !strings.Contains(strings.Join(rep.Notes, "\n"), "interrupted") {
		t.Errorf("%v, %+v", err, rep)
	}
	if took := time.Since(rep.Start); took > patience {
		t.Errorf("it took %s", took)
	}
}
