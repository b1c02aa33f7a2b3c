package gateway

import (
	"bytes"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/callback"
	"subway/server/front"
)

// metrics answers /metrics (PROTOCOL.md section 8). The router and the outbox count;
// here their counts get names when somebody asks.
type metrics struct {
	registry *prometheus.Registry
	g        *Gateway
	front    atomic.Pointer[front.Server] // nil until Start has it: the port serves before
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("subway_"+name, help, labels, nil)
}

var (
	descRoute      = desc("route_latency_seconds", "From acceptance to the edge's connection, and from reading a response to handing it on.", "from", "to")
	descDuration   = desc("command_duration_seconds", "From a command's acceptance to its end.", "command_type", "outcome")
	descSuccess    = desc("commands_success_total", "Commands that ended COMPLETED.", "command_type", "device_type")
	descFailure    = desc("commands_failure_total", "Commands that ended otherwise.", "command_type", "error_code")
	descActive     = desc("active_connections", "Registered WebSocket connections.", "node_type")
	descRouting    = desc("routing_errors_total", "Messages and requests that were refused.", "error_code")
	descLate       = desc("late_responses_total", "Answers to commands that had ended.")
	descOrphan     = desc("orphan_responses_total", "Answers to unknown commands that carried a callback or a source.")
	descCallbacks  = desc("callbacks_total", "What became of callbacks.", "outcome")
	descQueue      = desc("callback_queue_length", "Callbacks that are due.")
	descPending    = desc("pending_commands", "Commands accepted and not final.")
	descRoutes     = desc("routes", "Devices with a route.")
	descRetention  = desc("retention_seconds", "For how long ended commands are really kept.")
	descDropped    = desc("status_dropped_total", "Status messages not sent to a Backend that was behind.")
	descSockets    = desc("connections", "Open connections by what they are.", "kind")
	descShed       = desc("connections_shed_total", "Connections refused because as many as may be were open.")
	descClosed     = desc("websockets_closed_total", "WebSockets that ended, by why.", "reason")
	descHeld       = desc("transport_bytes", "Bytes of messages that came in part, and that wait in outboxes beyond the first 64 KiB of each.", "kind")
	descDeadLetter = desc("dead_letters", "Callbacks given up and kept.")
	descBroken     = desc("callback_hosts_resting", "Receivers that many attempts in a row did not reach, and that are left alone for a while.")

	descJournalRecords  = desc("journal_records_total", "Records that were stored.")
	descJournalBytes    = desc("journal_bytes_total", "Bytes of groups that were stored.")
	descJournalGroups   = desc("journal_groups_total", "Groups of records that were stored, each with one fsync.")
	descJournalSync     = desc("journal_fsync_seconds_total", "What the fsync calls of the journal took.")
	descJournalUnstored = desc("journal_unstored_bytes", "Bytes that wait to be stored.")
	descJournalDisk     = desc("journal_disk_bytes", "What the journal takes of the disk.")
	descJournalFailing  = desc("journal_failing", "1 while the disk takes nothing.")
	descJournalFailures = desc("journal_failures_total", "Tries to store a group that failed.")
)

func newMetrics(g *Gateway) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), g: g}
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Describe implements prometheus.Collector: none, so that series may come and go.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	histogram := func(d *prometheus.Desc, h *router.Histogram, labels ...string) {
		buckets, count, sum := h.Load()
		out <- prometheus.MustNewConstHistogram(d, count, sum, buckets, labels...)
	}
	m.g.router.VisitMetrics(&router.Visitor{
		RouteLatency:  func(from, to string, h *router.Histogram) { histogram(descRoute, h, from, to) },
		Duration:      func(ct, outcome string, h *router.Histogram) { histogram(descDuration, h, ct, outcome) },
		Success:       func(ct, dt string, n uint64) { counter(descSuccess, float64(n), ct, dt) },
		Failure:       func(ct, code string, n uint64) { counter(descFailure, float64(n), ct, code) },
		Connections:   func(node string, n int64) { gauge(descActive, float64(n), node) },
		RoutingErrors: func(code string, n uint64) { counter(descRouting, float64(n), code) },
	})
	v := m.g.router.Gauges(m.g.clock.now())
	counter(descLate, float64(v.Late))
	counter(descOrphan, float64(v.Orphans))
	counter(descDropped, float64(v.StatusDropped))
	gauge(descPending, float64(v.Pending))
	gauge(descRoutes, float64(v.Routes))
	gauge(descRetention, v.RetentionSeconds)
	m.collectServers(counter, gauge)
}

func (m *metrics) collectServers(counter, gauge func(*prometheus.Desc, float64, ...string)) {
	o := m.g.outbox.Stats()
	for i, n := range o.Outcomes {
		counter(descCallbacks, float64(n), callback.Outcome(i).String())
	}
	gauge(descQueue, float64(o.Queued))
	gauge(descDeadLetter, float64(o.Dead))
	gauge(descBroken, float64(o.Broken))
	m.collectJournal(counter, gauge)
	port := m.front.Load()
	if port == nil {
		return
	}
	f := port.Stats()
	gauge(descSockets, float64(f.Waiting), "waiting")
	gauge(descSockets, float64(f.WebSockets), "websocket")
	gauge(descSockets, float64(f.HTTP), "http")
	counter(descShed, float64(f.Shed))
	for i, n := range f.Closed {
		counter(descClosed, float64(n), front.CloseReason(i).String())
	}
	gauge(descHeld, float64(f.PartialBytes), "partial")
	gauge(descHeld, float64(f.WaitingBytes), "waiting")
}

func (m *metrics) collectJournal(counter, gauge func(*prometheus.Desc, float64, ...string)) {
	if m.g.durable == nil {
		return
	}
	s := m.g.durable.Stats()
	counter(descJournalRecords, float64(s.Records))
	counter(descJournalBytes, float64(s.Bytes))
	counter(descJournalGroups, float64(s.Groups))
	counter(descJournalSync, s.SyncTime.Seconds())
	counter(descJournalFailures, float64(s.Failures))
	gauge(descJournalUnstored, float64(s.Unstored))
	gauge(descJournalDisk, float64(s.DiskBytes))
	failing := 0.0
	if !s.FailingSince.IsZero() {
		failing = 1
	}
	gauge(descJournalFailing, failing)
}

func (g *Gateway) getMetrics(ctx *fasthttp.RequestCtx, _ string) {
	families, err := g.metrics.registry.Gather()
	if err != nil {
		g.opt.Logger.Error("metrics cannot be gathered", "error", err)
		g.fail(ctx, wire.CodeInternal, "Metrics cannot be gathered", nil, nil)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var out bytes.Buffer
	enc := expfmt.NewEncoder(&out, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			g.fail(ctx, wire.CodeInternal, "Metrics cannot be written", nil, nil)
			return
		}
	}
	ctx.SetContentType(string(format))
	ctx.SetBody(out.Bytes())
}
