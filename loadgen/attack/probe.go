package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Why there is no gateway to drive.
var (
	ErrUnreachable = errors.New("the gateway cannot be reached")
	ErrNotGateway  = errors.New("what answers is not a gateway")
)

// Health is what a gateway says of itself.
type Health struct {
	Version string
	Ready   bool
	Reason  string // where it is not ready: what it said
}

const maxHealth = 64 << 10 // bytes of an answer about health or version

// Probe asks GET /version and /readyz (PROTOCOL.md section 6). An error wraps
// ErrUnreachable (refused, no route, no answer before ctx ended) or ErrNotGateway; a
// gateway that is not ready is no error.
func Probe(ctx context.Context, gateway string) (Health, error) {
	base, err := gatewayURL(gateway)
	if err != nil {
		return Health{}, err
	}
	t := newTransport(1, nil)
	defer t.CloseIdleConnections()
	ask := func(path string) (int, []byte, error) {
		status, body, err := get(ctx, t, base+path, maxHealth)
		switch {
		case errors.Is(err, ErrTooLong):
			return 0, nil, fmt.Errorf("%w: %s: %w", ErrNotGateway, base+path, err)
		case err != nil && speaksNoHTTP(err):
			return 0, nil, fmt.Errorf("%w: %s: %w", ErrNotGateway, base+path, err)
		case err != nil:
			return 0, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return status, body, nil
	}
	status, body, err := ask("/version")
	if err != nil {
		return Health{}, err
	}
	var v versionReply
	if status != http.StatusOK || decode(body, &v) != nil || v.Version == "" {
		return Health{}, fmt.Errorf("%w: GET %s/version: HTTP %d, %s", ErrNotGateway, base, status, excerpt(body))
	}
	h := Health{Version: v.Version}
	status, body, err = ask("/readyz")
	switch {
	case err != nil:
		return h, err
	case status == http.StatusOK:
		h.Ready = true
	case status == http.StatusServiceUnavailable:
		h.Reason = string(bytes.TrimSpace(body))
	default:
		return h, fmt.Errorf("%w: GET %s/readyz: HTTP %d", ErrNotGateway, base, status)
	}
	return h, nil
}

// speaksNoHTTP tells an answer that is no HTTP from none at all: net/http has no type
// for it, so what is no network error counts.
func speaksNoHTTP(err error) bool {
	cause := Cause(err)
	return cause == "network error" && !neverLeft(err)
}

// Value is a figure that a gateway may not tell.
type Value struct {
	V     float64
	Known bool
}

// Sample is what a gateway's /metrics say of its own cost.
type Sample struct {
	CPUSeconds    Value // process_cpu_seconds_total
	ResidentBytes Value // process_resident_memory_bytes
	Mallocs       Value // go_memstats_mallocs_total
	Goroutines    Value // go_goroutines
	Routes        Value // subway_routes
	Connections   Value // subway_active_connections, all kinds
	// ByKind has subway_active_connections by its node_type; nil if it does not tell.
	ByKind map[string]float64
}

const maxMetrics = 16 << 20 // bytes of /metrics

// Scrape reads GET /metrics (PROTOCOL.md section 8) in the Prometheus text form.
func Scrape(ctx context.Context, gateway string) (Sample, error) {
	base, err := gatewayURL(gateway)
	if err != nil {
		return Sample{}, err
	}
	t := newTransport(1, nil)
	defer t.CloseIdleConnections()
	status, body, err := get(ctx, t, base+"/metrics", maxMetrics)
	switch {
	case err != nil:
		return Sample{}, fmt.Errorf("attack: reading metrics: %w", err)
	case status != http.StatusOK:
		return Sample{}, fmt.Errorf("%w: GET %s/metrics: HTTP %d", ErrAnswer, base, status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return Sample{}, fmt.Errorf("%w: metrics: %w", ErrAnswer, err)
	}
	return sample(families), nil
}

func sample(families map[string]*dto.MetricFamily) Sample {
	s := Sample{
		CPUSeconds:    sum(families["process_cpu_seconds_total"]),
		ResidentBytes: sum(families["process_resident_memory_bytes"]),
		Mallocs:       sum(families["go_memstats_mallocs_total"]),
		Goroutines:    sum(families["go_goroutines"]),
		Routes:        sum(families["subway_routes"]),
		Connections:   sum(families["subway_active_connections"]),
	}
	if !s.Connections.Known {
		return s
	}
	s.ByKind = make(map[string]float64)
	for _, m := range families["subway_active_connections"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "node_type" {
				s.ByKind[l.GetValue()] += value(m)
			}
		}
	}
	return s
}

// sum adds up a family's series; a nil family is not known.
func sum(f *dto.MetricFamily) (v Value) {
	for _, m := range f.GetMetric() {
		v.V, v.Known = v.V+value(m), true
	}
	if math.IsNaN(v.V) || math.IsInf(v.V, 0) {
		return Value{} // it tells nothing
	}
	return v
}

// value is a counter's, a gauge's or an untyped one's; the others read 0.
func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}
