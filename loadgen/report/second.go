package report

import (
	"fmt"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// maxPoints bounds the series: a day of seconds. Beyond it pairs are merged, so that a
// point stands for two seconds, then four.
const maxPoints = 86_400

// Second is what happened in a second of the run (or in the longer or shorter stretch
// that LengthSeconds says). Counts are counts, not rates.
type Second struct {
	AtSeconds         float64 `json:"atSeconds"`     // its end, since the start of the run
	LengthSeconds     float64 `json:"lengthSeconds"` // how long it was
	Sent              int64   `json:"sent"`          // commands sent
	Done              int64   `json:"done"`          // commands that ended, errors among them
	Errors            int64   `json:"errors"`        // commands that ended with an error
	InFlight          int64   `json:"inFlight"`      // sent and not done, at its end
	Callbacks         int64   `json:"callbacks"`     // final callbacks that came
	CallbackErrors    int64   `json:"callbackErrors"`
	P50Ms             float64 `json:"p50Ms"` // of the commands done in it; 0 without any
	P99Ms             float64 `json:"p99Ms"`
	GeneratorCPUShare Share   `json:"generatorCpuShare"`
	GatewayCPUShare   Share   `json:"gatewayCpuShare"`
}

// Tick closes the second that ends now (nanoseconds since the start, as the clock's) and
// begins the next. A call late or early makes a longer or shorter one. A call with no
// time passed since the last one returns a Second of no length and is not in the series.
func (r *Recorder) Tick(now int64) Second {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.closeLocked(now)
	if s.LengthSeconds > 0 {
		r.series.add(s)
	}
	return s
}

// closeLocked makes the Second since the last one, and counts it everywhere but in the
// series. Without time passed it leaves all for the next.
func (r *Recorder) closeLocked(now int64) Second {
	length := float64(now-r.lastTick) / 1e9
	if length <= 0 {
		at := float64(r.lastTick) / 1e9
		return Second{AtSeconds: at, InFlight: r.inFlightLocked(), GeneratorCPUShare: unknown, GatewayCPUShare: unknown}
	}
	s := r.collectLocked()
	s.AtSeconds, s.LengthSeconds = round(float64(now)/1e9, 3), round(length, 3)
	s.InFlight = r.inFlightLocked()
	s.P50Ms = toMs(valueAt(r.second, 50))
	s.P99Ms = toMs(valueAt(r.second, 99))
	cpu := r.cpu()
	s.GeneratorCPUShare = Share(float64(cpu-r.lastCPU) / 1e9 / length / r.cores)
	s.GatewayCPUShare = r.gate.share
	r.gate.share = unknown // a reading tells of one second
	r.busy.add(s.GeneratorCPUShare, length)
	r.gateShares.add(s.GatewayCPUShare, length)
	r.lastTick, r.lastCPU = now, cpu
	if s.Sent > 0 {
		r.lastSent = now
	}
	r.phase.add(s, r.second)
	return s
}

// Line is the live line of the second, without a line break.
func (s Second) Line() string {
	var b strings.Builder
	per := max(s.LengthSeconds, 1e-9)
	if s.LengthSeconds == 0 {
		per = 1
	}
	fmt.Fprintf(&b, "%4.0fs  %s/s sent  %s/s done  %s in flight", s.AtSeconds,
		rateText(float64(s.Sent)/per), rateText(float64(s.Done)/per), group(s.InFlight))
	if s.Done > 0 {
		fmt.Fprintf(&b, "  p50 %s  p99 %s", msText(s.P50Ms, 2), msText(s.P99Ms, 2))
	} else {
		b.WriteString("  p50 -  p99 -")
	}
	fmt.Fprintf(&b, "  errors %s", group(s.Errors))
	if s.Callbacks > 0 {
		fmt.Fprintf(&b, "  callbacks %s/s", rateText(float64(s.Callbacks)/per))
	}
	if s.CallbackErrors > 0 {
		fmt.Fprintf(&b, " (%s errors)", group(s.CallbackErrors))
	}
	if s.GeneratorCPUShare.Known() {
		fmt.Fprintf(&b, "  generator %.0f %%", 100*s.GeneratorCPUShare)
	}
	if s.GatewayCPUShare.Known() {
		fmt.Fprintf(&b, "  gateway %.0f %%", 100*s.GatewayCPUShare)
	}
	return b.String()
}

// series keeps the seconds within maxPoints.
type series struct {
	points   []Second
	perPoint int // seconds that a point stands for; 0 is 1
	open     Second
	inOpen   int
}

func (s *series) add(x Second) {
	s.perPoint = max(s.perPoint, 1)
	if s.inOpen == 0 {
		s.open = x
	} else {
		s.open = merge(s.open, x)
	}
	if s.inOpen++; s.inOpen < s.perPoint {
		return
	}
	s.points, s.inOpen = append(s.points, s.open), 0
	if len(s.points) == maxPoints {
		s.points = mergeRuns(s.points, 2)
		s.perPoint *= 2
	}
}

// addToLast is for a rest too short to be a point of its own.
func (s *series) addToLast(x Second) {
	switch {
	case s.inOpen > 0:
		s.open = merge(s.open, x)
	case len(s.points) > 0:
		s.points[len(s.points)-1] = merge(s.points[len(s.points)-1], x)
	default:
		s.add(x)
	}
}

func (s *series) all() []Second {
	out := append([]Second(nil), s.points...)
	if s.inOpen > 0 {
		out = append(out, s.open)
	}
	return out
}

// mergeRuns merges each n points into one.
func mergeRuns(points []Second, n int) []Second {
	out := make([]Second, 0, len(points)/n+1)
	for i := 0; i < len(points); i += n {
		m := points[i]
		for _, p := range points[i+1 : min(i+n, len(points))] {
			m = merge(m, p)
		}
		out = append(out, m)
	}
	return out
}

// merge makes one Second of two that follow each other. There are no histograms left to
// merge, so p99 is the worse of the two and p50 their mean by commands done.
func merge(a, b Second) Second {
	m := b
	m.LengthSeconds = round(a.LengthSeconds+b.LengthSeconds, 3)
	m.Sent, m.Done, m.Errors = a.Sent+b.Sent, a.Done+b.Done, a.Errors+b.Errors
	m.Callbacks, m.CallbackErrors = a.Callbacks+b.Callbacks, a.CallbackErrors+b.CallbackErrors
	m.P99Ms = max(a.P99Ms, b.P99Ms)
	if m.Done > 0 {
		m.P50Ms = round((a.P50Ms*float64(a.Done)+b.P50Ms*float64(b.Done))/float64(m.Done), 3)
	}
	m.GeneratorCPUShare = mergeShare(a.GeneratorCPUShare, a.LengthSeconds, b.GeneratorCPUShare, b.LengthSeconds)
	m.GatewayCPUShare = mergeShare(a.GatewayCPUShare, a.LengthSeconds, b.GatewayCPUShare, b.LengthSeconds)
	return m
}

func mergeShare(a Share, aLength float64, b Share, bLength float64) Share {
	switch {
	case !a.Known():
		return b
	case !b.Known() || aLength+bLength <= 0:
		return a
	}
	return Share((float64(a)*aLength + float64(b)*bLength) / (aLength + bLength))
}

// Phase is what happened between two calls of [Recorder.Phase]: a step of a ramp, or the
// load during a storm.
type Phase struct {
	Seconds            float64
	Sent, Done, Errors int64
	P50Ms, P99Ms       float64 // of the commands done in it; 0 without any
}

// phase collects the open Phase from whole seconds.
type phase struct {
	started int64
	sum     Phase
	latency *hdr.Histogram
}

func (p *phase) add(s Second, commands *hdr.Histogram) {
	p.sum.Sent, p.sum.Done, p.sum.Errors = p.sum.Sent+s.Sent, p.sum.Done+s.Done, p.sum.Errors+s.Errors
	p.latency.Merge(commands)
}

// Phase tells of the commands of the seconds that were closed since the last call (or the
// start) and begins the next phase. Call it right after a Tick.
func (r *Recorder) Phase() Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.phase.sum
	p.Seconds = float64(r.lastTick-r.phase.started) / 1e9
	p.P50Ms = toMs(valueAt(r.phase.latency, 50))
	p.P99Ms = toMs(valueAt(r.phase.latency, 99))
	r.phase.latency.Reset()
	r.phase.started, r.phase.sum = r.lastTick, Phase{}
	return p
}
