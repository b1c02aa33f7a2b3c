package loadgen

import (
	"math"
	"time"
)

// Scenario says what a run consists of. It is what a scenario file holds; zero values
// mean none or the default. Durations are written as in Go: 1m30s, 200ms.
type Scenario struct {
	Name  string `yaml:"name"`
	About string `yaml:"about,omitempty"`

	Fleet   Fleet         `yaml:"fleet"`
	Load    Load          `yaml:"load"`
	HTTP    HTTP          `yaml:"http,omitempty"`
	Devices Devices       `yaml:"devices,omitempty"`
	Warmup  time.Duration `yaml:"warmup,omitempty"`
	Phases  []Phase       `yaml:"phases"` // the measured part, one after another

	Ramp      *Ramp      `yaml:"ramp,omitempty"`
	Storm     *Storm     `yaml:"storm,omitempty"`
	Churn     *Churn     `yaml:"churn,omitempty"`
	Slow      *Slow      `yaml:"slow,omitempty"`
	Idle      *Idle      `yaml:"idle,omitempty"`
	Customers []Customer `yaml:"customers,omitempty"`

	// Drain is how long commands may take to end after the last one was sent, beyond
	// their own timeout: 5 s, or 40 s where there are callbacks. Repeats allows what only
	// a crash explains, see ledger.Options.
	Drain   time.Duration `yaml:"drain,omitempty"`
	Repeats bool          `yaml:"repeats,omitempty"`
}

// Fleet is who is connected.
type Fleet struct {
	Edges     int           `yaml:"edges"`
	Devices   int           `yaml:"devices"`             // of each edge
	Direct    int           `yaml:"direct,omitempty"`    // devices connected to the gateway itself
	Backends  int           `yaml:"backends"`            //
	NoDedupe  bool          `yaml:"noDedupe,omitempty"`  // edges that do not recognise a ref
	Reconnect time.Duration `yaml:"reconnect,omitempty"` // until a lost connection is dialled again
	Prefix    string        `yaml:"prefix,omitempty"`    // of every id
	Sources   int           `yaml:"sources,omitempty"`   // loopback addresses to connect from; 0: as many as are needed
}

// Load is what the Backends send over WebSocket.
type Load struct {
	Rate      float64       `yaml:"rate,omitempty"`      // commands per second of all Backends: an open loop
	Window    int           `yaml:"window,omitempty"`    // in flight for each Backend: a closed loop, rate is ignored
	Payload   int           `yaml:"payload,omitempty"`   // bytes of each command's value, and of its result
	Type      string        `yaml:"type,omitempty"`      // commandType
	Timeout   time.Duration `yaml:"timeout,omitempty"`   // of each command
	High      float64       `yaml:"high,omitempty"`      // share of HIGH commands, 0 to 1
	Low       float64       `yaml:"low,omitempty"`       //
	Callbacks float64       `yaml:"callbacks,omitempty"` // share that also has a callback
	Calm      bool          `yaml:"calm,omitempty"`      // only to devices that no storm and no slowness is to touch
}

// HTTP is what business systems post.
type HTTP struct {
	Rate    float64       `yaml:"rate,omitempty"`    // commands per second; 0 with workers: a closed loop
	Workers int           `yaml:"workers,omitempty"` // requests at a time
	Wait    time.Duration `yaml:"wait,omitempty"`    // the answer carries the end; without, a callback does
	Batch   int           `yaml:"batch,omitempty"`   // commands in one request
}

// Devices is how every simulated device behaves.
type Devices struct {
	Delay    time.Duration `yaml:"delay,omitempty"`    // a command takes between delay
	DelayMax time.Duration `yaml:"delayMax,omitempty"` // and this
	Progress int           `yaml:"progress,omitempty"` // progress updates of each command
	Fail     float64       `yaml:"fail,omitempty"`     // share of commands that fail
	Dead     float64       `yaml:"dead,omitempty"`     // share of devices that never answer
}

// Phase is a stretch of the run at a rate.
type Phase struct {
	Name   string        `yaml:"name,omitempty"`
	For    time.Duration `yaml:"for"`
	Factor float64       `yaml:"factor,omitempty"` // of the rates; 0: 1
}

// Ramp raises the rate until the latency passes a bound.
type Ramp struct {
	From   float64       `yaml:"from"`
	To     float64       `yaml:"to"`
	Factor float64       `yaml:"factor"` // each step's rate over the last's
	Step   time.Duration `yaml:"step"`
	P99    time.Duration `yaml:"p99"` // the bound
}

// Storm drops connections all at once and brings them back at once.
type Storm struct {
	Share  float64       `yaml:"share"`  // of the edges and direct devices, the first ones
	Repeat int           `yaml:"repeat"` // how often
	Every  time.Duration `yaml:"every"`  // from the end of one to the next
	Within time.Duration `yaml:"within"` // all must be back by then
}

// takes is how many of n the storm takes.
func (s *Storm) takes(n int) int { return int(math.Ceil(float64(n) * s.Share)) }

// Churn lets devices go and come.
type Churn struct {
	Rate float64       `yaml:"rate"` // devices that leave per second
	Away time.Duration `yaml:"away"`
}

// Slow adds parties that read slowly.
type Slow struct {
	Edges    int `yaml:"edges"`
	Backends int `yaml:"backends"`
	Bytes    int `yaml:"bytes"` // per second that each of them reads
}

// Idle measures what a connection costs that only sits there.
type Idle struct {
	Connections int           `yaml:"connections"` // direct devices
	Silence     time.Duration `yaml:"silence"`     // over which the gateway's CPU is taken
}

// Customer receives callbacks at an address of its own.
type Customer struct {
	Name   string        `yaml:"name"`
	Share  float64       `yaml:"share"`            // of the commands that have a callback; what is left goes to the first
	Delay  time.Duration `yaml:"delay,omitempty"`  // before it answers
	Refuse float64       `yaml:"refuse,omitempty"` // share of callbacks it answers with 503
}
