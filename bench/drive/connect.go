package drive

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// stormWindow is how many connections are being opened at the same time: below any listen queue.
const stormWindow = 256

// storm opens device connections as fast as the server takes them, each connected, upgraded and registered, many at a time.
type storm struct {
	loop    *loop
	cfg     *Config
	begun   int
	opened  int
	latency *hdrhistogram.Histogram
}

// comer is one connection on its way.
type comer struct {
	storm    *storm
	conn     *conn
	started  int64
	register []byte
	upgraded bool
	done     bool
}

// Connect opens cfg.Conns device connections in a storm and reports what one cost the server: TCP, handshake and REGISTER. The
// first 100 come before, as they pay for what the server makes once. Percentiles are from the first packet to the REGISTER_ACK.
func Connect(cfg Config) (*Result, error) {
	if cfg.PID <= 0 || cfg.Conns <= 100 || cfg.Conns > connsMax {
		return nil, fmt.Errorf("connect wants a pid and 101 to %d conns", connsMax)
	}
	if !cfg.Addr.Addr().Is4() || !cfg.Addr.Addr().IsLoopback() || cfg.Proto != ProtoSubway {
		return nil, errors.New("connect wants an address in 127.0.0.0/8 and a gateway")
	}
	if err := checkFiles(cfg.Conns); err != nil {
		return nil, err
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	defer l.close()
	s := &storm{loop: l, cfg: &cfg, latency: hdrhistogram.New(1, latencyMax, figuresKept)}
	if err := s.open(100); err != nil {
		return nil, err
	}
	s.latency.Reset()
	rss, cpu, begun, err := readServer(cfg.PID)
	if err != nil {
		return nil, err
	}
	if err := s.open(cfg.Conns); err != nil {
		return nil, err
	}
	rss2, cpu2, ended, err := readServer(cfg.PID)
	if err != nil {
		return nil, err
	}
	added := float64(cfg.Conns - 100)
	us := func(percent float64) float64 { return float64(s.latency.ValueAtPercentile(percent)) / 1e3 }
	return &Result{
		Mode: "connect", Proto: cfg.Proto, Conns: cfg.Conns, Seed: cfg.Seed, Seconds: ended.Sub(begun).Seconds(),
		ConnsPerSecond: added / ended.Sub(begun).Seconds(), CPUPerConn: float64((cpu2 - cpu).Microseconds()) / added,
		RSSPerConn: float64(rss2-rss) / added, ServerRSS: rss2, ServerShare: (cpu2 - cpu).Seconds() / ended.Sub(begun).Seconds(),
		P50: us(50), P90: us(90), P99: us(99), P999: us(99.9), Max: float64(s.latency.Max()) / 1e3,
	}, nil
}

// open brings the number of registered connections to total.
func (s *storm) open(total int) error {
	for last := s.loop.clock(); s.opened < total; {
		for s.begun < total && s.begun-s.opened < stormWindow {
			if err := s.begin(); err != nil {
				return fmt.Errorf("connection %d: %w", s.begun, err)
			}
		}
		opened := s.opened
		if _, err := s.loop.round(); err != nil {
			return fmt.Errorf("after %d connections: %w", s.opened, err)
		}
		now := s.loop.clock()
		if s.opened > opened {
			last = now
		}
		if now-last > int64(dialTimeout) {
			return fmt.Errorf("stalled after %d connections", s.opened)
		}
	}
	return nil
}

// begin starts to connect; the request leaves when the socket can be written.
func (s *storm) begin() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	n := 2 + s.begun/connsPerSource
	from := netip.AddrFrom4([4]byte{127, 0, byte(n >> 8), byte(n)})
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}))
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: s.cfg.Addr.Addr().As4(), Port: int(s.cfg.Addr.Port())})
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(fd)
		return err
	}
	m := &comer{storm: s, started: s.loop.clock(), register: appendFrame(nil, opText,
		fmt.Appendf(nil, `{"type":"REGISTER","clientId":"storm-%07d","clientType":"DEVICE","version":"1.0"}`, s.begun))}
	if m.conn, err = s.loop.add(fd, m, nil); err != nil {
		unix.Close(fd)
		return err
	}
	s.begun++
	m.conn.out = upgradeRequest(s.cfg.Addr.String())
	m.conn.send()
	return nil
}

// read implements reader: the answer to the handshake, then frames.
func (m *comer) read(c *conn, b []byte) (int, error) {
	if m.upgraded {
		return framing{m}.read(c, b)
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, nil
	}
	if err := checkUpgrade(b[:end+4]); err != nil {
		return 0, err
	}
	m.upgraded = true
	c.out = append(c.out, m.register...)
	c.send()
	used, err := framing{m}.read(c, b[end+4:])
	return end + 4 + used, err
}

// message implements messageReader.
func (m *comer) message(c *conn, msg []byte) error {
	switch {
	case !m.done && bytes.Contains(msg, []byte(`"REGISTER_ACK"`)):
		m.done, m.register = true, nil
		c.out, c.in = nil, nil // nothing more is said: memory for those that come
		m.storm.opened++
		m.storm.latency.RecordValue(max(1, c.loop.now-m.started))
	case bytes.Contains(msg, []byte(`"ERROR"`)):
		return fmt.Errorf("registration refused: %s", msg)
	}
	return nil
}
