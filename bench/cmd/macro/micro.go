package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// microLine is a micro-benchmark: medians over its runs. A benchmark of a size has its figure where the size is.
type microLine struct {
	Name       string  `json:"name"` // package, benchmark without the size
	NS         float64 `json:"ns,omitempty"`
	NSThousand float64 `json:"ns_at_1000,omitempty"`
	NSMillion  float64 `json:"ns_at_1000000,omitempty"`
	Allocs     float64 `json:"allocs"` // the most of the sizes
}

var (
	cpuSuffix  = regexp.MustCompile(`-[0-9]+$`)
	sizeSuffix = regexp.MustCompile(`/1000(000)?$`)
)

// micro reads the results of the micro-benchmarks.
func (b *bench) micro(context.Context) error {
	text, err := os.ReadFile(b.flags.Micro)
	if errors.Is(err, fs.ErrNotExist) {
		b.note("no micro-benchmarks: there is no %s", b.flags.Micro)
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	b.sum.MicroOf, _ = strings.CutPrefix(first, "# revision ") // they may be of another day than the rest of the page
	type figures struct{ ns, allocs []float64 }
	runs, order := make(map[string]*figures), []string(nil)
	reader := benchfmt.NewReader(bytes.NewReader(text), b.flags.Micro)
	for reader.Scan() {
		r, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue // a line that is no result
		}
		name := r.GetConfig("pkg") + " " + cpuSuffix.ReplaceAllString(string(r.Name), "")
		if runs[name] == nil {
			runs[name], order = new(figures), append(order, name)
		}
		if sec, ok := r.Value("sec/op"); ok {
			runs[name].ns = append(runs[name].ns, math.Round(sec*1e12)/1e3) // to the picosecond: benchfmt made seconds of it
		}
		if allocs, ok := r.Value("allocs/op"); ok {
			runs[name].allocs = append(runs[name].allocs, allocs)
		}
	}
	if err := reader.Err(); err != nil {
		return fmt.Errorf("%s: %w", b.flags.Micro, err)
	}
	for _, name := range order {
		if r := runs[name]; len(r.ns) > 0 && len(r.allocs) > 0 {
			b.sum.addMicro(name, median(r.ns), median(r.allocs))
		}
	}
	return nil
}

// addMicro puts a figure on the line of its benchmark.
func (s *summary) addMicro(name string, ns, allocs float64) {
	size := sizeSuffix.FindString(name)
	name = strings.TrimPrefix(strings.TrimSuffix(name, size), "subway/")
	last := len(s.Micro) - 1
	for last >= 0 && s.Micro[last].Name != name {
		last--
	}
	if last < 0 {
		s.Micro, last = append(s.Micro, microLine{Name: name}), len(s.Micro)
	}
	l := &s.Micro[last]
	l.Allocs = max(l.Allocs, allocs)
	switch size {
	case "/1000":
		l.NSThousand = ns
	case "/1000000":
		l.NSMillion = ns
	default:
		l.NS = ns
	}
}
