package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"subway/core/wire"
)

// Limits of one connection, unless configured.
const (
	defaultMaxSend      = 1 << 20
	defaultMaxReceive   = 1<<20 + wire.MaxAdditions
	defaultOutbox       = 4 << 20
	defaultReadBuffer   = 4 << 10
	defaultPing         = 30 * time.Second
	defaultDial         = 10 * time.Second
	defaultStall        = 30 * time.Second
	defaultClose        = 5 * time.Second
	defaultRegistration = 10 * time.Second
)

// Options are the limits of a connection and how it is dialled. Zero values mean the
// defaults.
type Options struct {
	Token        string        // credentials for `Authorization: Bearer`; "" for none
	MaxSend      int           // longest message sent, in bytes; 1 MiB
	MaxReceive   int           // longest message received, in bytes; 1 MiB + 4 KiB
	Outbox       int           // bytes that may wait to be sent; 4 MiB, never less than MaxSend
	ReadBuffer   int           // bytes; 4 KiB. Frames that fit are not copied
	PingInterval time.Duration // 30 s; the peer is lost after two of them without a byte
	DialTimeout  time.Duration // 10 s for TCP, TLS and the handshake together
	StallTimeout time.Duration // 30 s for the peer to take 64 KiB
	CloseTimeout time.Duration // 5 s for what is queued to leave and the peer to confirm the close

	TLS     *tls.Config // for wss URLs; nil: the system's roots
	NetDial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	o.MaxSend = orDefault(o.MaxSend, defaultMaxSend)
	o.MaxReceive = orDefault(o.MaxReceive, defaultMaxReceive)
	o.Outbox = max(orDefault(o.Outbox, defaultOutbox), o.MaxSend+maxHeader)
	o.ReadBuffer = max(orDefault(o.ReadBuffer, defaultReadBuffer), 256)
	o.PingInterval = orDefault(o.PingInterval, defaultPing)
	o.DialTimeout = orDefault(o.DialTimeout, defaultDial)
	o.StallTimeout = orDefault(o.StallTimeout, defaultStall)
	o.CloseTimeout = orDefault(o.CloseTimeout, defaultClose)
	return o
}

func orDefault[T int | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// CheckURL says what is wrong with the address of a Gateway or Edge: it wants
// ws://host[:port][/path] or wss.
func CheckURL(address string) error {
	u, err := url.ParseRequestURI(address)
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" || u.User != nil || strings.Contains(address, "#") {
		return fmt.Errorf("%q is no address to connect to: it should look like ws://127.0.0.1:18081/ws", address)
	}
	return nil
}
