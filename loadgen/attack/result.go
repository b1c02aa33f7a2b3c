package attack

import (
	"io"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// maxErrorTexts bounds the distinct error texts in Metrics.Errors: a server may make up
// a new reason phrase each time.
const maxErrorTexts = 100

// Result is what vegeta measured. A hit is a request, so a batch counts once. Its
// latencies begin when a worker takes the tick, not at the intended instant: they leave
// out the time for which no worker was free. The latencies that count are those of
// Answer.
type Result struct {
	Metrics vegeta.Metrics
	Began   time.Time
	// Unsent counts the requests of an open loop that were due before the end and never
	// left, as all workers were busy. No Next was called for them.
	Unsent uint64
}

func (r *Result) add(hit *vegeta.Result) {
	if hit.Error != "" && len(r.Metrics.Errors) >= maxErrorTexts {
		hit.Error = "other"
	}
	r.Metrics.Add(hit)
}

func (r *Result) finish() { r.Metrics.Close() }

// WriteText writes vegeta's text report.
func (r *Result) WriteText(w io.Writer) error { return vegeta.NewTextReporter(&r.Metrics)(w) }

// WriteJSON writes vegeta's JSON report; durations are in nanoseconds.
func (r *Result) WriteJSON(w io.Writer) error { return vegeta.NewJSONReporter(&r.Metrics)(w) }

// WriteHDR writes the percentiles in the form that HdrHistogram's plotter reads, in
// milliseconds.
func (r *Result) WriteHDR(w io.Writer) error {
	return vegeta.NewHDRHistogramPlotReporter(&r.Metrics)(w)
}
