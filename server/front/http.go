package front

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"subway/core/wire"
)

// newHTTP configures fasthttp, whose defaults have no timeouts and answer errors as text.
func (s *Server) newHTTP() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      s.serve,
		ErrorHandler:                 s.badRequest,
		ExpectHandler:                s.expect,
		HeaderReceived:               s.headerReceived,
		ConnState:                    connState,
		Concurrency:                  2 * s.o.MaxHTTP, // ours is the limit that answers
		ReadBufferSize:               s.o.MaxHead,
		ReadTimeout:                  s.o.HeadTimeout,
		IdleTimeout:                  s.o.IdleTimeout,
		WriteTimeout:                 s.o.WriteTimeout,
		MaxRequestBodySize:           s.o.MaxBody,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		SecureErrorLogMessage:        true,
		Logger:                       httpLog{s.log},
	}
}

// serve stands in front of Options.HTTP.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	defer s.rescue(ctx)
	h := &ctx.Request.Header
	switch {
	case twoLengths(h.RawHeaders()):
		refuseHTTP(ctx, refuseHead)
	case hasToken(h.Peek("Upgrade"), "websocket"):
		s.upgrade(ctx)
	case s.o.HTTP == nil:
		answerHTTP(ctx, &Refusal{Status: 404, Code: wire.CodeNotFound, Text: "not found"})
	default:
		s.o.HTTP(ctx)
	}
	if s.draining.Load() {
		ctx.SetConnectionClose()
	}
}

// rescue answers 500 where a handler panicked. One request is lost, not the server.
func (s *Server) rescue(ctx *fasthttp.RequestCtx) {
	p := recover()
	if p == nil {
		return
	}
	s.log.Error("panic in an HTTP handler", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	ctx.Response.Reset()
	answerHTTP(ctx, &Refusal{Status: 500, Code: wire.CodeInternal, Text: "internal error"})
	ctx.SetConnectionClose()
}

// twoLengths reports whether a request has both Content-Length and
// Transfer-Encoding: two readers could see two requests (RFC 9112 section 6.1).
// fasthttp would read it as chunked.
func twoLengths(head []byte) bool {
	var length, coding bool
	for len(head) > 0 {
		i := bytes.IndexByte(head, '\n')
		if i < 0 {
			i = len(head) - 1
		}
		switch line := head[:i+1]; {
		case i > 14 && line[14] == ':':
			length = length || equalFold(line[:14], "content-length")
		case i > 17 && line[17] == ':':
			coding = coding || equalFold(line[:17], "transfer-encoding")
		}
		head = head[i+1:]
	}
	return length && coding
}

// headerReceived gives the body its own time.
func (s *Server) headerReceived(*fasthttp.RequestHeader) fasthttp.RequestConfig {
	return fasthttp.RequestConfig{ReadTimeout: s.o.BodyTimeout}
}

// expect answers a request that waits for 100 Continue with a body that is too large.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	if ctx.Request.Header.ContentLength() <= s.o.MaxBody {
		return fasthttp.StatusContinue
	}
	refuseHTTP(ctx, s.tooLarge())
	return fasthttp.StatusRequestEntityTooLarge
}

func (s *Server) tooLarge() *Refusal {
	return &Refusal{Status: 413, Code: wire.CodePayloadTooLarge, Text: "the body is too large"}
}

// badRequest answers a request that could not be read. fasthttp closes the
// connection after it.
func (s *Server) badRequest(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		refuseHTTP(ctx, s.tooLarge())
	case errors.As(err, &small):
		refuseHTTP(ctx, &Refusal{Status: 431, Code: wire.CodeInvalidRequest, Text: "the request head is too large"})
	case errors.As(err, &timeout) && timeout.Timeout():
		refuseHTTP(ctx, refuseSlow)
	default:
		refuseHTTP(ctx, refuseHead)
	}
	s.stats.refused.Add(1)
}

// Cut ends the connection of an HTTP request without an answer, once its handler returns.
func Cut(ctx *fasthttp.RequestCtx) {
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {})
}

// answerHTTP answers in the JSON error form.
func answerHTTP(ctx *fasthttp.RequestCtx, f *Refusal) {
	ctx.SetStatusCode(f.Status)
	ctx.SetContentType("application/json")
	ctx.Response.SetBody(f.appendBody(nil))
}

// refuseHTTP answers and ends the connection, without a reset.
func refuseHTTP(ctx *fasthttp.RequestCtx, f *Refusal) {
	answerHTTP(ctx, f)
	ctx.SetConnectionClose()
	if h, ok := ctx.Conn().(*httpConn); ok {
		h.linger = true
	}
}

func connState(c net.Conn, st fasthttp.ConnState) {
	if h, ok := c.(*httpConn); ok {
		h.setIdle(st == fasthttp.StateIdle)
	}
}

// httpLog passes on what fasthttp has to say, which is about single connections.
type httpLog struct{ log *slog.Logger }

func (h httpLog) Printf(format string, args ...any) {
	h.log.Debug("fasthttp: " + fmt.Sprintf(format, args...))
}
