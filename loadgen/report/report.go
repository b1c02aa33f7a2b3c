package report

import (
	"encoding/json"
	"io"
	"time"
)

const (
	maxRows     = 50  // of a table, in text and HTML
	maxTextList = 10  // mismatches and notes in text, which is to stay a page
	maxList     = 25  // mismatches and notes in HTML
	maxText     = 300 // bytes of a text from elsewhere, in text and HTML
)

// Report is what a run measured. [Recorder.Report] fills what the Recorder knows; Steps,
// Knee, Storms, Idle, Notes and Books are the scenario's to add. Its JSON is stable:
// members are added, none is renamed. It may be written from one goroutine at a time.
type Report struct {
	Scenario        string    `json:"scenario"`
	Parameters      any       `json:"parameters"`      // what the scenario was given; must be fit for JSON
	Seed            uint64    `json:"seed,string"`     // a string, as JSON readers round numbers beyond 2^53
	Start           time.Time `json:"start"`           // wall clock
	DurationSeconds float64   `json:"durationSeconds"` // up to the last answer that was waited for
	SendingSeconds  float64   `json:"sendingSeconds"`  // how long commands were sent

	Gateway   Gateway   `json:"gateway"`
	Generator Generator `json:"generator"`
	Rates     Rates     `json:"rates"`

	Channels []Distribution `json:"channels"` // those with a command or callback, in the order of Channel
	Errors   []ErrorCount   `json:"errors"`   // most frequent first within a channel
	Series   []Second       `json:"series"`   // a second each, or 2, 4, ... in a run of more than a day

	Steps  []Step   `json:"steps,omitempty"` // of a ramp, in order
	Knee   *Knee    `json:"knee,omitempty"`  // absent too where no step failed, or the first did
	Storms []Storm  `json:"storms,omitempty"`
	Idle   *Idle    `json:"idle,omitempty"`
	Notes  []string `json:"notes,omitempty"` // what the reader should know: "file limit raised to 65536"
	Books  *Books   `json:"books,omitempty"` // absent: no books were kept
}

// Gateway is what is known about the other side. What it did not tell is 0 and absent.
type Gateway struct {
	URL                   string  `json:"url"`
	Version               string  `json:"version,omitempty"`
	Cores                 float64 `json:"cores,omitempty"`           // that it may use; its shares are of them
	CPUSeconds            float64 `json:"cpuSeconds,omitempty"`      // used during the run
	CPUUsPerCommand       float64 `json:"cpuUsPerCommand,omitempty"` // CPU microseconds for each command done
	AllocationsPerCommand float64 `json:"allocationsPerCommand,omitempty"`
	RSSBytes              int64   `json:"rssBytes,omitempty"` // resident memory at the end
	CPUShareMean          Share   `json:"cpuShareMean"`
	CPUShareMax           Share   `json:"cpuShareMax"` // of a second
}

// Generator is what is known about this side, and whether it was in the way.
type Generator struct {
	Cores        float64 `json:"cores"` // that it may use; its shares are of them
	CPUSeconds   float64 `json:"cpuSeconds"`
	CPUShareMean Share   `json:"cpuShareMean"`
	CPUShareMax  Share   `json:"cpuShareMax"` // of a second
	BusySeconds  float64 `json:"busySeconds"` // seconds with a share above 0.9
	LateCount    int64   `json:"lateCount"`   // sends whose lateness was told
	LateP50Ms    float64 `json:"lateP50Ms"`   // after the intended instant
	LateP99Ms    float64 `json:"lateP99Ms"`
	LateMaxMs    float64 `json:"lateMaxMs"`
	Bottleneck   bool    `json:"bottleneck"` // the figures are about it, not the gateway
	Why          string  `json:"why"`        // by which rule, or that by none
}

// Rates are commands per second while commands were sent.
type Rates struct {
	IntendedPerSecond float64 `json:"intendedPerSecond,omitempty"` // absent for a closed loop
	SentPerSecond     float64 `json:"sentPerSecond"`
	NotSentPerSecond  float64 `json:"notSentPerSecond,omitempty"` // due, and there was no connection to send it on
	DonePerSecond     float64 `json:"donePerSecond"`
}

// ErrorCount is how often commands of a channel ended with a code.
type ErrorCount struct {
	Channel Channel `json:"channel"`
	Code    string  `json:"code"`
	Count   int64   `json:"count"`
	Share   float64 `json:"share"` // of the commands done, or callbacks that came, on the channel
}

// Step is one rate of a ramp.
type Step struct {
	RatePerSecond     float64 `json:"ratePerSecond"`     // intended
	AchievedPerSecond float64 `json:"achievedPerSecond"` // done
	P50Ms             float64 `json:"p50Ms"`
	P99Ms             float64 `json:"p99Ms"`
	Errors            int64   `json:"errors"`
	Passed            bool    `json:"passed"`
}

// Knee is the last step that passed before the first that did not.
type Knee struct {
	RatePerSecond float64 `json:"ratePerSecond"`
	P99Ms         float64 `json:"p99Ms"`
	BoundP99Ms    float64 `json:"boundP99Ms"` // what p99 had to stay within
}

// FindKnee finds it, nil where no step failed or the first did.
func FindKnee(steps []Step, boundP99Ms float64) *Knee {
	for i, s := range steps {
		if s.Passed {
			continue
		}
		if i == 0 {
			return nil
		}
		return &Knee{RatePerSecond: steps[i-1].RatePerSecond, P99Ms: steps[i-1].P99Ms, BoundP99Ms: boundP99Ms}
	}
	return nil
}

