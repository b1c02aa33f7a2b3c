package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"subway/core/router"
	"subway/server/callback"
	"subway/server/gateway"
)

type gatewayCmd struct {
	Listen         string        `help:"Address to listen on, HTTP and WebSocket alike; port 0: the system picks." default:"127.0.0.1:18081"`
	AllowAnonymous bool          `help:"Listen beyond loopback though clients are not authenticated yet."`
	DataDir        string        `help:"Directory of the journal: what is accepted there outlives the process. None: all lives in memory." placeholder:"DIR"`
	Drain          time.Duration `help:"How long commands in flight may take to end after SIGTERM." default:"10s"`
	DebugListen    string        `help:"Loopback address for profiles (net/http/pprof); none: no such port." placeholder:"ADDR"`
	LogLevel       slog.Level    `help:"debug, info, warn or error; logs go to stderr." default:"info"`

	Loops               int            `help:"Event loops for WebSockets; 0: one per processor." default:"0"`
	MaxConnections      int            `help:"Connections of all kinds; 0: nine tenths of the limit of open files." default:"0"`
	AllowOrigin         []string       `help:"Origins besides the Gateway's own host that browsers may connect from." placeholder:"URL"`
	MaxPending          int64          `help:"Commands accepted and not ended." default:"1000000"`
	MaxRoutes           int64          `help:"Devices known, connected or not." default:"2000000"`
	MaxEdges            int            `help:"Edges known, connected or not." default:"100000"`
	MaxBackends         int            `help:"Backends connected at the same time." default:"1000"`
	MaxBatch            int            `help:"Commands in one batch, after patterns are expanded." default:"1000"`
	MaxMessage          byteSize       `help:"Size of a message as received, and of a request's body." default:"1MiB"`
	MaxHead             byteSize       `help:"Size of a request's head." default:"8KiB"`
	MaxDepth            int            `help:"Levels of JSON nesting, at most 512." default:"64"`
	RegisterTimeout     time.Duration  `help:"Within which a connection must have registered." default:"10s"`
	HeadTimeout         time.Duration  `help:"Within which a request's head must have come." default:"10s"`
	BodyTimeout         time.Duration  `help:"Within which a request's body must have come." default:"30s"`
	IdleTimeout         time.Duration  `help:"After which an HTTP connection without requests is closed." default:"75s"`
	PingInterval        time.Duration  `help:"Between pings." default:"30s"`
	SilenceTimeout      time.Duration  `help:"After which a silent peer is lost." default:"60s500ms"`
	StallTimeout        time.Duration  `help:"After which a peer that does not read is closed." default:"30s"`
	MemoryLimit         byteSize       `help:"Sum of the bounds on what is retained, in bytes or with KiB, MiB, GiB; every one of them scales with it." default:"2GiB"`
	Rate                float64        `help:"Commands a second that one client may send; 0: no bound." default:"0"`
	RouteRetention      time.Duration  `help:"How long an edge that is PERMANENTLY_OFFLINE (155 s after it went) stays known with its devices." default:"24h"`
	Retention           time.Duration  `help:"How long the record of an ended command is kept." default:"10m"`
	MaxRecords          int64          `help:"Records of ended commands that are kept." default:"500000"`
	OrphanResponses     string         `help:"Pass answers to unknown commands on where they carry a callback or a source: on or off." enum:"on,off" default:"on"`
	CallbackHosts       []string       `help:"The only hosts that may be called back, by name or address; a leading dot stands for all names below. None: any." placeholder:"HOST"`
	CallbackAllow       []netip.Prefix `help:"Networks that may be called back whatever else says no." placeholder:"CIDR"`
	CallbackDeny        []netip.Prefix `help:"Networks that may not be called back, besides link-local and cloud metadata addresses." placeholder:"CIDR"`
	CallbackDenyPrivate bool           `help:"Call back no loopback, private or shared addresses."`
}

// Run implements the command.
func (c *gatewayCmd) Run(out *console) error {
	return untilSignal(func(ctx context.Context) error {
		if c.DebugListen != "" {
			debug, err := gateway.ListenDebug(c.DebugListen)
			if err != nil {
				return usage(err)
			}
			defer debug.Close()
		}
		g, err := gateway.Start(c.options(out))
		if err != nil {
			return usage(err)
		}
		fmt.Fprintf(out.stdout, "listening on %s\n", g.Addr())
		select {
		case err := <-g.Failed():
			return fmt.Errorf("the port stopped serving: %w", err)
		case <-ctx.Done():
		}
		return drain(g, c.Drain)
	})
}

func (c *gatewayCmd) options(out *console) gateway.Options {
	return gateway.Options{
		Listen: c.Listen, AllowAnonymous: c.AllowAnonymous, DataDir: c.DataDir, Loops: c.Loops,
		MaxConnections: c.MaxConnections, Origins: c.AllowOrigin, MaxBatch: c.MaxBatch,
		OrphanResponses: c.OrphanResponses == "on", RatePerSecond: c.Rate,
		Limits: router.Limits{
			MaxPending: c.MaxPending, MaxRoutes: c.MaxRoutes, MaxEdges: c.MaxEdges, MaxBackends: c.MaxBackends,
			RouteRetention: c.RouteRetention, Retention: c.Retention, MaxRecords: c.MaxRecords,
		},
		MaxMessage: int(c.MaxMessage), MaxHead: int(c.MaxHead), MaxDepth: c.MaxDepth, RegisterTimeout: c.RegisterTimeout, HeadTimeout: c.HeadTimeout,
		BodyTimeout: c.BodyTimeout, IdleTimeout: c.IdleTimeout, PingInterval: c.PingInterval,
		SilenceTimeout: c.SilenceTimeout, StallTimeout: c.StallTimeout,
		Memory:    gateway.Memory(c.MemoryLimit),
		Callbacks: callback.Policy{Hosts: c.CallbackHosts, Allow: c.CallbackAllow, Deny: c.CallbackDeny, DenyPrivate: c.CallbackDenyPrivate},
		Logger:    slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: c.LogLevel})),
		Version:   gateway.Version{Version: version, Commit: commit},
	}
}

// drain lets commands in flight end for as long as given, then stops the Gateway.
func drain(g *gateway.Gateway, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return g.Shutdown(ctx)
}
