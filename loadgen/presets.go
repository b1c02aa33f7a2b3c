package loadgen

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

//go:embed scenarios/*.yaml
var presets embed.FS

// Presets lists the names of the scenarios that are built in.
func Presets() []string {
	files, err := fs.Glob(presets, "scenarios/*.yaml")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return files
}

// ReadScenario reads a scenario by the name of a preset or from a YAML file: what ends
// in .yaml or .yml or has a slash is a file.
func ReadScenario(name string) (s Scenario, err error) {
	var text []byte
	if strings.ContainsAny(name, "/") || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		text, err = readFile(name)
	} else {
		text, err = presets.ReadFile("scenarios/" + name + ".yaml")
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no scenario %q: there are %s, and files that end in .yaml", name, strings.Join(Presets(), ", "))
		}
	}
	if err != nil {
		return s, err
	}
	if err := yaml.UnmarshalWithOptions(text, &s, yaml.Strict()); err != nil {
		return s, fmt.Errorf("scenario %s: %s", name, yaml.FormatError(err, false, true))
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(path.Base(name), path.Ext(name))
	}
	return s, nil
}

// readFile reads a scenario's file, of which there may be fileMax bytes.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err == nil && len(text) > fileMax {
		err = fmt.Errorf("scenario %s: more than %d bytes", name, fileMax)
	}
	return text, err
}

// parameters is the scenario as its file would say it, but for what it says about itself:
// flags may have changed the rest.
func (s *Scenario) parameters() map[string]any {
	text, err := yaml.Marshal(s)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	m := map[string]any{}
	if err := yaml.Unmarshal(text, &m); err != nil {
		panic("BUG: " + err.Error())
	}
	delete(m, "about")
	return m
}

// Bounds of a scenario.
const (
	edgesMax    = 20_000
	devicesMax  = 2_000_000 // of all edges
	directMax   = 500_000
	backendsMax = 1_000
	rateMax     = 1e6
	payloadMax  = 900_000 // fits a message of 1 MiB
	phasesMax   = 1_000
	progressMax = 1_000
	longest     = 24 * time.Hour
	fileMax     = 64 << 10 // bytes of a scenario: the reader of YAML takes the square of what is nested
	stepsMax    = 1_000    // of a ramp, and storms
	// registerMax bounds the devices of one edge: their snapshot is one message of 1 MiB.
	registerMax = 30_000
)

