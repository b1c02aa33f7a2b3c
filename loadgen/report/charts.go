package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// maxDrawn bounds the points of a line over time; more would be narrower than a pixel.
const maxDrawn = 400

// channelClass is the colour of a channel; HIGH has the same, dashed.
func channelClass(c Channel) string {
	class := "c" + strconv.Itoa(int(c%high))
	if c >= high {
		class += " dash"
	}
	return class
}

// percentileChart is latency by percentile; the x axis gives each nine the same room.
func (rep *Report) percentileChart() chart {
	c := chart{ID: "percentiles", Title: "Latency by percentile", XLabel: "percentile",
		Note: "from the intended instant; each nine has the same width"}
	lines, names, classes := [][]xy{}, []string{}, []string{}
	nines := 1.0
	for _, d := range rep.Channels {
		var points []xy
		for _, p := range d.Curve {
			x := nines
			if p.Percentile < 100 {
				x = -math.Log10(1 - p.Percentile/100)
				nines = max(nines, x)
			} else if len(points) > 0 { // the maximum: where the last percentile is, or at 90 % of fewer than ten
				x = max(points[len(points)-1].x, 1)
			}
			points = append(points, xy{x, p.LatencyMs})
		}
		if len(points) > 0 {
			lines, names, classes = append(lines, points), append(names, d.Channel.String()), append(classes, channelClass(d.Channel))
		}
	}
	if len(lines) == 0 {
		c.Empty = "No command was done."
		return c
	}
	x := axis{low: 0, high: nines, from: plotLeft, to: plotRight}
	low, high := bounds(lines...)
	y, ticks := latencyAxis(low, high, plotBottom, plotTop)
	c.YTicks, c.XTicks = ticks, nineTicks(x)
	for i, points := range lines {
		c.Lines = append(c.Lines, draw(names[i], classes[i], points, x, y))
		c.Lines[i].Dots = nil // even of one command there is a line
	}
	c.Desc = describe("Latency, from the least to the greatest", names, lines, func(v float64) string { return msText(v, 3) })
	return c
}

func nineTicks(x axis) []tick {
	ticks := []tick{{x.at(0), "0 %"}}
	if half := x.at(math.Log10(2)); half > ticks[0].At+36 {
		ticks = append(ticks, tick{half, "50 %"})
	}
	label := "90"
	for n := 1; float64(n) <= x.high+0.01; n++ {
		switch n {
		case 1:
		case 2:
			label = "99"
		case 3:
			label = "99.9"
		default:
			label += "9"
		}
		ticks = append(ticks, tick{x.at(float64(n)), label + " %"})
	}
	return ticks
}

// histogramChart is the share of the commands of each channel by latency.
func (rep *Report) histogramChart() chart {
	c := chart{ID: "histogram", Title: "Latency histogram", XLabel: "latency", Note: "% of the channel's commands, ten steps for each power of ten"}
	low, high, top := math.Inf(1), 0.0, 0.0
	for _, d := range rep.Channels {
		for _, b := range d.Buckets {
			low, high = min(low, max(b.FromMs, b.ToMs/2)), max(high, b.ToMs)
			top = max(top, 100*float64(b.Count)/float64(d.Count))
		}
	}
	if high == 0 {
		c.Empty = "No command was done."
		return c
	}
	x, ticks := latencyAxis(low, high, plotLeft, plotRight)
	c.XTicks = thin(ticks, 8)
	y, yTicks := countAxis(top, percentLabel)
	c.YTicks = yTicks
	c.Desc = "Latency in steps, each with its share of the commands."
	for _, d := range rep.Channels {
		if len(d.Buckets) == 0 {
			continue
		}
		edges, heights := []float64{max(d.Buckets[0].FromMs, x.low)}, []float64{}
		for _, b := range d.Buckets {
			edges, heights = append(edges, b.ToMs), append(heights, 100*float64(b.Count)/float64(d.Count))
		}
		c.Lines = append(c.Lines, drawSteps(d.Channel.String(), channelClass(d.Channel), edges, heights, x, y))
		c.Desc += fmt.Sprintf(" %s: %s to %s, half of them within %s.", d.Channel, msText(d.MinMs, 3), msText(d.MaxMs, 3), msText(d.P50Ms, 3))
	}
	return c
}

