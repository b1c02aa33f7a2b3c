package router

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailru/easyjson"

	"subway/core/wire"
)

// ask does a line that only looks, and reports whether it is one.
func (st *stage) ask(word, rest string) bool {
	f := strings.Fields(rest)
	arg := func(i int) string { return append(f, "", "")[i] }
	switch word {
	case "record":
		show(st, st.r.Record([]byte(rest)))
	case "trace":
		show(st, st.r.Trace([]byte(rest)))
	case "commands":
		st.commands(f)
	case "devices":
		page, next := st.r.Devices(st.query(f))
		for _, d := range page {
			st.print("%s %s %s %s", d.ClientID, d.DeviceType, d.EdgeID, d.Connection)
		}
		st.print("next %q", next)
	case "edges":
		page, next := st.r.Edges(st.query(f))
		for _, e := range page {
			st.print("%s %s devices %d queued %d", e.EdgeID, e.Connection, e.Devices, e.Queued)
		}
		st.print("next %q", next)
	case "device":
		show(st, st.r.Device(rest))
	case "edge":
		show(st, st.r.Edge(rest))
	case "matching":
		st.r.DevicesMatchingAny([]string{arg(0)}, st.number(arg(1)), func(_ int, id string) { st.print("%s", id) })
	case "gauges":
		st.print("%+v", st.r.Gauges(st.now))
	case "metrics":
		st.metrics()
	default:
		return false
	}
	return true
}

func (st *stage) query(f []string) *PartyQuery {
	q := &PartyQuery{Limit: 100}
	for _, x := range f {
		name, value, _ := strings.Cut(x, "=")
		online := value == "ONLINE"
		switch name {
		case "type":
			q.Type = value
		case "edge":
			q.Edge = value
		case "status":
			q.Online = &online
		case "limit":
			q.Limit = st.number(value)
		case "cursor":
			q.Cursor = value
		}
	}
	return q
}

func (st *stage) commands(f []string) {
	q := &RecordQuery{Limit: 100}
	for _, x := range f {
		name, value, _ := strings.Cut(x, "=")
		switch name {
		case "status":
			q.Status, q.Filter = ParseState(value)
		case "target":
			q.Target = value
		case "limit":
			q.Limit = st.number(value)
		case "cursor":
			q.Cursor = value
		}
	}
	page, next, ok := st.r.Records(q)
	for _, c := range page {
		st.print("%s %s %s", c.RequestRef, c.TargetClientID, c.Status)
	}
	st.print("next %q %v", next, ok)
}

func (st *stage) metrics() {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	histogram := func(what, a, b string, h *Histogram) {
		if _, n, sum := h.Load(); n > 0 {
			add("%s %s %s: %d in %.3gs", what, a, b, n, sum)
		}
	}
	st.r.VisitMetrics(&Visitor{
		RouteLatency:  func(a, b string, h *Histogram) { histogram("latency", a, b, h) },
		Duration:      func(a, b string, h *Histogram) { histogram("duration", a, b, h) },
		Success:       func(a, b string, n uint64) { add("success %s %s: %d", a, b, n) },
		Failure:       func(a, b string, n uint64) { add("failure %s %s: %d", a, b, n) },
		Connections:   func(a string, n int64) { add("connections %s: %d", a, n) },
		RoutingErrors: func(a string, n uint64) { add("routing error %s: %d", a, n) },
	})
	slices.Sort(lines)
	for _, line := range lines {
		st.print("%s", line)
	}
}

// show prints an answer of the API.
func show[T any, P interface {
	*T
	easyjson.Marshaler
}](st *stage, v P) {
	if v == nil {
		st.print("nothing")
		return
	}
	st.print("%s", wire.AppendAnswer(nil, v))
}

var (
	patternTime  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	patternUnix  = regexp.MustCompile(`\b1705\d{9}\b`)
	patternEpoch = regexp.MustCompile(`"epoch":\d+`)
	patternName  = regexp.MustCompile(`"sessionId":"s-[^"]*"`)
	patternText  = regexp.MustCompile(`%\d+%`)
	patternRef   = regexp.MustCompile(`cmd-\d{13}-[a-z0-9]{9}`)
)

// print writes one output, with what differs from run to run made alike.
func (st *stage) print(format string, args ...any) {
	if st.quiet {
		return
	}
	s := fmt.Sprintf(format, args...)
	s = patternRef.ReplaceAllStringFunc(s, func(ref string) string {
		if st.refs[ref] == "" {
			st.refs[ref] = fmt.Sprintf("REF%d", len(st.refs)+1)
		}
		return st.refs[ref]
	})
	s = patternTime.ReplaceAllStringFunc(s, func(at string) string {
		x, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return at
		}
		return since(x.UnixMilli())
	})
	s = patternUnix.ReplaceAllStringFunc(s, func(at string) string {
		x, _ := strconv.ParseInt(at, 10, 64)
		return since(x)
	})
	s = patternEpoch.ReplaceAllStringFunc(s, func(e string) string {
		x, _ := strconv.ParseInt(e[len(`"epoch":`):], 10, 64)
		return fmt.Sprintf(`"epoch":%d`, x-t0.Millis()<<10)
	})
	s = patternName.ReplaceAllString(s, `"sessionId":"S"`)
	if len(s) > 1000 {
		s = fmt.Sprintf("%s... (%d bytes)", s[:200], len(s))
	}
	st.outputs = append(st.outputs, s)
}

func since(millis int64) string {
	return "t+" + (time.Duration(millis-t0.Millis()) * time.Millisecond).String()
}
