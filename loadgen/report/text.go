package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is a table for text and HTML alike. Align has a letter for each column: w for
// words, n for numbers, which stand on the right.
type table struct {
	Head  []string
	Align string
	Rows  [][]string
	More  int // rows that are not shown
}

// add appends a row unless there are maxRows.
func (t *table) add(cells ...string) {
	if len(t.Rows) == maxRows {
		t.More++
		return
	}
	for i, c := range cells {
		cells[i] = plain(c)
	}
	t.Rows = append(t.Rows, cells)
}

// write aligns the columns.
func (t *table) write(b *bytes.Buffer) {
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if t.Align[i] == 'w' {
				line.WriteString("  " + c + pad)
			} else {
				line.WriteString("  " + pad + c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if t.More > 0 {
		fmt.Fprintf(b, "  and %s more\n", group(int64(t.More)))
	}
}

// WriteText writes one terminal page. The only errors are the writer's.
func (rep *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	rep.textHead(&b)
	rep.textFigures(&b)
	for _, part := range []struct {
		title string
		table *table
	}{
		{"Latency from the intended instant", rep.latencyTable()},
		{"Errors", rep.errorTable()},
		{"Ramp", rep.stepTable()},
		{"Storms", rep.stormTable()},
		{"Books", rep.bookTable()},
	} {
		if len(part.table.Rows) > 0 {
			b.WriteString("\n" + part.title + "\n")
			part.table.write(&b)
		}
		if part.title == "Ramp" && len(rep.Steps) > 0 {
			b.WriteString("  " + rep.kneeSentence() + "\n")
		}
	}
	rep.textLists(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (rep *Report) textHead(b *bytes.Buffer) {
	fmt.Fprintf(b, "Load run: %s\n", plain(rep.Scenario))
	fmt.Fprintf(b, "  %s, %s, seed %d, against %s\n\n", rep.startText(), secondsText(rep.DurationSeconds), rep.Seed, rep.gatewayName())
	mark := "[ok]  "
	if rep.Books == nil {
		mark = "[--]  "
	} else if !rep.Books.Balanced {
		mark = "[BAD] "
	}
	verdict, rest := rep.booksVerdict()
	b.WriteString("  " + mark + verdict + ": " + rest + "\n")
	mark = "[ok]  "
	if rep.Generator.Bottleneck {
		mark = "[BAD] "
	}
	verdict, rest = rep.generatorVerdict()
	b.WriteString("  " + mark + verdict + ": " + rest + "\n")
}

func (rep *Report) startText() string { return rep.Start.UTC().Format("2006-01-02 15:04:05 UTC") }

func (rep *Report) gatewayName() string {
	name := plain(rep.Gateway.URL)
	if name == "" {
		name = "a gateway without a name"
	}
	if rep.Gateway.Version != "" {
		name += " (" + plain(rep.Gateway.Version) + ")"
	}
	return name
}

func (rep *Report) textFigures(b *bytes.Buffer) {
	b.WriteString("\n  rate       ")
	if rep.Rates.IntendedPerSecond > 0 {
		fmt.Fprintf(b, "intended %s/s, ", rateText(rep.Rates.IntendedPerSecond))
	}
	fmt.Fprintf(b, "sent %s/s, done %s/s over %s\n", rateText(rep.Rates.SentPerSecond),
		rateText(rep.Rates.DonePerSecond), secondsText(rep.SendingSeconds))
	if facts := rep.gatewayFacts(); len(facts) > 0 {
		b.WriteString("  gateway    " + strings.Join(facts, ", ") + "\n")
	}
	if facts := rep.generatorFacts(); len(facts) > 0 {
		b.WriteString("  generator  " + strings.Join(facts, ", ") + "\n")
	}
	if i := rep.Idle; i != nil {
		fmt.Fprintf(b, "  idle       %s\n", rep.idleSentence())
	}
}

func (rep *Report) gatewayFacts() (facts []string) {
	g := rep.Gateway
	if g.CPUUsPerCommand > 0 {
		facts = append(facts, significant(g.CPUUsPerCommand, 3)+" us of CPU per command")
	}
	if g.AllocationsPerCommand > 0 {
		facts = append(facts, significant(g.AllocationsPerCommand, 2)+" allocations per command")
	}
	if g.CPUShareMean.Known() {
		facts = append(facts, fmt.Sprintf("CPU %s of %s (most %s)", shareText(g.CPUShareMean), coresText(g.Cores), shareText(g.CPUShareMax)))
	}
	if g.RSSBytes > 0 {
		facts = append(facts, bytesText(float64(g.RSSBytes))+" resident")
	}
	return facts
}

func (rep *Report) generatorFacts() (facts []string) {
	g := rep.Generator
	if g.CPUShareMean.Known() {
		facts = append(facts, fmt.Sprintf("CPU %s of %s (most %s)", shareText(g.CPUShareMean), coresText(g.Cores), shareText(g.CPUShareMax)))
	}
	if g.LateCount > 0 {
		facts = append(facts, fmt.Sprintf("late p50 %s, p99 %s, most %s", msText(g.LateP50Ms, 3), msText(g.LateP99Ms, 3), msText(g.LateMaxMs, 3)))
	}
	return facts
}

func (rep *Report) idleSentence() string {
	i := rep.Idle
	return fmt.Sprintf("%s connections, %s each, %s goroutines, CPU %s", group(i.Connections),
		bytesText(i.BytesPerConnection), group(i.Goroutines), shareText(i.CPUShare))
}

func (rep *Report) kneeSentence() string {
	switch k := rep.Knee; {
	case k != nil:
		return fmt.Sprintf("Knee: %s/s, the last rate that passed (p99 %s, bound %s).",
			rateText(k.RatePerSecond), msText(k.P99Ms, 3), msText(k.BoundP99Ms, 3))
	case len(rep.Steps) > 0 && !rep.Steps[0].Passed:
		return "No knee: the first rate did not pass."
	}
	return "No knee: every rate passed."
}

func (rep *Report) latencyTable() *table {
	t := &table{Head: []string{"channel", "done", "errors", "min", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"}, Align: "wnnnnnnnnnn"}
	for _, d := range rep.Channels {
		row := []string{d.Channel.String(), group(d.Count), group(d.Errors)}
		for _, ms := range []float64{d.MinMs, d.MeanMs, d.P50Ms, d.P90Ms, d.P99Ms, d.P999Ms, d.P9999Ms, d.MaxMs} {
			if d.Count == 0 {
				row = append(row, "-")
			} else {
				row = append(row, msText(ms, 3))
			}
		}
		t.add(row...)
	}
	return t
}

func (rep *Report) errorTable() *table {
	t := &table{Head: []string{"code", "channel", "count", "share"}, Align: "wwnn"}
	for _, e := range rep.Errors {
		t.add(e.Code, e.Channel.String(), group(e.Count), percentText(e.Share))
	}
	return t
}

func (rep *Report) stepTable() *table {
	t := &table{Head: []string{"verdict", "rate", "achieved", "p50", "p99", "errors"}, Align: "wnnnnn"}
	for _, s := range rep.Steps {
		verdict := "failed"
		if s.Passed {
			verdict = "passed"
		}
		t.add(verdict, rateText(s.RatePerSecond)+"/s", rateText(s.AchievedPerSecond)+"/s",
			msText(s.P50Ms, 3), msText(s.P99Ms, 3), group(s.Errors))
	}
	return t
}

func (rep *Report) stormTable() *table {
	t := &table{Head: []string{"storm", "connections", "routes", "all back after", "failures", "p99 meanwhile"}, Align: "wnnnnn"}
	for _, s := range rep.Storms {
		p99 := "-"
		if s.LoadP99Ms > 0 {
			p99 = msText(s.LoadP99Ms, 3)
		}
		t.add(s.Name, group(s.Connections), group(s.Routes), secondsText(s.AllBackSeconds), group(s.Failures), p99)
	}
	return t
}

func (rep *Report) bookTable() *table {
	t := &table{Head: []string{"verdict", "entry", "count", "meaning"}, Align: "wwnw"}
	if rep.Books == nil {
		return t
	}
	for _, e := range rep.Books.Entries {
		verdict := "ok"
		if !e.OK {
			verdict = "BAD"
		}
		t.add(verdict, e.Name, group(e.Count), e.Meaning)
	}
	return t
}

// mismatches are at most n of them, harmless.
func (rep *Report) mismatches(n int) []string {
	if rep.Books == nil {
		return nil
	}
	return shown(rep.Books.Mismatches, n)
}

func shown(list []string, n int) []string {
	var out []string
	for _, s := range list[:min(len(list), n)] {
		out = append(out, plain(s))
	}
	if more := len(list) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %s more", group(int64(more))))
	}
	return out
}

func (rep *Report) textLists(b *bytes.Buffer) {
	for _, part := range []struct {
		title string
		list  []string
	}{{"Mismatches", rep.mismatches(maxTextList)}, {"Notes", shown(rep.Notes, maxTextList)}} {
		if len(part.list) > 0 {
			b.WriteString("\n" + part.title + "\n")
		}
		for _, s := range part.list {
			b.WriteString("  " + s + "\n")
		}
	}
	if t := rep.parameterTable(); len(t.Rows) > 0 {
		b.WriteString("\nParameters\n  ")
		for i, row := range t.Rows {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(row[0] + " " + row[1])
		}
		b.WriteString("\n")
	}
}

// parameterTable has the members of Parameters in their order, or the whole of them in
// one row where they are no object.
func (rep *Report) parameterTable() *table {
	t := &table{Head: []string{"parameter", "value"}, Align: "ww"}
	text, err := asJSON(rep.Parameters)
	if err != nil {
		t.add("parameters", "cannot be shown: "+err.Error())
		return t
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		if rep.Parameters != nil {
			t.add("parameters", string(bytes.TrimSpace(text)))
		}
		return t
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return t // BUG: what Marshal wrote can be read
		}
		t.add(fmt.Sprint(name), unquoted(value))
	}
	return t
}

// asJSON is json.Marshal without the escapes for HTML, which the template sees to.
func asJSON(x any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(x)
	return b.Bytes(), err
}

// unquoted shows a JSON string as its text and anything else as it is.
func unquoted(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil && value[0] == '"' {
		return s
	}
	return string(value)
}
