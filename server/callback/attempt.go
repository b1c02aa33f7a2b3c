package callback

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	headBuffer  = 16 << 10 // a response head beyond it is judged by its status line
	bodyBuffer  = 16 << 10 // a body up to it is sent in one write with the head
	maxAnswer   = 4 << 10  // a response body beyond it costs the connection
	answerGrace = 250 * time.Millisecond
	maxInterim  = 8 // 1xx responses before the real one
	maxErrText  = 200
)

// worker is what one attempt at a time needs: buffers, and the connection that the next
// one to the same host goes on with.
type worker struct {
	conn *conn
	br   *bufio.Reader
	out  []byte
	resp fasthttp.Response
}

func newWorker() *worker {
	return &worker{br: bufio.NewReaderSize(nil, headBuffer)}
}

// attempt sends n once and waits for the answer, all within AttemptTimeout. A kept
// connection that turns out to be closed before anything came back says nothing about
// the receiver: then the notice is sent again at once on a new one, and that counts as
// the same attempt. (The receiver may have seen it twice; callbacks are at least once.)
func (o *Outbox) attempt(w *worker, h *host, n *notice) verdict {
	deadline := time.Now().Add(o.opt.AttemptTimeout)
	w.out = o.appendHead(w.out[:0], h, n)
	body := n.body()
	if len(body) <= bodyBuffer {
		w.out, body = append(w.out, body...), nil
	}
	if w.conn != nil {
		v, stale := w.exchange(body, deadline, o.opt.Clock)
		if !stale {
			return o.cut(v)
		}
	}
	c, err := o.dial(h, deadline)
	if err != nil {
		return verdict{again: !errors.Is(err, ErrRefused), err: errText(err)}
	}
	w.conn = c
	v, _ := w.exchange(body, deadline, o.opt.Clock)
	return o.cut(v)
}

func (o *Outbox) cut(v verdict) verdict {
	v.after = min(v.after, o.opt.MaxRetryAfter)
	return v
}

// appendHead appends the request line and the headers (RFC 9112 sections 3 and 5). All
// that comes from outside is free of control characters: parseURL saw to the URL, and a
// ref stands percent-encoded or hashed.
func (o *Outbox) appendHead(dst []byte, h *host, n *notice) []byte {
	dst = append(dst, "POST "...)
	dst = appendTarget(dst, n.rest(), n.ref())
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, h.to.authority...)
	dst = append(dst, "\r\nUser-Agent: "...)
	dst = append(dst, o.opt.UserAgent...)
	dst = append(dst, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(n.body())), 10)
	dst = append(dst, "\r\nX-Callback-Attempt: "...)
	dst = strconv.AppendInt(dst, int64(n.attempts), 10)
	dst = append(dst, '/')
	dst = strconv.AppendInt(dst, int64(o.opt.Attempts), 10)
	dst = append(dst, "\r\nX-Callback-Id: "...)
	dst = o.appendID(dst, n)
	return append(dst, "\r\n\r\n"...)
}

// exchange writes w.out and the rest of the body and reads the answer. stale: the connection had been
// used before and closed without a byte of an answer. Without a fit connection after it
// w.conn is nil.
func (w *worker) exchange(body []byte, deadline time.Time, clock func() time.Time) (v verdict, stale bool) {
	c := w.conn
	used := c.used
	c.used = true
	err := w.write(c, body, deadline)
	if err == nil {
		w.br.Reset(c.rw)
		v, err = w.read(deadline, clock)
		w.br.Reset(nil)
	}
	if err == nil {
		return v, false
	}
	w.drop()
	stale = used && !isTimeout(err) && !errors.Is(err, errPartial)
	return verdict{again: true, err: errText(err)}, stale
}

func (w *worker) drop() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}

func (w *worker) write(c *conn, body []byte, deadline time.Time) error {
	if err := c.rw.SetDeadline(deadline); err != nil {
		return err
	}
	_, err := c.rw.Write(w.out)
	if err == nil && body != nil {
		_, err = c.rw.Write(body)
	}
	return err
}

// errPartial marks a failure after the answer had begun.
var errPartial = errors.New("response is not HTTP or ended early")

