package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"subway/server/device"
	"subway/server/device/program"
)

// maxDevices bounds the simulated devices of one process.
const maxDevices = 10_000

type deviceCmd struct {
	ID       []string `name:"id" help:"A device's id; may be repeated." placeholder:"ID"`
	Count    int      `help:"Run this many devices, numbered after the prefix: sim-01, sim-02, ..." placeholder:"N"`
	IDPrefix string   `name:"id-prefix" help:"What the ids of --count begin with." default:"sim"`
	Connect  []string `help:"Gateway or Edge to connect to: ws://HOST:PORT/ws, at an Edge also mqtt://HOST:PORT or tcp://HOST:PORT; may be repeated, they are tried in turn (${default})." default:"ws://127.0.0.1:18081/ws" placeholder:"URL"`

	Delay          delayRange    `help:"How long a command takes: 200ms, or any time within 200ms..1s (${default})." default:"0s" placeholder:"TIME"`
	Fail           float64       `help:"Share of commands that fail, 0 to 1." default:"0"`
	FailType       []string      `help:"A commandType that always fails; may be repeated." placeholder:"TYPE"`
	FailCode       string        `help:"error.code of commands that fail." default:"DEVICE_ERROR"`
	Progress       int           `help:"Progress updates while a command runs." default:"0"`
	StatusInterval time.Duration `help:"Time between DEVICE_STATUS messages; 0s: none." default:"30s"`
	Parallel       int           `help:"Commands that run at the same time; more wait." default:"1"`
	Queue          int           `help:"Commands that wait; more are refused with OVERLOADED." default:"100"`

	ProgramDir   string   `name:"program-dir" help:"Where programs are kept, a directory per device: PROGRAM commands are then downloaded and played." placeholder:"DIR"`
	ProgramLimit byteSize `name:"program-limit" help:"The largest program (${default})." default:"1GiB" placeholder:"SIZE"`

	JSON     bool       `name:"json" help:"Report commands as JSON, one object a line."`
	LogLevel slog.Level `help:"debug, info, warn or error; logs go to stderr." default:"info"`
}

// Help implements kong.HelpProvider.
func (deviceCmd) Help() string {
	return "A device answers SET_X with a value by {\"x\":value}, GET_STATUS by its status, and anything else by {\"ok\":true}. " +
		"CANCEL stops a command, which is then not answered. A requestRef that comes again is answered from memory. " +
		"With --program-dir a PROGRAM with url and sha256 is downloaded, verified and played, also after a restart. " +
		"SIGINT or SIGTERM: the devices say goodbye and the exit code is 0."
}

// Run implements the command.
func (c *deviceCmd) Run(out *console) error {
	ids, err := c.ids()
	if err != nil {
		return usage(err)
	}
	printer := &reports{out: out, json: c.JSON}
	logger := slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	devices := make([]*device.Device, len(ids))
	for i, id := range ids {
		opt := device.Options{ID: id, URLs: c.Connect, Behaviour: c.behaviour(), Logger: logger, Report: printer.print}
		if c.ProgramDir != "" {
			if opt.Programs, err = openPrograms(c.ProgramDir, id, int64(c.ProgramLimit)); err != nil {
				return usage(err)
			}
			opt.Play = func(p program.Program) { printer.playing(id, p) }
		}
		if devices[i], err = device.New(opt); err != nil {
			return usage(err)
		}
	}
	return untilSignal(func(ctx context.Context) error {
		runAll(ctx, devices)
		return nil
	})
}

// openPrograms opens a device's store, in a directory of its own: an id can be "..".
func openPrograms(dir, id string, limit int64) (*program.Store, error) {
	return program.Open(program.Options{Dir: filepath.Join(dir, "device-"+id), MaxBytes: limit})
}

// runAll runs devices until ctx ends and all of them have left.
func runAll(ctx context.Context, devices []*device.Device) {
	var all sync.WaitGroup
	for _, d := range devices {
		all.Go(func() { d.Run(ctx) })
	}
	all.Wait()
}

