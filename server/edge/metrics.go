package edge

import (
	"bytes"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/valyala/fasthttp"

	"subway/core/wire"
	"subway/server/edge/store"
)

// counts only grow. All but refusals are guarded by Edge.mu.
type counts struct {
	accepted, handed, answered, expired, repeated, late, superseded uint64

	dropped  [store.Status + 1]uint64 // of the backlog, by kind
	refusals [wire.CodeInternal + 1]atomic.Uint64
}

// metrics answers /metrics.
type metrics struct {
	e        *Edge
	registry *prometheus.Registry
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("subway_edge_"+name, help, labels, nil)
}

var (
	descDevices     = desc("devices", "Devices that are connected.")
	descLink        = desc("link_up", "1 while the edge is registered at the Gateway.")
	descOffline     = desc("link_permanently_offline", "1 when the attempts of the schedule are used up.")
	descLinks       = desc("registrations_total", "How often the edge registered at the Gateway.")
	descCommands    = desc("commands_total", "What became of commands.", "outcome")
	descLate        = desc("late_responses_total", "What devices said of commands that they had answered.")
	descSuperseded  = desc("superseded_total", "Connections replaced by a newer one of the same device.")
	descRefusals    = desc("refusals_total", "ERROR messages sent to devices or the Gateway.", "error_code")
	descQueued      = desc("queued_bytes", "Commands that wait for their device.")
	descStore       = desc("store_bytes", "What the store holds, about.")
	descStoreLimit  = desc("store_limit_bytes", "What it may hold before commands are refused.")
	descFailing     = desc("store_failing", "1 while the disk refuses changes.")
	descRefs        = desc("refs", "Request refs that are remembered.")
	descUnconfirmed = desc("unconfirmed_answers", "Answers that are not known to have arrived.")
	descWaiting     = desc("waiting_messages", "Messages that wait for the link.", "kind")
	descDropped     = desc("dropped_messages_total", "Messages that waited for the link and had to go.", "kind")
)

var kindWords = map[store.Kind]string{store.Response: "response", store.Progress: "progress", store.Status: "status"}

func newMetrics(e *Edge) *metrics {
	m := &metrics{e: e, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Describe implements prometheus.Collector: none, so that series may come and go.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	e := m.e
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	gauge(descDevices, int64(e.connected))
	gauge(descLink, bit(e.up.registered))
	gauge(descOffline, bit(e.up.offline))
	counter(descLinks, uint64(e.up.gen))
	counter(descCommands, e.count.accepted, "accepted")
	counter(descCommands, e.count.handed, "handed")
	counter(descCommands, e.count.answered, "answered")
	counter(descCommands, e.count.expired, "expired")
	counter(descCommands, e.count.repeated, "repeated")
	counter(descLate, e.count.late)
	counter(descSuperseded, e.count.superseded)
	for code := range e.count.refusals {
		if n := e.count.refusals[code].Load(); n > 0 {
			counter(descRefusals, n, wire.Code(code).String())
		}
	}
	gauge(descQueued, e.queued)
	gauge(descStore, e.used)
	gauge(descStoreLimit, e.opt.StoreBytes)
	gauge(descFailing, bit(e.failing != nil))
	gauge(descRefs, int64(len(e.refs)))
	gauge(descUnconfirmed, int64(len(e.unconfirmed)))
	for kind, word := range kindWords {
		gauge(descWaiting, int64(e.backlog.kinds[kind].Len()), word)
		counter(descDropped, e.count.dropped[kind], word)
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) serve(ctx *fasthttp.RequestCtx) {
	families, err := m.registry.Gather()
	if err != nil {
		failHTTP(ctx, wire.CodeInternal, "Metrics cannot be gathered")
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var body bytes.Buffer
	enc := expfmt.NewEncoder(&body, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			failHTTP(ctx, wire.CodeInternal, "Metrics cannot be written")
			return
		}
	}
	ctx.SetContentType(string(format))
	ctx.SetBody(body.Bytes())
}
