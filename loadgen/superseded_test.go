package loadgen_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"subway/loadgen"
)

// A Backend whose id another run takes leaves it to that run, and does not take it back:
// the two would do so for ever.
func TestSuperseded(t *testing.T) {
	_, url := startGateway(t)
	s, err := readScenario(t, `{fleet: {edges: 1, devices: 2, backends: 1, reconnect: 100ms}, load: {rate: 100, timeout: 500ms}, phases: [{for: 2500ms}]}`)
	if err != nil {
		t.Fatal(err)
	}
	other := &rival{url: url}
	rep, err := loadgen.Run(context.Background(), loadgen.Options{
		URL: url, Scenario: s, Seed: 1, Loops: 1, Log: slog.New(slog.DiscardHandler),
		Live: func(line string) {
			if strings.Contains(line, "in flight") {
				other.once.Do(other.register)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if other.conn == nil {
		t.Fatalf("the rival could not register: %v", other.err)
	}
	other.conn.Close()
	<-other.ended
	var closed wsutil.ClosedError
	if errors.As(other.err, &closed) {
		t.Errorf("the rival was closed: %v", other.err)
	}
	if notes := strings.Join(rep.Notes, "\n"); !rep.Books.Balanced || !strings.Contains(notes, "their Backend was not connected") {
		t.Errorf("faults %q, notes %q", bad(rep), notes)
	}
}

// rival takes the id of the run's first Backend and keeps it.
type rival struct {
	url   string
	once  sync.Once
	conn  interface{ Close() error }
	err   error // how it ended; valid when ended is closed
	ended chan struct{}
}

func (r *rival) register() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, _, err := ws.Dial(ctx, "ws"+strings.TrimPrefix(r.url, "http")+"/ws")
	if err == nil {
		err = wsutil.WriteClientText(conn, []byte(`{"type":"REGISTER","clientId":"lg-backend-000","clientType":"BACKEND"}`))
	}
	if err != nil {
		r.err = err
		return
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	r.conn, r.ended = conn, make(chan struct{})
	go func() {
		defer close(r.ended)
		for r.err == nil {
			_, r.err = wsutil.ReadServerText(conn)
		}
	}()
}
