package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
	"subway/server/front"
	"subway/server/gateway"
	"subway/server/uplink"
)

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// childEnv makes this binary an edge or a Gateway of its own, to be killed.
const childEnv = "SUBWAY_EDGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		runChild(config)
		return
	}
	goleak.VerifyTestMain(m, // what gnet and fasthttp start once and for all
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// childConfig says what a child is.
type childConfig struct {
	Gateway string // its address, if it is a Gateway
	ID, Dir string // of an edge
	URLs    []string
	Return  time.Duration
	Kill    string // the point at which it ends itself, "" for none
}

func runChild(config string) {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		panic(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.Gateway != "" {
		g, err := gateway.Start(gateway.Options{Listen: c.Gateway, Logger: log, OrphanResponses: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(g.Addr())
		<-g.Failed()
		return
	}
	opt := options(c.ID, c.Dir, c.URLs...)
	opt.Logger = log
	if c.Return > 0 {
		opt.Return = c.Return
	}
	opt.hook = func(point, _ string) {
		if point == c.Kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	e, err := Start(opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println(e.Addr())
	<-e.Failed()
}

// child is a process of its own.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	errs strings.Builder
}

func startChild(t *testing.T, c childConfig) *child {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &child{t: t, cmd: exec.Command(os.Args[0], "-test.run=^$")}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.kill()
		t.Fatalf("the child did not start: %v\n%s", err, p.errs.String())
	}
	p.addr = strings.TrimSpace(line)
	return p
}

// kill ends it with SIGKILL; it may have ended.
func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// ended waits until it has ended by itself.
func (p *child) ended() {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		p.t.Fatal("the child did not end")
	}
}

// options are quick ones.
func options(id, dir string, urls ...string) Options {
	return Options{
		ID: id, DataDir: dir, Gateways: urls, Keep: time.Minute, Return: 300 * time.Millisecond,
		Schedule: uplink.Schedule{First: 20 * time.Millisecond, Attempts: 6, Slow: 200 * time.Millisecond, GoingAway: 20 * time.Millisecond, Superseded: 300 * time.Millisecond},
	}
}

// startEdge runs an edge in this process until the test ends.
func startEdge(t testing.TB, opt Options) *Edge {
	t.Helper()
	e, err := Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopEdge(t, e) })
	return e
}

var stopped sync.Map // edges that were stopped

func stopEdge(t testing.TB, e *Edge) {
	t.Helper()
	if _, was := stopped.LoadOrStore(e, true); was {
		return
	}
	checkBook(t, e)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// message is what of a message a test looks at.
type message struct {
	Type, RequestRef, ClientID, ClientType, TargetClientID, Code, Status, SessionID string

	Epoch        int64
	EdgeInfo     struct{ EdgeID, EdgeVersion string }
	Details      map[string]any
	Capabilities []string
	Devices      []json.RawMessage
	Result       json.RawMessage
	raw          string
}

func (m *message) UnmarshalJSON(b []byte) error {
	type plain struct {
		Type, RequestRef, ClientID, ClientType, TargetClientID, Code, SessionID string

		Status       any
		Epoch        int64
		EdgeInfo     struct{ EdgeID, EdgeVersion string }
		Details      map[string]any
		Capabilities []string
		Devices      []json.RawMessage
		Result       json.RawMessage
	}
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	word, _ := p.Status.(string)
	*m = message{p.Type, p.RequestRef, p.ClientID, p.ClientType, p.TargetClientID, p.Code, word, p.SessionID, p.Epoch, p.EdgeInfo, p.Details, p.Capabilities, p.Devices, p.Result, string(b)}
	return nil
}

// inbox collects messages; tests take them out by what they are.
type inbox struct {
	mu  sync.Mutex
	all []message
}

func (b *inbox) put(raw []byte) {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		m = message{Type: "BROKEN", raw: string(raw)}
	}
	b.mu.Lock()
	b.all = append(b.all, m)
	b.mu.Unlock()
}

// take removes the first message of this type and, unless ref is "", this ref.
func (b *inbox) take(kind, ref string) (m message, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range b.all {
		if m.Type == kind && (ref == "" || m.RequestRef == ref) {
			b.all = append(b.all[:i:i], b.all[i+1:]...)
			return m, true
		}
	}
	return m, false
}

func (b *inbox) count(kind, ref string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.all {
		if m.Type == kind && (ref == "" || m.RequestRef == ref) {
			n++
		}
	}
	return n
}

func (b *inbox) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for _, m := range b.all {
		s.WriteString(m.raw[:min(len(m.raw), 300)] + "\n")
	}
	return s.String()
}

