package gateway

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/front"
)

// request is what reading a command over HTTP needs, recycled.
type request struct {
	command wire.HTTPCommand
	batch   wire.HTTPBatch
	scratch wire.Scratch
	msg     []byte
	ref     [128]byte
}

var requestPool = sync.Pool{New: func() any { return new(request) }}

func (q *request) release() {
	q.command, q.batch = wire.HTTPCommand{}, wire.HTTPBatch{} // they point into a body that is not ours any more
	if cap(q.msg) > 64<<10 {
		q.msg = nil
	}
	requestPool.Put(q)
}

// maxWait bounds how long a request may wait for a command's end.
const maxWait = 60 * time.Second

func (g *Gateway) postCommand(ctx *fasthttp.RequestCtx, _ string) {
	q := requestPool.Get().(*request)
	defer q.release()
	c := &q.command
	f := wire.ParseHTTPCommand(ctx.PostBody(), g.opt.MaxDepth, c, &q.scratch)
	if f != nil {
		g.failFault(ctx, f, c.Ref)
		return
	}
	wait, waits, ok := g.wait(ctx)
	if !ok || !g.allowed(ctx, 1) {
		return
	}
	refusal := g.submit(q, g.clock.now())
	if refusal != nil {
		g.failCommand(ctx, refusal, c.Ref)
		return
	}
	if waits {
		g.answerRecord(ctx, c.Ref, wait, true)
		return
	}
	if !g.acceptedOnce(ctx, g.appended()) {
		return
	}
	answerWith(ctx, 200, wire.AppendAccepted(answerBuffer(ctx), c.Ref))
}

// submit gives the command of q to the router; c.Ref is set where it was absent.
func (g *Gateway) submit(q *request, now wire.Time) *router.Refusal {
	c := &q.command
	if c.Callback != nil {
		if err := g.outbox.CheckURL(c.Callback); err != nil {
			f := wire.Fault{Code: wire.CodeInvalidRequest, Field: c.CallbackField}
			return &router.Refusal{Code: f.Code, Text: err.Error(), Details: f.AppendDetails(nil)}
		}
	}
	made := c.Ref == nil
	if made {
		c.Ref = router.AppendRef(q.ref[:0], now)
	}
	q.msg = wire.AppendHTTPCommand(q.msg[:0], c.Ref, c.Target, c.CommandRaw, c.Priority, c.TimeoutMs, c.Callback, c.Queue, now)
	refusal := g.router.Submit(&c.Command, q.msg, now)
	g.pulse.stir()
	if refusal != nil && made {
		c.Ref = nil
	}
	return refusal
}

// wait reads ?wait=MS and Prefer: wait=SECONDS (RFC 7240); the smaller wins. A
// preference that makes no sense is ignored, a parameter is refused.
func (g *Gateway) wait(ctx *fasthttp.RequestCtx) (wait time.Duration, waits, ok bool) {
	if ctx.QueryArgs().Has("wait") {
		ms, good := digits(ctx.QueryArgs().Peek("wait"), int(maxWait/time.Millisecond))
		if !good {
			g.failField(ctx, "wait", "wait must be a number of milliseconds")
			return 0, false, false
		}
		wait, waits = time.Duration(ms)*time.Millisecond, true
	}
	seconds, prefers := preferWait(ctx)
	if !prefers {
		return wait, waits, true
	}
	preferred := time.Duration(seconds) * time.Second
	if !waits || preferred <= wait {
		wait = preferred
		ctx.Response.Header.Set("Preference-Applied", "wait="+strconv.Itoa(seconds))
	}
	return wait, true, true
}

// preferWait returns the first wait preference of the request, at most 60 seconds.
func preferWait(ctx *fasthttp.RequestCtx) (seconds int, ok bool) {
	for _, line := range ctx.Request.Header.PeekAll("Prefer") {
		for _, preference := range strings.Split(string(line), ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			value = strings.Trim(strings.TrimSpace(value), `"`)
			if n, good := digits([]byte(value), int(maxWait/time.Second)); good {
				return n, true
			}
		}
	}
	return 0, false
}

