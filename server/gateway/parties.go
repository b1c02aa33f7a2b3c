package gateway

import (
	"errors"

	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/callback"
)

// partyQuery reads the parameters that listings of devices and edges share.
func (g *Gateway) partyQuery(ctx *fasthttp.RequestCtx) (q router.PartyQuery, ok bool) {
	if q.Limit, ok = g.limit(ctx); !ok {
		return q, false
	}
	args := ctx.QueryArgs()
	q.Type, q.Edge, q.Cursor = string(args.Peek("type")), string(args.Peek("edge")), string(args.Peek("cursor"))
	if q.Cursor != "" && !wire.ValidID([]byte(q.Cursor)) {
		g.failField(ctx, "cursor", "cursor is none that a listing gave")
		return q, false
	}
	if status := string(args.Peek("status")); status != "" {
		online := status == "ONLINE"
		if !online && status != "OFFLINE" {
			g.failField(ctx, "status", "status must be ONLINE or OFFLINE")
			return q, false
		}
		q.Online = &online
	}
	return q, true
}

func (g *Gateway) listDevices(ctx *fasthttp.RequestCtx, _ string) {
	if q, ok := g.partyQuery(ctx); ok {
		page, next := g.router.Devices(&q)
		answer(ctx, 200, &wire.DeviceList{Success: true, Devices: page, NextCursor: next})
	}
}

func (g *Gateway) getDevice(ctx *fasthttp.RequestCtx, id string) {
	d := g.router.Device(id)
	if d == nil {
		g.fail(ctx, wire.CodeNotFound, "No device with this id is known", nil, nil)
		return
	}
	answer(ctx, 200, &wire.DeviceAnswer{Success: true, Device: *d})
}

func (g *Gateway) listEdges(ctx *fasthttp.RequestCtx, _ string) {
	if q, ok := g.partyQuery(ctx); ok {
		page, next := g.router.Edges(&q)
		answer(ctx, 200, &wire.EdgeList{Success: true, Edges: page, NextCursor: next})
	}
}

func (g *Gateway) getEdge(ctx *fasthttp.RequestCtx, id string) {
	e := g.router.Edge(id)
	if e == nil {
		g.fail(ctx, wire.CodeNotFound, "No edge with this id is known", nil, nil)
		return
	}
	answer(ctx, 200, &wire.EdgeAnswer{Success: true, Edge: *e})
}

func (g *Gateway) listCallbacks(ctx *fasthttp.RequestCtx, _ string) {
	limit, ok := g.limit(ctx)
	if !ok {
		return
	}
	if state := string(ctx.QueryArgs().Peek("state")); state != "" && state != "dead" {
		g.failField(ctx, "state", "state must be dead: only dead letters are listed")
		return
	}
	items, next, err := g.outbox.Dead(string(ctx.QueryArgs().Peek("cursor")), limit)
	if err != nil {
		g.failField(ctx, "cursor", "cursor is none that a listing gave")
		return
	}
	page := make([]wire.Callback, 0, len(items))
	for i := range items {
		d := &items[i]
		page = append(page, wire.Callback{
			ID: d.ID, RequestRef: d.RequestRef, URL: d.URL, State: d.State, Attempts: d.Attempts,
			LastError: d.LastError, CreatedAt: d.CreatedAt,
		})
	}
	answer(ctx, 200, &wire.CallbackList{Success: true, Callbacks: page, NextCursor: next})
}

func (g *Gateway) retryCallback(ctx *fasthttp.RequestCtx, id string) {
	switch err := g.outbox.Retry(id); {
	case err == nil:
		answer(ctx, 202, &wire.RetryAnswer{Success: true, ID: id})
	case errors.Is(err, callback.ErrUnknown):
		g.fail(ctx, wire.CodeNotFound, "No dead letter with this id is known", nil, nil)
	default:
		g.fail(ctx, wire.CodeOverloaded, err.Error(), []byte(`{"retryAfter":1}`), nil)
	}
}
