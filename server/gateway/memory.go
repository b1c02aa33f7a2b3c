package gateway

import (
	"golang.org/x/sys/unix"

	"subway/core/router"
	"subway/server/callback"
)

// Memory is the sum of the bounds on what the Gateway retains, in bytes. Every term
// scales with it:
//
//	1/4   commands that wait for an edge, or may have to be sent again   OVERLOADED beyond
//	1/8   records of ended commands                                      the oldest goes
//	1/32  newest status and deviceInfo of devices                        not kept beyond
//	1/16  callbacks that are due                                         dead letter beyond
//	1/32  dead letters                                                   the oldest goes
//	1/16  messages that have begun to arrive                             1013 beyond
//	1/32  what waits to be stored in the journal, where there is one     OVERLOADED beyond
//	1/4   what waits in all connections' outboxes (but the first 64 KiB  4429 beyond
//	      of each)
//
// That is 27/32 of it; the rest is room for the heap's own overhead. What is bounded by
// number comes on top: connections (about 2 KB each while they sit there), routes (about
// 160 bytes each, --max-routes), pending commands (450 bytes each, --max-pending), and
// HTTP requests (4,096 at a time, with 16 KiB of buffers and, while it arrives and is
// served, a body of at most --max-message each).
type Memory int64

const (
	defaultMemory Memory = 2 << 30
	leastMemory   Memory = 16 << 20
)

func (m Memory) withDefaults() Memory {
	if m <= 0 {
		return defaultMemory
	}
	return m
}

// apply sets the router's terms that are not set.
func (m Memory) apply(l *router.Limits) {
	for _, t := range []struct {
		dst *int64
		n   Memory
	}{{&l.PendingBytes, m / 4}, {&l.RecordBytes, m / 8}, {&l.DeviceBytes, m / 32}} {
		if *t.dst == 0 {
			*t.dst = int64(t.n)
		}
	}
}

func (o Options) callbackOptions() callback.Options {
	return callback.Options{
		MaxConns: callbackConns(), MaxBytes: int(o.Memory / 16), MaxDeadBytes: int(o.Memory / 32), Policy: o.Callbacks,
		UserAgent: "subway/" + o.Version.Version, Logger: o.Logger,
	}
}

// callbackConns is how many attempts at a time may be made: an attempt takes up to two
// descriptors (while it looks a name up) and as many connections are kept for the next,
// and the port, which must never run out of descriptors, leaves no more than a
// twentieth of them to others.
func callbackConns() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0 // the default
	}
	return int(max(4, min(limit.Cur/64, 512)))
}
