package uplink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

// Transport is a connection as a Link uses it: what Conn does, which see, over whatever
// protocol carries the same messages.
type Transport interface {
	Send(msg []byte) error
	Close(code uint16, reason string)
	Serve(receive func(msg []byte)) *Closed
}

// Config says to whom a Link connects and what it does there. The functions are called
// one at a time, on the goroutine of Run, and those that are nil are left out.
type Config struct {
	// Dial makes a connection to one of URLs, which were checked before; nil: WebSocket. An
	// error that is a *Closed says by its code when to try again.
	Dial func(ctx context.Context, url string) (Transport, error)

	URLs            []string      // tried in turn
	Register        func() []byte // makes the REGISTER of a new connection
	Goodbye         []byte        // sent before an orderly end; nil for nothing
	RegisterTimeout time.Duration // how long REGISTER may stay unanswered; 10 s
	Schedule        Schedule
	Options         Options

	Up      func(url string, ack []byte) // registered; ack is the REGISTER_ACK, borrowed
	Receive func(msg []byte)             // a message after REGISTER_ACK, borrowed
	Down    func(Down)                   // a connection ended, or none came about
}

// Down tells of a connection that ended or an attempt that failed.
type Down struct {
	URL        string
	Registered bool    // it had been of use
	End        *Closed // why; its Code is 0 where there was no WebSocket
	Wait       time.Duration
	Offline    bool // the attempts of the schedule are used up (PROTOCOL.md section 5: permanently offline)
}

// Link keeps one party connected.
type Link struct {
	cfg   Config
	retry retry
	next  int // of URLs
	live  atomic.Pointer[session]
	env   wire.Envelope
}

// New checks the configuration. The error is for the operator.
func New(cfg Config) (*Link, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("there is no address to connect to")
	}
	if cfg.Dial == nil {
		for _, u := range cfg.URLs {
			if err := CheckURL(u); err != nil {
				return nil, err
			}
		}
		cfg.Dial = func(ctx context.Context, url string) (Transport, error) {
			c, err := Dial(ctx, url, cfg.Options)
			if err != nil {
				return nil, err
			}
			return c, nil
		}
	}
	cfg.RegisterTimeout = orDefault(cfg.RegisterTimeout, defaultRegistration)
	return &Link{cfg: cfg, retry: retry{Schedule: cfg.Schedule.withDefaults()}}, nil
}

// Send queues a message, as Conn.Send does, on the connection that is registered now:
// ErrDown if there is none. Any goroutine may call it. That a message was queued does not
// say that it arrived.
func (l *Link) Send(msg []byte) error {
	if s := l.live.Load(); s != nil {
		return s.conn.Send(msg)
	}
	return ErrDown
}

