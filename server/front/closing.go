package front

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2/pkg/pool/byteslice"
	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// Why a connection ends, for Session.Closed.
const (
	reasonPeerClosed   = "peer closed"
	reasonReset        = "connection reset"
	reasonSilent       = "heartbeat lost"
	reasonUnregistered = "not registered in time"
	reasonTooSlow      = "too slow"
	reasonProtocol     = "protocol violation"
	reasonUTF8         = "invalid UTF-8"
	reasonTooBig       = "message too big"
	reasonBusy         = "overloaded"
	reasonGoing        = "going down"
)

func violationText(code uint16) string {
	switch code {
	case closeUTF8:
		return reasonUTF8
	case closeTooBig:
		return reasonTooBig
	case closeBusy:
		return reasonBusy
	}
	return reasonProtocol
}

// CloseWith closes the connection with an RFC 6455 close code: what is queued
// leaves first, then the close frame, and TCP ends when the peer has answered or a
// few seconds have passed. With 4429 what is queued is thrown away. No Receive
// follows; Session.Closed does, soon, with this reason. It may be called from any
// goroutine, never blocks, and only the first call counts.
func (c *Conn) CloseWith(code uint16, reason string) { c.closeFor(closedWith(code), code, reason) }

func (c *Conn) closeFor(why CloseReason, code uint16, text string) {
	c.outboxMu.Lock()
	box := &c.box
	if box.shut {
		c.outboxMu.Unlock()
		return
	}
	box.shut, box.close = true, &closing{code, why, text}
	c.closing.Store(true)
	push := !box.queued // also while the socket is blocked
	box.queued = true
	c.outboxMu.Unlock()
	if push {
		c.l.push(c)
	}
}

// beginClose starts what CloseWith asked for. Loop only.
func (c *Conn) beginClose(now wire.Time) {
	c.state = stateClosing
	c.until = now + c.l.srv.o.closeFlush
	c.begun = 0
	c.outboxMu.Lock()
	with := c.box.close
	c.outboxMu.Unlock()
	if with.code == wire.CloseTooSlow {
		c.dropUnstarted()
	}
	payload := binary.BigEndian.AppendUint16(make([]byte, 0, maxControl), with.code)
	if !c.peerClosed {
		payload = append(payload, with.text[:min(len(with.text), maxControl-2)]...)
	}
	c.outboxMu.Lock()
	c.box.control(opClose, payload)
	c.outboxMu.Unlock()
	c.l.arm(c, c.until)
	c.end(with.why, with.text, now)
}

// end counts the end of a WebSocket and tells its session, both once. Loop only.
func (c *Conn) end(why CloseReason, reason string, now wire.Time) {
	if c.started {
		c.started = false
		c.l.srv.stats.closed[why].Add(1)
	}
	if s := c.sess; s != nil {
		c.sess = nil
		s.Closed(now, reason)
	}
}

// halfClose ends our half of TCP when everything has left; the peer's close or its
// own half is waited for, so that a reset does not overtake what it has to read.
func (c *Conn) halfClose(now wire.Time) {
	if unix.Shutdown(int(c.fd), unix.SHUT_WR) != nil {
		c.drop(reasonReset, now)
		return
	}
	c.state = stateLinger
	c.until = now + c.l.srv.o.linger
	c.l.arm(c, c.until)
}

// refuse answers a request that is not taken and closes the connection after it.
func (c *Conn) refuse(f *Refusal, now wire.Time) {
	c.l.srv.stats.refused.Add(1)
	c.lastAnswer(f.append(byteslice.Get(firstOutbox)[:0]), now)
}

// lastAnswer sends an answer and closes the connection after it. The answer's memory is
// pooled.
func (c *Conn) lastAnswer(answer []byte, now wire.Time) {
	c.out, c.raw, c.broken = answer, uint16(len(answer)), true
	c.outboxMu.Lock()
	c.box.shut = true
	c.box.waiting = len(answer)
	c.outboxMu.Unlock()
	c.state = stateClosing
	c.until = now + c.l.srv.o.closeFlush
	c.l.arm(c, c.until)
	c.flush(now)
}

// drop ends the connection at once. Loop only.
func (c *Conn) drop(reason string, now wire.Time) {
	if c.state == stateGone {
		return
	}
	_ = unix.Close(int(c.fd)) // leaves the loop's set by itself
	c.l.remove(c)
	c.release()
	c.end(closedWithout(reason), reason, now)
	c.l.srv.stats.leave(c.kind())
}

// kind is the count that the connection is part of.
func (c *Conn) kind() *atomic.Int64 {
	switch n := &c.l.srv.stats; {
	case c.upgraded:
		return &n.websockets
	case c.served:
		return &n.http
	default:
		return &n.waiting
	}
}

// release gives back the memory of a connection that ended. Loop only.
func (c *Conn) release() {
	c.outboxMu.Lock()
	box := &c.box
	box.shut, box.waiting = true, 0
	for _, b := range [][]byte{box.buf, c.out} {
		if b != nil {
			byteslice.Put(b)
		}
	}
	box.buf, box.latePong = nil, nil
	box.dropHeld()
	if box.charged > 0 {
		c.charge(0)
	}
	c.outboxMu.Unlock()
	c.closing.Store(true)
	c.out, c.off = nil, 0
	c.rd.Close()
	c.head.free()
	c.head = nil
}
