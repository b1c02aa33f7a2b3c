package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"subway/bench/proc"
)

const (
	routeEdges   = 100
	routesFirst  = 1_000 // registered before the count begins: they pay for what is made once
	routesMax    = 1_000_000
	routePattern = "td-%07d" // 10 bytes
	routeTimeout = 30 * time.Second
)

// memory is what a gateway holds after it has collected its garbage and given free memory back.
type memory struct {
	heap float64 // bytes of live objects
	rss  float64
}

// routes registers routes by snapshots of 100 edges: 1,000, then all, and sees what memory grows by.
func (b *bench) routes(ctx context.Context) error {
	return b.with(ctx, func(g *gateway) error {
		edges, err := g.dialEdges(ctx)
		defer closeAll(edges)
		if err != nil {
			return err
		}
		if err := snapshotAll(edges, routesFirst); err != nil {
			return err
		}
		before, err := g.memory(ctx)
		if err != nil {
			return err
		}
		cpu, err := proc.CPUTime(g.PID)
		if err != nil {
			return err
		}
		if err := snapshotAll(edges, b.flags.Routes); err != nil {
			return err
		}
		cpu2, err := proc.CPUTime(g.PID)
		if err != nil {
			return err
		}
		if err := g.wantRoutes(ctx, b.flags.Routes); err != nil {
			return err
		}
		after, err := g.memory(ctx)
		added := float64(b.flags.Routes - routesFirst)
		b.sum.Routes = routeFigures{b.flags.Routes, routeEdges, len(fmt.Sprintf(routePattern, 0)), (after.heap - before.heap) / added,
			(after.rss - before.rss) / added, float64((cpu2 - cpu).Nanoseconds()) / 1e3 / added}
		return err
	})
}

// dialEdges opens the edges' connections.
func (g *gateway) dialEdges(ctx context.Context) (edges []*websocket.Conn, err error) {
	dialer := websocket.Dialer{HandshakeTimeout: routeTimeout}
	for range routeEdges {
		c, answer, err := dialer.DialContext(ctx, "ws://"+g.Addr.String()+"/ws", nil)
		if err != nil {
			return edges, fmt.Errorf("edge %d: %w", len(edges), err)
		}
		answer.Body.Close()
		edges = append(edges, c)
	}
	return edges, nil
}

func closeAll(edges []*websocket.Conn) {
	for _, c := range edges {
		c.Close()
	}
}

// snapshotAll registers each edge with its part of n devices; those it had are among them.
func snapshotAll(edges []*websocket.Conn, n int) error {
	var msg []byte
	for i, c := range edges {
		msg = fmt.Appendf(msg[:0], `{"type":"REGISTER","clientId":"edge-%02d","clientType":"EDGE","version":"1.0","devices":[`, i)
		for device := i; device < n; device += len(edges) {
			if device > i {
				msg = append(msg, ',')
			}
			msg = fmt.Appendf(msg, `"`+routePattern+`"`, device)
		}
		if err := register(c, append(msg, "]}"...)); err != nil {
			return fmt.Errorf("edge %d: %w", i, err)
		}
	}
	return nil
}

// register sends a REGISTER and waits for its answer.
func register(c *websocket.Conn, msg []byte) error {
	limit := time.Now().Add(routeTimeout)
	err := errors.Join(c.SetWriteDeadline(limit), c.SetReadDeadline(limit), c.WriteMessage(websocket.TextMessage, msg))
	if err != nil {
		return err
	}
	_, answer, err := c.ReadMessage()
	if err == nil && !bytes.Contains(answer, []byte(`"REGISTER_ACK"`)) {
		err = fmt.Errorf("no REGISTER_ACK: %.200s", answer)
	}
	return err
}

// wantRoutes asks the gateway how many routes it has.
func (g *gateway) wantRoutes(ctx context.Context, want int) error {
	text, err := call(ctx, http.MethodGet, g.url()+"/metrics")
	if err != nil {
		return err
	}
	if got, err := number(text, "subway_routes", " "); err != nil || got != float64(want) {
		return errors.Join(err, fmt.Errorf("%.0f routes instead of %d", got, want))
	}
	return nil
}

// memory lets the gateway collect its garbage and reads what is left.
func (g *gateway) memory(ctx context.Context) (m memory, err error) {
	if _, err := call(ctx, http.MethodPost, g.debug+"/debug/free"); err != nil {
		return m, err
	}
	text, err := call(ctx, http.MethodGet, g.debug+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return m, err
	}
	if m.heap, err = number(text, "# HeapAlloc", " = "); err != nil {
		return m, err
	}
	rss, err := proc.RSS(g.PID)
	m.rss = float64(rss)
	return m, err
}
