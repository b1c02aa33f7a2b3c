package drive

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Protocols a server may speak.
const (
	ProtoSubway = "subway" // PROTOCOL.md: REGISTER, COMMAND, COMMAND_RESPONSE
	ProtoFloor  = "floor"  // the C relay: announcements and a routing prefix
	ProtoNATS   = "nats"   // NATS request/reply
	ProtoMQTT   = "mqtt"   // MQTT 5 request/response
)

// Config says what to drive and how. The zero value of a field that is not marked optional is refused by Run or Idle.
type Config struct {
	Addr    netip.AddrPort // IPv4, in 127.0.0.0/8
	Proto   string
	HTTP    bool // commands are posted to /api/commands instead of sent by Backends (ProtoSubway only)
	Edges   int
	Devices int // per edge
	// Backends is the number of command sources, with HTTP the number of keep-alive connections (window 1 each).
	Backends int
	Window   int // commands in flight per Backend; with Rate the least that may be
	Payload  int // bytes of the JSON value in command and result
	Kind     string
	Warmup   time.Duration
	Time     time.Duration
	Count    int           // optional: end the measurement after so many commands, before Time is over
	Rate     float64       // optional: open loop, commands per second in all
	Wait     time.Duration // optional: HTTP ?wait=
	Batch    int           // optional: commands per POST /api/commands/batch (with HTTP, closed loop)
	Callback bool          // optional: measure again with a callback for each command (with HTTP, closed loop)
	Grow     int           // optional: measure again with so many devices per edge
	Stuck    bool          // optional: measure again while edge 0 does not read and its queue is full
	PID      int           // optional: whose CPU time and memory to read
	URL      string        // optional: where /metrics is
	Seed     uint64
	Conns    int           // Idle: device connections
	IdleFor  time.Duration // Idle: how long to watch them
}

// check refuses what the fixed-width messages, the loop or the house rules cannot hold.
func (c *Config) check() error {
	if !c.Addr.Addr().Is4() || !c.Addr.Addr().IsLoopback() {
		return fmt.Errorf("address %s is not in 127.0.0.0/8", c.Addr)
	}
	sources, window := backendsMax, slotsMax
	if c.HTTP {
		sources = sourcesMax
		if c.Proto != ProtoSubway {
			return errors.New("only a gateway takes commands over HTTP")
		}
	}
	for _, b := range []struct {
		name      string
		value, to int
	}{
		{"edges", c.Edges, edgesMax},
		{"devices", c.Devices, devicesMax},
		{"backends", c.Backends, sources},
		{"window", c.Window, window},
		{"payload", max(1, c.Payload), 1 << 20}, // 0: an empty string
		{"batch", max(1, c.Batch), batchSizeMax},
		{"routes per edge", max(1, c.Grow), devicesMax},
	} {
		if b.value < 1 || b.value > b.to {
			return fmt.Errorf("%s must be 1 to %d", b.name, b.to)
		}
	}
	if c.Time <= 0 || c.Time > time.Hour || c.Warmup < 0 || c.Warmup > time.Hour || c.Rate < 0 || c.Rate > 1e6 {
		return errors.New("time must be above 0 and up to 1h, warmup up to 1h, rate up to 1000000")
	}
	if (c.Batch > 0 || c.Callback) && (!c.HTTP || c.Rate > 0 || c.Wait > 0) {
		return errors.New("batches and callbacks want HTTP in a closed loop, without wait")
	}
	if (c.Grow > 0 || c.Stuck) && (c.HTTP || c.Proto != ProtoSubway || c.Edges < 2 || c.Edges > edgesMax) {
		return errors.New("routes and stuck want a gateway, Backends and at least two edges")
	}
	switch c.Proto {
	case ProtoSubway, ProtoFloor, ProtoNATS, ProtoMQTT:
		return nil
	}
	return fmt.Errorf("unknown protocol %q", c.Proto)
}

// Result is what one run measured. Times are in microseconds where the name says so.
type Result struct {
	Mode      string  `json:"mode"` // closed, open, http, batch, callback, routes, stuck, idle or connect
	Proto     string  `json:"proto"`
	Commands  int64   `json:"commands"` // completed in the measurement, each verified
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	// CPUPerCommand is the server's CPU time, user and system, per command. 0 without PID.
	CPUPerCommand    float64 `json:"cpu_us_per_command"`
	SystemShare      float64 `json:"cpu_system_share"` // of the server's CPU time
	P50              float64 `json:"p50_us"`
	P90              float64 `json:"p90_us"`
	P99              float64 `json:"p99_us"`
	P999             float64 `json:"p999_us"`
	Max              float64 `json:"max_us"`
	ServerShare      float64 `json:"server_share"` // of one processor
	DriverShare      float64 `json:"driver_share"`
	DriverBound      bool    `json:"driver_bound"`                 // the driver was the bottleneck: the server had time to spare
	AllocsPerMessage float64 `json:"allocs_per_message,omitempty"` // a command is two messages
	TargetRate       float64 `json:"target_rate,omitempty"`
	ServerRSS        int64   `json:"server_rss_bytes,omitempty"`

	Failed     int64    `json:"failed"`     // refused, or answered by an ERROR
	Stray      int64    `json:"stray"`      // an answer to no open command: unknown, or the second one
	Corrupt    int64    `json:"corrupt"`    // not the bytes that were sent, or to the wrong edge
	Lost       int64    `json:"lost"`       // no answer by the end of the drain
	Unexpected int64    `json:"unexpected"` // messages nobody should have got
	Notes      []string `json:"notes,omitempty"`

	// Before is the same load before what the mode changes: callbacks, a thousand times the routes, a stuck edge.
	Before        *Before `json:"before,omitempty"`
	BytesPerRoute float64 `json:"rss_bytes_per_route,omitempty"`
	StuckRefused  int64   `json:"stuck_refused,omitempty"`   // commands to the stuck edge that were refused
	StuckSent     int64   `json:"stuck_sent,omitempty"`      // of so many
	StuckRSS      int64   `json:"stuck_rss_bytes,omitempty"` // what the others that wait for it added to resident memory

	Conns          int     `json:"conns,omitempty"`
	RSSPerConn     float64 `json:"rss_bytes_per_conn,omitempty"`
	ConnsPerSecond float64 `json:"conns_per_second,omitempty"`
	CPUPerConn     float64 `json:"cpu_us_per_conn,omitempty"` // to accept, upgrade and register one
	IdleCPU        float64 `json:"idle_cpu_ms,omitempty"`

	Seed    uint64 `json:"seed"`
	Payload int    `json:"payload,omitempty"`
	Kind    string `json:"payload_kind,omitempty"`
}

// Before holds the figures that a second measurement is compared with.
type Before struct {
	CPUPerCommand float64 `json:"cpu_us_per_command"`
	PerSecond     float64 `json:"per_second"`
	P50           float64 `json:"p50_us"`
	P99           float64 `json:"p99_us"`
}

// Bad says in one line what went wrong in the run, "" when nothing did.
func (r *Result) Bad() string {
	if r.Failed+r.Stray+r.Corrupt+r.Lost+r.Unexpected == 0 {
		return ""
	}
	return fmt.Sprintf("failed %d, stray %d, corrupt %d, lost %d, unexpected %d: %q",
		r.Failed, r.Stray, r.Corrupt, r.Lost, r.Unexpected, r.Notes)
}
