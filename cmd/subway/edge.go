package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"subway/server/edge"
	"subway/server/edge/local"
	"subway/server/uplink"
)

type edgeCmd struct {
	ID             string            `name:"id" help:"The edge's id, like edge-001." required:"" placeholder:"ID"`
	Connect        []string          `name:"gateway" help:"Gateway to connect to; may be repeated, they are tried in turn (${default})." default:"ws://127.0.0.1:18081/ws" placeholder:"URL"`
	Listen         string            `help:"Address for devices (WebSocket) and HTTP; port 0: the system picks." default:"127.0.0.1:0"`
	AllowAnonymous bool              `help:"Listen beyond loopback though devices are not authenticated yet."`
	DataDir        string            `help:"Directory of the store; one process at a time. The address is written to DIR/listen." required:"" placeholder:"DIR"`
	Adapter        map[string]string `help:"A further way in for devices and its address; may be repeated." placeholder:"NAME=ADDR" mapsep:";"`
	Token          string            `help:"Credentials at the Gateway." placeholder:"TOKEN"`
	AllowOrigin    []string          `help:"Origins besides the edge's own host that browsers may connect from." placeholder:"URL"`

	RetryFirst    time.Duration `help:"Before the first attempt to reconnect; doubled before each further one." default:"5s"`
	RetryAttempts int           `help:"Attempts before the edge counts as permanently offline." default:"5"`
	RetrySlow     time.Duration `help:"Between attempts from then on. SIGHUP tries at once." default:"5m"`
	Heartbeat     time.Duration `help:"Heartbeat of the link, which is lost after two without a byte." default:"30s"`

	MaxDevices int           `help:"Devices connected at the same time, at most 7500." default:"5000"`
	StoreLimit byteSize      `help:"What the store may hold before commands are refused, in bytes or with KiB, MiB, GiB." default:"256MiB"`
	QueueLimit byteSize      `help:"Commands that wait for devices, in memory." default:"64MiB"`
	Keep       time.Duration `help:"How long a requestRef is remembered after its command's deadline." default:"10m"`
	LogLevel   slog.Level    `help:"debug, info, warn or error; logs go to stderr." default:"info"`
}

// Help implements kong.HelpProvider.
func (edgeCmd) Help() string {
	return "An edge keeps the devices of one place connected and speaks for them at the Gateway. " +
		"What it was told is on disk before a device hears of it, so no command is executed twice and no answer is lost, whenever the power fails. " +
		fmt.Sprintf("Adapters: %v. SIGHUP tries the Gateway at once; SIGINT or SIGTERM ends the edge in order.", local.Names())
}

// Run implements the command.
func (c *edgeCmd) Run(out *console) error {
	opt, err := c.options(out)
	if err != nil {
		return usage(err)
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before anybody can know of us: unheard, it ends the process
	defer signal.Stop(hup)
	return untilSignal(func(ctx context.Context) error {
		e, err := edge.Start(opt)
		if err != nil {
			return usage(err)
		}
		fmt.Fprintf(out.stdout, "listening on %s\n", e.Addr())
		for _, a := range opt.Adapters {
			fmt.Fprintf(out.stdout, "%s on %s\n", a.Name, e.AdapterAddr(a.Name))
		}
		err = serveEdge(ctx, hup, e)
		limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return errors.Join(err, e.Shutdown(limit))
	})
}

// serveEdge waits for the end, and passes each hangup on.
func serveEdge(ctx context.Context, hup <-chan os.Signal, e *edge.Edge) error {
	for {
		select {
		case <-hup:
			e.Retry()
		case err := <-e.Failed():
			return fmt.Errorf("the port stopped serving: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *edgeCmd) options(out *console) (edge.Options, error) {
	opt := edge.Options{
		ID: c.ID, Gateways: c.Connect, Token: c.Token, DataDir: c.DataDir, Listen: c.Listen, AllowAnonymous: c.AllowAnonymous,
		Origins: c.AllowOrigin, MaxDevices: c.MaxDevices, StoreBytes: int64(c.StoreLimit), QueueBytes: int64(c.QueueLimit),
		Keep: c.Keep, Ping: c.Heartbeat,
		Schedule: uplink.Schedule{First: c.RetryFirst, Attempts: c.RetryAttempts, Slow: c.RetrySlow},
		Logger:   slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: c.LogLevel})),
		Version:  edge.Version{Version: version, Commit: commit},
	}
	for _, name := range local.Names() {
		address, ok := c.Adapter[name]
		if !ok {
			continue
		}
		if err := opt.CheckListen("adapter "+name, address); err != nil {
			return opt, err
		}
		a, err := local.New(name, address)
		if err != nil {
			return opt, err
		}
		opt.Adapters = append(opt.Adapters, edge.Named{Name: name, Adapter: a})
		delete(c.Adapter, name)
	}
	for name := range c.Adapter {
		return opt, fmt.Errorf("there is no adapter %q, only %v", name, local.Names())
	}
	return opt, nil
}