// until polls a condition.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(patience)
	for !done() {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatalf("waited for: %s", what)
		}
	}
}

// party is a WebSocket client.
type party struct {
	inbox
	t    testing.TB
	conn *uplink.Conn
	done chan struct{}
	end  *uplink.Closed // after done

	onMessage func(p *party, m *message) // before it is put into the inbox, if not nil
}

func dial(t testing.TB, addr string, onMessage func(p *party, m *message)) *party {
	t.Helper()
	p, err := tryDial(addr, onMessage)
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	t.Cleanup(p.close)
	return p
}

func tryDial(addr string, onMessage func(p *party, m *message)) (*party, error) {
	conn, err := uplink.Dial(context.Background(), "ws://"+addr+"/ws", uplink.Options{CloseTimeout: 200 * time.Millisecond, MaxSend: 4 << 20, Outbox: 16 << 20})
	if err != nil {
		return nil, err
	}
	p := &party{conn: conn, done: make(chan struct{}), onMessage: onMessage}
	go func() {
		defer close(p.done)
		p.end = conn.Serve(func(b []byte) {
			if p.onMessage != nil {
				var m message
				if json.Unmarshal(b, &m) == nil {
					p.onMessage(p, &m)
				}
			}
			p.put(b)
		})
	}()
	return p, nil
}

func (p *party) close() {
	p.conn.Close(1000, "")
	<-p.done
}

func (p *party) send(format string, args ...any) {
	_ = p.conn.Send(fmt.Appendf(nil, format, args...)) // a closed connection shows elsewhere
}

func (p *party) expect(kind, ref string) (m message) {
	p.t.Helper()
	late := time.Now().Add(patience)
	until(p.t, kind+" "+ref+"; there are:\n"+p.String(), func() (ok bool) {
		m, ok = p.take(kind, ref)
		if !ok && time.Now().After(late.Add(-100*time.Millisecond)) {
			p.t.Fatalf("waited for %s %s; there are:\n%s", kind, ref, p.String())
		}
		return ok
	})
	return m
}

// sync returns when everything sent before has been read by the peer.
func (p *party) sync() {
	p.t.Helper()
	p.send(`{"type":"HEARTBEAT"}`)
	p.expect("HEARTBEAT_ACK", "")
}

func (p *party) respond(ref string) {
	p.send(`{"type":"COMMAND_RESPONSE","requestRef":"%s","status":"COMPLETED","result":{"ref":"%s"}}`, ref, ref)
}

