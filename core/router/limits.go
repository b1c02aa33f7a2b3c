package router

import "time"

// Limits are the bounds of a Router. Every table, queue and buffer it owns stands
// here with what happens beyond it; New fills in the defaults for zero fields.
type Limits struct {
	// MaxPending bounds the commands that are accepted and not final.
	// Beyond: OVERLOADED.
	MaxPending int64
	// PendingBytes bounds the copies of commands that wait, or may have to be sent
	// again. Beyond: OVERLOADED.
	PendingBytes int64

	// Retention, MaxRecords and RecordBytes bound the records of ended commands
	// (PROTOCOL.md section 4). Beyond: the oldest goes first.
	Retention   time.Duration
	MaxRecords  int64
	RecordBytes int64

	// EdgeQueue and EdgeQueueBytes bound what waits for one edge; LOW may fill 3/4,
	// NORMAL 7/8, HIGH all of it (section 3). Beyond: OVERLOADED.
	EdgeQueue      int
	EdgeQueueBytes int64
	// DeviceQueue bounds what waits for one device whose edge is away. Beyond: OVERLOADED.
	DeviceQueue int32

	// MaxRoutes bounds the devices known, connected or not. Beyond: routes of the
	// edges that have been away longest go; where that is not enough none goes and the
	// REGISTER is refused with OVERLOADED.
	MaxRoutes int64
	// MaxEdges bounds the edges known, connected or not; of devices connected directly
	// as many as MaxRoutes are known. Beyond: as for MaxRoutes.
	MaxEdges int
	// MaxBackends bounds the Backends connected. Beyond: the REGISTER of another is
	// refused with OVERLOADED.
	MaxBackends int
	// DeviceBytes bounds the newest status and the deviceInfo kept of all devices.
	// Beyond: they are passed on and not kept.
	DeviceBytes int64

	// RouteRetention is how long an edge stays known with its routes after it could have
	// been told PERMANENTLY_OFFLINE.
	RouteRetention time.Duration
	// PermanentAfter is how long an edge must be gone to be PERMANENTLY_OFFLINE.
	PermanentAfter time.Duration
	// MaxLifetime bounds what progress can make of a timeout, from acceptance.
	MaxLifetime time.Duration

	// Rate bounds the commands a second of one Backend's connection; 0: no bound.
	// Beyond: RATE_LIMITED.
	Rate float64

	// MaxInvalid is the number of invalid messages in a row that closes a connection.
	MaxInvalid int
	// MaxDepth is the number of levels of JSON nesting that are read.
	MaxDepth int
}

// The defaults of PROTOCOL.md; where it names none, sized for a fleet of 100,000 devices.
var defaultLimits = Limits{
	MaxPending:     1_000_000,
	PendingBytes:   512 << 20,
	Retention:      10 * time.Minute,
	MaxRecords:     500_000,
	RecordBytes:    256 << 20,
	EdgeQueue:      8192,
	EdgeQueueBytes: 16 << 20,
	DeviceQueue:    100,
	MaxRoutes:      2_000_000,
	MaxEdges:       100_000,
	MaxBackends:    1000,
	DeviceBytes:    64 << 20,
	RouteRetention: 24 * time.Hour,
	PermanentAfter: 155 * time.Second,
	MaxLifetime:    24 * time.Hour,
	MaxInvalid:     100,
	MaxDepth:       64,
}

// withDefaults returns l with the default in place of every zero field.
func (l Limits) withDefaults() Limits {
	d := defaultLimits
	set(&d.MaxPending, l.MaxPending)
	set(&d.PendingBytes, l.PendingBytes)
	set(&d.Retention, l.Retention)
	set(&d.MaxRecords, l.MaxRecords)
	set(&d.RecordBytes, l.RecordBytes)
	set(&d.EdgeQueue, l.EdgeQueue)
	set(&d.EdgeQueueBytes, l.EdgeQueueBytes)
	set(&d.DeviceQueue, l.DeviceQueue)
	set(&d.MaxRoutes, l.MaxRoutes)
	set(&d.MaxEdges, l.MaxEdges)
	set(&d.MaxBackends, l.MaxBackends)
	set(&d.DeviceBytes, l.DeviceBytes)
	set(&d.RouteRetention, l.RouteRetention)
	set(&d.PermanentAfter, l.PermanentAfter)
	set(&d.MaxLifetime, l.MaxLifetime)
	set(&d.Rate, l.Rate)
	set(&d.MaxInvalid, l.MaxInvalid)
	set(&d.MaxDepth, l.MaxDepth)
	return d
}

func set[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}
