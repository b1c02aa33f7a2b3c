package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/mailru/easyjson"

	"subway/core/wire"
	"subway/server/device"
	"subway/server/edge"
	"subway/server/edge/local"
	"subway/server/gateway"
)

type upCmd struct {
	Listen         string        `help:"Address to listen on; port 0: the system picks." default:"127.0.0.1:18081"`
	AllowAnonymous bool          `help:"Listen beyond loopback though clients are not authenticated yet."`
	Devices        int           `help:"Simulated devices: td-01, screen-01, pillar-01, td-02, ..." default:"10"`
	Drain          time.Duration `help:"How long commands in flight may take to end after SIGTERM." default:"10s"`
	JSON           bool          `name:"json" help:"Report commands as JSON, one object a line."`
	LogLevel       slog.Level    `help:"debug, info, warn or error; logs go to stderr." default:"warn"`
}

// mix is how the devices of each type behave.
var mix = []struct {
	kind string
	device.Behaviour
}{
	{"td", device.Behaviour{DelayMin: 20 * time.Millisecond, DelayMax: 80 * time.Millisecond}},
	{"screen", device.Behaviour{DelayMin: 400 * time.Millisecond, DelayMax: 1200 * time.Millisecond, Progress: 3}},
	{"pillar", device.Behaviour{DelayMin: 100 * time.Millisecond, DelayMax: 300 * time.Millisecond, Parallel: 4}},
}

// ways is how the first devices connect, one of each kind; the others speak WebSocket to
// the Edge.
var ways = []string{"ws", "mqtt", "line", "direct"}

const (
	upEdge       = "edge-01"
	maxUpDevices = 7500 // what an Edge takes
)

// Help implements kong.HelpProvider.
func (upCmd) Help() string {
	return "The devices are behind an Edge in the same process, its store in a temporary directory. " +
		"Of the first four, one speaks WebSocket, one MQTT, one lines over TCP to the Edge, and one is connected to the Gateway directly."
}

// Run implements the command.
func (c *upCmd) Run(out *console) error {
	if c.Devices < 1 || c.Devices > maxUpDevices {
		return usage(fmt.Errorf("the number of devices must be between 1 and %d", maxUpDevices))
	}
	return untilSignal(func(ctx context.Context) error { return c.run(ctx, out) })
}

// run starts all, and ends the Gateway before the rest: the devices answer while it drains.
func (c *upCmd) run(ctx context.Context, out *console) error {
	var level slog.LevelVar
	level.Set(c.LogLevel)
	logger := slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: &level}))
	g, err := gateway.Start(gateway.Options{
		Listen: c.Listen, AllowAnonymous: c.AllowAnonymous, OrphanResponses: true,
		Logger: logger, Version: gateway.Version{Version: version, Commit: commit},
	})
	if err != nil {
		return usage(err)
	}
	fmt.Fprintf(out.stdout, "listening on %s\n", g.Addr())
	return c.station(ctx, out, g, logger, func() error {
		level.Set(max(c.LogLevel, slog.LevelError)) // that connections end now is no news
		return drain(g, c.Drain)
	})
}

// station runs the Edge and the devices until ctx ends or the Gateway fails, and ends them
// after the Gateway, which drain does.
func (c *upCmd) station(ctx context.Context, out *console, g *gateway.Gateway, logger *slog.Logger, drain func() error) error {
	address := reachable(g.Addr())
	dir, err := os.MkdirTemp("", "subway-up-")
	if err != nil {
		return errors.Join(err, drain())
	}
	defer os.RemoveAll(dir)
	e, err := startUpEdge(address, dir, logger)
	if err != nil {
		return errors.Join(err, drain())
	}
	defer func() {
		limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = e.Shutdown(limit) // what it keeps goes with the directory
	}()
	devices, err := c.devices(address, e, &reports{out: out, json: c.JSON})
	if err != nil {
		return errors.Join(err, drain())
	}
	alive, leave := context.WithCancel(context.Background())
	left := make(chan struct{})
	go func() {
		defer close(left)
		runAll(alive, devices)
	}()
	if err = awaitAll(ctx, devices); err == nil {
		err = c.awaitEdge(ctx, address)
	}
	if err == nil && ctx.Err() == nil {
		c.greet(out, address, e)
		err = serveUp(ctx, g, e)
	}
	err = errors.Join(err, drain())
	leave()
	<-left
	return err
}

