package front

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"

	"github.com/panjf2000/gnet/v2/pkg/pool/byteslice"
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// maxAnswers is how many bytes of answers one read of a connection may bring about on the
// loop.
const maxAnswers = 64 << 10

// prompter serves HTTP requests on an event loop: those of Options.Prompt that came
// whole and are as plain as can be. Their connections stay on the loop and cost no
// goroutine. Any other request goes the road of handOver, and its connection with it, so
// that what is not plain is judged in one place. All of it is the loop's.
type prompter struct {
	ctx  fasthttp.RequestCtx
	from net.TCPAddr
	ip   [16]byte
	in   bytes.Reader
	br   *bufio.Reader
	bw   *bufio.Writer
	out  bytes.Buffer
	mark uint64 // that the answers wait for; 0: none
}

func newPrompter(s *Server) *prompter {
	p := &prompter{}
	p.br = bufio.NewReaderSize(&p.in, s.o.MaxHead)
	p.bw = bufio.NewWriter(&p.out)
	p.ctx.Init2(onLoop{p: p}, httpLog{s.log}, false)
	return p
}

// onLoop stands for the connection of a request that is served on the loop.
type onLoop struct {
	net.Conn
	p *prompter
}

// RemoteAddr implements net.Conn.
func (c onLoop) RemoteAddr() net.Addr { return &c.p.from }

// Hold has the answer to a request wait until Options.Journal has stored this mark, and the
// answers behind it on the connection with it. It reports false, and does nothing, where the
// request is not served on an event loop: then the handler can wait itself.
func Hold(ctx *fasthttp.RequestCtx, mark uint64) bool {
	c, ok := ctx.Conn().(onLoop)
	if ok {
		c.p.mark = max(c.p.mark, mark)
	}
	return ok
}

// answer serves the requests at the start of data whose turn has come to be served here;
// end is where the head of the first ends, or below 0. It returns how many bytes they
// have. What becomes of the connection shows in its state.
func (c *Conn) answer(data []byte, end int, now wire.Time) (served int) {
	s, p := c.l.srv, c.l.prompt
	if p == nil || s.draining.Load() || !c.served && s.stats.http.Load() >= int64(s.o.MaxHTTP) {
		return 0
	}
	closes := false
	p.mark = 0
	for end > 0 && end <= s.o.MaxHead && p.out.Len() < maxAnswers && !closes {
		body, ok := s.plain(data[served : served+end])
		if !ok || body > s.o.MaxBody || len(data)-served-end < body {
			break
		}
		if ok, closes = p.serve(s, c.remote, data[served:served+end], data[served+end:served+end+body]); !ok {
			break
		}
		served += end + body
		end = headEnd(data[served:], 0)
	}
	if served > 0 {
		c.noteServed(now)
		c.sendAnswers(data[served:], closes, now)
	}
	return served
}

// noteServed begins the time between requests.
func (c *Conn) noteServed(now wire.Time) {
	if !c.served {
		c.served = true
		c.l.srv.stats.waiting.Add(-1)
		c.l.srv.stats.http.Add(1)
	}
	c.opened = now
	c.l.arm(c, now+c.l.srv.o.idleAfter)
}

// beginNext begins the time that the head of a further request may take.
func (c *Conn) beginNext(now wire.Time) {
	if c.served {
		c.opened = now
		c.l.arm(c, now+c.l.srv.o.headAfter)
	}
}

// sendAnswers writes what was answered. Where the socket does not take all of it the
// connection leaves the loop, with what is left to be written and to be read.
func (c *Conn) sendAnswers(rest []byte, closes bool, now wire.Time) {
	out := &c.l.prompt.out
	defer out.Reset()
	if c.holdAnswers(out.Bytes(), closes) {
		return
	}
	if closes {
		c.lastAnswer(append(byteslice.Get(out.Len())[:0], out.Bytes()...), now)
		return
	}
	n, err := write(int(c.fd), out.Bytes())
	switch {
	case n == out.Len():
	case n >= 0 || err == unix.EAGAIN || err == unix.EINTR:
		if c.l.srv.handOver(c, rest, out.Bytes()[max(n, 0):]) != nil {
			c.drop(reasonTooSlow, now)
		}
	default:
		c.drop(reasonReset, now)
	}
}

// holdAnswers keeps the answers back if they have to wait for the journal, and reports
// whether it did. Until they have left nothing more is read of the connection.
func (c *Conn) holdAnswers(answers []byte, closes bool) bool {
	j, mark := c.l.srv.o.Journal, c.l.prompt.mark
	if j == nil || mark <= j.Stored() {
		return false
	}
	c.outboxMu.Lock()
	c.box.holdBytes(mark, answers)
	c.outboxMu.Unlock()
	c.holding, c.closeHeld = true, closes
	c.l.arm(c, c.opened+c.l.srv.o.holdAfter)
	c.l.pushHeld(c, mark)
	return true
}

// keepAhead keeps what came of further requests while answers are held, and has the rest wait
// in the socket.
func (c *Conn) keepAhead(data []byte, now wire.Time) {
	c.keepHead(data)
	if c.l.poll.change(int(c.fd), 0, c.slot, c.l.slots[c.slot].gen) != nil {
		c.drop(reasonReset, now)
		return
	}
	c.unread = true
}

