package uplink

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"
)

const (
	maxHeader  = 14        // of a masked frame, in bytes
	maxControl = 125       // payload of a control frame, in bytes
	writeStep  = 64 << 10  // bytes given to the socket at a time, so that a slow link is not a stalled one
	keepOutbox = 256 << 10 // the largest buffer that is kept when all was sent
)

// outbox holds what waits to be sent, as ready frames. Its methods may be called from any
// goroutine; one goroutine takes.
type outbox struct {
	mu     sync.Mutex
	buf    []byte // guarded by mu, as all below
	spare  []byte
	max    int
	ping   bool // one is due
	pong   int  // length of the answer that is due, -1 for none: only the last ping is answered
	echo   [maxControl]byte
	sealed bool // nothing more is taken in: the last frame is a close frame, or all is lost

	wake chan struct{} // capacity 1
}

func newOutbox(max int) *outbox {
	return &outbox{max: max, pong: -1, wake: make(chan struct{}, 1)}
}

// append takes a message in, copied. It allocates only while the buffer grows.
func (o *outbox) append(msg []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return ErrDown
	}
	if len(o.buf)+len(msg)+maxHeader > o.max {
		return ErrFull
	}
	o.buf = appendFrame(o.buf, ws.OpText, msg)
	o.signal()
	return nil
}

// answer makes a pong due. Pings that come faster than they can be answered share one
// (RFC 6455 section 5.5.3), so a peer cannot make the outbox grow.
func (o *outbox) answer(ping []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pong = copy(o.echo[:], ping)
	o.signal()
}

func (o *outbox) pingDue() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ping = true
}

// seal appends a close frame as the last, after what waits or instead of it; it reports
// false if there was one already.
func (o *outbox) seal(code uint16, reason string, instead bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return false
	}
	o.sealed = true
	if instead {
		o.buf = o.buf[:0]
	}
	if code == closeNoCode {
		o.buf = appendFrame(o.buf, ws.OpClose, nil)
	} else {
		body := binary.BigEndian.AppendUint16(make([]byte, 0, maxControl), code)
		body = append(body, reason[:min(len(reason), maxControl-2)]...)
		o.buf = appendFrame(o.buf, ws.OpClose, body)
	}
	o.signal()
	return true
}

// drop throws away what waits: the connection is lost.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed, o.buf, o.spare = true, nil, nil
	o.signal()
}

// take returns what waits; last says that nothing will follow. The bytes are the caller's
// until it gives them back.
func (o *outbox) take() (b []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sealed && o.pong >= 0 {
		o.buf = appendFrame(o.buf, ws.OpPong, o.echo[:o.pong])
	}
	if !o.sealed && o.ping {
		o.buf = appendFrame(o.buf, ws.OpPing, nil)
	}
	o.ping, o.pong = false, -1
	b, o.buf, o.spare = o.buf, o.spare, nil
	return b, o.sealed
}

func (o *outbox) giveBack(b []byte) {
	if cap(b) > keepOutbox {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = b[:0]
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// appendFrame appends a masked frame (RFC 6455 section 5.2).
func appendFrame(dst []byte, op ws.OpCode, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, 0x80|byte(op))
	switch {
	case n <= maxControl:
		dst = append(dst, 0x80|byte(n))
	case n <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	var mask [4]byte
	binary.LittleEndian.PutUint32(mask[:], rand.Uint32())
	dst = append(append(dst, mask[:]...), payload...)
	ws.Cipher(dst[len(dst)-n:], mask, 0)
	return dst
}

// write sends what waits until the outbox is sealed and empty, or the socket fails, and
// pings meanwhile.
func (c *Conn) write() {
	ticker := time.NewTicker(c.opt.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.out.wake:
		case <-ticker.C:
			c.out.pingDue()
		}
		b, last := c.out.take()
		if err := c.writeAll(b); err != nil {
			c.fail(err)
			return
		}
		if last {
			return
		}
		c.out.giveBack(b)
	}
}

func (c *Conn) writeAll(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writeStep)
		_ = c.sock.SetWriteDeadline(time.Now().Add(c.opt.StallTimeout))
		if _, err := c.sock.Write(b[:n]); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				return ErrStalled
			}
			return err
		}
		b = b[n:]
	}
	return nil
}
