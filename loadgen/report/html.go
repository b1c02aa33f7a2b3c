package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

// pageTemplate escapes whatever comes from the report, by where it stands in the page.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"head":  func(t *table, column int) string { return t.class(column, "") },
	"cell":  func(t *table, column int, text string) string { return t.class(column, text) },
	"group": func(n int) string { return group(int64(n)) },
	"up":    func(y float64) float64 { return y - 5 },
	"plus":  func(a, b float64) float64 { return round(a+b, 1) },
}).Parse(pageText))

// page is what the template shows: no figure is computed there.
type page struct {
	Scenario, Start, Duration, Seed, Gateway string
	Verdicts                                 []verdictBox
	Tiles                                    []tile

	Latency      *table
	LatencyPlots []chart
	Histogram    *table
	Each         string
	TimePlots    []chart
	Time         *table
	Ramp         *table
	RampPlot     chart
	Knee         string
	Storms       *table
	Idle         string
	Errors       *table
	Books        *table
	BooksFirst   bool // there is something wrong with them
	Mismatches   []string
	Facts        *table
	Parameters   *table
	Notes        []string
}

// class is the CSS class of a cell. Only the first column of a table with verdicts is
// coloured by its word: elsewhere words come from the other side.
func (t *table) class(column int, text string) string {
	if column == 0 && t.Head[0] == "verdict" {
		switch text {
		case "ok", "passed":
			return "w good"
		case "BAD", "failed":
			return "w bad"
		}
	}
	return string(t.Align[column])
}

// verdictBox is a verdict in words, a mark and a colour.
type verdictBox struct{ Class, Mark, Word, Text string }

// tile is a headline figure.
type tile struct{ Name, Value, Note string }

// Number and Unit part the value: the unit is set smaller.
func (t tile) Number() string { return t.Value[:t.unitAt()] }
func (t tile) Unit() string   { return t.Value[t.unitAt():] }

func (t tile) unitAt() int {
	if at := strings.LastIndexAny(t.Value, " /"); at >= 0 {
		return at
	}
	return len(t.Value)
}

