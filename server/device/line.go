package device

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"subway/server/uplink"
)

// lineConn carries messages as lines over TCP, to an Edge (docs/devices.md). It implements
// uplink.Transport: Serve reads, on its caller's goroutine, and one more goroutine writes.
type lineConn struct {
	opt  uplink.Options
	sock net.Conn
	br   *bufio.Reader
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	buf     []byte         // guarded by mu: what waits to be sent
	closing *uplink.Closed // guarded by mu: this side asked for the end
	over    bool           // guarded by mu: nothing leaves any more
	failed  error          // guarded by mu: what the writer met
}

func dialLine(ctx context.Context, host string, opt uplink.Options) (uplink.Transport, error) {
	sock, err := dialTCP(ctx, host, opt)
	if err != nil {
		return nil, err
	}
	return &lineConn{opt: opt, sock: sock, br: bufio.NewReaderSize(sock, 4<<10), wake: make(chan struct{}, 1)}, nil
}

// Send implements uplink.Transport.
func (c *lineConn) Send(msg []byte) error {
	if len(msg) > c.opt.MaxSend {
		return uplink.ErrTooLarge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over || c.closing != nil:
		return uplink.ErrDown
	case len(c.buf)+len(msg) >= c.opt.Outbox:
		return uplink.ErrFull
	}
	c.buf = append(c.buf, msg...) // our own messages hold no line ends
	c.buf = append(c.buf, '\n')
	c.signal()
	return nil
}

// Close implements uplink.Transport.
func (c *lineConn) Close(code uint16, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil || c.over {
		return
	}
	c.closing = &uplink.Closed{Code: code, Reason: reason, Local: true}
	_ = c.sock.SetReadDeadline(time.Now().Add(c.opt.CloseTimeout))
	c.signal()
}

func (c *lineConn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Serve implements uplink.Transport.
func (c *lineConn) Serve(receive func(msg []byte)) *uplink.Closed {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	told, err := c.read(receive)
	c.mu.Lock()
	c.over = true
	c.signal()
	end, failed := c.closing, c.failed
	c.mu.Unlock()
	_ = c.sock.Close()
	<-written
	switch {
	case end != nil && err != io.EOF:
		unconfirmed := *end
		unconfirmed.Err = uplink.ErrUnconfirmed
		return &unconfirmed
	case end != nil:
		return end
	case told != nil:
		return told
	case failed != nil:
		err = failed
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return &uplink.Closed{Code: closeAbnormal, Err: err}
}

// read delivers messages until the end; told is what the Edge said of it.
func (c *lineConn) read(receive func(msg []byte)) (told *uplink.Closed, err error) {
	for {
		line, err := c.line()
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				err = uplink.ErrSilent
			}
			return told, err
		}
		if end := goodbye(line); end != nil {
			told = end
		} else if len(line) > 0 {
			receive(line)
		}
	}
}

// line reads one, without its end. It is borrowed until the next call.
func (c *lineConn) line() (line []byte, err error) {
	for {
		c.deadline()
		part, err := c.br.ReadSlice('\n')
		if err == nil && line == nil {
			return bytes.TrimRight(part, "\r\n"), nil
		}
		line = append(line, part...)
		switch {
		case len(line) > c.opt.MaxReceive+2:
			return nil, errors.New("the line is too long")
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// deadline sets until when the next bytes must come: the Edge answers every HEARTBEAT.
func (c *lineConn) deadline() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == nil {
		_ = c.sock.SetReadDeadline(time.Now().Add(2 * c.opt.PingInterval))
	}
}

// goodbye reads the last line of an Edge that closes: an ERROR with the close code.
func goodbye(line []byte) *uplink.Closed {
	if !bytes.Contains(line, []byte(`"closeCode"`)) {
		return nil
	}
	var m struct {
		Type, Message string
		Details       struct{ CloseCode uint16 }
	}
	if json.Unmarshal(line, &m) != nil || m.Type != "ERROR" || m.Details.CloseCode == 0 {
		return nil
	}
	return &uplink.Closed{Code: m.Details.CloseCode, Reason: m.Message}
}

// write sends what waits, and a HEARTBEAT from time to time, until the end.
func (c *lineConn) write() {
	ticker := time.NewTicker(c.opt.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.wake:
		case <-ticker.C:
			_ = c.Send([]byte(`{"type":"HEARTBEAT"}`)) // where the outbox is full, life shows in what leaves
		}
		c.mu.Lock()
		b, last, over := c.buf, c.closing != nil, c.over
		c.buf = nil
		c.mu.Unlock()
		if over {
			return
		}
		_ = c.sock.SetWriteDeadline(time.Now().Add(c.opt.StallTimeout))
		if _, err := c.sock.Write(b); err != nil {
			c.mu.Lock()
			c.failed, c.over = err, true
			c.mu.Unlock()
			_ = c.sock.Close()
			return
		}
		if last {
			if s, ok := c.sock.(interface{ CloseWrite() error }); ok {
				_ = s.CloseWrite() // the Edge answers with its own end
			}
			return
		}
	}
}
