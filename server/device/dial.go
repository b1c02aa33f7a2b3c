package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"subway/core/wire"
	"subway/server/uplink"
)

// checkURLs says what is wrong with addresses to connect to, for the operator.
func checkURLs(urls []string) error {
	for _, address := range urls {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "tcp" && u.Scheme != "mqtt" {
			if uplink.CheckURL(address) != nil {
				return fmt.Errorf("%q is no address to connect to: it should look like ws://127.0.0.1:18081/ws, mqtt://127.0.0.1:1883 or tcp://127.0.0.1:18083", address)
			}
			continue
		}
		if u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("%q is no address to connect to: it should look like %s://127.0.0.1:1883", address, u.Scheme)
		}
	}
	return nil
}

// dialer connects as an address says.
func dialer(id string, opt uplink.Options) func(context.Context, string) (uplink.Transport, error) {
	opt = withDefaults(opt)
	return func(ctx context.Context, address string) (uplink.Transport, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		switch u.Scheme {
		case "tcp":
			return dialLine(ctx, u.Host, opt)
		case "mqtt":
			return dialMQTT(ctx, u.Host, id, opt)
		}
		c, err := uplink.Dial(ctx, address, opt)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// withDefaults completes what lines and MQTT share with WebSockets.
func withDefaults(o uplink.Options) uplink.Options {
	for _, n := range []struct {
		v *int
		d int
	}{{&o.MaxSend, 1 << 20}, {&o.MaxReceive, 1<<20 + wire.MaxAdditions}, {&o.Outbox, 4 << 20}} {
		if *n.v <= 0 {
			*n.v = n.d
		}
	}
	o.Outbox = max(o.Outbox, 2*o.MaxSend)
	for _, t := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.PingInterval, 30 * time.Second}, {&o.DialTimeout, 10 * time.Second}, {&o.StallTimeout, 30 * time.Second}, {&o.CloseTimeout, 5 * time.Second}} {
		if *t.v <= 0 {
			*t.v = t.d
		}
	}
	return o
}

// dialTCP connects a socket.
func dialTCP(ctx context.Context, host string, opt uplink.Options) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, opt.DialTimeout)
	defer cancel()
	dial := opt.NetDial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	sock, err := dial(ctx, "tcp", host)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("no answer in time")
	}
	return sock, err
}

// closeAbnormal is RFC 6455's code for a connection that was lost.
const closeAbnormal uint16 = 1006
