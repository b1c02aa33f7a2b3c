package gateway_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics returns the value of every series, by its name and labels as /metrics writes
// them.
func (f *fixture) metrics() map[string]float64 {
	f.t.Helper()
	a := f.call("GET", "/metrics", "")
	all := make(map[string]float64)
	for line := range bytes.Lines(a.body) {
		text := strings.TrimSpace(string(line))
		i := strings.LastIndexByte(text, ' ')
		if i < 0 || text[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(text[i+1:], 64)
		if err != nil {
			f.t.Fatalf("%s: %v", line, err)
		}
		all[text[:i]] = v
	}
	return all
}

// metric returns the value of one series; 0 where it is not there.
func (f *fixture) metric(series string) float64 {
	f.t.Helper()
	return f.metrics()[series]
}

// families reads /metrics as Prometheus does.
func (f *fixture) families() map[string]*dto.MetricFamily {
	f.t.Helper()
	a := f.call("GET", "/metrics", "")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(a.body))
	if err != nil {
		f.t.Fatalf("%v in\n%s", err, a.body)
	}
	return all
}

// labels counts the distinct values of a label.
func labels(family *dto.MetricFamily, name string) map[string]bool {
	values := make(map[string]bool)
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == name {
				values[l.GetValue()] = true
			}
		}
	}
	return values
}

// published are the names of PROTOCOL.md section 8 with their labels and types.
var published = []struct {
	name   string
	kind   dto.MetricType
	labels string
}{
	{"route_latency_seconds", dto.MetricType_HISTOGRAM, "from to"},
	{"command_duration_seconds", dto.MetricType_HISTOGRAM, "command_type outcome"},
	{"commands_success_total", dto.MetricType_COUNTER, "command_type device_type"},
	{"commands_failure_total", dto.MetricType_COUNTER, "command_type error_code"},
	{"active_connections", dto.MetricType_GAUGE, "node_type"},
	{"routing_errors_total", dto.MetricType_COUNTER, "error_code"},
	{"late_responses_total", dto.MetricType_COUNTER, ""},
	{"orphan_responses_total", dto.MetricType_COUNTER, ""},
	{"callbacks_total", dto.MetricType_COUNTER, "outcome"},
	{"callback_queue_length", dto.MetricType_GAUGE, ""},
	{"pending_commands", dto.MetricType_GAUGE, ""},
	{"routes", dto.MetricType_GAUGE, ""},
	{"retention_seconds", dto.MetricType_GAUGE, ""},
	{"status_dropped_total", dto.MetricType_COUNTER, ""},
}

// TestMetrics: the published names are there with their labels, what clients choose
// fills no more than 100 values of one, and whatever they choose the text can be read.
func TestMetrics(t *testing.T) {
	f := start(t, nil)
	backend, edge := f.backend("backend-1"), f.device("td-01")
	types := []string{"", `\"`, `\\`, `\n`, `\u0000`, `{}`, `a=\"b\"`, `é`, strings.Repeat("x", 4000)}
	for i := range 150 {
		word := fmt.Sprintf("TYPE_%d", i)
		if i < len(types) {
			word += types[i]
		}
		ref := fmt.Sprintf("r-%d", i)
		backend.sendf(`{"type":"COMMAND","requestRef":"%s","targetClientId":"td-01","command":{"commandType":"%s"}}`, ref, word)
		edge.expectCommand(ref)
		if i%2 == 0 {
			edge.respond(ref)
		} else {
			edge.sendf(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"FAILED","error":{"code":"%s"}}`, ref, word)
		}
		backend.expect("COMMAND_RESPONSE")
	}
	for i := range 150 {
		device := f.device(fmt.Sprintf("kind%d-1", i))
		backend.sendf(`{"type":"COMMAND","requestRef":"k-%d","targetClientId":"kind%d-1","command":{"commandType":"TYPE_0"}}`, i, i)
		device.expect("COMMAND")
		device.respond(fmt.Sprintf("k-%d", i))
		backend.expect("COMMAND_RESPONSE")
		_ = device.conn.Close()
	}
	backend.command("none", "td-99", "")
	backend.expectError("TARGET_NOT_FOUND")
	checkPublished(t, f.families())
	if got := f.metric(`subway_commands_success_total{command_type="TYPE_0",device_type="td"}`); got != 1 {
		t.Errorf("TYPE_0 completed %g times on td", got)
	}
	if got := f.metric(`subway_routing_errors_total{error_code="TARGET_NOT_FOUND"}`); got != 1 {
		t.Errorf("%g commands without a route", got)
	}
}

func checkPublished(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	for _, p := range published {
		family := families["subway_"+p.name]
		if family == nil || family.GetType() != p.kind || family.GetHelp() == "" {
			t.Errorf("subway_%s: %v", p.name, family)
			continue
		}
		for name := range strings.FieldsSeq(p.labels) {
			values := labels(family, name)
			if len(values) == 0 || len(values) > 100 {
				t.Errorf("subway_%s: %d values of %s", p.name, len(values), name)
			}
		}
	}
	for family, label := range map[string]string{"commands_success_total": "device_type", "command_duration_seconds": "command_type"} {
		if !labels(families["subway_"+family], label)["other"] {
			t.Errorf("subway_%s: nothing counts as other %s", family, label)
		}
	}
	for name := range families {
		if !strings.HasPrefix(name, "subway_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is nobody's", name)
		}
	}
}
