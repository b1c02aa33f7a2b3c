package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The drawing area of every chart, in SVG units; the page scales it.
const (
	chartWidth  = 560.0
	chartHeight = 270.0
	plotLeft    = 66.0
	plotRight   = chartWidth - 22
	plotTop     = 12.0
	plotBottom  = chartHeight - 42
	manyDots    = 40 // beyond so many points a line has no dots
)

// chart is a chart with all its geometry done, for the template to write down.
type chart struct {
	ID, Title, Note string
	Desc            string // for those who do not see it
	XLabel          string
	XTicks, YTicks  []tick
	Lines           []line
	Marks           []mark
	Empty           string // why there is nothing to draw
}

type tick struct {
	At    float64
	Label string
}

// Anchor keeps the label of a tick on the x axis within the drawing.
func (t tick) Anchor() string {
	if t.At > plotRight-8 {
		return "end"
	}
	return "middle"
}

// EndX is where a label with that anchor stands.
func (t tick) EndX() float64 {
	if t.Anchor() == "end" {
		return t.At + 18
	}
	return t.At
}

// line is a line, or an area where Fill is set.
type line struct {
	Name, Class, Path string
	Fill              bool
	Dots              []dot
}

type dot struct {
	X, Y  float64
	Class string
}

// mark is a labelled line across the plot: upright at X, or level at Y.
type mark struct {
	X, Y   float64
	Level  bool
	Anchor string
	Label  string
}

// The template needs the frame too.
func (chart) Width() float64  { return chartWidth }
func (chart) Height() float64 { return chartHeight }
func (chart) Left() float64   { return plotLeft }
func (chart) Right() float64  { return plotRight }
func (chart) Top() float64    { return plotTop }
func (chart) Bottom() float64 { return plotBottom }
func (chart) Middle() float64 { return (plotLeft + plotRight) / 2 }

// Where labels stand: under and left of their ticks, and the name of the x axis.
func (chart) LabelY() float64  { return plotBottom + 17 }
func (chart) LabelX() float64  { return plotLeft - 8 }
func (chart) XLabelY() float64 { return chartHeight - 6 }

// axis maps values to a stretch of the drawing.
type axis struct {
	low, high float64 // values
	from, to  float64 // drawing
	log       bool
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log10(max(v, low)), math.Log10(low), math.Log10(high)
	}
	if high <= low {
		return a.from
	}
	part := min(max((v-low)/(high-low), 0), 1)
	return round(a.from+part*(a.to-a.from), 1)
}

// countAxis runs from 0 to a round number not below top, with its ticks.
func countAxis(top float64, label func(float64) string) (axis, []tick) {
	step := niceStep(top / 4)
	a := axis{low: 0, high: step * math.Max(math.Ceil(round(top/step, 6)), 1), from: plotBottom, to: plotTop}
	var ticks []tick
	for i := 0; float64(i)*step <= a.high*1.0001; i++ {
		v := float64(i) * step
		ticks = append(ticks, tick{a.at(v), label(v)})
	}
	return a, ticks
}

// niceStep is the smallest of 1, 2, 5, 10, ... (times a power of ten) not below x.
func niceStep(x float64) float64 {
	if !(x > 0) {
		return 1
	}
	p := math.Pow10(int(math.Floor(math.Log10(x))))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= x*0.9999 {
			return m * p
		}
	}
	return 10 * p
}

// niceBelow is the largest of 1, 2, 5 times a power of ten not above x.
func niceBelow(x float64) float64 {
	p := math.Pow10(int(math.Floor(math.Log10(x))))
	for _, m := range []float64{5, 2} {
		if m*p <= x*1.0001 {
			return m * p
		}
	}
	return p
}