// read reads the answer's head, which decides, and as much of its body as it takes to
// keep the connection; the body's end, or that it has none, changes nothing else.
func (w *worker) read(deadline time.Time, clock func() time.Time) (verdict, error) {
	h := &w.resp.Header
	for range maxInterim {
		w.resp.Reset()
		if err := h.Read(w.br); err != nil {
			return w.statusLine(err)
		}
		status := h.StatusCode()
		if status >= 200 || status == http.StatusSwitchingProtocols {
			v := judge(status)
			if v.again {
				v.after = retryAfter(h.Peek("Retry-After"), clock)
			}
			if !w.drain(deadline) {
				w.drop()
			}
			return v, nil
		}
	}
	return verdict{}, errPartial
}

// statusLine saves what can be saved of an answer whose head came whole and is no good,
// or is too long: a receiver that said 200 must not be called again for a header of its
// server. A head that was cut off, or did not end in time, is no answer.
func (w *worker) statusLine(err error) (verdict, error) {
	b, _ := w.br.Peek(w.br.Buffered())
	if len(b) == 0 {
		return verdict{}, err
	}
	ended := bytes.Contains(b, []byte("\n\r\n")) || bytes.Contains(b, []byte("\n\n")) || len(b) == w.br.Size()
	line, _, whole := bytes.Cut(b, []byte("\n"))
	whole = whole && ended
	const form = "HTTP/1.1 200"
	if whole && len(line) >= len(form) && bytes.HasPrefix(line, []byte("HTTP/1.")) && line[8] == ' ' {
		if status, e := strconv.Atoi(string(line[9:12])); e == nil && status >= 200 {
			w.drop()
			return judge(status), nil
		}
	}
	if isTimeout(err) {
		return verdict{}, err
	}
	return verdict{}, errPartial // without the library's text, which quotes the answer
}

// drain reads the body off the connection and tells whether the next request may use
// it. A body that is long, or slow, or not delimited is not waited for.
func (w *worker) drain(deadline time.Time) bool {
	h := &w.resp.Header
	size := h.ContentLength()
	if h.ConnectionClose() || size > maxAnswer || h.StatusCode() == http.StatusSwitchingProtocols {
		return false
	}
	switch {
	case h.StatusCode() == http.StatusNoContent || h.StatusCode() == http.StatusNotModified:
	case size >= 0 && size <= w.br.Buffered():
		w.br.Discard(size)
	case size < -1:
		return false
	default:
		if grace := time.Now().Add(answerGrace); grace.Before(deadline) {
			w.conn.rw.SetReadDeadline(grace)
		}
		if w.resp.ReadBody(w.br, maxAnswer) != nil {
			return false
		}
		if size == -1 && h.ReadTrailer(w.br) != nil {
			return false
		}
	}
	return w.br.Buffered() == 0 // what nobody asked for is no answer to the next
}

// judge reads a status code as PROTOCOL.md section 7 does.
func judge(status int) verdict {
	v := verdict{reached: true, delivered: status >= 200 && status < 300}
	if !v.delivered {
		v.err = "HTTP " + strconv.Itoa(status)
		switch status {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			v.again = true
		default:
			v.again = status < 300 || status >= 500
		}
	}
	return v
}

// retryAfter reads a Retry-After value (RFC 9110 section 10.2.3); 0 for none, nonsense,
// and a date that has passed.
func retryAfter(value []byte, clock func() time.Time) time.Duration {
	if len(value) == 0 {
		return 0
	}
	digits := true
	for _, c := range value {
		digits = digits && '0' <= c && c <= '9'
	}
	if digits {
		s, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil { // more than fits is a long time
			s = 1<<31 - 1
		}
		return time.Duration(s) * time.Second
	}
	at, err := http.ParseTime(string(value))
	if err != nil {
		return 0
	}
	return max(at.Sub(clock()), 0)
}

// errText is an error as a dead letter shows it.
func errText(err error) string {
	switch {
	case isTimeout(err):
		return "timeout"
	case errors.Is(err, io.EOF):
		return "connection closed without an answer"
	}
	s := err.Error()
	if len(s) > maxErrText {
		s = s[:maxErrText]
	}
	return s
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
