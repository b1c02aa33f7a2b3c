package report

import (
	"cmp"
	"math"
	"slices"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Distribution tells of the latencies of one channel, from the intended instant on.
// Percentiles are right to 3 digits; count, minimum, mean and maximum are exact.
type Distribution struct {
	Channel Channel  `json:"channel"`
	Sent    int64    `json:"sent"`   // commands; 0 for callbacks, which the gateway sends
	Errors  int64    `json:"errors"` // of Count, those that ended with an error
	Count   int64    `json:"count"`  // commands done, or callbacks that came
	MinMs   float64  `json:"minMs"`
	MeanMs  float64  `json:"meanMs"`
	P50Ms   float64  `json:"p50Ms"`
	P90Ms   float64  `json:"p90Ms"`
	P99Ms   float64  `json:"p99Ms"`
	P999Ms  float64  `json:"p99_9Ms"`
	P9999Ms float64  `json:"p99_99Ms"`
	MaxMs   float64  `json:"maxMs"`
	Curve   []Point  `json:"curve"`   // latency by percentile, for plotting; ten points for each nine
	Buckets []Bucket `json:"buckets"` // counts by latency, ten buckets for each power of ten
}

// Point says that so many per cent of the commands took at most LatencyMs.
type Point struct {
	Percentile float64 `json:"percentile"`
	LatencyMs  float64 `json:"latencyMs"`
}

// Bucket counts latencies above FromMs and up to ToMs.
type Bucket struct {
	FromMs float64 `json:"fromMs"`
	ToMs   float64 `json:"toMs"`
	Count  int64   `json:"count"`
}

func distribution(c Channel, t *tally, fineCode *[maxCodes + 1]bool) Distribution {
	v := &t.latency
	d := Distribution{Channel: c, Sent: t.sent, Count: v.count, Curve: []Point{}, Buckets: []Bucket{}}
	for code, n := range t.code {
		if !fineCode[code] {
			d.Errors += n
		}
	}
	if v.count == 0 {
		return d
	}
	d.MinMs, d.MaxMs = toMs(v.min), toMs(v.max)
	d.MeanMs = round(v.sum/float64(v.count)/1e6, 3)
	d.P50Ms, d.P90Ms, d.P99Ms = v.percentileMs(50), v.percentileMs(90), v.percentileMs(99)
	d.P999Ms, d.P9999Ms = v.percentileMs(99.9), v.percentileMs(99.99)
	d.Curve, d.Buckets = v.curve(), buckets(v.histogram)
	return d
}

// percentileMs stays within the exact bounds: the histogram gives the end of a bucket.
func (v *values) percentileMs(p float64) float64 {
	if v.count == 0 {
		return 0
	}
	return toMs(min(max(valueAt(v.histogram, p), v.min), v.max))
}

// valueAt is the least value that p per cent of the values do not exceed, 0 without any.
// The histogram alone takes the NEAREST rank: of 91 values it would give the 90th for
// 99 %, though only 98.9 % are within that.
func valueAt(h *hdr.Histogram, p float64) int64 {
	n := float64(h.TotalCount())
	if n == 0 {
		return 0
	}
	rank := math.Ceil(p/100*n - 1e-6) // what is a whole rank but for its rounding stays
	return h.ValueAtPercentile(100 * rank / n)
}

const (
	maxNines   = 7 // 99.99999 %; a run has no more commands than that tells apart
	perNine    = 10
	perDecade  = 10
	curveLimit = maxNines*perNine + 2
)

// curve has a point for each tenth of a nine up to the percentile that one command is,
// and the maximum.
func (v *values) curve() []Point {
	points := make([]Point, 0, curveLimit)
	last := min(math.Log10(float64(v.count)), maxNines)
	for i := 0; float64(i)/perNine <= last; i++ {
		p := round(100*(1-math.Pow(10, -float64(i)/perNine)), maxNines)
		points = append(points, Point{Percentile: p, LatencyMs: v.percentileMs(p)})
	}
	points[0].LatencyMs = toMs(v.min)
	return append(points, Point{Percentile: 100, LatencyMs: toMs(v.max)})
}

// buckets sums the histogram's narrow buckets into ten a decade, from the first that is
// not empty to the last. A narrow one counts where its end lies.
func buckets(h *hdr.Histogram) []Bucket {
	out := []Bucket{}
	edge := func(i int) float64 { return math.Pow(10, float64(i)/perDecade) * 1e3 } // ns
	at := 0
	for _, bar := range h.Distribution() {
		if bar.Count == 0 {
			continue
		}
		first := len(out) == 0
		for float64(bar.To) > edge(at+1)*1.0005 {
			at++
			if !first {
				out = append(out, Bucket{FromMs: edgeMs(edge(at)), ToMs: edgeMs(edge(at + 1))})
			}
		}
		if first {
			out = append(out, Bucket{FromMs: edgeMs(edge(at)), ToMs: edgeMs(edge(at + 1))})
			if at == 0 {
				out[0].FromMs = 0
			}
		}
		out[len(out)-1].Count += bar.Count
	}
	return out
}

// edgeMs writes edges as people do: 0.126, 15.8, 200.
func edgeMs(ns float64) float64 {
	ms := ns / 1e6
	return round(ms, max(2-int(math.Floor(math.Log10(ms)+1e-9)), 0))
}

// channelsLocked tells of each channel that had anything, and of its errors by code.
func (r *Recorder) channelsLocked() ([]Distribution, []ErrorCount) {
	names, fineCode := r.codes.list(), r.fineCodes()
	list, errors := []Distribution{}, []ErrorCount{}
	for c := range channels {
		t := &r.total.channel[c]
		if t.sent == 0 && t.latency.count == 0 {
			continue
		}
		list = append(list, distribution(c, t, &fineCode))
		from := len(errors)
		for code, n := range t.code {
			if n == 0 || fineCode[code] {
				continue
			}
			e := ErrorCount{Channel: c, Code: "other", Count: n, Share: round(float64(n)/float64(t.latency.count), 6)}
			if code < len(names) {
				e.Code = names[code]
			}
			errors = append(errors, e)
		}
		slices.SortFunc(errors[from:], func(a, b ErrorCount) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Code, b.Code))
		})
	}
	return list, errors
}
