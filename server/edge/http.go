package edge

import (
	"runtime"

	"github.com/valyala/fasthttp"

	"subway/core/wire"
)

// serve answers HTTP on the devices' port: what an operator asks an edge.
func (e *Edge) serve(ctx *fasthttp.RequestCtx) {
	answer := map[string]func(*fasthttp.RequestCtx){
		"/": e.getRoot, "/healthz": e.getHealth, "/readyz": e.getReady, "/metrics": e.metrics.serve, "/version": e.getVersion,
	}[string(ctx.Path())]
	switch {
	case answer == nil:
		failHTTP(ctx, wire.CodeNotFound, "No such path")
	case !ctx.IsGet() && !ctx.IsHead():
		ctx.Response.Header.Set("Allow", "GET, HEAD")
		failHTTP(ctx, wire.CodeMethodNotAllowed, "This path takes GET only")
	default:
		answer(ctx)
	}
}

func failHTTP(ctx *fasthttp.RequestCtx, code wire.Code, text string) {
	sendJSON(ctx, code.HTTPStatus(), `{"success":false,"error":`+quote(text)+`,"code":"`+code.String()+`"}`)
}

func sendJSON(ctx *fasthttp.RequestCtx, status int, body string) {
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBodyString(body)
}

func quote(s string) string { return string(wire.AppendString(nil, s)) }

func (e *Edge) getRoot(ctx *fasthttp.RequestCtx) {
	sendJSON(ctx, 200, `{"name":"subway edge","edgeId":`+quote(e.opt.ID)+`,"version":`+quote(e.opt.Version.Version)+
		`,"links":{"metrics":"/metrics","health":"/healthz","ready":"/readyz","version":"/version","websocket":"/ws"}}`)
}

func (e *Edge) getHealth(ctx *fasthttp.RequestCtx) { sendJSON(ctx, 200, `{"status":"ok"}`) }

// getReady says whether commands flow: the link is up and the disk takes changes.
func (e *Edge) getReady(ctx *fasthttp.RequestCtx) {
	e.mu.Lock()
	link, gateway, failing := "ONLINE", e.up.url, e.failing
	switch {
	case e.up.registered:
	case e.up.offline:
		link = "PERMANENTLY_OFFLINE"
	default:
		link = "OFFLINE"
	}
	e.mu.Unlock()
	status, word, reason := 200, "ready", ""
	switch {
	case e.stopping.Load():
		status, word, reason = 503, "draining", "the edge is going down"
	case link != "ONLINE":
		status, word, reason = 503, "not ready", "the Gateway is out of reach"
	case failing != nil:
		status, word, reason = 503, "not ready", failing.Error()
	}
	body := `{"status":` + quote(word) + `,"link":` + quote(link)
	if gateway != "" {
		body += `,"gateway":` + quote(gateway)
	}
	if reason != "" {
		body += `,"reason":` + quote(reason)
	}
	sendJSON(ctx, status, body+"}")
}

func (e *Edge) getVersion(ctx *fasthttp.RequestCtx) {
	v := e.opt.Version
	sendJSON(ctx, 200, `{"name":"subway edge","version":`+quote(v.Version)+`,"commit":`+quote(v.Commit)+`,"go":`+quote(runtime.Version())+`}`)
}
