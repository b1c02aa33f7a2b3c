package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	maxCallback  = 4 << 20 // bytes of a callback's body
	maxDelay     = time.Minute
	defaultConns = 4_096
	receiveLimit = 30 * time.Second // for one callback to come
	answerLimit  = 10 * time.Second // for one answer to be written
	idleLimit    = 5 * time.Minute
	closeLimit   = 10 * time.Second
	idleWorker   = 250 * time.Millisecond // after which fasthttp ends a goroutine without a connection
	cbPrefix     = "/cb/"
)

// ReceiverOptions says how callbacks are taken.
type ReceiverOptions struct {
	// Listen is the address; default 127.0.0.1:0, a port of the system's choice.
	Listen string
	// MaxConns bounds the connections, default 4,096; one more is answered 503 and closed.
	// It is also the bound on delayed answers and on goroutines: an answer that waits
	// holds its own connection and nothing else. A gateway bounds its connections by
	// receiver address, so a customer that is to be slow alone needs a Receiver of its own.
	MaxConns int
	// Answer, if set, says what to answer, and after how long (at most a minute); none:
	// 200 at once. It is called on the connection's goroutine, many at a time.
	Answer func(customer string, c *Callback) (status int, delay time.Duration)
	// Got is told of each callback once its answer was written or failed to be. Calls for
	// one ref do not overlap and come in the order in which the answers were written, so
	// for a gateway that awaits an answer before it sends the next, in the order of the
	// callbacks. Others run at the same time, on the connections' goroutines.
	Got func(c *Callback)
}

// Callback is one request to the Receiver (PROTOCOL.md section 7). It and what it points
// to are valid until Got returns; Answer sees it without Answered and Confirmed.
type Callback struct {
	Customer          string // from the path: /cb/{customer}/{ref}
	Ref               string // from the body; from the path where the body has none
	Type              string // COMMAND_RESPONSE, PROGRESS_UPDATE or ERROR
	Status            string // the response's own word, IN_PROGRESS, or TIMEOUT, ...
	Target            string
	Code              string // the code of its error
	Result            []byte // JSON, byte for byte
	Progress          []byte // JSON: a number or an object
	Body              []byte
	ID                string    // X-Callback-Id
	Attempt, Attempts int       // X-Callback-Attempt: 2/3 is 2 and 3
	Arrived           time.Time // when its last byte was read
	Answered          int       // the status it was answered with
	// Confirmed says that the answer was 2xx, that the kernel took all of it, and that the
	// sender had not closed the connection before. So the sender can have read it: if
	// it sends the callback again, it repeats what was confirmed. (Only a sender that gives
	// up within the microseconds between that look and the answer's arrival is wronged.)
	Confirmed bool
	// Err says what is wrong with it; it is answered with 400 then and Answer is not asked.
	Err error
}

// Receiver is an HTTP server for callbacks. One port, one goroutine per connection.
type Receiver struct {
	opt    ReceiverOptions
	server *fasthttp.Server
	ln     net.Listener
	stop   chan struct{} // closed by Close: no answer is waited for any longer
	served chan error
	broken atomic.Uint64

	mu    sync.Mutex
	lines map[*line]struct{} // guarded by mu: the open connections
	ended bool               // guarded by mu

	inOrder [64]sync.Mutex // by ref: held from an answer's writing to the end of Got
}

// Receive starts a Receiver.
func Receive(o ReceiverOptions) (*Receiver, error) {
	setDefault(&o.Listen, "127.0.0.1:0")
	setDefault(&o.MaxConns, defaultConns)
	if o.Got == nil || o.MaxConns < 1 {
		return nil, errors.New("attack: a Receiver needs Got and at least one connection")
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("attack: listening for callbacks: %w", err)
	}
	r := &Receiver{opt: o, ln: ln, stop: make(chan struct{}), served: make(chan error, 1), lines: make(map[*line]struct{})}
	r.server = &fasthttp.Server{
		Handler:               r.handle,
		ErrorHandler:          r.refuse,
		Concurrency:           o.MaxConns,
		MaxRequestBodySize:    maxCallback,
		ReadTimeout:           receiveLimit,
		WriteTimeout:          answerLimit,
		IdleTimeout:           idleLimit,
		MaxIdleWorkerDuration: idleWorker,
		ReduceMemoryUsage:     true, // also: each answer is written by itself, see line.Write
		NoDefaultServerHeader: true,
		NoDefaultDate:         true,
		Logger:                silent{},
	}
	go func() { r.served <- r.server.Serve(lineListener{ln, r}) }()
	return r, nil
}

// URL is http://address:port.
func (r *Receiver) URL() string { return "http://" + r.ln.Addr().String() }

