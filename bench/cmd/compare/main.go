// Command compare measures servers against each other: each alone on one processor with the driver on another, in turns (A B A B),
// so that what the machine does to one it does to all. It prints the median of what a command costs each, and the ratio to
// the floor pair by pair.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"subway/bench/peers"
	"subway/bench/proc"
)

type flags struct {
	Peers  []string `help:"Which: floor, gateway (with its journal), gateway-memory, gorilla, node, mosquitto, nats; what is not installed is skipped." default:"${everyone}"`
	Peer   []string `help:"One more: NAME=PROTO:COMMAND with {port}, {addr} and {dir}." sep:"none"`
	Base   string   `help:"Whom ratios are to; the first peer where this one takes no part." default:"floor"`
	Rounds int      `help:"Runs of each peer." default:"3"`
	NoVoid bool     `name:"no-void" help:"Exit 0 also where the floor cost more than 0.35 x NATS."`

	Mode     string        `help:"As of drive." enum:"load,http,batch,callback,idle,connect,routes,stuck" default:"load"`
	Payload  []int         `help:"Payload sizes in bytes." default:"200"`
	Kind     string        `name:"payload-kind" help:"As of drive." enum:"text,json" default:"text"`
	Rate     []float64     `help:"Commands per second; 0: closed loop." default:"0"`
	Warmup   time.Duration `help:"As of drive." default:"1s"`
	Time     time.Duration `help:"As of drive." default:"3s"`
	Edges    int           `help:"As of drive." default:"16"`
	Devices  int           `help:"As of drive." default:"64"`
	Backends int           `help:"As of drive." default:"8"`
	Window   int           `help:"As of drive." default:"32"`
	Wait     time.Duration `help:"As of drive."`
	Conns    int           `help:"As of drive." default:"10000"`
	Idle     time.Duration `help:"As of drive." default:"10s"`
	Batch    int           `help:"As of drive." default:"100"`
	Routes   int           `help:"As of drive." default:"1000000"`

	ServerCPU int           `name:"server-cpu" help:"The server's processor." default:"0"`
	DriverCPU int           `name:"driver-cpu" help:"The driver's processor." default:"1"`
	Limit     time.Duration `help:"Of the whole comparison." default:"15m"`
	Out       string        `help:"Directory of the JSON report, and where floor, drive and gorilla were built." default:"out"`
	Subway    string        `help:"The gateway's binary." default:"../bin/subway"`
	Node      string        `help:"Directory of the Node gateway." default:"peers/node"`
}

// scenario is one set of circumstances that all peers are measured in.
type scenario struct {
	Payload int     `json:"payload"`
	Rate    float64 `json:"rate"`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("compare"), kong.Description("Measures servers against each other, in turns."),
		kong.Vars{"everyone": everyone})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := f.run(ctx, os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "compare:", err)
	if errors.Is(err, errVoid) {
		os.Exit(3)
	}
	os.Exit(1)
}

func (f *flags) run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.Limit)
	defer cancel()
	chosen, skipped, err := f.choose()
	if err != nil {
		return err
	}
	c := comparison{Begun: time.Now().UTC().Format(time.RFC3339), Machine: proc.DescribeMachine(), Mode: f.Mode, Base: f.Base,
		Skipped: skipped, flags: f}
	if !slices.ContainsFunc(chosen, func(p peers.Peer) bool { return p.Name == f.Base }) {
		c.Base = chosen[0].Name
	}
	for _, s := range f.scenarios() {
		if err := c.measure(ctx, s, chosen); err != nil {
			return err
		}
	}
	c.summarise()
	c.judge()
	c.print(w)
	if err := c.write(f.Out); err != nil {
		return err
	}
	if c.Void != "" && !f.NoVoid {
		return fmt.Errorf("%w: %s", errVoid, c.Void)
	}
	return nil
}

func (f *flags) scenarios() (all []scenario) {
	rates := f.Rate
	switch f.Mode {
	case "idle", "connect":
		return []scenario{{}}
	case "batch", "callback": // closed loop only
		rates = []float64{0}
	}
	for _, payload := range f.Payload {
		for _, rate := range rates {
			all = append(all, scenario{payload, rate})
		}
	}
	return all
}