func (c *deviceCmd) behaviour() device.Behaviour {
	return device.Behaviour{
		DelayMin: c.Delay.min, DelayMax: c.Delay.max, FailRate: c.Fail, FailTypes: c.FailType, FailCode: c.FailCode,
		Progress: c.Progress, StatusInterval: c.StatusInterval, Parallel: c.Parallel, Queue: c.Queue,
	}
}

// ids returns who the devices are.
func (c *deviceCmd) ids() ([]string, error) {
	if c.Count < 0 || c.Count+len(c.ID) > maxDevices {
		return nil, fmt.Errorf("the number of devices must be between 1 and %d", maxDevices)
	}
	ids := append([]string(nil), c.ID...)
	for i := range c.Count {
		ids = append(ids, fmt.Sprintf("%s-%02d", c.IDPrefix, i+1))
	}
	if len(ids) == 0 {
		return nil, errors.New("which device? give --id ID, or --count N")
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			return nil, fmt.Errorf("the id %s is given twice", id)
		}
		seen[id] = true
	}
	return ids, nil
}

// delayRange is a time or a range of times.
type delayRange struct{ min, max time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *delayRange) UnmarshalText(text []byte) error {
	low, high, ranged := strings.Cut(string(text), "..")
	if !ranged {
		high = low
	}
	var errLow, errHigh error
	r.min, errLow = time.ParseDuration(low)
	r.max, errHigh = time.ParseDuration(high)
	if errLow != nil || errHigh != nil || r.min < 0 || r.max < r.min {
		return fmt.Errorf("%q is not a delay: it should look like 200ms or 200ms..1s", text)
	}
	return nil
}

// reports prints one line for each command of a device. It may be used from any goroutine.
type reports struct {
	mu   sync.Mutex // one line at a time
	out  *console
	json bool
}

// reportTime is RFC 3339 with milliseconds.
const reportTime = "2006-01-02T15:04:05.000Z"

// maxShown is how much of a result is shown to a human, in bytes.
const maxShown = 200

func (p *reports) print(r device.Report) {
	line := humanReport(r)
	if p.json {
		line = jsonReport(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out.stdout, line)
}

// playing says what a device plays now.
func (p *reports) playing(id string, what program.Program) {
	line := oneLine(fmt.Sprintf("%s PLAYING %s %d bytes from %s", id, what.SHA256, what.Bytes, what.URL))
	if p.json {
		b, err := json.Marshal(struct {
			Time    string          `json:"time"`
			Device  string          `json:"device"`
			Playing program.Program `json:"playing"`
		}{time.Now().UTC().Format(reportTime), id, what})
		if err != nil {
			panic("BUG: what plays does not encode: " + err.Error())
		}
		line = string(b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out.stdout, line)
}

func humanReport(r device.Report) string {
	result := string(r.Result)
	if len(result) > maxShown {
		result = result[:maxShown] + "..."
	}
	return oneLine(fmt.Sprintf("%s %s %s %s %s %s", r.Device, r.CommandType, r.Ref, r.Outcome, r.Took.Round(time.Millisecond), result))
}

func jsonReport(r device.Report) string {
	line := struct {
		Time        string          `json:"time"`
		Device      string          `json:"device"`
		RequestRef  string          `json:"requestRef"`
		CommandType string          `json:"commandType"`
		Outcome     device.Outcome  `json:"outcome"`
		DurationMs  int64           `json:"durationMs"`
		Result      json.RawMessage `json:"result,omitempty"`
		Error       json.RawMessage `json:"error,omitempty"`
	}{
		Time: time.Now().UTC().Format(reportTime), Device: r.Device, RequestRef: r.Ref,
		CommandType: r.CommandType, Outcome: r.Outcome, DurationMs: r.Took.Milliseconds(), Result: r.Result,
	}
	if r.Outcome == device.Failed {
		line.Result, line.Error = nil, r.Result
	}
	b, err := json.Marshal(line)
	if err != nil {
		panic("BUG: a report does not encode: " + err.Error())
	}
	return string(b)
}