// CallbackURL is the URL to give a gateway for this customer's commands.
func (r *Receiver) CallbackURL(customer string) string {
	return r.URL() + cbPrefix + url.PathEscape(customer) + "/{request_ref}"
}

// Rejected counts connections beyond MaxConns.
func (r *Receiver) Rejected() uint64 { return uint64(r.server.GetRejectedConnectionsCount()) }

// Broken counts requests that Got was not told of: those that are no HTTP or did not come
// whole within 30 s, and bodies over 4 MiB.
func (r *Receiver) Broken() uint64 { return r.broken.Load() }

func (r *Receiver) refuse(ctx *fasthttp.RequestCtx, err error) {
	r.broken.Add(1)
	status := http.StatusBadRequest
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	ctx.Error("not a callback", status)
}

// Close closes the port and all connections, those in use too: their callbacks are told
// as unconfirmed. Call it when no more callbacks are due. It returns when no connection is
// left, after 10 s at the most; the server's last goroutine ends within 250 ms more.
func (r *Receiver) Close() error {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return nil
	}
	r.ended = true
	for l := range r.lines {
		l.Conn.Close()
	}
	r.mu.Unlock()
	close(r.stop)
	r.ln.Close()
	err := <-r.served
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if e := r.server.ShutdownWithContext(ctx); !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// handle reads a callback, waits as long as its answer is to take, and leaves it to
// line.Write to tell Got.
func (r *Receiver) handle(ctx *fasthttp.RequestCtx) {
	l := ctx.Conn().(*line)
	c := &l.callback
	l.readCallback(ctx)
	status, delay := http.StatusOK, time.Duration(0)
	switch {
	case c.Err != nil:
		status = http.StatusBadRequest
	case r.opt.Answer != nil:
		status, delay = r.opt.Answer(c.Customer, c)
	}
	if status < 200 || status > 599 {
		status = http.StatusInternalServerError
	}
	if delay > 0 && !r.pause(min(delay, maxDelay)) {
		l.Conn.Close()
	}
	c.Answered, l.pending = status, true
	ctx.SetStatusCode(status)
}

// pause is false when the Receiver is closed meanwhile.
func (r *Receiver) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.stop:
		return false
	}
}

// readCallback fills l.callback from a request. The body is copied: the answer may fail
// to be written after the request's memory went back to the server.
func (l *line) readCallback(ctx *fasthttp.RequestCtx) {
	l.body = append(l.body[:0], ctx.PostBody()...)
	h := &ctx.Request.Header
	c := &l.callback
	*c = Callback{Arrived: time.Now(), Body: l.body, ID: string(h.Peek("X-Callback-Id"))}
	path, _, _ := strings.Cut(string(ctx.RequestURI()), "?")
	rest, ours := strings.CutPrefix(path, cbPrefix)
	customer, pathRef, _ := strings.Cut(rest, "/")
	var badPath error
	if c.Customer, badPath = url.PathUnescape(customer); badPath == nil {
		pathRef, badPath = url.PathUnescape(pathRef)
	}
	var n notice
	err := decode(l.body, &n)
	c.Ref, c.Type, c.Status, c.Target = n.RequestRef, n.Type, n.Status, n.Target
	c.Result, c.Progress, c.Code = n.Result, n.Progress, errorCode(n.Error)
	if c.Ref == "" {
		c.Ref = pathRef
	}
	var attemptOK bool
	c.Attempt, c.Attempts, attemptOK = parseAttempt(string(h.Peek("X-Callback-Attempt")))
	switch {
	case !ctx.IsPost():
		c.Err = fmt.Errorf("a callback by %s", ctx.Method())
	case !ours || badPath != nil || c.Customer == "":
		c.Err = fmt.Errorf("a callback to %q", path)
	case err != nil:
		c.Err = err
	case n.RequestRef == "" || n.Type == "":
		c.Err = fmt.Errorf("a callback without requestRef or type: %s", excerpt(l.body))
	case pathRef != "" && pathRef != n.RequestRef:
		c.Err = fmt.Errorf("a callback for %q under the path of %q", n.RequestRef, pathRef)
	case c.ID == "" || !attemptOK:
		c.Err = errors.New("a callback without X-Callback-Id or X-Callback-Attempt")
	case !bytes.HasPrefix(h.ContentType(), []byte("application/json")):
		c.Err = fmt.Errorf("a callback of type %q", h.ContentType())
	}
}

// parseAttempt reads 1/3.
func parseAttempt(s string) (n, of int, ok bool) {
	a, b, _ := strings.Cut(s, "/")
	n, err1 := strconv.Atoi(a)
	of, err2 := strconv.Atoi(b)
	return n, of, err1 == nil && err2 == nil && 1 <= n && n <= of
}

// silent drops what fasthttp logs: that connections end is not news here.
type silent struct{}

func (silent) Printf(string, ...any) {}