// WriteHTML writes one file that needs nothing else: styles and charts are inline, there
// is no script. The only errors are the writer's.
func (rep *Report) WriteHTML(w io.Writer) error {
	p := page{
		Scenario: plain(rep.Scenario), Start: rep.startText(), Duration: secondsText(rep.DurationSeconds),
		Seed: fmt.Sprint(rep.Seed), Gateway: rep.gatewayName(),
		Verdicts: rep.verdicts(), Tiles: rep.tiles(),
		Latency: rep.latencyTable(), Ramp: rep.stepTable(), Storms: rep.stormTable(), Errors: rep.errorTable(),
		Books: rep.bookTable(), Mismatches: rep.mismatches(maxList), Facts: rep.factTable(),
		Parameters: rep.parameterTable(), Notes: shown(rep.Notes, maxList), Time: rep.timeTable(), Each: rep.eachPoint(),
		TimePlots: rep.timeCharts(), BooksFirst: rep.Books != nil && !rep.Books.Balanced,
	}
	if len(rep.Channels) > 0 {
		p.Histogram = rep.histogramTable()
		p.LatencyPlots = []chart{rep.percentileChart(), rep.histogramChart()}
	}
	if len(rep.Steps) > 0 {
		p.RampPlot, p.Knee = rep.rampChart(), rep.kneeSentence()
	}
	if rep.Idle != nil {
		p.Idle = rep.idleSentence()
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("BUG: HTML report: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (rep *Report) verdicts() []verdictBox {
	word, rest := rep.booksVerdict()
	books := verdictBox{"none", "?", word, sentence(rest)}
	if b := rep.Books; b != nil && b.Balanced {
		books.Class, books.Mark = "good", "✓"
	} else if b != nil {
		books.Class, books.Mark = "bad", "✗"
	}
	word, rest = rep.generatorVerdict()
	if rep.Generator.Bottleneck {
		return []verdictBox{{"bad", "✗", word, sentence(rest)}, books}
	}
	return []verdictBox{books, {"good", "✓", word, sentence(rest)}}
}

// sentence begins with a capital; our own ASCII texts only.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// tiles are the few figures that are looked for first.
func (rep *Report) tiles() (tiles []tile) {
	if k := rep.Knee; k != nil {
		tiles = append(tiles, tile{"Knee", rateText(k.RatePerSecond) + "/s", "p99 " + msText(k.P99Ms, 3) + " there"})
	}
	for i, s := range rep.Storms {
		if i < 2 {
			tiles = append(tiles, tile{"All back after", secondsText(s.AllBackSeconds), cut(plain(s.Name), 40)})
		}
	}
	if i := rep.Idle; i != nil {
		tiles = append(tiles, tile{"Idle connection", bytesText(i.BytesPerConnection), group(i.Connections) + " connections"})
	}
	tiles = append(tiles, rep.loadTiles()...)
	if us := rep.Gateway.CPUUsPerCommand; us > 0 {
		t := tile{"Gateway CPU", significant(us, 3) + " µs", "per command"}
		if a := rep.Gateway.AllocationsPerCommand; a > 0 {
			t.Note += ", " + significant(a, 2) + " allocations"
		}
		tiles = append(tiles, t)
	}
	if g := rep.Generator; g.CPUShareMean.Known() {
		tiles = append(tiles, tile{"Generator CPU", shareText(g.CPUShareMean), "of " + coresText(g.Cores) + ", at most " + shareText(g.CPUShareMax)})
	}
	return tiles
}

// loadTiles tell of the commands: how many, how fast, and the latency of the channel that
// had most of them.
func (rep *Report) loadTiles() (tiles []tile) {
	var busiest Distribution
	var done, errors int64
	for _, d := range rep.Channels {
		if !d.Channel.isCommand() {
			continue
		}
		done, errors = done+d.Count, errors+d.Errors
		if d.Count > busiest.Count {
			busiest = d
		}
	}
	rate := tile{"Done", rateText(rep.Rates.DonePerSecond) + "/s", commandsText(done)}
	if rep.Rates.IntendedPerSecond > 0 {
		rate.Note += ", " + rateText(rep.Rates.IntendedPerSecond) + "/s intended"
	}
	tiles = append(tiles, rate)
	if done == 0 {
		return tiles
	}
	name := busiest.Channel.String()
	return append(tiles, tile{"p50", msText(busiest.P50Ms, 3), name}, tile{"p99", msText(busiest.P99Ms, 3), name},
		tile{"p99.9", msText(busiest.P999Ms, 3), name},
		tile{"Errors", percentText(float64(errors) / float64(done)), commandsText(errors)})
}

// factTable is what is known of both processes.
func (rep *Report) factTable() *table {
	t := &table{Head: []string{"fact", "gateway", "generator"}, Align: "wnn"}
	g, us := rep.Gateway, rep.Generator
	known := func(x float64, text string) string {
		if x == 0 {
			return "-"
		}
		return text
	}
	share := func(s Share) string {
		if !s.Known() {
			return "-"
		}
		return shareText(s)
	}
	t.add("processors it may use", known(g.Cores, trimmed(round(g.Cores, 1))), trimmed(round(us.Cores, 1)))
	t.add("CPU time", known(g.CPUSeconds, significant(g.CPUSeconds, 3)+" s"), significant(us.CPUSeconds, 3)+" s")
	t.add("share of its processors, mean", share(g.CPUShareMean), share(us.CPUShareMean))
	t.add("share of its processors, most in a second", share(g.CPUShareMax), share(us.CPUShareMax))
	t.add("CPU per command", known(g.CPUUsPerCommand, significant(g.CPUUsPerCommand, 3)+" µs"), "-")
	t.add("allocations per command", known(g.AllocationsPerCommand, significant(g.AllocationsPerCommand, 3)), "-")
	t.add("resident memory", known(float64(g.RSSBytes), bytesText(float64(g.RSSBytes))), "-")
	if us.LateCount > 0 {
		t.add("sends late by, p50", "-", msText(us.LateP50Ms, 3))
		t.add("sends late by, p99", "-", msText(us.LateP99Ms, 3))
		t.add("sends late by, most", "-", msText(us.LateMaxMs, 3))
	}
	return t
}

// timeTable is the series in at most maxRows rows.
func (rep *Report) timeTable() *table {
	t := &table{Head: []string{"until", "sent/s", "done/s", "errors", "in flight", "p50", "p99", "generator", "gateway"}, Align: strings.Repeat("n", 9)}
	share := func(s Share) string {
		if !s.Known() {
			return "-"
		}
		return shareText(s)
	}
	for _, s := range rep.drawn(maxRows) {
		p50, p99 := "-", "-"
		if s.Done > 0 {
			p50, p99 = msText(s.P50Ms, 3), msText(s.P99Ms, 3)
		}
		t.add(secondsText(s.AtSeconds), rateText(perSecond(func(s Second) int64 { return s.Sent })(s)),
			rateText(perSecond(func(s Second) int64 { return s.Done })(s)), group(s.Errors+s.CallbackErrors),
			group(s.InFlight), p50, p99, share(s.GeneratorCPUShare), share(s.GatewayCPUShare))
	}
	return t
}