// Run connects and stays connected until ctx ends, which it answers with Goodbye and the
// close handshake, within CloseTimeout. Call it once.
func (l *Link) Run(ctx context.Context) {
	for ctx.Err() == nil {
		d := l.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if d.Registered {
			l.retry.registered()
		}
		d.Wait, d.Offline = l.retry.next(d.End.Code)
		if l.cfg.Down != nil {
			l.cfg.Down(d)
		}
		t := time.NewTimer(d.Wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// round is one attempt of the schedule: each URL once, from the one after the last, until
// a connection was of use or a server does not want this party.
func (l *Link) round(ctx context.Context) (d Down) {
	for range l.cfg.URLs {
		url := l.cfg.URLs[l.next]
		l.next = (l.next + 1) % len(l.cfg.URLs)
		s := session{link: l, url: url}
		d = Down{URL: url, End: s.run(ctx), Registered: s.registered}
		if d.Registered || ctx.Err() != nil || decided(d.End.Code) {
			break
		}
	}
	return d
}

// decided says that another address would answer the same.
func decided(code uint16) bool {
	switch code {
	case wire.CloseUnauthorized, wire.CloseForbidden, wire.CloseVersion, wire.CloseSuperseded:
		return true
	}
	return false
}

// session is one connection of a Link.
type session struct {
	link       *Link
	url        string
	conn       Transport
	registered bool
	refused    *Closed // REGISTER was answered with an ERROR
	timer      *time.Timer
}

// run dials, registers and serves.
func (s *session) run(ctx context.Context) *Closed {
	l := s.link
	var err error
	if s.conn, err = l.cfg.Dial(ctx, s.url); err != nil {
		var end *Closed
		if errors.As(err, &end) {
			return end
		}
		return &Closed{Code: codeOfStatus(err), Err: err}
	}
	if err := s.conn.Send(l.cfg.Register()); err != nil {
		s.refused = &Closed{Err: fmt.Errorf("REGISTER: %w", err)}
		s.conn.Close(wire.CloseNormal, "")
	}
	var late atomic.Bool
	s.timer = time.AfterFunc(l.cfg.RegisterTimeout, func() {
		late.Store(true)
		s.conn.Close(wire.CloseNormal, "REGISTER was not answered")
	})
	defer s.timer.Stop()
	stop := context.AfterFunc(ctx, s.goodbye)
	defer stop()
	end := s.conn.Serve(s.receive)
	l.live.Store(nil)
	switch {
	case s.refused != nil:
		return s.refused
	case late.Load() && !s.registered:
		return &Closed{Err: ErrUnregistered}
	}
	return end
}

// goodbye ends the connection in order.
func (s *session) goodbye() {
	if s.link.live.Load() == s && s.link.cfg.Goodbye != nil {
		_ = s.conn.Send(s.link.cfg.Goodbye) // a full outbox: the close says enough
	}
	s.conn.Close(wire.CloseNormal, "")
}

func (s *session) receive(msg []byte) {
	l := s.link
	if !s.registered {
		s.register(msg)
		return
	}
	if l.cfg.Receive != nil {
		l.cfg.Receive(msg)
	}
}

// register reads the answer to REGISTER; whatever else comes before it is ignored.
func (s *session) register(msg []byte) {
	l := s.link
	if err := l.env.Scan(msg, wire.DefaultMaxDepth); err != nil {
		return
	}
	switch l.env.Type {
	case wire.TypeRegisterAck:
		if !s.timer.Stop() {
			return // too late, the connection is closing
		}
		s.registered = true
		l.live.Store(s)
		if l.cfg.Up != nil {
			l.cfg.Up(s.url, msg)
		}
	case wire.TypeError:
		s.refused = refusal(&l.env)
		s.conn.Close(wire.CloseNormal, "REGISTER was refused")
	}
}

// refusal turns an ERROR into the end it stands for.
func refusal(env *wire.Envelope) *Closed {
	var m wire.ErrorMessage
	var scratch wire.Scratch
	if f := env.ErrorMessage(&m, &scratch); f != nil {
		return &Closed{Err: fmt.Errorf("REGISTER was answered with a malformed ERROR: %w", f)}
	}
	end := &Closed{Err: fmt.Errorf("REGISTER was refused: %s: %s", m.Code, m.Message)}
	switch string(m.Code) {
	case wire.CodeUnauthorized.String():
		end.Code = wire.CloseUnauthorized
	case wire.CodeForbidden.String():
		end.Code = wire.CloseForbidden
	case wire.CodeUnsupportedVersion.String():
		end.Code = wire.CloseVersion
	}
	return end
}

// codeOfStatus gives an HTTP status that refused the handshake the close code of the same
// meaning, 0 for others.
func codeOfStatus(err error) uint16 {
	var status ws.StatusError
	if !errors.As(err, &status) {
		return 0
	}
	switch int(status) {
	case 401:
		return wire.CloseUnauthorized
	case 403:
		return wire.CloseForbidden
	case 426:
		return wire.CloseVersion
	}
	return 0
}
