package gateway

import (
	"strconv"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
)

func (g *Gateway) postBatch(ctx *fasthttp.RequestCtx, _ string) {
	q := requestPool.Get().(*request)
	defer q.release()
	if f := wire.ParseHTTPBatch(ctx.PostBody(), g.opt.MaxDepth, &q.batch, &q.scratch); f != nil {
		g.failFault(ctx, f, nil)
		return
	}
	select {
	case <-g.draining:
		g.failRefusal(ctx, router.RefuseDraining(g.clock.now()), nil)
		return
	default:
	}
	out := batchResults{g: g, now: g.clock.now(), buf: resultPool.Get().(*[]byte)}
	defer out.release()
	if q.batch.ByItems {
		if q.batch.Count > g.opt.MaxBatch {
			g.tooMany(ctx, "commands")
			return
		}
		if !g.allowed(ctx, q.batch.Count) {
			return
		}
		g.batchItems(q, &out)
	} else {
		if !g.allowed(ctx, 1) { // the work of expanding is bounded too
			return
		}
		targets, ok := g.expand(q)
		if !ok {
			g.tooMany(ctx, "targets")
			return
		}
		if len(targets) > 1 && !g.allowed(ctx, len(targets)-1) {
			return
		}
		g.batchTargets(q, targets, &out)
	}
	if out.accepted > 0 {
		out.mark = g.appended()
	}
	if !g.acceptedOnce(ctx, out.mark) {
		return
	}
	answerWith(ctx, 200, wire.AppendBatchAnswer(answerBuffer(ctx), out.accepted, out.rejected, *out.buf))
}

// batchResults gathers the results of a batch, as they stand in its answer.
type batchResults struct {
	g                  *Gateway
	now                wire.Time // of the whole batch
	accepted, rejected int
	mark               uint64 // in the journal, of what the refusals tell of
	buf                *[]byte
}

var resultPool = sync.Pool{New: func() any { return new([]byte) }}

// keepResults is the capacity up to which a buffer of results goes back to the pool.
const keepResults = 256 << 10

func (r *batchResults) release() {
	if cap(*r.buf) > keepResults {
		*r.buf = nil
	}
	*r.buf = (*r.buf)[:0]
	resultPool.Put(r.buf)
}

// submit gives the command of q to the router and notes what became of it.
func (r *batchResults) submit(q *request) {
	c := &q.command
	if refusal := r.g.submit(q, r.now); refusal != nil {
		r.mark = max(r.mark, refusal.Mark)
		r.reject(c.Target, refusal.Code, refusal.Text, refusal.Details)
		return
	}
	r.accepted++
	*r.buf = wire.AppendBatchAccepted(*r.buf, c.Target, c.Ref)
}

func (r *batchResults) reject(target []byte, code wire.Code, text string, details []byte) {
	r.rejected++
	*r.buf = wire.AppendBatchRejected(*r.buf, target, text, code, details)
}

func (g *Gateway) tooMany(ctx *fasthttp.RequestCtx, field string) {
	g.failField(ctx, field, "a batch holds at most "+strconv.Itoa(g.opt.MaxBatch)+" commands; nothing was sent")
}

func (g *Gateway) batchItems(q *request, out *batchResults) {
	item := requestPool.Get().(*request)
	defer item.release()
	c := &item.command
	q.batch.EachItem(c, &item.scratch, func(_ []byte, f *wire.Fault) bool {
		if f != nil {
			out.reject(c.Target, f.Code, f.Text, f.AppendDetails(nil))
		} else {
			out.submit(item)
		}
		return true
	})
}

// batchTargets sends the one command of a batch to each target; every one gets a
// requestRef of its own.
func (g *Gateway) batchTargets(q *request, targets []target, out *batchResults) {
	q.command = q.batch.Command
	for _, t := range targets {
		id := []byte(t.id)
		switch {
		case t.nothing:
			out.reject(id, wire.CodeTargetNotFound, "No device matches "+t.id, nil)
		case !wire.ValidID(id):
			f := wire.Fault{Code: wire.CodeInvalidRequest, Field: "targets"}
			out.reject(id, f.Code, "targets holds device ids, or the beginning of ids and a * at the end", f.AppendDetails(nil))
		default:
			q.command.Target, q.command.Ref = id, nil
			out.submit(q)
		}
	}
}

// target is one device of a batch; nothing: a pattern that matches none.
type target struct {
	id      string
	nothing bool
}

// expand replaces the patterns among the targets with the devices that they match and
// that no other target names already: a pattern adds nobody twice. A device that is
// named twice gets the command twice. ok is false where there are more than a batch may
// hold.
func (g *Gateway) expand(q *request) (targets []target, ok bool) {
	if q.batch.Count > g.opt.MaxBatch {
		return nil, false
	}
	var list, prefixes []string
	named := make(map[string]bool)
	q.batch.EachTarget(func(raw []byte) bool {
		list = append(list, string(raw))
		if prefix, pattern := isPattern(raw); pattern {
			prefixes = append(prefixes, prefix)
		} else {
			named[string(raw)] = true
		}
		return true
	})
	matches := make([][]string, len(prefixes))
	if len(prefixes) > 0 {
		g.router.DevicesMatchingAny(prefixes, g.opt.MaxBatch+len(named)+1, func(i int, id string) {
			matches[i] = append(matches[i], id)
		})
	}
	for _, t := range list {
		if _, pattern := isPattern([]byte(t)); !pattern {
			targets = append(targets, target{id: t})
			continue
		}
		if len(matches[0]) == 0 {
			targets = append(targets, target{id: t, nothing: true})
		}
		for _, id := range matches[0] {
			if !named[id] {
				named[id] = true
				targets = append(targets, target{id: id})
			}
		}
		matches = matches[1:]
		if len(targets) > g.opt.MaxBatch {
			return nil, false
		}
	}
	return targets, len(targets) <= g.opt.MaxBatch
}

// isPattern reports whether a target is the beginning of ids with a * at its end.
func isPattern(raw []byte) (prefix string, ok bool) {
	prefix, ok = strings.CutSuffix(string(raw), "*")
	return prefix, ok && (prefix == "" || wire.ValidID([]byte(prefix)))
}