// sendHeld writes the answers that waited for the journal, and goes on with what came
// meanwhile. Loop only.
func (c *Conn) sendHeld(now wire.Time) {
	c.outboxMu.Lock()
	box := &c.box
	answers := box.buf
	box.buf, box.waiting, box.queued = nil, 0, false
	c.outboxMu.Unlock()
	if answers == nil {
		return
	}
	c.holding, c.opened = false, now
	c.l.arm(c, now+c.l.srv.o.idleAfter)
	if c.closeHeld {
		c.lastAnswer(answers, now)
		return
	}
	defer byteslice.Put(answers)
	ahead := c.head
	c.head = nil
	defer ahead.free()
	var data []byte
	if ahead != nil {
		data = ahead.came
	}
	switch n, err := write(int(c.fd), answers); {
	case n == len(answers):
	case n >= 0 || err == unix.EAGAIN || err == unix.EINTR:
		if c.l.srv.handOver(c, data, answers[max(n, 0):]) != nil {
			c.drop(reasonTooSlow, now)
		}
		return
	default:
		c.drop(reasonReset, now)
		return
	}
	if c.unread {
		c.unread = false
		if c.l.poll.change(int(c.fd), unix.EPOLLIN, c.slot, c.l.slots[c.slot].gen) != nil {
			c.drop(reasonReset, now)
			return
		}
	}
	if len(data) > 0 {
		c.readHead(data, now)
	}
}

// serve has one request answered. It reports whether it could be read, and whether the
// connection is to end with the answer.
func (p *prompter) serve(s *Server, from netip.AddrPort, head, body []byte) (ok, closes bool) {
	ctx := &p.ctx
	p.in.Reset(head)
	p.br.Reset(&p.in)
	ctx.Request.Reset()
	ctx.Response.Reset()
	ctx.ResetUserValues()
	if ctx.Request.Header.Read(p.br) != nil {
		return false, false
	}
	ctx.Request.SetBodyRaw(body[:len(body):len(body)]) // what follows it is the next request
	p.ip = from.Addr().As16()
	p.from.IP, p.from.Port = p.ip[:], int(from.Port())
	ctx.SetRemoteAddr(&p.from)
	p.call(s)
	closes = ctx.Response.ConnectionClose()
	_ = ctx.Response.Write(p.bw) // into memory: it cannot fail
	_ = p.bw.Flush()
	return true, closes
}

func (p *prompter) call(s *Server) {
	defer s.rescue(&p.ctx)
	s.o.HTTP(&p.ctx)
}

// plain reads the head of a request and returns the length of its body, where
// Options.Prompt wants it and nothing in it asks for more than an answer: HTTP/1.1 on a
// connection that is to be kept, with one Host, one Content-Length and no other coding,
// expectation or preference.
func (s *Server) plain(head []byte) (body int, ok bool) {
	line, rest, ok := cutLine(head)
	method, target, _ := bytes.Cut(line, []byte{' '})
	target, version, _ := bytes.Cut(target, []byte{' '})
	if !ok || string(version) != "HTTP/1.1" || !isPath(target) || !s.o.Prompt(method, target) {
		return 0, false
	}
	hosts, lengths := 0, 0
	for {
		if line, rest, ok = cutLine(rest); !ok || len(line) == 0 {
			return body, ok && hosts == 1 && lengths == 1
		}
		name, value, colon := bytes.Cut(line, []byte{':'})
		if !colon || !isToken(name) || !isText(value) {
			return 0, false
		}
		value = trimOWS(value)
		switch len(name) {
		case len("Host"):
			if isName(name, "host") {
				hosts++
				if !isPlainHost(value) {
					return 0, false
				}
			}
		case len("Content-Length"):
			if isName(name, "content-length") {
				lengths++
				if body, ok = plainLength(value); !ok {
					return 0, false
				}
			}
		case len("Connection"):
			if isName(name, "connection") && !isName(value, "keep-alive") {
				return 0, false
			}
		case len("Expect"), len("Upgrade"), len("Transfer-Encoding"):
			if isName(name, "expect") || isName(name, "prefer") || isName(name, "upgrade") || isName(name, "trailer") ||
				isName(name, "transfer-encoding") {
				return 0, false
			}
		}
	}
}

// plainLength reads up to seven digits.
func plainLength(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 7 {
		return 0, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, true
}

// isPath reports whether a target is a path in which no reader sees a host.
func isPath(b []byte) bool {
	return len(b) > 0 && b[0] == '/' && !bytes.Contains(b, []byte("//"))
}

// isPlainHost reports whether b is a name or an IPv4 address, and perhaps a port.
func isPlainHost(b []byte) bool {
	name, port, hasPort := bytes.Cut(b, []byte{':'})
	for _, c := range name {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' {
			return false
		}
	}
	if hasPort {
		if n, ok := plainLength(port); !ok || n > 65535 {
			return false
		}
	}
	return len(name) > 0
}
