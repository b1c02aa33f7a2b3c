package gateway

import (
	"bytes"
	"strings"

	"github.com/mailru/easyjson"
	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/front"
)

// endpoint is one path of the API (PROTOCOL.md section 6). arg is what stands in the
// place of {} in it, decoded.
type endpoint struct {
	pattern []string
	get     func(g *Gateway, ctx *fasthttp.RequestCtx, arg string)
	post    func(g *Gateway, ctx *fasthttp.RequestCtx, arg string)
	delete  func(g *Gateway, ctx *fasthttp.RequestCtx, arg string)
}

var endpoints = []endpoint{
	{pattern: split("/api/commands"), get: (*Gateway).listCommands, post: (*Gateway).postCommand},
	{pattern: split("/api/command"), post: (*Gateway).postCommand},
	{pattern: split("/api/commands/batch"), post: (*Gateway).postBatch},
	{pattern: split("/api/commands/{}"), get: (*Gateway).getCommand, delete: (*Gateway).deleteCommand},
	{pattern: split("/api/traces/{}"), get: (*Gateway).getTrace},
	{pattern: split("/api/devices"), get: (*Gateway).listDevices},
	{pattern: split("/api/devices/{}"), get: (*Gateway).getDevice},
	{pattern: split("/api/edges"), get: (*Gateway).listEdges},
	{pattern: split("/api/edges/{}"), get: (*Gateway).getEdge},
	{pattern: split("/api/callbacks"), get: (*Gateway).listCallbacks},
	{pattern: split("/api/callbacks/{}/retry"), post: (*Gateway).retryCallback},
	{pattern: split("/"), get: (*Gateway).getRoot},
	{pattern: split("/healthz"), get: (*Gateway).getHealth},
	{pattern: split("/readyz"), get: (*Gateway).getReady},
	{pattern: split("/metrics"), get: (*Gateway).getMetrics},
	{pattern: split("/version"), get: (*Gateway).getVersion},
	{pattern: split("/openapi.json"), get: (*Gateway).getOpenAPI},
	{pattern: split("/asyncapi.yaml"), get: (*Gateway).getAsyncAPI},
	{pattern: split("/schemas/{}"), get: (*Gateway).getSchema},
}

func split(path string) []string { return strings.Split(path, "/")[1:] }

// exact holds the endpoints whose path has no argument.
var exact = func() map[string]*endpoint {
	m := make(map[string]*endpoint)
	for i := range endpoints {
		if path := "/" + strings.Join(endpoints[i].pattern, "/"); !strings.Contains(path, "{}") {
			m[path] = &endpoints[i]
		}
	}
	return m
}()

// isPrompt reports whether the request posts one command and does not wait for its end.
func isPrompt(method, target []byte) bool {
	return string(method) == "POST" && (string(target) == "/api/commands" || string(target) == "/api/command")
}

// serve answers one HTTP request. The path is matched as it was sent, before any
// normalisation: a requestRef may hold "/" or "..", percent-encoded.
func (g *Gateway) serve(ctx *fasthttp.RequestCtx) {
	// A page in somebody's browser may not command devices: what changes something is held
	// to the rule for a WebSocket's Origin.
	if !ctx.IsGet() && !ctx.IsHead() && !front.OriginAllowed(ctx.Request.Header.Peek("Origin"), ctx.Host(), g.opt.Origins) {
		g.fail(ctx, wire.CodeForbidden, "This Origin is not allowed", nil, nil)
		return
	}
	raw := ctx.URI().PathOriginal()
	if e := exact[string(raw)]; e != nil {
		e.serve(g, ctx, "")
		return
	}
	g.serveWithArg(ctx, string(raw))
}

// serveWithArg is serve for the paths that hold an argument, and for those that are none.
func (g *Gateway) serveWithArg(ctx *fasthttp.RequestCtx, raw string) {
	if strings.HasPrefix(raw, "/") {
		segments := split(raw)
		for i := range endpoints {
			if arg, ok := endpoints[i].match(segments); ok {
				endpoints[i].serve(g, ctx, arg)
				return
			}
		}
	}
	g.fail(ctx, wire.CodeNotFound, "No such path", nil, nil)
}

// match reports whether the path's segments fit, and the argument among them.
func (e *endpoint) match(segments []string) (arg string, ok bool) {
	if len(segments) != len(e.pattern) {
		return "", false
	}
	for i, want := range e.pattern {
		if want == "{}" {
			if arg, ok = unescape(segments[i]); !ok || arg == "" {
				return "", false
			}
		} else if segments[i] != want {
			return "", false
		}
	}
	return arg, true
}

