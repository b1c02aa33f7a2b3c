package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// slowParties are edges and Backends that read a few bytes a second. An event loop cannot
// leave bytes unread, so each has a goroutine and a plain connection of its own.
type slowParties struct {
	run     *run
	devices span // of the slow edges: one device each
	cancel  context.CancelFunc
	ended   chan struct{}
	parties int
}

func newSlowParties(r *run, firstDevice uint32) *slowParties {
	s := r.s.Slow
	return &slowParties{run: r, devices: span{firstDevice, uint32(s.Edges)}, ended: make(chan struct{}, s.Edges+s.Backends)}
}

func (p *slowParties) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	r := p.run
	for i := range r.s.Slow.Edges {
		id := fmt.Sprintf("%s-slow-edge-%d", r.names.prefix, i)
		device := r.names.appendDevice(nil, p.devices.first+uint32(i))
		p.begin(ctx, fmt.Appendf(nil, `{"type":"REGISTER","clientId":%q,"clientType":"EDGE","devices":[%q],"version":"1.0"}`, id, device))
	}
	for i := range r.s.Slow.Backends {
		p.begin(ctx, fmt.Appendf(nil, `{"type":"REGISTER","clientId":"%s-slow-backend-%d","clientType":"BACKEND","version":"1.0"}`, r.names.prefix, i))
	}
}

func (p *slowParties) begin(ctx context.Context, register []byte) {
	p.parties++
	go func() {
		defer func() { p.ended <- struct{}{} }()
		for ctx.Err() == nil {
			if err := p.sit(ctx, register); err != nil && ctx.Err() == nil {
				p.run.trouble("a slow party: %v", err)
			}
			wait, cancel := context.WithTimeout(ctx, p.run.s.Fleet.Reconnect)
			<-wait.Done()
			cancel()
		}
	}()
}

func (p *slowParties) stop() {
	p.cancel()
	for range p.parties {
		<-p.ended
	}
}

// sit registers and then reads slowly until the gateway has had enough of it.
func (p *slowParties) sit(ctx context.Context, register []byte) error {
	d := ws.Dialer{Timeout: 10 * time.Second, Protocols: []string{"subway.v1"}}
	conn, early, _, err := d.Dial(ctx, "ws://"+p.run.addr+"/ws")
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if early != nil {
		ws.PutReader(early)
		return errors.New("the gateway spoke first")
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096) // so that it is the gateway that has to hold the rest
	}
	if err := wsutil.WriteClientText(conn, register); err != nil {
		return err
	}
	slow := &slowReader{r: conn, bytes: p.run.s.Slow.Bytes, every: time.NewTicker(time.Second / slowSteps), done: ctx.Done()}
	defer slow.every.Stop()
	_, err = io.Copy(io.Discard, slow)
	p.run.note("a slow party was closed by the gateway")
	return err
}

// slowSteps is how often a second a slow party reads.
const slowSteps = 10

// slowReader lets through bytes a second.
type slowReader struct {
	r     io.Reader
	bytes int
	every *time.Ticker
	done  <-chan struct{}
}

// Read implements io.Reader.
func (s *slowReader) Read(b []byte) (int, error) {
	select {
	case <-s.every.C:
	case <-s.done:
		return 0, io.EOF
	}
	return s.r.Read(b[:min(len(b), max(1, s.bytes/slowSteps))])
}