// Complete fills in the defaults and judges the scenario; the error says what is wrong.
func (s *Scenario) Complete() error {
	setDefault(&s.Fleet.Prefix, "lg")
	setDefault(&s.Fleet.Reconnect, time.Second)
	setDefault(&s.Load.Type, "SET_BRIGHTNESS")
	setDefault(&s.Load.Timeout, 10*time.Second)
	setDefault(&s.HTTP.Batch, 1)
	if s.HTTP.Rate > 0 {
		setDefault(&s.HTTP.Workers, 64)
	}
	if s.callsBack() {
		setDefault(&s.Drain, 40*time.Second) // three attempts of 10 s, and the pauses between them
	}
	setDefault(&s.Drain, 5*time.Second)
	s.Devices.DelayMax = max(s.Devices.DelayMax, s.Devices.Delay)
	for i := range s.Phases {
		setDefault(&s.Phases[i].Factor, 1)
	}
	if len(s.Customers) == 0 {
		s.Customers = []Customer{{Name: "customer", Share: 1}}
	}
	if s.Storm != nil {
		setDefault(&s.Storm.Share, 1)
		setDefault(&s.Storm.Repeat, 1)
		setDefault(&s.Storm.Every, 5*time.Second)
		setDefault(&s.Storm.Within, time.Minute)
	}
	if s.Ramp != nil {
		setDefault(&s.Ramp.Factor, 1.25)
		setDefault(&s.Ramp.Step, 5*time.Second)
		setDefault(&s.Ramp.P99, 50*time.Millisecond)
		setDefault(&s.Ramp.To, 200_000)
	}
	if s.Idle != nil {
		setDefault(&s.Idle.Connections, 10_000)
		setDefault(&s.Idle.Silence, 10*time.Second)
	}
	return s.judge()
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// judge says what is wrong with a completed scenario.
func (s *Scenario) judge() error {
	f, l := &s.Fleet, &s.Load
	devices := f.Edges*f.Devices + f.Direct
	type rule struct {
		bad  bool
		text string
	}
	for _, r := range []rule{
		{f.Edges < 0 || f.Edges > edgesMax, fmt.Sprintf("fleet.edges: 0 to %d", edgesMax)},
		{f.Devices < 0 || f.Devices > registerMax, fmt.Sprintf("fleet.devices: 0 to %d of each edge (they register in one message)", registerMax)},
		{f.Edges*f.Devices > devicesMax, fmt.Sprintf("fleet: at most %d devices", devicesMax)},
		{f.Direct < 0 || f.Direct > directMax, fmt.Sprintf("fleet.direct: 0 to %d", directMax)},
		{f.Backends < 0 || f.Backends > backendsMax, fmt.Sprintf("fleet.backends: 0 to %d", backendsMax)},
		{f.Sources < 0 || f.Sources > 254, "fleet.sources: 0 to 254"},
		{!goodPrefix(f.Prefix), "fleet.prefix: 1 to 40 characters of A-Z a-z 0-9 . _ : -"},
		{f.Reconnect < 0 || f.Reconnect > longest, "fleet.reconnect: 0s to 24h"},
		{!isRate(l.Rate), fmt.Sprintf("load.rate: 0 to %g", rateMax)},
		{!isRate(s.HTTP.Rate), fmt.Sprintf("http.rate: 0 to %g", rateMax)},
		{l.Window < 0 || l.Window > 100_000, "load.window: 0 to 100000"},
		{l.Payload < 0 || l.Payload > payloadMax, fmt.Sprintf("load.payload: 0 to %d bytes", payloadMax)},
		{!plain(l.Type), "load.type: 1 to 64 characters that need no escape in JSON"},
		{l.Timeout < time.Millisecond || l.Timeout > 24*time.Hour, "load.timeout: 1ms to 24h"},
		{!isShare(l.High) || !isShare(l.Low) || l.High+l.Low > 1, "load.high, load.low: shares, together at most 1"},
		{!isShare(l.Callbacks), "load.callbacks: a share, 0 to 1"},
		{s.HTTP.Workers < 0 || s.HTTP.Workers > 10_000, "http.workers: 0 to 10000"},
		{s.HTTP.Wait%time.Millisecond != 0, "http.wait: whole milliseconds"},
		{s.HTTP.Wait < 0 || s.HTTP.Wait > time.Minute, "http.wait: at most 60s"},
		{s.HTTP.Batch < 1 || s.HTTP.Batch > 1000, "http.batch: 1 to 1000"},
		{s.HTTP.Batch > 1 && s.HTTP.Wait > 0, "http: a batch cannot wait"},
		{s.Devices.Progress < 0 || s.Devices.Progress > progressMax, fmt.Sprintf("devices.progress: 0 to %d", progressMax)},
		{s.Warmup < 0 || s.Drain < 0 || s.Warmup > longest || s.Drain > longest, "warmup, drain: 0s to 24h"},
		{s.Devices.Delay < 0 || s.Devices.DelayMax > time.Hour, "devices.delay: 0s to 1h"},
		{!isShare(s.Devices.Fail) || !isShare(s.Devices.Dead), "devices.fail, devices.dead: shares, 0 to 1"},
		{(l.Rate > 0 || l.Window > 0 || s.Ramp != nil) && f.Backends == 0, "load: fleet.backends must be at least 1, they send it"},
		{s.sends() && devices == 0, "fleet: there is no device to send to"},
		{len(s.Phases) > phasesMax, fmt.Sprintf("phases: at most %d", phasesMax)},
		{len(s.Phases) == 0 && s.Ramp == nil && s.Idle == nil && s.Storm == nil, "phases: none; say how long the run lasts"},
		{len(s.Customers) > 100, "customers: at most 100"},
	} {
		if r.bad {
			return errors.New(r.text)
		}
	}
	if err := s.judgeParts(); err != nil {
		return err
	}
	return s.judgeEvents()
}

// judgeParts judges what there are several of.
func (s *Scenario) judgeParts() error {
	shares := 0.0
	for i, p := range s.Phases {
		if p.For <= 0 || !(p.Factor >= 0 && p.Factor <= 1000) {
			return fmt.Errorf("phases[%d]: for must be more than 0, factor 0 to 1000", i)
		}
	}
	for i, c := range s.Customers {
		if c.Name == "" || !goodPrefix(c.Name) || !isShare(c.Share) || !isShare(c.Refuse) || c.Delay < 0 || c.Delay > time.Minute {
			return fmt.Errorf("customers[%d]: a name, a share and refuse of 0 to 1, a delay up to 1m", i)
		}
		shares += c.Share
	}
	if shares > 1+1e-9 {
		return fmt.Errorf("customers: their shares are %g together, at most 1", shares)
	}
	return nil
}

// judgeEvents judges what happens beside or instead of phases, and what cannot go together.
func (s *Scenario) judgeEvents() error {
	switch {
	case s.Ramp != nil && s.Storm != nil:
		return errors.New("ramp: not with a storm")
	case s.Idle != nil && (s.Ramp != nil || s.Storm != nil || s.Churn != nil || s.Slow != nil):
		return errors.New("idle: not with ramp, storm, churn or slow")
	case s.Slow != nil && s.Slow.Bytes < 1:
		return errors.New("slow.bytes: at least 1 per second")
	case s.Slow != nil && (s.Slow.Edges < 0 || s.Slow.Backends < 0 || s.Slow.Edges+s.Slow.Backends > 100):
		return errors.New("slow: at most 100 edges and backends")
	case s.Churn != nil && (!isRate(s.Churn.Rate) || s.Churn.Rate == 0 || s.Churn.Rate > 100_000 || s.Churn.Away <= 0):
		return errors.New("churn: rate and away must be more than 0, rate at most 100000")
	case s.Churn != nil && s.Fleet.Edges*s.Fleet.Devices+s.Fleet.Direct == 0:
		return errors.New("churn: there is no device to leave")
	case s.Idle != nil && (s.Idle.Connections < 1 || s.Idle.Connections > directMax || s.Idle.Silence <= 0):
		return fmt.Errorf("idle: connections 1 to %d, silence more than 0s", directMax)
	case s.Ramp != nil:
		return s.judgeRamp()
	case s.Storm != nil:
		return s.judgeStorm()
	}
	return nil
}

func (s *Scenario) judgeRamp() error {
	r := s.Ramp
	switch {
	case r.From <= 0 || !isRate(r.From) || !isRate(r.To) || r.To < r.From || !(r.Factor > 1) || math.IsInf(r.Factor, 1):
		return fmt.Errorf("ramp: from > 0, factor > 1, to at least from and at most %g", rateMax)
	case r.Step <= 0 || r.P99 <= 0:
		return errors.New("ramp: step and p99 must be more than 0s")
	case math.Log(r.To/r.From)/math.Log(r.Factor) > stepsMax:
		return fmt.Errorf("ramp.factor: it takes more than %d steps from %g to %g", stepsMax, r.From, r.To)
	case s.Load.Window > 0:
		return errors.New("ramp: raises a rate, load.window is a closed loop")
	}
	return nil
}

func (s *Scenario) judgeStorm() error {
	f, storm := &s.Fleet, s.Storm
	switch {
	case !isShare(storm.Share):
		return errors.New("storm.share: 0 to 1")
	case storm.Repeat < 1 || storm.Repeat > stepsMax:
		return fmt.Errorf("storm.repeat: 1 to %d", stepsMax)
	case storm.Every <= 0 || storm.Within <= 0:
		return errors.New("storm.every, storm.within: more than 0s")
	}
	calm := (f.Edges-storm.takes(f.Edges))*f.Devices + f.Direct - storm.takes(f.Direct)
	if s.Load.Calm && s.sends() && calm == 0 {
		return errors.New("load.calm: the storm takes every device, none is left to send to")
	}
	return nil
}

// sends reports whether the scenario sends commands at all.
func (s *Scenario) sends() bool {
	return s.Load.Rate > 0 || s.Load.Window > 0 || s.HTTP.Workers > 0 || s.Ramp != nil
}

// callsBack reports whether any command has a callback.
func (s *Scenario) callsBack() bool {
	return s.Load.Callbacks > 0 || s.HTTP.Workers > 0 && s.HTTP.Wait == 0
}

// isShare and isRate are false for NaN, which YAML and flags can say.
func isShare(v float64) bool { return v >= 0 && v <= 1 }
func isRate(v float64) bool  { return v >= 0 && v <= rateMax }

// plain says whether a word may stand in a message as it is.
func plain(s string) bool {
	return len(s) > 0 && len(s) <= 64 && utf8.ValidString(s) && strconv.Quote(s) == `"`+s+`"`
}

func goodPrefix(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= 40
}
