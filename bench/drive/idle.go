package drive

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"subway/bench/proc"
)

const (
	connsMax       = 1_000_000
	connsPerSource = 20_000 // of the 28,232 ports a source address has by default
)

// silent is a registered device that says nothing: framing answers its pings.
type silent struct{}

func (silent) message(*conn, []byte) error { return nil }

// Idle opens cfg.Conns device connections, each registered, and watches the server with nothing to do for cfg.IdleFor. It
// reports what one connection added to the server's resident memory (the kernel's part, some KB per socket, is not in it) and
// the CPU time of the whole idle span. The floor's connections only shake hands: it knows no devices.
func Idle(cfg Config) (*Result, error) {
	if cfg.PID <= 0 || cfg.Conns < 1 || cfg.Conns > connsMax || cfg.IdleFor <= 0 || cfg.IdleFor > time.Hour {
		return nil, fmt.Errorf("idle wants a pid, 1 to %d conns and a time up to 1h", connsMax)
	}
	if !cfg.Addr.Addr().Is4() || !cfg.Addr.Addr().IsLoopback() || cfg.Proto == ProtoNATS {
		return nil, errors.New("idle wants an address in 127.0.0.0/8 and no NATS")
	}
	if err := checkFiles(cfg.Conns); err != nil {
		return nil, err
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	defer l.close()
	res := &Result{Mode: "idle", Proto: cfg.Proto, Conns: cfg.Conns, Seed: cfg.Seed}
	// The first connections pay for what the server makes once.
	first := min(100, cfg.Conns)
	if err := l.openIdle(&cfg, 0, first); err != nil {
		return nil, err
	}
	rss, cpu, begun, err := readServer(cfg.PID)
	if err != nil {
		return nil, err
	}
	if err := l.openIdle(&cfg, first, cfg.Conns); err != nil {
		return nil, err
	}
	rss2, cpu2, opened, err := readServer(cfg.PID)
	if err != nil {
		return nil, err
	}
	if added := cfg.Conns - first; added > 0 {
		res.ConnsPerSecond = float64(added) / opened.Sub(begun).Seconds()
		res.CPUPerConn = float64((cpu2 - cpu).Microseconds()) / float64(added)
	}
	if err := l.watch(cfg.IdleFor); err != nil {
		return nil, err
	}
	rss3, cpu3, ended, err := readServer(cfg.PID)
	if err != nil {
		return nil, err
	}
	if added := cfg.Conns - first; added > 0 {
		res.RSSPerConn = float64(max(rss2, rss3)-rss) / float64(added)
	}
	res.ServerRSS = rss3
	res.IdleCPU = float64((cpu3 - cpu2).Microseconds()) / 1e3
	res.Seconds = ended.Sub(opened).Seconds()
	res.ServerShare = (cpu3 - cpu2).Seconds() / res.Seconds
	return res, nil
}

// filesSpare is what a process needs beside its connections.
const filesSpare = 64

// checkFiles reports whether this process may open so many connections. Go has raised the soft limit to the hard one already; the
// server has its own limit, and says so itself.
func checkFiles(conns int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	if uint64(conns)+filesSpare > limit.Max {
		return fmt.Errorf("%d connections, and the limit of open files is %d (ulimit -Hn)", conns, limit.Max)
	}
	return nil
}

// openIdle opens connections from..to, the source address by the number.
func (l *loop) openIdle(cfg *Config, from, to int) error {
	for i := from; i < to; i++ {
		n := 2 + i/connsPerSource
		source := netip.AddrFrom4([4]byte{127, 0, byte(n >> 8), byte(n)})
		g := announcement(nil)
		if cfg.Proto == ProtoSubway {
			g = registration(fmt.Appendf(nil, `{"type":"REGISTER","clientId":"idle-%07d","clientType":"DEVICE","version":"1.0"}`, i))
		}
		p, err := dialWebSocket(cfg.Addr, source, g)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		var begun []byte
		if len(p.in) > 0 {
			begun = append(begun, p.in...)
		}
		if _, err := l.add(p.fd, framing{silent{}}, begun); err != nil {
			return err
		}
	}
	return nil
}

// watch turns the loop for a time: pings are answered.
func (l *loop) watch(length time.Duration) error {
	for end := l.clock() + int64(length); l.clock() < end; {
		if _, err := l.round(); err != nil {
			return err
		}
	}
	return nil
}

func readServer(pid int) (rss int64, cpu time.Duration, now time.Time, err error) {
	if rss, err = proc.RSS(pid); err == nil {
		cpu, err = proc.CPUTime(pid)
	}
	return rss, cpu, time.Now(), err
}
