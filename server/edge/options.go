package edge

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"subway/core/wire"
	"subway/server/edge/local"
	"subway/server/uplink"
)

// Named is an adapter and what it is called in logs, metrics and the data directory.
type Named struct {
	Name    string
	Adapter local.Adapter
}

// Options configure an Edge. Zero values mean the defaults.
type Options struct {
	ID             string   // required
	Gateways       []string // required: ws://host:port/ws, tried in turn
	Token          string   // credentials at the Gateway
	DataDir        string   // required; one process at a time
	Listen         string   // host:port for WebSocket devices and HTTP; 127.0.0.1:0
	AllowAnonymous bool     // may listen beyond loopback though it asks no device who it is
	Adapters       []Named  // further ways in
	Origins        []string // browsers' origins that may connect besides the edge's own host

	MaxDevices  int   // connected at the same time; 5,000, at most 7,500 so that a snapshot is one message
	MaxConns    int   // 0: from the limit of open files
	StoreBytes  int64 // what the store may hold before commands are refused; 256 MiB
	QueueBytes  int64 // commands that wait, for all devices together; 64 MiB
	MaxWaiting  int   // commands that wait for one device; 8,192
	DeviceBytes int64 // and their bytes; 16 MiB

	Keep     time.Duration // how long a ref is kept after its command's deadline; 10 min
	Return   time.Duration // how long devices of before a restart are expected back; 10 s, negative: not at all
	Schedule uplink.Schedule
	Ping     time.Duration // heartbeat of the link; lost after two. 30 s

	Logger  *slog.Logger
	Version Version

	// Tests make these short, or end the process at a chosen point.
	Silence  time.Duration
	Register time.Duration
	hook     func(point, ref string)
}

// Version is what /version and the link tell of the build.
type Version struct{ Version, Commit string }

const (
	maxDevicesEver = 7500
	maxInvalid     = 100              // messages in a row (PROTOCOL.md section 2)
	warnEvery      = 30 * time.Second // GATEWAY_UNAVAILABLE after a HEARTBEAT (section 5)
	maxUnsynced    = 64 << 20         // bytes in memory that the disk does not take
	maxInfo        = 16 << 20         // bytes of deviceInfo that are kept for snapshots
	heartbeatMs    = 30_000           // what a REGISTER_ACK tells
)

func (o Options) withDefaults() Options {
	pick(&o.Listen, "127.0.0.1:0")
	pick(&o.MaxDevices, 5000)
	pick(&o.StoreBytes, 256<<20)
	pick(&o.QueueBytes, 64<<20)
	pick(&o.MaxWaiting, 8192)
	pick(&o.DeviceBytes, 16<<20)
	pick(&o.Keep, 10*time.Minute)
	pick(&o.Return, 10*time.Second)
	pick(&o.Ping, 30*time.Second)
	pick(&o.Version.Version, "dev")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.hook == nil {
		o.hook = func(string, string) {}
	}
	return o
}

func pick[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// check says what is wrong, for the operator.
func (o *Options) check() error {
	switch {
	case !wire.ValidID([]byte(o.ID)):
		return fmt.Errorf("%q is not an id: 1 to 128 of A-Z a-z 0-9 . _ : -", o.ID)
	case o.DataDir == "":
		return errors.New("an edge needs a data directory")
	case o.MaxDevices < 1 || o.MaxDevices > maxDevicesEver:
		return fmt.Errorf("the number of devices must be between 1 and %d", maxDevicesEver)
	case o.StoreBytes < 1<<20:
		return errors.New("the store needs 1 MiB at least")
	}
	return o.CheckListen("listen", o.Listen)
}

// CheckListen refuses to take devices from everywhere, as long as nobody asks them who
// they are, unless the operator says so.
func (o *Options) CheckListen(name, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s address %q: %w", name, address, err)
	}
	ip := net.ParseIP(host)
	if o.AllowAnonymous || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s address %q is not a loopback address: devices are not authenticated, so anybody who reaches the port could pose as one; use --allow-anonymous if that is meant", name, address)
}
