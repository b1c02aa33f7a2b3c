// Command drive loads a command server and prints one line of JSON: what each command cost it.
package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"subway/bench/drive"
)

type flags struct {
	Addr       string        `help:"Server, in 127.0.0.0/8." default:"127.0.0.1:18081"`
	Proto      string        `help:"What the server speaks." enum:"subway,floor,nats,mqtt" default:"subway"`
	Mode       string        `help:"load: commands over WebSocket. http: POST /api/commands. batch: POST /api/commands/batch. callback: http without and with a callback each. routes: load with 1,000 routes and with --routes. stuck: load before and while an edge does not read. idle: silent device connections. connect: a storm of them." enum:"load,http,batch,callback,routes,stuck,idle,connect" default:"load"`
	Edges      int           `help:"Edge connections." default:"16"`
	Devices    int           `help:"Devices per edge." default:"64"`
	Backends   int           `help:"Backend connections." default:"8"`
	Window     int           `help:"Commands in flight per backend." default:"32"`
	Payload    int           `help:"Bytes of the JSON value in each command and each result (0: an empty string)." default:"200"`
	Kind       string        `name:"payload-kind" help:"text: one string. json: an array of small objects." enum:"text,json" default:"text"`
	Refs       string        `help:"How requestRefs are made; unique is the only kind." enum:"unique" default:"unique"`
	Warmup     time.Duration `help:"Load before the measurement." default:"2s"`
	Time       time.Duration `help:"Length of the measurement." default:"5s"`
	Count      int           `help:"End the measurement after so many commands (0: by time)."`
	Rate       float64       `help:"Open loop: commands per second in all, latency from the intended time (0: closed loop)."`
	Wait       time.Duration `help:"http: ?wait=, so each answer carries the result."`
	HTTPConns  int           `name:"http-conns" help:"http, batch, callback: keep-alive connections." default:"32"`
	Batch      int           `help:"batch: commands in one." default:"100"`
	Routes     int           `help:"routes: how many in the end, on 100 edges." default:"1000000"`
	Conns      int           `help:"idle, connect: connections." default:"10000"`
	Idle       time.Duration `help:"idle: how long to watch." default:"10s"`
	PID        int           `name:"pid" help:"The server's process, for its CPU time and memory."`
	URL        string        `name:"url" help:"The server's base URL; allocations are read from its /metrics."`
	Seed       uint64        `help:"Of the choice of devices (0: from the clock; it is printed)."`
	AllowWrong bool          `help:"Exit 0 even when answers were wrong or missing."`
}

// routeEdges is the number of edges in mode routes.
const routeEdges = 100

func main() {
	var f flags
	kong.Parse(&f, kong.Name("drive"), kong.Description("Closed- and open-loop driver; prints one line of JSON."))
	if err := f.run(); err != nil {
		fmt.Fprintln(os.Stderr, "drive:", err)
		os.Exit(1)
	}
}

func (f *flags) run() error {
	addr, err := netip.ParseAddrPort(f.Addr)
	if err != nil {
		return err
	}
	if f.Seed == 0 {
		f.Seed = uint64(time.Now().UnixNano())
	}
	cfg := drive.Config{
		Addr: addr, Proto: f.Proto,
		Edges: f.Edges, Devices: f.Devices, Backends: f.Backends, Window: f.Window,
		Payload: f.Payload, Kind: f.Kind, Warmup: f.Warmup, Time: f.Time, Count: f.Count, Rate: f.Rate, Wait: f.Wait,
		PID: f.PID, URL: f.URL, Seed: f.Seed, Conns: f.Conns, IdleFor: f.Idle,
	}
	measure := drive.Run
	switch f.Mode {
	case "http", "batch", "callback":
		cfg.HTTP, cfg.Backends, cfg.Callback = true, f.HTTPConns, f.Mode == "callback"
		if f.Mode == "batch" {
			cfg.Batch = f.Batch
		}
	case "routes":
		cfg.Edges, cfg.Devices, cfg.Grow = routeEdges, 1000/routeEdges, max(f.Routes/routeEdges, 1)
	case "stuck":
		cfg.Stuck = true
	case "idle":
		measure = drive.Idle
	case "connect":
		measure = drive.Connect
	}
	result, err := measure(cfg)
	if err != nil {
		return err
	}
	line, err := json.Marshal(result)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if bad := result.Bad(); bad != "" && !f.AllowWrong {
		return fmt.Errorf("wrong answers: %s", bad)
	}
	return nil
}
