package front

import (
	"net/netip"

	"github.com/panjf2000/gnet/v2/pkg/pool/byteslice"
	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// maxUnsent is how many bytes the kernel takes of a connection ahead of what it has sent.
const maxUnsent = 128 << 10

// head is what a connection has of its first request.
type head struct {
	came    []byte // pooled: what came, up to Options.MaxHead
	scanned int    // bytes of it that were looked through
	request *Handshake
}

func (s *Server) newConn(l *loop, remote netip.AddrPort) *Conn {
	return &Conn{l: l, remote: remote, rd: Reader{max: s.o.MaxMessage, budget: s.budget}}
}

// readHead looks for the end of the first request's head and decides which road the
// connection takes. Until then the bytes are kept. Where more than MaxHead came
// without an end the HTTP road answers 431.
func (c *Conn) readHead(data []byte, now wire.Time) {
	s := c.l.srv
	if c.holding {
		c.keepAhead(data, now)
		return
	}
	kept, scanned := c.head, 0
	if kept != nil {
		scanned = kept.scanned
		data = c.keepHead(data)
	}
	end := headEnd(data, scanned-3)
	if n := c.answer(data, end, now); n > 0 {
		defer kept.free()
		c.head = nil
		if data = data[n:]; c.state != stateHead || len(data) == 0 {
			return
		}
		if c.holding {
			c.keepAhead(data, now)
			return
		}
		end = headEnd(data, 0)
	}
	if end < 0 && len(data) <= s.o.MaxHead {
		if c.head == nil {
			data = c.keepHead(data)
			c.beginNext(now)
		}
		c.head.scanned = len(data)
		return
	}
	var h Handshake
	var refusal *Refusal
	if end < 0 || end > s.o.MaxHead || !asksUpgrade(data[:end]) {
		if refusal = s.handOver(c, data, nil); refusal == nil {
			return
		}
	} else if h, refusal = ParseHandshake(data[:end]); refusal == nil {
		refusal = s.admit(&h)
	}
	kept = c.head
	if refusal != nil {
		c.refuse(refusal, now)
	} else {
		c.kind().Add(-1)
		c.upgraded = true
		s.stats.websockets.Add(1)
		c.start(&h, data[end:], now)
	}
	kept.free()
}

// keepHead adds to what came of the head, and returns all of it.
func (c *Conn) keepHead(data []byte) []byte {
	if c.head == nil {
		c.head = &head{}
	}
	h := c.head
	if need := len(h.came) + len(data); need > cap(h.came) {
		grown := byteslice.Get(max(need, 2*cap(h.came)))[:len(h.came)]
		copy(grown, h.came)
		h.free()
		h.came = grown
	}
	h.came = append(h.came, data...)
	return h.came
}

// free gives its memory back. h may be nil.
func (h *head) free() {
	if h != nil && h.came != nil {
		byteslice.Put(h.came)
		h.came = nil
	}
}

// admit judges what ParseHandshake cannot.
func (s *Server) admit(h *Handshake) *Refusal {
	switch {
	case !OriginAllowed(h.Origin, h.Host, s.o.Origins):
		return refuseOrigin
	case s.refusing.Load():
		return refuseGoing
	}
	return nil
}

// start begins a WebSocket: the answer, the session, and the frames that came in the
// same segment as the request. Loop only.
func (c *Conn) start(h *Handshake, early []byte, now wire.Time) {
	o := &c.l.srv.o
	c.outboxMu.Lock()
	box := &c.box
	box.reserve(firstOutbox)
	box.buf = h.appendAccept(box.buf)
	box.raw, box.waiting = uint16(len(box.buf)), len(box.buf)
	box.queued = true // the flush is below
	c.outboxMu.Unlock()

	// A slow peer's kernel buffer holds megabytes, and what is in there has left: a HIGH
	// command would stand behind all of it. The bytes not yet sent are what we can keep
	// short; without the option that is only slower to help.
	_ = unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	c.state, c.started, c.opened, c.pinged = stateOpen, true, now, now
	c.lastSeen.Store(int64(now))
	c.l.arm(c, now+min(o.registerAfter, o.pingEvery, o.silentAfter))
	c.head = &head{request: h}
	c.sess = o.Open(c, now)
	c.head = nil
	if c.sess == nil {
		c.CloseWith(wire.CloseTryAgain, reasonBusy)
	}
	if len(early) > 0 {
		c.read(early, now)
	}
	c.flush(now)
}
