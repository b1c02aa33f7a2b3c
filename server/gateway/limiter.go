package gateway

import (
	"sync"

	"github.com/valyala/fasthttp"

	"subway/core/router"
	"subway/core/wire"
)

// limiter bounds the commands that one address may post per second (PROTOCOL.md
// section 3, RATE_LIMITED).
type limiter struct {
	perSecond float64 // 0: no bound

	mu      sync.Mutex
	clients map[string]*router.Bucket
}

// maxClients bounds the addresses remembered; at the bound all are forgotten, which
// gives each a fresh burst and no more.
const maxClients = 10_000

func newLimiter(perSecond float64) *limiter {
	return &limiter{perSecond: perSecond, clients: make(map[string]*router.Bucket)}
}

func (l *limiter) take(client string, n int, now wire.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.clients[client]
	if b == nil {
		if len(l.clients) >= maxClients {
			clear(l.clients)
		}
		b = new(router.Bucket)
		l.clients[client] = b
	}
	return b.Take(n, l.perSecond, now)
}

// allowed reports whether the client may post n commands now; if not it is told.
func (g *Gateway) allowed(ctx *fasthttp.RequestCtx, n int) bool {
	if g.limiter.perSecond <= 0 || g.limiter.take(ctx.RemoteIP().String(), n, g.clock.now()) {
		return true
	}
	g.failRefusal(ctx, router.RefuseRate(), nil)
	return false
}
