package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		s    Second
		want string
	}{
		{Second{AtSeconds: 12, LengthSeconds: 1, Sent: 20000, Done: 19998, InFlight: 412, P50Ms: 0.41, P99Ms: 2.1, GeneratorCPUShare: 0.61, GatewayCPUShare: unknown},
			"  12s  20,000/s sent  19,998/s done  412 in flight  p50 0.41 ms  p99 2.1 ms  errors 0  generator 61 %"},
		{Second{AtSeconds: 86399, LengthSeconds: 2, Sent: 3, InFlight: 1234567, Errors: 5, Callbacks: 1000, CallbackErrors: 7, GeneratorCPUShare: unknown, GatewayCPUShare: 0.4},
			"86399s  1.5/s sent  0/s done  1,234,567 in flight  p50 -  p99 -  errors 5  callbacks 500/s (7 errors)  gateway 40 %"},
		{Second{GeneratorCPUShare: unknown, GatewayCPUShare: unknown}, "   0s  0/s sent  0/s done  0 in flight  p50 -  p99 -  errors 0"},
		{Second{AtSeconds: 3, LengthSeconds: 1, Done: 1, P50Ms: 0.033, P99Ms: 2134, GeneratorCPUShare: 0, GatewayCPUShare: unknown},
			"   3s  0/s sent  1/s done  0 in flight  p50 0.033 ms  p99 2.1 s  errors 0  generator 0 %"},
	} {
		if got := c.s.Line(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestTick(t *testing.T) {
	l := newLab()
	s, completed := l.Shard(), l.Code("COMPLETED")
	l.GatewayCPU(100)
	for i := range int64(100) {
		s.Sent(WebSocket)
		if i < 90 {
			s.Done(WebSocket, completed, (i+1)*1e6)
		}
	}
	s.Done(WebSocket, l.Code("TIMEOUT"), 5e9)
	s.Done(Callback, l.Code("FAILED"), 9e9)
	l.now = 1e9
	l.GatewayCPU(100.25)
	l.now = 0
	got := l.second(0.5)
	want := Second{AtSeconds: 1, LengthSeconds: 1, Sent: 100, Done: 91, Errors: 1, InFlight: 9, Callbacks: 1, CallbackErrors: 1,
		P50Ms: got.P50Ms, P99Ms: got.P99Ms, GeneratorCPUShare: 0.5, GatewayCPUShare: 0.25}
	if got != want || math.Abs(got.P50Ms-46) > 0.05 || math.Abs(got.P99Ms-5000) > 5 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if again := l.Tick(l.now); again.LengthSeconds != 0 || again.InFlight != 9 {
		t.Errorf("a Tick with no time passed: %+v", again)
	}
	if back := l.Tick(l.now - 5); back.LengthSeconds != 0 {
		t.Errorf("a Tick back in time: %+v", back)
	}
	next := l.second(0.1)
	if next.Sent != 0 || next.Done != 0 || next.P50Ms != 0 || next.InFlight != 9 || next.GatewayCPUShare.Known() {
		t.Errorf("the next second: %+v", next)
	}
}

func TestGatewayRestart(t *testing.T) {
	l := newLab()
	for i, reading := range []float64{50, 50.5, 0.1, 0.4} {
		l.now = int64(i) * 1e9
		l.GatewayCPU(reading)
		s := l.Tick(l.now + 1)
		if known := i == 1 || i == 3; s.GatewayCPUShare.Known() != known {
			t.Errorf("reading %d: share %v", i, s.GatewayCPUShare)
		}
	}
	if rep := l.Report(About{}); math.Abs(rep.Gateway.CPUSeconds-0.8) > 1e-9 {
		t.Errorf("used %v", rep.Gateway.CPUSeconds)
	}
}

func TestPhase(t *testing.T) {
	l := newLab()
	s, completed := l.Shard(), l.Code("COMPLETED")
	step := func(ms int64, n int) Phase {
		for range n {
			s.Sent(WebSocket)
			s.Done(WebSocket, completed, ms*1e6)
			s.Done(Callback, completed, 1e9) // not a command
		}
		l.second(0.1)
		l.second(0.1)
		return l.Phase()
	}
	for _, c := range []struct {
		ms int64
		n  int
	}{{10, 100}, {1, 7}, {0, 0}, {500, 3}} {
		p := step(c.ms, c.n)
		if p.Seconds != 2 || p.Sent != int64(c.n) || p.Done != int64(c.n) || math.Abs(p.P99Ms-float64(c.ms)) > 0.001*float64(c.ms) || p.P50Ms != p.P99Ms {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// The series stays within its bound, and what it counts stays the same.
func TestSeriesIsBounded(t *testing.T) {
	var s series
	const n = 3*maxPoints + 5
	for i := range n {
		s.add(Second{AtSeconds: float64(i + 1), LengthSeconds: 1, Sent: 1, Done: 2, P99Ms: float64(i % 1000), GeneratorCPUShare: 0.5, GatewayCPUShare: unknown})
	}
	points := s.all()
	if len(points) > maxPoints || len(points) < maxPoints/2 || s.perPoint != 4 {
		t.Fatalf("%d points of %d seconds", len(points), s.perPoint)
	}
	var sent, done int64
	length, at := 0.0, 0.0
	for _, p := range points {
		sent, done, length = sent+p.Sent, done+p.Done, length+p.LengthSeconds
		if math.Abs(p.AtSeconds-at-p.LengthSeconds) > 1e-6 || p.GeneratorCPUShare != 0.5 || p.GatewayCPUShare.Known() {
			t.Fatalf("%+v after %v", p, at)
		}
		at = p.AtSeconds
	}
	if sent != n || done != 2*n || length != n || at != n {
		t.Errorf("sent %d, done %d, length %v, end %v", sent, done, length, at)
	}
}

// A short rest at the end is no point of its own.
func TestReportClosesTheRest(t *testing.T) {
	for _, c := range []struct {
		rest   time.Duration
		points int
	}{{0, 2}, {20 * time.Millisecond, 2}, {700 * time.Millisecond, 3}} {
		l := newLab()
		s, completed := l.Shard(), l.Code("COMPLETED")
		s.Sent(HTTP)
		l.second(0.1)
		l.second(0.1)
		s.Done(HTTP, completed, 3e6)
		l.now += int64(c.rest)
		rep := l.Report(About{})
		done := int64(0)
		for _, p := range rep.Series {
			done += p.Done
		}
		if wantDone := min(int64(c.rest), 1); len(rep.Series) != c.points || done != wantDone {
			t.Errorf("rest %v: %d points, %d done", c.rest, len(rep.Series), done)
		}
		if rep.SendingSeconds != 1 || rep.Rates.SentPerSecond != 1 {
			t.Errorf("sending %v s, %v/s", rep.SendingSeconds, rep.Rates.SentPerSecond)
		}
		if again := l.Report(About{}); len(again.Series) != len(rep.Series) {
			t.Errorf("the second report has %d points", len(again.Series))
		}
	}
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		g       Generator
		r       Rates
		gateway Share
		want    bool
		why     string
	}{
		"at ease":                  {g: Generator{Cores: 2, CPUShareMax: 0.6}, gateway: 0.9, why: "at most 60 % of its 2 processors"},
		"busy in 5 of 100 s":       {g: Generator{Cores: 2, CPUShareMax: 1, BusySeconds: 5}, why: "at most 100 %"},
		"busy in 6 of 100 s":       {g: Generator{Cores: 1, CPUShareMax: 1, BusySeconds: 6}, want: true, why: "more than 90 % of its one processor in 6 s of 100 s"},
		"late by 10 ms":            {g: Generator{LateCount: 9, LateP99Ms: 10, CPUShareMax: 0.1}, why: "left within 10.0 ms"},
		"late by more":             {g: Generator{LateCount: 9, LateP99Ms: 10.1}, want: true, why: "10.1 ms late"},
		"sent all":                 {r: Rates{IntendedPerSecond: 100, SentPerSecond: 98}, gateway: 0.1, why: "at most"},
		"short, gateway idle":      {r: Rates{IntendedPerSecond: 100, SentPerSecond: 97}, gateway: 0.49, want: true, why: "sent 97/s of 100/s while the gateway used 49 %"},
		"short, gateway busy":      {r: Rates{IntendedPerSecond: 100, SentPerSecond: 97}, gateway: 0.5, why: "but the gateway used 50 %"},
		"short, gateway not known": {r: Rates{IntendedPerSecond: 100, SentPerSecond: 97}, gateway: unknown, want: true, why: "not known"},
		"closed loop":              {r: Rates{SentPerSecond: 97}, gateway: 0.1, why: "at most"},
		"nothing is known":         {g: Generator{CPUShareMax: unknown}, gateway: unknown, why: "no rule"},
	} {
		got, why := verdict(c.g, c.r, c.gateway, 100)
		if got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q", name, got, why)
		}
	}
}

func TestFindKnee(t *testing.T) {
	steps := func(passed ...bool) (list []Step) {
		for i, p := range passed {
			list = append(list, Step{RatePerSecond: float64(i + 1), Passed: p})
		}
		return list
	}
	for _, c := range []struct {
		steps []Step
		want  float64
	}{{nil, 0}, {steps(true, true), 0}, {steps(false), 0}, {steps(true, true, false, true), 2}} {
		k := FindKnee(c.steps, 50)
		if (k == nil) != (c.want == 0) || k != nil && (k.RatePerSecond != c.want || k.BoundP99Ms != 50) {
			t.Errorf("%v: %+v", c.steps, k)
		}
	}
}

func TestShare(t *testing.T) {
	for s, want := range map[Share]string{unknown: "null", 0: "0", 0.123456: "0.1235", 1: "1"} {
		if got, err := json.Marshal(s); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v", s, got, err)
		}
	}
	if processCPU() <= 0 {
		t.Error("this process used no CPU")
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		group(0): "0", group(-1234): "-1,234", group(999): "999", group(1e6): "1,000,000",
		rateText(0.04): "0.040", rateText(9.99): "10", rateText(12345.6): "12,346", rateText(math.NaN()): "0", rateText(3): "3",
		msText(0.0004, 3): "0 ms", msText(0.0996, 2): "0.10 ms", msText(0.999, 2): "1.0 ms", msText(9.996, 3): "10.0 ms",
		msText(999.4, 3): "999 ms", msText(999.6, 3): "1.00 s", msText(600_000, 3): "10.0 min",
		secondsText(90): "90 s", secondsText(3600): "60 min", secondsText(90_000): "25 h",
		percentText(0): "0 %", percentText(1): "100 %", percentText(0.00001): "< 0.01 %", percentText(0.99999): "> 99.99 %",
		percentText(0.5): "50 %", percentText(0.0123): "1.2 %", percentText(0.995): "99.50 %",
		bytesText(0): "0 B", bytesText(999.7): "1.00 kB", bytesText(61_400_000): "61.4 MB", bytesText(2e15): "2,000 TB",
		plain("a\x1b\n\u202eb\xff"): "a???b?",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if s := plain(strings.Repeat("ä", 500)); len(s) > maxText+3 {
		t.Errorf("%d bytes", len(s))
	}
}
