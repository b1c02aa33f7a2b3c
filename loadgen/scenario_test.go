package loadgen_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"subway/loadgen"
)

// Every preset is complete, and is the same after it was shown and read again.
func TestPresets(t *testing.T) {
	want := "churn connect-storm idle mixed program ramp reconnect-storm slow-consumer steady"
	if got := strings.Join(loadgen.Presets(), " "); got != want {
		t.Errorf("presets %q, want %q", got, want)
	}
	for _, name := range loadgen.Presets() {
		s, err := loadgen.ReadScenario(name)
		if err == nil {
			err = s.Complete()
		}
		if err != nil || s.Name != name || s.About == "" {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
		text, err := yaml.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readScenario(t, string(text))
		if err == nil {
			err = again.Complete()
		}
		text2, err2 := yaml.Marshal(again)
		if err != nil || err2 != nil || string(text2) != string(text) {
			t.Errorf("%s: %v, %v\n%s\nbecame\n%s", name, err, err2, text, text2)
		}
	}
}

func readScenario(t *testing.T, text string) (loadgen.Scenario, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return loadgen.ReadScenario(file)
}

// A file is read strictly, and the error says what is wrong.
func TestScenarioFiles(t *testing.T) {
	for text, want := range map[string]string{
		"fleet: {edges: 2}":              "",
		"fleet: {egdes: 2}":              "egdes",
		"lode: {rate: 2}":                "lode",
		"storm: {share: 1, repaet: 2}":   "repaet",
		"fleet: {edges: many}":           "many",
		"phases: [{for: soon}]":          "soon",
		"load: {rate: 1}\nload: {}":      "load",
		"customers: {name: a, share: 1}": "customers",
		"phases: [":                      "phases",
	} {
		s, err := readScenario(t, text)
		switch {
		case want == "" && (err != nil || s.Name != "mine" || s.Fleet.Edges != 2):
			t.Errorf("%q: %v, %+v", text, err, s)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
	for _, name := range []string{"nothing", "./nothing.yaml", "../loadgen/run_test.go", "", "/dev/zero"} {
		if _, err := loadgen.ReadScenario(name); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

type badScenario struct {
	want   string // in the error
	change func(s *loadgen.Scenario)
}

var badScenarios = []badScenario{
	{"phases: none", func(s *loadgen.Scenario) { s.Phases = nil }},
	{"phases: at most", func(s *loadgen.Scenario) { s.Phases = make([]loadgen.Phase, 1001) }},
	{"phases[0]", func(s *loadgen.Scenario) { s.Phases[0].For = 0 }},
	{"phases[0]", func(s *loadgen.Scenario) { s.Phases[0].Factor = math.NaN() }},
	{"fleet.backends", func(s *loadgen.Scenario) { s.Fleet.Backends = 0 }},
	{"fleet.backends", func(s *loadgen.Scenario) { s.Fleet.Backends = 1001 }},
	{"no device", func(s *loadgen.Scenario) { s.Fleet.Edges = 0 }},
	{"fleet.edges", func(s *loadgen.Scenario) { s.Fleet.Edges = -1 }},
	{"fleet.devices", func(s *loadgen.Scenario) { s.Fleet.Devices = 1e6 }},
	{"fleet: at most", func(s *loadgen.Scenario) { s.Fleet.Edges, s.Fleet.Devices = 20_000, 20_000 }},
	{"fleet.direct", func(s *loadgen.Scenario) { s.Fleet.Direct = -1 }},
	{"fleet.sources", func(s *loadgen.Scenario) { s.Fleet.Sources = 255 }},
	{"fleet.reconnect", func(s *loadgen.Scenario) { s.Fleet.Reconnect = -1 }},
	{"fleet.prefix", func(s *loadgen.Scenario) { s.Fleet.Prefix = "a b" }},
	{"load.rate", func(s *loadgen.Scenario) { s.Load.Rate = -1 }},
	{"load.rate", func(s *loadgen.Scenario) { s.Load.Rate = math.NaN() }},
	{"http.rate", func(s *loadgen.Scenario) { s.HTTP.Rate = math.Inf(1) }},
	{"load.window", func(s *loadgen.Scenario) { s.Load.Window = -1 }},
	{"load.type", func(s *loadgen.Scenario) { s.Load.Type = "a\"b" }},
	{"load.type", func(s *loadgen.Scenario) { s.Load.Type = "\x01" }},
	{"load.high", func(s *loadgen.Scenario) { s.Load.High, s.Load.Low = 0.7, 0.7 }},
	{"load.callbacks", func(s *loadgen.Scenario) { s.Load.Callbacks = 1.5 }},
	{"load.payload", func(s *loadgen.Scenario) { s.Load.Payload = 1 << 20 }},
	{"load.timeout", func(s *loadgen.Scenario) { s.Load.Timeout = time.Microsecond }},
	{"http: a batch", func(s *loadgen.Scenario) { s.HTTP.Batch, s.HTTP.Wait = 2, time.Second }},
	{"http.batch", func(s *loadgen.Scenario) { s.HTTP.Batch = 1001 }},
	{"http.workers", func(s *loadgen.Scenario) { s.HTTP.Workers = -1 }},
	{"http.wait", func(s *loadgen.Scenario) { s.HTTP.Wait = time.Hour }},
	{"devices.progress", func(s *loadgen.Scenario) { s.Devices.Progress = -1 }},
	{"devices.delay", func(s *loadgen.Scenario) { s.Devices.Delay = -1 }},
	{"devices.fail", func(s *loadgen.Scenario) { s.Devices.Fail = 2 }},
	{"drain", func(s *loadgen.Scenario) { s.Drain = math.MaxInt64 }},
	{"fleet.reconnect", func(s *loadgen.Scenario) { s.Fleet.Reconnect = math.MaxInt64 }},
	{"http.wait: whole", func(s *loadgen.Scenario) { s.HTTP.Wait = 1 }},
	{"warmup", func(s *loadgen.Scenario) { s.Warmup = -1 }},
	{"ramp: from", func(s *loadgen.Scenario) { s.Ramp = &loadgen.Ramp{} }},
	{"ramp: step", func(s *loadgen.Scenario) { s.Ramp = &loadgen.Ramp{From: 1, Step: -1} }},
	{"ramp.factor", func(s *loadgen.Scenario) { s.Ramp = &loadgen.Ramp{From: 1, Factor: 1.0001} }},
	{"load.window", func(s *loadgen.Scenario) { s.Ramp, s.Load.Window = &loadgen.Ramp{From: 1}, 1 }},
	{"fleet.backends", func(s *loadgen.Scenario) {
		s.Ramp, s.Load.Rate, s.Fleet.Backends = &loadgen.Ramp{From: 1}, 0, 0
	}},
	{"ramp: not with", func(s *loadgen.Scenario) { s.Ramp, s.Storm = &loadgen.Ramp{From: 1}, &loadgen.Storm{} }},
	{"slow.bytes", func(s *loadgen.Scenario) { s.Slow = &loadgen.Slow{Edges: 1} }},
	{"slow: at most", func(s *loadgen.Scenario) { s.Slow = &loadgen.Slow{Edges: 101, Bytes: 1} }},
	{"churn: rate", func(s *loadgen.Scenario) { s.Churn = &loadgen.Churn{} }},
	{"churn: rate", func(s *loadgen.Scenario) { s.Churn = &loadgen.Churn{Rate: math.NaN(), Away: 1} }},
	{"churn: there is no device", func(s *loadgen.Scenario) {
		*s = loadgen.Scenario{Churn: &loadgen.Churn{Rate: 1, Away: 1}, Phases: s.Phases}
	}},
	{"storm.share", func(s *loadgen.Scenario) { s.Storm = &loadgen.Storm{Share: 2} }},
	{"storm.repeat", func(s *loadgen.Scenario) { s.Storm = &loadgen.Storm{Repeat: -1} }},
	{"storm.every", func(s *loadgen.Scenario) { s.Storm = &loadgen.Storm{Every: -1} }},
	{"load.calm", func(s *loadgen.Scenario) { s.Storm, s.Load.Calm = &loadgen.Storm{}, true }},
	{"idle: connections", func(s *loadgen.Scenario) { s.Idle = &loadgen.Idle{Connections: -200} }},
	{"idle: not with", func(s *loadgen.Scenario) { s.Idle, s.Churn = &loadgen.Idle{}, &loadgen.Churn{Rate: 1, Away: 1} }},
	{"customers[0]: a name", func(s *loadgen.Scenario) { s.Customers = []loadgen.Customer{{}} }},
	{"customers: their shares", func(s *loadgen.Scenario) {
		s.Customers = []loadgen.Customer{{Name: "a", Share: 0.6}, {Name: "b", Share: 0.6}}
	}},
	{"customers: at most", func(s *loadgen.Scenario) { s.Customers = make([]loadgen.Customer, 101) }},
}

// What cannot be run is refused before anybody is connected, by the name of what is wrong.
func TestBadScenarios(t *testing.T) {
	for _, bad := range badScenarios {
		s := small()
		bad.change(&s)
		refused(t, loadgen.Options{URL: "http://127.0.0.1:1", Scenario: s}, bad.want)
	}
	refused(t, loadgen.Options{URL: "ws://127.0.0.1:1/ws", Scenario: small()}, "want http://HOST:PORT")
	refused(t, loadgen.Options{URL: "http://127.0.0.1:1", Scenario: small(), Loops: 1000}, "event loops")
}

func refused(t *testing.T, o loadgen.Options, want string) {
	t.Helper()
	_, err := loadgen.Run(context.Background(), o)
	if !errors.Is(err, loadgen.ErrOptions) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