// thin leaves out every other tick until there are few.
func thin(ticks []tick, most int) []tick {
	for len(ticks) > most {
		var kept []tick
		for i := 0; i < len(ticks); i += 2 {
			kept = append(kept, ticks[i])
		}
		ticks = kept
	}
	return ticks
}

// curve is one line over time.
type curve struct {
	name, class string
	value       func(Second) float64 // NaN: a gap
}

// overTime draws curves over the run. On a count axis they start at 0, else they are
// latencies.
func (rep *Report) overTime(c chart, latency bool, label func(float64) string, curves ...curve) chart {
	c.XLabel = "time since the start"
	points := rep.drawn(maxDrawn)
	lines, names := [][]xy{}, []string{}
	for _, k := range curves {
		var l []xy
		for _, s := range points {
			l = append(l, xy{s.AtSeconds - s.LengthSeconds/2, k.value(s)})
		}
		lines, names = append(lines, l), append(names, k.name)
	}
	low, high := bounds(lines...)
	if low > high {
		c.Empty = "Nothing was measured."
		return c
	}
	x, xTicks := timeAxis(points[len(points)-1].AtSeconds)
	y, yTicks := countAxis(high, label)
	if latency {
		y, yTicks = latencyAxis(low, high, plotBottom, plotTop)
	}
	c.XTicks, c.YTicks = xTicks, yTicks
	for i, k := range curves {
		if a, b := bounds(lines[i]); a <= b {
			c.Lines = append(c.Lines, draw(k.name, k.class, lines[i], x, y))
		}
	}
	c.Desc = describe("Over "+secondsText(points[len(points)-1].AtSeconds), names, lines, label)
	return c
}

// drawn is the series in at most n points.
func (rep *Report) drawn(n int) []Second {
	if len(rep.Series) <= n {
		return rep.Series
	}
	return mergeRuns(rep.Series, (len(rep.Series)+n-1)/n)
}

// eachPoint says what a point of the charts over time stands for, where it is not one
// point of the series.
func (rep *Report) eachPoint() string {
	points := rep.drawn(maxDrawn)
	if len(points) == len(rep.Series) {
		return ""
	}
	return "Each point stands for " + secondsText(points[0].LengthSeconds) + ": rates are its mean, p99 that of its worst second."
}

func perSecond(count func(Second) int64) func(Second) float64 {
	return func(s Second) float64 { return float64(count(s)) / max(s.LengthSeconds, 1e-3) }
}

func (rep *Report) timeCharts() []chart {
	curves := []curve{
		{"sent", "sent", perSecond(func(s Second) int64 { return s.Sent })},
		{"done", "done", perSecond(func(s Second) int64 { return s.Done })},
	}
	for _, s := range rep.Series {
		if s.Callbacks > 0 {
			curves = append(curves, curve{"callbacks", "c3", perSecond(func(s Second) int64 { return s.Callbacks })})
			break
		}
	}
	curves = append(curves, curve{"errors", "errors", perSecond(func(s Second) int64 { return s.Errors + s.CallbackErrors })})
	whenDone := func(ms func(Second) float64) func(Second) float64 {
		return func(s Second) float64 {
			if s.Done == 0 {
				return math.NaN()
			}
			return max(ms(s), 0.001)
		}
	}
	percent := func(share func(Second) Share) func(Second) float64 {
		return func(s Second) float64 {
			if !share(s).Known() {
				return math.NaN()
			}
			return 100 * float64(share(s))
		}
	}
	return []chart{
		rep.overTime(chart{ID: "throughput", Title: "Throughput", Note: "per second"}, false, countLabel, curves...),
		rep.overTime(chart{ID: "latency", Title: "Latency over time", Note: "of the commands done in each second"}, true,
			latencyLabelExact, curve{"p50", "c0", whenDone(func(s Second) float64 { return s.P50Ms })},
			curve{"p99", "c1", whenDone(func(s Second) float64 { return s.P99Ms })}),
		rep.overTime(chart{ID: "inflight", Title: "In flight", Note: "sent and not done, at the end of each second"}, false,
			countLabel, curve{"in flight", "c0", func(s Second) float64 { return float64(s.InFlight) }}),
		rep.overTime(chart{ID: "cpu", Title: "CPU", Note: "% of the processors that each may use"}, false, percentLabel,
			curve{"generator", "c1", percent(func(s Second) Share { return s.GeneratorCPUShare })},
			curve{"gateway", "c2", percent(func(s Second) Share { return s.GatewayCPUShare })}),
	}
}

