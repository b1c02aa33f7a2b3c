package front

import (
	"context"
	"time"
)

const (
	drainLook = 5 * time.Millisecond
	cutGrace  = time.Second // for handlers to see that their connection is gone
)

// StopAccepting has no WebSocket opened any more, for good: every handshake is answered
// 503 GATEWAY_UNAVAILABLE, be it a connection's first request or a later one, also where
// it was found good before and is only now coming back to its event loop. All else goes
// on until Shutdown: the WebSockets that are open, new connections and HTTP requests on
// new and old ones, so that a readiness probe learns what the user's handler has to say.
//
// A server that goes down calls it before CloseAll, since those who are closed with 1001
// are back within a second (PROTOCOL.md section 5).
func (s *Server) StopAccepting() { s.refusing.Store(true) }

// Shutdown stops taking connections and requests, StopAccepting included: connections that have sent no
// request yet and HTTP connections between requests are closed, answers under way
// are sent with Connection: close. It waits for HTTP and WebSockets to end (see
// CloseAll) until ctx ends, cuts what is left, and returns when all goroutines are
// done, with ctx's error where something was cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.StopAccepting()
	s.draining.Store(true)
	for _, l := range s.loops {
		l.ask(func(a *asked) { a.drain = true })
	}
	err := await(ctx, s.ended, func() bool {
		s.endIdleHTTP()
		return s.stats.total.Load() == 0
	})
	if !s.stopping.Swap(true) {
		s.stopLoops()
	}
	<-s.ended
	s.cutHTTP()
	late, cancel := context.WithTimeout(context.Background(), cutGrace)
	defer cancel()
	if await(late, nil, func() bool { return s.stats.http.Load() == 0 }) != nil {
		s.log.Warn("HTTP handlers are still running", "connections", s.stats.http.Load())
	}
	return err
}

// await polls until done or ended, or returns ctx's error.
func await(ctx context.Context, ended <-chan struct{}, done func() bool) error {
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Server) endIdleHTTP() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.httpConn {
		h.endIdle()
	}
}

func (s *Server) cutHTTP() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.httpConn {
		_ = h.Conn.Close()
	}
}

// stopLoops ends the loops, which closes every connection on them.
func (s *Server) stopLoops() {
	for _, l := range s.loops {
		l.ask(func(a *asked) { a.stop = true })
	}
}
