package uplink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

// subprotocol is what a server of ours may pick (PROTOCOL.md section 2).
const subprotocol = "subway.v1"

// answerTime is how long Serve waits for the answer to a close frame to leave.
const answerTime = 100 * time.Millisecond

// Conn is one WebSocket connection to a server. Send and Close may be called from any
// goroutine and at any time; Serve is called once.
type Conn struct {
	opt  Options
	sock net.Conn
	in   reader
	out  *outbox

	mu      sync.Mutex
	closing *Closed   // guarded by mu: this side asked for the end
	closeBy time.Time // guarded by mu: the read deadline from then on
	failed  error     // guarded by mu: what the writer met
}

// Dial connects to one address (see CheckURL) and completes the WebSocket handshake. A
// refusal by the server is a ws.StatusError. Whoever gets a Conn calls Serve.
func Dial(ctx context.Context, address string, opt Options) (*Conn, error) {
	opt = opt.withDefaults()
	d := ws.Dialer{Timeout: opt.DialTimeout, Protocols: []string{subprotocol}, TLSConfig: opt.TLS, NetDial: opt.NetDial}
	if opt.Token != "" {
		d.Header = ws.HandshakeHeaderHTTP(http.Header{"Authorization": {"Bearer " + opt.Token}})
	}
	sock, early, _, err := d.Dial(ctx, address)
	if err != nil {
		return nil, dialError(err)
	}
	c := &Conn{opt: opt, sock: sock, out: newOutbox(opt.Outbox)}
	var from io.Reader = (*timed)(c)
	if early != nil {
		b, _ := early.Peek(early.Buffered())
		from = io.MultiReader(bytes.NewReader(bytes.Clone(b)), from)
		ws.PutReader(early)
	}
	c.in = reader{br: bufio.NewReaderSize(from, opt.ReadBuffer), max: opt.MaxReceive}
	return c, nil
}

// dialError shortens what the net package says of the usual failures.
func dialError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("no answer in time")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection ended during the handshake")
	}
	return err
}

// Send queues a message, which it copies: ErrFull where too much waits, ErrTooLarge,
// ErrDown after the end. Messages leave in the order of the calls.
func (c *Conn) Send(msg []byte) error {
	if len(msg) > c.opt.MaxSend {
		return ErrTooLarge
	}
	return c.out.append(msg)
}

// Close begins the close handshake (RFC 6455 section 7.1.2) and returns at once: what is
// queued leaves first, what still comes is not delivered, and Serve ends within
// CloseTimeout. Later calls do nothing.
func (c *Conn) Close(code uint16, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil || !c.out.seal(code, reason, false) {
		return
	}
	c.closing = &Closed{Code: code, Reason: reason, Local: true}
	c.closeBy = time.Now().Add(c.opt.CloseTimeout)
	_ = c.sock.SetReadDeadline(c.closeBy)
}

// Serve runs the connection: it calls receive for each message, one at a time and on the
// caller's goroutine, until the connection has ended, and says how. A message is borrowed
// until receive returns; while receive blocks nothing is read. Where the server closed,
// Serve returns once that was answered, and the socket is closed behind it: the time to
// connect again (PROTOCOL.md section 5) counts from there.
func (c *Conn) Serve(receive func(msg []byte)) *Closed {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	end, orderly := c.read(receive)
	if orderly {
		c.out.seal(end.Code, end.Reason, true)
		if !end.Local {
			go c.finish(written)
			wait := time.NewTimer(answerTime)
			defer wait.Stop()
			select {
			case <-written:
			case <-wait.C:
			}
			return end
		}
		c.finish(written)
	}
	c.out.drop()
	_ = c.sock.Close()
	<-written
	return end
}

// finish lets the close frame leave and waits for the end of TCP, within CloseTimeout.
func (c *Conn) finish(written <-chan struct{}) {
	bound := time.AfterFunc(c.opt.CloseTimeout, func() { _ = c.sock.Close() })
	defer bound.Stop()
	<-written
	c.linger()
	c.out.drop()
	_ = c.sock.Close()
}

// read delivers messages until the end; orderly says that a close frame of ours is still
// of use to the peer.
func (c *Conn) read(receive func(msg []byte)) (end *Closed, orderly bool) {
	for {
		op, b, err := c.in.next()
		if err != nil {
			return c.readFailed(err)
		}
		switch op {
		case ws.OpPing:
			c.out.answer(b)
		case ws.OpPong:
		case ws.OpBinary:
			_ = c.Send(wire.AppendError(nil, wire.CodeInvalidMessage.String(), "The message is not UTF-8", nil, nil, wire.Time(time.Now().UnixNano())))
		case ws.OpClose:
			end, err := closeFrame(b)
			if err != nil {
				return c.readFailed(err)
			}
			if own := c.ownClose(); own != nil {
				return own, true
			}
			return end, true
		default:
			if c.ownClose() == nil {
				receive(b)
			}
		}
	}
}

// readFailed says how a connection ended whose reading came to an end without a close
// frame.
func (c *Conn) readFailed(err error) (end *Closed, orderly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	timeout := false
	if e, ok := err.(net.Error); ok {
		timeout = e.Timeout()
	}
	var broken *violation
	switch {
	case c.failed != nil:
		return &Closed{Code: closeAbnormal, Err: c.failed}, false
	case c.closing != nil:
		end := *c.closing
		end.Err = ErrUnconfirmed
		return &end, false
	case errors.As(err, &broken):
		return &Closed{Code: broken.code, Reason: broken.text, Local: true, Err: err}, true
	case timeout:
		// A frame to a peer that does not answer would wait for nobody.
		return &Closed{Code: wire.CloseSilent, Local: true, Err: ErrSilent}, false
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return &Closed{Code: closeAbnormal, Err: err}, false
}

func (c *Conn) ownClose() *Closed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// linger waits for the server to end TCP, which is its part (RFC 6455 section 7.1.1): a
// socket closed with bytes unread would take the close frame back.
func (c *Conn) linger() {
	if s, ok := c.sock.(interface{ CloseWrite() error }); ok {
		_ = s.CloseWrite()
	}
	_ = c.sock.SetReadDeadline(time.Now().Add(min(c.opt.CloseTimeout, time.Second)))
	_, _ = io.Copy(io.Discard, c.sock)
}

// fail notes what the writer met and wakes the reader.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.closing == nil {
		c.failed = err
	}
	c.mu.Unlock()
	c.out.drop()
	_ = c.sock.Close()
}

// timed reads from the socket with the deadline that is in force.
type timed Conn

// Read implements io.Reader. A peer that sends no byte for two ping intervals is lost.
func (t *timed) Read(p []byte) (int, error) {
	c := (*Conn)(t)
	c.mu.Lock()
	by := c.closeBy
	if by.IsZero() {
		by = time.Now().Add(2 * c.opt.PingInterval)
	}
	_ = c.sock.SetReadDeadline(by)
	c.mu.Unlock()
	return c.sock.Read(p)
}