// latencyAxis is logarithmic in milliseconds and holds low to high.
func latencyAxis(low, high, from, to float64) (axis, []tick) {
	low = max(low, 0.001)
	high = max(high, low)
	a := axis{low: niceBelow(low), high: niceStep(high), from: from, to: to, log: true}
	if a.high < 4*a.low { // a flat line stands in the middle
		a.low, a.high = niceBelow(a.low*0.9), niceStep(a.high*1.1)
	}
	wide := a.high > 150*a.low
	var ticks []tick
	for v := a.low; v <= a.high*1.001; v = niceStep(v * 1.1) {
		if wide && math.Abs(math.Log10(v)-math.Round(math.Log10(v))) > 0.01 {
			continue
		}
		ticks = append(ticks, tick{a.at(v), latencyLabel(v)})
	}
	return a, ticks
}

func latencyLabel(ms float64) string {
	if ms < 999 {
		return significant(ms, 1) + " ms"
	}
	return significant(ms/1e3, 1) + " s"
}

// timeAxis runs from the start of the run to its end.
func timeAxis(seconds float64) (axis, []tick) {
	a := axis{low: 0, high: max(seconds, 0.001), from: plotLeft, to: plotRight}
	steps := []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400}
	step := steps[len(steps)-1]
	for _, s := range steps {
		if a.high/s <= 7 {
			step = s
			break
		}
	}
	for a.high/step > 7 {
		step *= 2
	}
	var ticks []tick
	for i := 0; float64(i)*step <= a.high*1.0001; i++ {
		ticks = append(ticks, tick{a.at(float64(i) * step), timeLabel(float64(i)*step, step)})
	}
	return a, ticks
}

// timeLabel writes a time so that neighbours a step apart differ.
func timeLabel(seconds, step float64) string {
	switch {
	case step >= 3600:
		return fmt.Sprintf("%.0f h", seconds/3600)
	case step >= 60:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return strconv.FormatFloat(round(seconds, 1), 'f', -1, 64) + " s"
}

// xy is a point of a line in values; a NaN y is a gap.
type xy struct{ x, y float64 }

// draw makes a line through the points. Few points, and those alone between gaps, are dots.
func draw(name, class string, points []xy, x, y axis) line {
	l := line{Name: name, Class: class}
	var path strings.Builder
	gap := func(i int) bool { return i < 0 || i >= len(points) || math.IsNaN(points[i].y) }
	for i, p := range points {
		if gap(i) {
			continue
		}
		verb := "L"
		if gap(i - 1) {
			verb = "M"
		}
		px, py := x.at(p.x), y.at(p.y)
		path.WriteString(verb + coordinate(px) + " " + coordinate(py))
		if len(points) <= manyDots || gap(i-1) && gap(i+1) {
			l.Dots = append(l.Dots, dot{X: px, Y: py, Class: class})
		}
	}
	l.Path = path.String()
	return l
}

// drawSteps makes the outline of a histogram; edges has one more than heights.
func drawSteps(name, class string, edges, heights []float64, x, y axis) line {
	var path strings.Builder
	path.WriteString("M" + coordinate(x.at(edges[0])) + " " + coordinate(plotBottom))
	for i, h := range heights {
		path.WriteString("V" + coordinate(y.at(h)) + "H" + coordinate(x.at(edges[i+1])))
	}
	path.WriteString("V" + coordinate(plotBottom) + "Z")
	return line{Name: name, Class: class, Path: path.String(), Fill: true}
}

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// describe says in words what the lines show.
func describe(what string, names []string, lines [][]xy, label func(float64) string) string {
	var parts []string
	for i, points := range lines {
		low, high := bounds(points)
		if low <= high {
			parts = append(parts, fmt.Sprintf("%s from %s to %s", names[i], label(low), label(high)))
		}
	}
	return what + ": " + strings.Join(parts, "; ") + "."
}

// bounds are the least and the greatest y; low > high where there is none.
func bounds(lines ...[]xy) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, points := range lines {
		for _, p := range points {
			if !math.IsNaN(p.y) {
				low, high = min(low, p.y), max(high, p.y)
			}
		}
	}
	return low, high
}