func percentLabel(v float64) string { return trimmed(round(v, 2)) + " %" }

func latencyLabelExact(v float64) string { return msText(v, 3) }

// rampChart is p99 by rate, with the bound and the knee; failed steps are crosses.
func (rep *Report) rampChart() chart {
	c := chart{ID: "ramp", Title: "Ramp", Note: "p99 at each rate; a cross is a step that did not pass", XLabel: "intended rate, commands per second"}
	var points []xy
	top := 0.0
	for _, s := range rep.Steps {
		points = append(points, xy{s.RatePerSecond, max(s.P99Ms, 0.001)})
		top = max(top, s.RatePerSecond)
	}
	if len(points) == 0 {
		c.Empty = "There were no steps."
		return c
	}
	low, high := bounds(points)
	if rep.Knee != nil && rep.Knee.BoundP99Ms > 0 {
		low, high = min(low, rep.Knee.BoundP99Ms), max(high, rep.Knee.BoundP99Ms)
	}
	x, ticks := countAxis(top, countLabel)
	x.from, x.to = plotLeft, plotRight
	for i := range ticks {
		ticks[i].At = x.at(float64(i) * x.high / float64(len(ticks)-1))
	}
	y, yTicks := latencyAxis(low, high, plotBottom, plotTop)
	c.XTicks, c.YTicks = ticks, yTicks
	l := draw("p99", "c0", points, x, y)
	l.Dots = nil
	for i, s := range rep.Steps {
		class := "c0"
		if !s.Passed {
			class = "cross"
		}
		l.Dots = append(l.Dots, dot{X: x.at(points[i].x), Y: y.at(points[i].y), Class: class})
	}
	c.Lines = []line{l}
	c.Marks = rep.kneeMarks(x, y)
	c.Desc = describe(fmt.Sprintf("Up to %s/s", rateText(top)), []string{"p99"}, [][]xy{points}, latencyLabelExact) + " " + rep.kneeSentence()
	return c
}

func (rep *Report) kneeMarks(x, y axis) (marks []mark) {
	k := rep.Knee
	if k == nil {
		return nil
	}
	if k.BoundP99Ms > 0 {
		marks = append(marks, mark{Y: y.at(k.BoundP99Ms), Level: true, Label: "bound " + msText(k.BoundP99Ms, 3)})
	}
	m := mark{X: x.at(k.RatePerSecond), Anchor: "start", Label: "knee " + rateText(k.RatePerSecond) + "/s"}
	if m.X > (plotLeft+plotRight)/2 { // the label goes to the side with room
		m.Anchor = "end"
	}
	return append(marks, m)
}

// histogramTable is the histogram in numbers, from the first bucket of any channel on.
func (rep *Report) histogramTable() *table {
	t := &table{Head: []string{"up to"}, Align: "n"}
	rows := map[float64][]string{}
	var edges []float64
	for i, d := range rep.Channels {
		t.Head, t.Align = append(t.Head, d.Channel.String()), t.Align+"n"
		for _, b := range d.Buckets {
			if rows[b.ToMs] == nil {
				rows[b.ToMs] = make([]string, len(rep.Channels))
				edges = append(edges, b.ToMs)
			}
			rows[b.ToMs][i] = group(b.Count)
		}
	}
	slices.Sort(edges)
	for _, edge := range edges {
		row := []string{msText(edge, 3)}
		for _, cell := range rows[edge] {
			row = append(row, cmp.Or(cell, "0"))
		}
		t.add(row...)
	}
	return t
}
