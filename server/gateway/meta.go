package gateway

import (
	"runtime"

	"github.com/valyala/fasthttp"

	"subway/api"
	"subway/core/wire"
)

func sendJSON(ctx *fasthttp.RequestCtx, status int, body string) {
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBodyString(body)
}

func (g *Gateway) getRoot(ctx *fasthttp.RequestCtx, _ string) {
	body := `{"name":"subway","version":` + quote(g.opt.Version.Version) +
		`,"links":{"commands":"/api/commands","devices":"/api/devices","edges":"/api/edges","callbacks":"/api/callbacks?state=dead",` +
		`"openapi":"/openapi.json","asyncapi":"/asyncapi.yaml","metrics":"/metrics","health":"/healthz","ready":"/readyz","version":"/version","websocket":"/ws"}}`
	sendJSON(ctx, 200, body)
}

func (g *Gateway) getHealth(ctx *fasthttp.RequestCtx, _ string) {
	sendJSON(ctx, 200, `{"status":"ok"}`)
}

func (g *Gateway) getReady(ctx *fasthttp.RequestCtx, _ string) {
	select {
	case <-g.draining:
		sendJSON(ctx, 503, `{"status":"draining","reason":"the Gateway is going down"}`)
	default:
		if g.durable != nil {
			if err := g.durable.Failing(); err != nil {
				sendJSON(ctx, 503, `{"status":"failing","reason":`+quote("the journal cannot be written: "+err.Error())+`}`)
				return
			}
		}
		sendJSON(ctx, 200, `{"status":"ready"}`)
	}
}

func (g *Gateway) getVersion(ctx *fasthttp.RequestCtx, _ string) {
	sendJSON(ctx, 200, `{"name":"subway","version":`+quote(g.opt.Version.Version)+`,"commit":`+quote(g.opt.Version.Commit)+`,"go":`+quote(runtime.Version())+`}`)
}

func (g *Gateway) getOpenAPI(ctx *fasthttp.RequestCtx, _ string) {
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(api.OpenAPIJSON())
}

func (g *Gateway) getAsyncAPI(ctx *fasthttp.RequestCtx, _ string) {
	ctx.SetContentType("application/yaml")
	ctx.Response.SetBodyRaw(api.AsyncAPIYAML())
}

func (g *Gateway) getSchema(ctx *fasthttp.RequestCtx, name string) {
	schema, ok := api.Schema(name)
	if !ok {
		g.fail(ctx, wire.CodeNotFound, "No such schema", nil, nil)
		return
	}
	ctx.SetContentType("application/schema+json")
	ctx.Response.SetBodyRaw(schema)
}

func quote(s string) string { return string(wire.AppendString(nil, s)) }