func serveUp(ctx context.Context, g *gateway.Gateway, e *edge.Edge) error {
	select {
	case failure := <-g.Failed():
		return fmt.Errorf("the Gateway's port stopped serving: %w", failure)
	case failure := <-e.Failed():
		return fmt.Errorf("the Edge's port stopped serving: %w", failure)
	case <-ctx.Done():
		return nil
	}
}

// startUpEdge starts an Edge with every adapter there is.
func startUpEdge(address, dir string, logger *slog.Logger) (*edge.Edge, error) {
	opt := edge.Options{
		ID: upEdge, Gateways: []string{"ws://" + address + "/ws"}, DataDir: dir, MaxDevices: maxUpDevices,
		Logger: logger, Version: edge.Version{Version: version, Commit: commit},
	}
	for _, name := range local.Names() {
		a, err := local.New(name, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		opt.Adapters = append(opt.Adapters, edge.Named{Name: name, Adapter: a})
	}
	return edge.Start(opt)
}

func (c *upCmd) devices(address string, e *edge.Edge, printer *reports) ([]*device.Device, error) {
	devices := make([]*device.Device, c.Devices)
	for i := range devices {
		url := "ws://" + e.Addr().String() + "/ws"
		if i < len(ways) {
			switch ways[i] {
			case "mqtt":
				url = "mqtt://" + e.AdapterAddr("mqtt").String()
			case "line":
				url = "tcp://" + e.AdapterAddr("line").String()
			case "direct":
				url = "ws://" + address + "/ws"
			}
		}
		m := mix[i%len(mix)]
		m.StatusInterval = 10 * time.Second
		var err error
		devices[i], err = device.New(device.Options{
			ID: fmt.Sprintf("%s-%02d", m.kind, i/len(mix)+1), URLs: []string{url},
			Behaviour: m.Behaviour, Report: printer.print,
		})
		if err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// awaitEdge waits until the Gateway knows of the Edge's devices, or ctx ends.
func (c *upCmd) awaitEdge(ctx context.Context, address string) error {
	a, err := newAPI("http://" + address)
	if err != nil {
		return err
	}
	defer a.close()
	want := c.Devices
	if want >= len(ways) {
		want-- // one is direct
	}
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var answer wire.EdgeAnswer
		if b, err := a.do("GET", "/api/edges/"+upEdge, nil, 0); err == nil && easyjson.Unmarshal(b, &answer) == nil && answer.Edge.Devices >= want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-late.C:
			return errors.New("the Gateway did not hear of the devices within 30s")
		}
	}
}

// awaitAll waits until every device has registered, or ctx ends.
func awaitAll(ctx context.Context, devices []*device.Device) error {
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for _, d := range devices {
		select {
		case <-d.Registered():
		case <-ctx.Done():
			return nil
		case <-late.C:
			return errors.New("the devices did not register within 30s")
		}
	}
	return nil
}

// greet says what to do next.
func (c *upCmd) greet(out *console, address string, e *edge.Edge) {
	flag := ""
	if address != strings.TrimPrefix(defaultGateway, "http://") {
		flag = " --gateway http://" + address
	}
	fmt.Fprintf(out.stdout, "%s on %s, mqtt on %s, line on %s\n", upEdge, e.Addr(), e.AdapterAddr("mqtt"), e.AdapterAddr("line"))
	fmt.Fprintf(out.stdout, `%d devices are connected. Try:
  curl -sS 'http://%s/api/commands?wait=5000' -H 'Content-Type: application/json' -d '{"target_client_id":"td-01","command":{"commandType":"SET_BRIGHTNESS","value":80}}'
  %s send td-01 SET_BRIGHTNESS value=80 --wait 5s%s
  curl -sS http://%s/api/devices
`, c.Devices, address, os.Args[0], flag, address)
}

// reachable is an address at which a listener is found from this machine.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
