package device

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"subway/core/wire"
	"subway/server/device/program"
	"subway/server/uplink"
)

// Bounds that are not configured.
const (
	maxParallel = 1024
	maxQueue    = 100_000
	maxProgress = 1000
	maxAnswers  = 1024    // answers remembered, oldest out first
	maxBytes    = 1 << 20 // of them, refs included
	maxSettings = 64      // values kept by SET_...; more are echoed only
	maxValue    = 4 << 10 // bytes of a value that is kept and echoed

	// doubt is how long a connection may have been lost before it is noticed: answers given
	// then are sent again after the next REGISTER_ACK, since nothing acknowledges them.
	doubt = 75 * time.Second
)

// Options say who a device is and how it behaves. Zero values mean the defaults.
type Options struct {
	ID   string
	URLs []string // of Gateways or Edges, tried in turn: ws, wss, and of an Edge's adapters mqtt and tcp
	Behaviour
	Connection uplink.Options
	Schedule   uplink.Schedule
	Logger     *slog.Logger // of the connection; nil: silent
	Report     func(Report) // told of each command once it has ended; from several goroutines

	// Programs is where PROGRAM commands are installed; nil: they are simulated as others
	// are. The device closes it when Run ends.
	Programs *program.Store
	Play     func(program.Program) // told what plays: at the start and when it changes; from several goroutines
}

// Behaviour is what a device does with commands.
type Behaviour struct {
	DelayMin, DelayMax time.Duration // how long a command takes: any time between the two
	FailRate           float64       // 0 to 1: the share of commands that fail
	FailTypes          []string      // command types that always fail
	FailCode           string        // their error.code; DEVICE_ERROR
	Progress           int           // PROGRESS_UPDATEs while a command runs
	StatusInterval     time.Duration // between DEVICE_STATUS; 0: none is sent
	Parallel           int           // commands that run at the same time; 1
	Queue              int           // commands that wait; 100
}

// Outcome is how a command ended on the device.
type Outcome string

// The outcomes.
const (
	Completed  Outcome = "COMPLETED"
	Failed     Outcome = "FAILED"
	Cancelled  Outcome = "CANCELLED"  // by a CANCEL; not answered
	Repeated   Outcome = "REPEATED"   // a known requestRef; answered from memory if there is an answer
	Overloaded Outcome = "OVERLOADED" // the queue was full
	Abandoned  Outcome = "ABANDONED"  // the device was told to end meanwhile
)

// Report is what a device tells of a command.
type Report struct {
	Device, Ref, CommandType string
	Outcome                  Outcome
	Result                   []byte // JSON: of Completed the result, of Failed the error; else nil
	Took                     time.Duration
}

func (o Options) withDefaults() Options {
	if o.FailCode == "" {
		o.FailCode = "DEVICE_ERROR"
	}
	if o.Parallel == 0 {
		o.Parallel = 1
	}
	if o.Queue == 0 {
		o.Queue = 100
	}
	o.DelayMax = max(o.DelayMin, o.DelayMax)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(Report) {}
	}
	if o.Play == nil {
		o.Play = func(program.Program) {}
	}
	return o
}

// check refuses what no device can do.
func (o Options) check() error {
	switch {
	case !wire.ValidID([]byte(o.ID)):
		return fmt.Errorf("%q is no device id: it must be 1 to 128 of A-Z a-z 0-9 . _ : -", o.ID)
	case checkURLs(o.URLs) != nil:
		return checkURLs(o.URLs)
	case o.DelayMin < 0:
		return errors.New("a delay cannot be negative")
	case !(o.FailRate >= 0 && o.FailRate <= 1):
		return errors.New("the share of commands that fail must be between 0 and 1")
	case o.Progress < 0 || o.Progress > maxProgress:
		return fmt.Errorf("the number of progress updates must be between 0 and %d", maxProgress)
	case o.Parallel < 1 || o.Parallel > maxParallel:
		return fmt.Errorf("the number of commands at the same time must be between 1 and %d", maxParallel)
	case o.Queue < 1 || o.Queue > maxQueue:
		return fmt.Errorf("the length of the queue must be between 1 and %d", maxQueue)
	case o.StatusInterval != 0 && o.StatusInterval < 10*time.Millisecond:
		return errors.New("the status interval must be 10ms or more, or 0 for none")
	}
	return nil
}