// Storm is many connections coming at once.
type Storm struct {
	Name           string  `json:"name"`
	Connections    int64   `json:"connections"`
	Routes         int64   `json:"routes"`
	AllBackSeconds float64 `json:"allBackSeconds"`      // from the drop (or the start) until the last route is there
	Failures       int64   `json:"failures"`            // connections that did not come back
	LoadP99Ms      float64 `json:"loadP99Ms,omitempty"` // of the commands meanwhile; absent without load
}

// Idle is what connections cost that do nothing.
type Idle struct {
	Connections        int64   `json:"connections"`
	BytesPerConnection float64 `json:"bytesPerConnection"` // growth of the gateway's resident memory
	Goroutines         int64   `json:"goroutines"`         // of the gateway, with all of them there
	CPUShare           Share   `json:"cpuShare"`           // of the gateway, meanwhile
}

// Books is the verdict of the generator's own counting.
type Books struct {
	Balanced   bool     `json:"balanced"`
	Entries    []Entry  `json:"entries"`
	Mismatches []string `json:"mismatches"` // samples, in words
}

// Entry is one count in the books.
type Entry struct {
	Name    string `json:"name"`
	Count   int64  `json:"count"`
	OK      bool   `json:"ok"`
	Meaning string `json:"meaning"`
}

// About is what [Recorder.Report] has to be told.
type About struct {
	Scenario   string
	Parameters any
	Seed       uint64
	Start      time.Time
	// IntendedPerSecond is the mean rate that was to be sent; 0 for a closed loop.
	IntendedPerSecond float64
	// NotSentPerSecond is what of it could not be sent as the connection was gone, which
	// is not the generator's doing.
	NotSentPerSecond float64
	// Sending is how long commands were sent; 0: up to the last second with one in it.
	Sending time.Duration
	// Gateway is what the caller knows; CPUSeconds and CPUUsPerCommand are filled from
	// the readings given to GatewayCPU where they are 0.
	Gateway Gateway
}

// restSeconds is the least that makes a point of its own at the end of the series; a
// shorter rest would show rates and shares that are noise.
const restSeconds = 0.5

// Report closes what is open and tells all. It may be called again, and recording may go on.
func (r *Recorder) Report(about About) *Report {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.closeLocked(now); s.LengthSeconds >= restSeconds {
		r.series.add(s)
	} else if s.LengthSeconds > 0 {
		r.series.addToLast(s)
	}
	rep := &Report{
		Scenario: about.Scenario, Parameters: about.Parameters, Seed: about.Seed, Start: about.Start,
		DurationSeconds: round(float64(r.lastTick)/1e9, 3),
		SendingSeconds:  round(r.sendingLocked(about), 3),
		Series:          r.series.all(),
	}
	rep.Channels, rep.Errors = r.channelsLocked()
	rep.Rates = r.ratesLocked(about)
	rep.Gateway = r.gatewayLocked(about.Gateway)
	rep.Generator = r.generatorLocked()
	rep.judge()
	return rep
}

func (r *Recorder) sendingLocked(about About) float64 {
	if about.Sending > 0 {
		return about.Sending.Seconds()
	}
	return float64(r.lastSent) / 1e9
}

func (r *Recorder) ratesLocked(about About) Rates {
	var sent, done int64
	for c := range channels {
		if c.isCommand() {
			sent += r.total.channel[c].sent
			done += r.total.channel[c].latency.count
		}
	}
	rates := Rates{IntendedPerSecond: about.IntendedPerSecond, NotSentPerSecond: round(about.NotSentPerSecond, 1)}
	if seconds := r.sendingLocked(about); seconds > 0 {
		rates.SentPerSecond = round(float64(sent)/seconds, 1)
		rates.DonePerSecond = round(float64(done)/seconds, 1)
	}
	return rates
}

func (r *Recorder) gatewayLocked(g Gateway) Gateway {
	var done int64
	for c := range channels {
		if c.isCommand() {
			done += r.total.channel[c].latency.count
		}
	}
	if g.CPUSeconds == 0 {
		g.CPUSeconds = round(r.gate.used, 3)
	}
	if g.CPUUsPerCommand == 0 && done > 0 {
		g.CPUUsPerCommand = round(g.CPUSeconds*1e6/float64(done), 3)
	}
	g.CPUShareMean, g.CPUShareMax = r.gateShares.mean(), unknown
	if g.CPUShareMean.Known() {
		g.CPUShareMax, g.Cores = r.gateShares.max, r.gateCores
	}
	return g
}

func (r *Recorder) generatorLocked() Generator {
	late := &r.total.late
	g := Generator{
		Cores:        r.cores,
		CPUSeconds:   round(float64(r.lastCPU-r.firstCPU)/1e9, 3),
		CPUShareMean: r.busy.mean(),
		CPUShareMax:  unknown,
		BusySeconds:  round(r.busy.over, 3),
		LateCount:    late.count,
		LateP50Ms:    late.percentileMs(50),
		LateP99Ms:    late.percentileMs(99),
		LateMaxMs:    toMs(late.max),
	}
	if g.CPUShareMean.Known() {
		g.CPUShareMax = r.busy.max
	}
	return g
}

// WriteJSON writes the whole report as indented JSON. An error of the writer, or that
// Parameters are not fit for JSON.
func (rep *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(rep)
}