// unescape decodes the percent-encoding of one path segment.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	return string(out), true
}

func unhex(c byte) int { return strings.IndexByte("0123456789abcdef", c|lowerLetter(c)) }

// lowerLetter is the bit that makes a letter lower case.
func lowerLetter(c byte) byte {
	if c >= 'A' && c <= 'F' {
		return 0x20
	}
	return 0
}

func (e *endpoint) serve(g *Gateway, ctx *fasthttp.RequestCtx, arg string) {
	var fn func(*Gateway, *fasthttp.RequestCtx, string)
	switch string(ctx.Method()) {
	case "GET", "HEAD":
		fn = e.get
	case "POST":
		fn = e.post
	case "DELETE":
		fn = e.delete
	}
	if fn == nil {
		allow := e.allow()
		ctx.Response.Header.Set("Allow", allow)
		g.fail(ctx, wire.CodeMethodNotAllowed, "This path takes "+allow, nil, nil)
		return
	}
	fn(g, ctx, arg)
}

// allow names the methods that the path takes.
func (e *endpoint) allow() string {
	var names []string
	if e.get != nil {
		names = append(names, "GET", "HEAD")
	}
	if e.post != nil {
		names = append(names, "POST")
	}
	if e.delete != nil {
		names = append(names, "DELETE")
	}
	return strings.Join(names, ", ")
}

// answer sends a JSON body.
func answer(ctx *fasthttp.RequestCtx, status int, v easyjson.Marshaler) {
	answerWith(ctx, status, wire.AppendAnswer(answerBuffer(ctx), v))
}

// answerBuffer lends the memory of the answer's body, to be appended to and given to
// answerWith: so an answer is written where fasthttp sends it from.
func answerBuffer(ctx *fasthttp.RequestCtx) []byte { return ctx.Response.SwapBody(nil)[:0] }

// answerWith sends a JSON body that was appended to answerBuffer.
func answerWith(ctx *fasthttp.RequestCtx, status int, body []byte) {
	ctx.SetContentType("application/json")
	ctx.SetStatusCode(status)
	ctx.Response.SwapBody(body)
}

// fail sends the JSON error form of section 6.
func (g *Gateway) fail(ctx *fasthttp.RequestCtx, code wire.Code, text string, details, ref []byte) {
	if code == wire.CodeOverloaded || code == wire.CodeGatewayUnavailable || code == wire.CodeRateLimited {
		ctx.Response.Header.Set("Retry-After", "1")
	}
	answer(ctx, code.HTTPStatus(), &wire.ErrorAnswer{
		Error: text, Code: code.String(), Details: easyjson.RawMessage(details), RequestRef: string(ref),
	})
}

func (g *Gateway) failRefusal(ctx *fasthttp.RequestCtx, r *router.Refusal, ref []byte) {
	g.fail(ctx, r.Code, r.Text, r.Details, ref)
}

// failField says that a parameter is no good.
func (g *Gateway) failField(ctx *fasthttp.RequestCtx, field, text string) {
	f := wire.Fault{Code: wire.CodeInvalidRequest, Field: field, Text: text}
	g.failFault(ctx, &f, nil)
}

func (g *Gateway) failFault(ctx *fasthttp.RequestCtx, f *wire.Fault, ref []byte) {
	g.fail(ctx, f.Code, f.Text, f.AppendDetails(nil), ref)
}

// limit reads ?limit=: 100 where there is none, at most 1,000.
func (g *Gateway) limit(ctx *fasthttp.RequestCtx) (n int, ok bool) {
	if !ctx.QueryArgs().Has("limit") {
		return 100, true
	}
	n, ok = digits(ctx.QueryArgs().Peek("limit"), 1000)
	if !ok || n == 0 {
		g.failField(ctx, "limit", "limit must be a positive number")
		return 0, false
	}
	return n, true
}

// digits reads a number of decimal digits and nothing else; what is larger is cut to most.
func digits(b []byte, most int) (n int, ok bool) {
	if len(b) == 0 || len(bytes.TrimLeft(b, "0123456789")) > 0 {
		return 0, false
	}
	for _, c := range b {
		if n = n*10 + int(c-'0'); n > most {
			return most, true
		}
	}
	return n, true
}
