package report

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// lab is a Recorder whose clock and CPU time the test moves.
type lab struct {
	*Recorder
	now, cpu int64
}

func newLab() *lab {
	l := &lab{}
	l.Recorder = newRecorder(func() int64 { return l.now }, func() int64 { return l.cpu })
	l.SetCores(2, 1)
	return l
}

// second lets a second pass in which so much of the two processors was used.
func (l *lab) second(share float64) Second {
	l.now += 1e9
	l.cpu += int64(share * 2e9)
	return l.Tick(l.now)
}

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// steady is a run with several channels, errors, a stall of two seconds and a gateway
// that tells its CPU time. It is the same each time.
func steady(seconds, perSecond int) *Report {
	l := newLab()
	random := rand.New(rand.NewPCG(1, 2))
	shard, other := l.Shard(), l.Shard()
	completed, accepted := l.Code("COMPLETED"), l.Code("ACCEPTED")
	timeout, overloaded := l.Code("TIMEOUT"), l.Code("OVERLOADED")
	latency := func(base float64) int64 { return int64(base * math.Exp(0.5*random.NormFloat64()) * 1e6) }
	gateway := 10.0
	l.GatewayCPU(gateway)
	for i := range seconds {
		for k := range perSecond {
			ns, code := latency(0.4), completed
			switch {
			case i == 20 || i == 21: // nothing is answered, all of it at the end
				ns += int64(22-i)*1e9 - int64(k)*1e9/int64(perSecond)
			case k%397 == 0:
				ns, code = 5e9, timeout
			case k%211 == 0:
				code = overloaded
			}
			channel := WebSocket
			if k%100 == 0 {
				channel = WebSocket.High()
			}
			shard.Sent(channel)
			shard.Done(channel, code, ns)
			shard.Late(latency(0.02))
			if k%5 == 0 {
				other.Sent(HTTP)
				other.Done(HTTP, accepted, latency(0.9))
				other.Done(Callback, completed, latency(2.5))
			}
		}
		shard.Sent(WebSocket) // one more in flight with each second
		l.now += 1e9
		l.cpu += int64((0.5 + 0.1*math.Sin(float64(i)/5)) * 2e9)
		gateway += 0.42 + 0.05*math.Cos(float64(i)/7)
		l.GatewayCPU(gateway)
		l.Tick(l.now)
	}
	return l.Report(About{
		Scenario: "steady", Seed: 18446744073709551615, Start: start,
		Parameters:        map[string]any{"edges": 50, "devicesPerEdge": 200, "rate": "1,200/s", "payloadBytes": 200},
		IntendedPerSecond: float64(perSecond)*1.2 + 1,
		Gateway:           Gateway{URL: "http://127.0.0.1:18081", Version: "1.0.0", AllocationsPerCommand: 0.31, RSSBytes: 61_400_000},
	})
}

func steadyWithBooks() *Report {
	rep := steady(60, 1000)
	rep.Notes = []string{"the file limit was raised from 1,024 to 65,536"}
	rep.Books = &Books{Balanced: true, Entries: []Entry{
		{"sent", 72060, true, "commands that left"},
		{"final", 72000, true, "commands whose final state was seen once"},
		{"in flight at the end", 60, true, "commands whose end was not waited for"},
		{"missing", 0, true, "commands that the gateway forgot"},
		{"twice", 0, true, "commands with two final states"},
	}}
	return rep
}

const nasty = `</title><script>alert("1")</script> & 'q' ` + "\x1b[31m\x00\xff"

// broken is a run where everything is wrong and every text hostile, with all sections.
func broken() *Report {
	l := newLab()
	shard := l.Shard()
	for i := range 12 {
		for k := range 100 {
			shard.Sent(HTTPWait)
			code := l.Code("COMPLETED")
			if k%3 == 0 {
				code = l.Code(nasty)
			}
			shard.Done(HTTPWait, code, int64(1+i*i)*1e6+int64(k)*1e4)
			shard.Late(int64(k) * 1e6)
		}
		l.second(0.97)
	}
	rep := l.Report(About{Scenario: "ramp " + nasty, Start: start, Seed: 7, IntendedPerSecond: 400,
		Parameters: []string{nasty}, Gateway: Gateway{URL: "http://x/" + nasty, Version: nasty}})
	for i := range 12 {
		p99 := float64(1 + i*i)
		rep.Steps = append(rep.Steps, Step{RatePerSecond: float64(1000 * (i + 1)), AchievedPerSecond: 990 * float64(i+1),
			P50Ms: p99 / 3, P99Ms: p99, Errors: int64(i), Passed: p99 <= 50})
	}
	rep.Knee = FindKnee(rep.Steps, 50)
	rep.Storms = []Storm{{"connect " + nasty, 20000, 400000, 3.21, 4, 81}, {Name: "reconnect", Connections: 20000, Routes: 400000, AllBackSeconds: 7.5}}
	rep.Idle = &Idle{Connections: 100000, BytesPerConnection: 1130, Goroutines: 12, CPUShare: 0.01}
	rep.Books = &Books{Entries: []Entry{{nasty, 3, false, nasty}, {"sent", 1200, true, "commands that left"}}}
	for i := range 60 {
		rep.Books.Mismatches = append(rep.Books.Mismatches, fmt.Sprintf("cmd-%d: never ended %s", i, nasty))
	}
	rep.Notes = []string{nasty}
	return rep
}

func empty() *Report {
	l := newLab()
	return l.Report(About{Scenario: "idle", Start: start})
}

// day is a run of 24 hours and some minutes, so that seconds were merged. The seconds go
// straight into the series: a Tick each would take long.
func day() *Report {
	l := newLab()
	shard, completed := l.Shard(), l.Code("COMPLETED")
	const seconds = maxPoints + 600
	for i := range seconds {
		wave := 2 + math.Sin(float64(i)/9000)
		for _, ms := range []float64{wave, 3 * wave} {
			shard.Sent(WebSocket)
			shard.Done(WebSocket, completed, int64(ms*1e6))
		}
		if i == seconds-1 {
			break // the last one is a Tick's
		}
		l.series.add(Second{AtSeconds: float64(i + 1), LengthSeconds: 1, Sent: 2, Done: 2, P50Ms: wave, P99Ms: 3 * wave,
			GeneratorCPUShare: 0.2, GatewayCPUShare: unknown})
	}
	l.collectLocked()
	l.now, l.lastTick = (seconds-1)*1e9, (seconds-1)*1e9
	shard.Sent(WebSocket)
	shard.Done(WebSocket, completed, 2e6)
	l.second(0.2)
	return l.Report(About{Scenario: "mixed: a day", Start: start, Seed: 3, IntendedPerSecond: 2,
		Sending: seconds * time.Second, Gateway: Gateway{URL: "http://127.0.0.1:18081"}})
}

func oneSecond() *Report {
	l := newLab()
	shard := l.Shard()
	shard.Sent(WebSocket)
	shard.Done(WebSocket, l.Code("COMPLETED"), 420_000)
	l.second(0.1)
	return l.Report(About{Scenario: "one command", Start: start})
}

// golden compares with a file in testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -rewrite)", err)
	}
	if string(want) == string(got) {
		return
	}
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	t.Errorf("%s differs from byte %d on: got %.120q, want %.120q (if it is right: -rewrite)", path, i, got[max(i-30, 0):], want[max(i-30, 0):])
}