// device connects and registers a device.
func device1(t testing.TB, addr, id string, onMessage func(p *party, m *message)) *party {
	t.Helper()
	p := dial(t, addr, onMessage)
	p.send(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE","deviceInfo":{"model":"x"}}`, id)
	p.expect("REGISTER_ACK", "")
	return p
}

// station is a scripted Gateway: it acknowledges what an edge registers and answers
// heartbeats, unless it is told not to.
type station struct {
	t     testing.TB
	srv   *front.Server
	links chan *link
	deaf  atomic.Bool // heartbeats are not answered
}

// link is an edge's connection at a station.
type link struct {
	inbox
	t    testing.TB
	st   *station
	conn *front.Conn
	gone chan struct{}
}

func newStation(t testing.TB) *station {
	t.Helper()
	st := &station{t: t, links: make(chan *link, 64)}
	srv, err := front.Listen(front.Options{
		Listen: "127.0.0.1:0", LingerTimeout: 50 * time.Millisecond, Loops: 1,
		Open: func(c *front.Conn, _ wire.Time) front.Session {
			l := &link{t: t, st: st, conn: c, gone: make(chan struct{})}
			st.links <- l
			return l
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	st.srv = srv
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
	return st
}

func (st *station) url() string { return "ws://" + st.srv.Addr().String() + "/ws" }

func (l *link) Receive(b []byte, now wire.Time) {
	var m message
	_ = json.Unmarshal(b, &m)
	defer l.put(b) // who waits for it finds it answered: no COMMAND goes before REGISTER_ACK
	switch m.Type {
	case "REGISTER":
		l.conn.Append(wire.ClassNotice, wire.AppendRegisterAck(nil, m.ClientID, m.ClientType, "s", 1, 30000, now), nil, nil)
	case "HEARTBEAT":
		if !l.st.deaf.Load() {
			l.send(`{"type":"HEARTBEAT_ACK"}`)
		}
	}
}
func (l *link) Invalid(wire.Time)        {}
func (l *link) Writable(wire.Time)       {}
func (l *link) Registered() bool         { return true }
func (l *link) Closed(wire.Time, string) { close(l.gone) }

func (l *link) send(format string, args ...any) {
	l.conn.Append(wire.ClassNotice, fmt.Appendf(nil, format, args...), nil, nil)
}

func (l *link) command(device, ref string, more string) {
	l.send(`{"type":"COMMAND","requestRef":"%s","targetClientId":"%s","command":{"commandType":"T"}%s}`, ref, device, more)
}

func (l *link) expect(kind, ref string) (m message) {
	l.t.Helper()
	late := time.Now().Add(patience - 100*time.Millisecond)
	until(l.t, kind+" "+ref, func() (ok bool) {
		m, ok = l.take(kind, ref)
		if !ok && time.Now().After(late) {
			l.t.Fatalf("waited for %s %s; there are:\n%s", kind, ref, l.String())
		}
		return ok
	})
	return m
}

// cut ends the link without a word.
func (l *link) cut() {
	l.conn.CloseWith(wire.CloseTryAgain, "cut")
	<-l.gone
}

// accept waits for the edge's next connection and its REGISTER.
func (st *station) accept() *link {
	st.t.Helper()
	select {
	case l := <-st.links:
		until(st.t, "REGISTER", func() bool { return l.count("REGISTER", "") > 0 })
		return l
	case <-time.After(patience):
		st.t.Fatal("the edge did not come")
		return nil
	}
}

// proxy forwards TCP, and can cut connections or hold them silent.
type proxy struct {
	lis    net.Listener
	target string
	mu     sync.Mutex
	open   map[net.Conn]bool // false: held silent
	shut   bool              // new connections are closed at once
	all    sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{lis: lis, target: target, open: map[net.Conn]bool{}}
	p.all.Go(p.serve)
	t.Cleanup(func() {
		_ = lis.Close()
		p.cut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) url() string { return "ws://" + p.lis.Addr().String() + "/ws" }

func (p *proxy) serve() {
	for {
		a, err := p.lis.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = a.Close()
			continue
		}
		p.mu.Lock()
		shut := p.shut
		if !shut {
			p.open[a], p.open[b] = true, true
		}
		p.mu.Unlock()
		if shut {
			_, _ = a.Close(), b.Close()
			continue
		}
		p.all.Go(func() { p.pump(a, b) })
		p.all.Go(func() { p.pump(b, a) })
	}
}

func (p *proxy) pump(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		swallow := !p.open[from]
		p.mu.Unlock()
		if err != nil {
			break
		}
		if swallow {
			continue // held silent: read and thrown away
		}
		if _, err := to.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
}

// hold makes the connections of now silent: they stay open and nothing passes any more.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		p.open[c] = false
	}
}

// shutOff closes every connection, and new ones until it is called with false.
func (p *proxy) shutOff(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	p.cutLocked()
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *proxy) cutLocked() {
	for c := range p.open {
		_ = c.Close()
		delete(p.open, c)
	}
}

// startGateway runs a real Gateway in this process.
func startGateway(t testing.TB) *gateway.Gateway {
	t.Helper()
	g, err := gateway.Start(gateway.Options{Listen: "127.0.0.1:0", OrphanResponses: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_ = g.Shutdown(ctx)
	})
	return g
}