// answerRecord waits until the command ends, or for as long as given, and answers with
// what is known of it then. Who waited for the end is told it, also where so much ends at
// once that the record is not kept any more.
// With accepts the answer is the acceptance, too: of one that has ended that was journalled
// before the end.
func (g *Gateway) answerRecord(ctx *fasthttp.RequestCtx, ref []byte, wait time.Duration, accepts bool) {
	var rec *wire.CommandRecord
	if wait > 0 {
		if w := g.router.Wait(ref); w != nil {
			g.await(ctx, w.Done(), wait)
			rec = w.Record()
		}
	}
	if rec == nil {
		rec = g.router.Record(ref)
	}
	if rec == nil {
		g.unknownCommand(ctx, ref)
		return
	}
	if accepts && !g.acceptedOnce(ctx, rec.Mark) || !accepts && !g.toldOnce(ctx, rec.Mark) {
		return
	}
	rec.Success = true
	answerWith(ctx, 200, rec.Append(answerBuffer(ctx)))
}

// failCommand is failRefusal of what may tell how a command stands, or that one which was
// journalled is refused after all.
func (g *Gateway) failCommand(ctx *fasthttp.RequestCtx, r *router.Refusal, ref []byte) {
	once := g.acceptedOnce
	if r.Code == wire.CodeDuplicateRequest || r.Code == wire.CodeAlreadyEnded {
		once = g.toldOnce
	}
	if once(ctx, r.Mark) {
		g.failRefusal(ctx, r, ref)
	}
}

// await returns when done is closed, the time is over, the Gateway stops, or the client
// has gone, which is looked at twice a second.
func (g *Gateway) await(ctx *fasthttp.RequestCtx, done <-chan struct{}, wait time.Duration) {
	const look = 500 * time.Millisecond
	t := timers.Get().(*time.Timer)
	defer timers.Put(t)
	defer t.Stop() // first: nothing is received from it after that
	for {
		step := min(wait, look)
		t.Reset(step)
		select {
		case <-done:
			return
		case <-g.stopped:
			return
		case <-t.C:
		}
		if wait -= step; wait <= 0 || front.PeerGone(ctx) {
			return
		}
	}
}

// timers keeps stopped timers for those who wait.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

func (g *Gateway) unknownCommand(ctx *fasthttp.RequestCtx, ref []byte) {
	ctx.Response.Header.Del("Preference-Applied")
	g.fail(ctx, wire.CodeCommandNotFound, "No command with this requestRef is known", nil, ref)
}

func (g *Gateway) getCommand(ctx *fasthttp.RequestCtx, ref string) {
	if wait, _, ok := g.wait(ctx); ok {
		g.answerRecord(ctx, []byte(ref), wait, false)
	}
}

func (g *Gateway) deleteCommand(ctx *fasthttp.RequestCtx, ref string) {
	if refusal := g.router.Cancel([]byte(ref), g.clock.now()); refusal != nil {
		g.failCommand(ctx, refusal, []byte(ref))
		return
	}
	if !g.toldOnce(ctx, g.appended()) {
		return
	}
	answer(ctx, 200, &wire.CommandAnswer{Success: true, RequestRef: ref, Status: router.Cancelled.String()})
}

func (g *Gateway) getTrace(ctx *fasthttp.RequestCtx, ref string) {
	trace := g.router.Trace([]byte(ref))
	if trace == nil {
		g.unknownCommand(ctx, []byte(ref))
		return
	}
	if g.toldOnce(ctx, trace.Mark) {
		answer(ctx, 200, trace)
	}
}

func (g *Gateway) listCommands(ctx *fasthttp.RequestCtx, _ string) {
	limit, ok := g.limit(ctx)
	if !ok {
		return
	}
	args := ctx.QueryArgs()
	q := router.RecordQuery{Limit: limit, Target: string(args.Peek("target")), Cursor: string(args.Peek("cursor"))}
	if q.Target != "" && !wire.ValidID([]byte(q.Target)) {
		g.failField(ctx, "target", "target must be a device id")
		return
	}
	if status := args.Peek("status"); len(status) > 0 {
		if q.Status, q.Filter = router.ParseState(string(status)); !q.Filter {
			g.failField(ctx, "status", "status must be one of PENDING, DISPATCHED, IN_PROGRESS, COMPLETED, FAILED, TIMEOUT, CANCELLED")
			return
		}
	}
	page, next, ok := g.router.Records(&q)
	if !ok {
		g.failField(ctx, "cursor", "cursor is none that a listing gave")
		return
	}
	mark := uint64(0)
	for i := range page {
		mark = max(mark, page[i].Mark)
	}
	if !g.toldOnce(ctx, mark) {
		return
	}
	answer(ctx, 200, &wire.CommandList{Success: true, Commands: page, NextCursor: next})
}
