package edge

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKilledBeforeHandOver: the ref is on disk and the device has heard nothing. Nobody
// can tell that from an execution, so it is not handed over any more.
func TestKilledBeforeHandOver(t *testing.T) {
	st := newStation(t)
	c := childConfig{ID: "edge-1", Dir: t.TempDir(), URLs: []string{st.url()}, Kill: "remembered"}
	p := startChild(t, c)
	l := st.accept()
	d := device1(t, p.addr, "td-1", nil)
	l.command("td-1", "r1", "")
	p.ended()
	<-d.done
	c.Kill = ""
	p = startChild(t, c)
	l = st.accept()
	d2 := device1(t, p.addr, "td-1", nil)
	l.command("td-1", "r1", "")
	l.command("td-1", "r2", "")
	d2.expect("COMMAND", "r2")
	if n := d.count("COMMAND", "r1") + d2.count("COMMAND", "r1"); n != 0 {
		t.Errorf("it was handed over %d times", n)
	}
	if n := l.count("COMMAND_RESPONSE", "") + l.count("ERROR", ""); n != 0 {
		t.Errorf("it was answered:\n%s", l.String())
	}
}

// TestKilledBeforeAnswer: the device executes meanwhile and answers the new process.
func TestKilledBeforeAnswer(t *testing.T) {
	st := newStation(t)
	c := childConfig{ID: "edge-1", Dir: t.TempDir(), URLs: []string{st.url()}}
	p := startChild(t, c)
	l := st.accept()
	d := device1(t, p.addr, "td-1", nil)
	l.command("td-1", "r1", "")
	d.expect("COMMAND", "r1")
	p.kill()
	<-d.done
	p = startChild(t, c)
	l = st.accept()
	other := device1(t, p.addr, "td-2", nil)
	other.respond("r1")
	if m := other.expect("ERROR", "r1"); m.Code != "FORBIDDEN" {
		t.Errorf("another device's answer: %s", m.raw)
	}
	d = device1(t, p.addr, "td-1", nil)
	l.command("td-1", "r1", "")
	d.respond("r1")
	l.expect("COMMAND_RESPONSE", "r1")
	d.sync()
	if n := d.count("COMMAND", ""); n != 0 {
		t.Errorf("it was handed over again")
	}
}

// TestKilledBeforeArrival: the answer is on disk and stuck in a link that is dead.
func TestKilledBeforeArrival(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("device back %v", back), func(t *testing.T) {
			st := newStation(t)
			x := newProxy(t, st.srv.Addr().String())
			c := childConfig{ID: "edge-1", Dir: t.TempDir(), URLs: []string{x.url()}, Kill: "stored"}
			p := startChild(t, c)
			l := st.accept()
			d := device1(t, p.addr, "td-1", nil)
			l.command("td-1", "r1", "")
			d.expect("COMMAND", "r1")
			x.hold()
			d.respond("r1")
			p.ended()
			if n := l.count("COMMAND_RESPONSE", ""); n != 0 {
				t.Fatal("it arrived before")
			}
			c.Kill = ""
			p = startChild(t, c)
			if back {
				d = device1(t, p.addr, "td-1", nil)
			}
			l = st.accept()
			l.command("td-1", "r1", "")
			l.expect("COMMAND_RESPONSE", "r1")
			l.command("td-9", "r2", "")
			l.expect("ERROR", "r2")
			if n := l.count("COMMAND_RESPONSE", ""); n > 1 { // one went by itself and may have crossed the command
				t.Errorf("answered again and again:\n%s", l.String())
			}
			if d.count("COMMAND", "") != 0 {
				t.Error("it was handed over again")
			}
		})
	}
}

// TestKilledBeforeStored: the edge had read the answer and nothing more. A device that
// says again what it said last before the loss closes that gap.
func TestKilledBeforeStored(t *testing.T) {
	st := newStation(t)
	c := childConfig{ID: "edge-1", Dir: t.TempDir(), URLs: []string{st.url()}, Kill: "answered"}
	p := startChild(t, c)
	l := st.accept()
	d := device1(t, p.addr, "td-1", nil)
	l.command("td-1", "r1", "")
	d.expect("COMMAND", "r1")
	d.respond("r1")
	p.ended()
	c.Kill = ""
	p = startChild(t, c)
	l = st.accept()
	d = device1(t, p.addr, "td-1", nil)
	d.respond("r1")
	d.respond("r1")
	d.sync()
	l.expect("COMMAND_RESPONSE", "r1")
	l.command("td-9", "r2", "")
	l.expect("ERROR", "r2")
	if n := l.count("COMMAND_RESPONSE", ""); n != 0 {
		t.Errorf("answered twice:\n%s", l.String())
	}
}

// robot is a device that keeps itself connected, executes each command, and counts. It
// says again what it said when it has to reconnect.
type robot struct {
	t     *testing.T
	id    string
	where func() string // the edge's address now
	stop  chan struct{}
	wg    sync.WaitGroup

	mu   sync.Mutex
	runs map[string]int
	said []string // refs
}

func startRobot(t *testing.T, id string, where func() string) *robot {
	r := &robot{t: t, id: id, where: where, stop: make(chan struct{}), runs: map[string]int{}}
	r.wg.Go(r.run)
	t.Cleanup(func() {
		close(r.stop)
		r.wg.Wait()
	})
	return r
}

func (r *robot) run() {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		}
		r.live()
	}
}

func (r *robot) live() {
	p, err := tryDial(r.where(), r.take)
	if err != nil {
		return
	}
	p.send(`{"type":"REGISTER","clientId":"%s","clientType":"DEVICE"}`, r.id)
	r.mu.Lock()
	again := append([]string(nil), r.said[max(0, len(r.said)-200):]...)
	r.mu.Unlock()
	for _, ref := range again {
		p.respond(ref)
	}
	select {
	case <-p.done:
	case <-r.stop:
		p.close()
	}
}

func (r *robot) take(p *party, m *message) {
	if m.Type != "COMMAND" {
		return
	}
	r.mu.Lock()
	r.runs[m.RequestRef]++
	r.said = append(r.said, m.RequestRef)
	r.mu.Unlock()
	p.respond(m.RequestRef)
}

// once checks that nothing ran twice and returns what ran.
func (r *robot) once() map[string]bool {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ran := map[string]bool{}
	for ref, n := range r.runs {
		ran[ref] = true
		if n != 1 {
			r.t.Errorf("%s: %s ran %d times", r.id, ref, n)
		}
	}
	return ran
}

var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// post sends a command over HTTP; false: it was not accepted.
func post(gateway, device, ref string) bool {
	body := fmt.Sprintf(`{"target_client_id":"%s","command":{"commandType":"T"},"request_ref":"%s","timeout":60000}`, device, ref)
	r, err := httpClient.Post("http://"+gateway+"/api/commands", "application/json", strings.NewReader(body))
	if err != nil {
		return false
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode == 200
}

func httpGet(gateway, path string) string {
	r, err := httpClient.Get("http://" + gateway + path)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

func completed(t *testing.T, gateway string, refs []string) {
	t.Helper()
	for _, ref := range refs {
		last := ""
		until(t, "the end of "+ref, func() bool {
			last = httpGet(gateway, "/api/commands/"+ref+"?wait=1000")
			return strings.Contains(last, `"status":"COMPLETED"`)
		})
	}
}

func chance(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// load posts commands to devices until stop is closed, and returns those accepted.
func load(gateway func() string, devices int, life string, stop <-chan struct{}) (refs []string) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return refs
		default:
		}
		ref := fmt.Sprintf("%s-%d", life, n)
		if post(gateway(), fmt.Sprintf("td-%d", n%devices), ref) {
			refs = append(refs, ref)
		}
	}
}

// TestGatewayKilledUnderLoad kills the Gateway 20 times. No command runs twice, and what a
// Gateway that lives accepted ends COMPLETED.
func TestGatewayKilledUnderLoad(t *testing.T) {
	random := chance(t)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := port.Addr().String()
	_ = port.Close()
	e := startEdge(t, options("edge-1", t.TempDir(), "ws://"+addr+"/ws"))
	const devices = 5
	var robots []*robot
	for i := range devices {
		robots = append(robots, startRobot(t, fmt.Sprintf("td-%d", i), func() string { return e.Addr().String() }))
	}
	total := 0
	for life := range 21 {
		g := startChild(t, childConfig{Gateway: addr})
		until(t, "the edge to be there", func() bool {
			return strings.Contains(httpGet(addr, "/api/edges/edge-1"), fmt.Sprintf(`"devices":%d,`, devices))
		})
		stop, done := make(chan struct{}), make(chan []string, 1)
		go func() { done <- load(func() string { return addr }, devices, fmt.Sprintf("life%d", life), stop) }()
		time.AfterFunc(time.Duration(20+random.IntN(120))*time.Millisecond, func() { close(stop) })
		if life < 20 {
			<-stop
			g.kill()
			total += len(<-done)
			continue
		}
		refs := <-done
		total += len(refs)
		completed(t, addr, refs)
	}
	ran := 0
	for _, r := range robots {
		ran += len(r.once())
	}
	t.Logf("%d commands accepted, %d ran", total, ran)
	if ran == 0 || total < 21 {
		t.Error("there was no load")
	}
}

// TestLinkCutUnderLoad cuts the link 20 times, silently or not, while the Gateway lives:
// each command runs exactly once and ends COMPLETED.
func TestLinkCutUnderLoad(t *testing.T) {
	random := chance(t)
	g := startGateway(t)
	addr := g.Addr().String()
	x := newProxy(t, addr)
	opt := options("edge-1", t.TempDir(), x.url())
	opt.Ping = 60 * time.Millisecond
	e := startEdge(t, opt)
	const devices = 5
	var robots []*robot
	for i := range devices {
		robots = append(robots, startRobot(t, fmt.Sprintf("td-%d", i), func() string { return e.Addr().String() }))
	}
	var refs []string
	for life := range 20 {
		until(t, "the edge to be there", func() bool {
			s := httpGet(addr, "/api/edges/edge-1")
			return strings.Contains(s, fmt.Sprintf(`"devices":%d,`, devices)) && strings.Contains(s, `"ONLINE"`)
		})
		stop, done := make(chan struct{}), make(chan []string, 1)
		go func() { done <- load(func() string { return addr }, devices, fmt.Sprintf("life%d", life), stop) }()
		tick := time.NewTimer(time.Duration(10+random.IntN(60)) * time.Millisecond)
		<-tick.C
		if random.IntN(2) == 0 {
			x.cut()
		} else {
			x.hold()
		}
		close(stop)
		refs = append(refs, <-done...)
	}
	completed(t, addr, refs)
	ran := 0
	for _, r := range robots {
		ran += len(r.once())
	}
	if ran != len(refs) {
		t.Errorf("%d commands were accepted and %d ran", len(refs), ran)
	}
	t.Logf("%d commands", len(refs))
}

// TestEdgeKilledUnderLoad kills the edge 10 times while the Gateway lives: no command runs
// twice, and each that ran ends COMPLETED.
func TestEdgeKilledUnderLoad(t *testing.T) {
	random := chance(t)
	g := startGateway(t)
	addr := g.Addr().String()
	c := childConfig{ID: "edge-1", Dir: t.TempDir(), URLs: []string{"ws://" + addr + "/ws"}, Return: 2 * time.Second}
	var mu sync.Mutex
	at := "127.0.0.1:1"
	const devices = 5
	var robots []*robot
	for i := range devices {
		robots = append(robots, startRobot(t, fmt.Sprintf("td-%d", i), func() string {
			mu.Lock()
			defer mu.Unlock()
			return at
		}))
	}
	accepted := map[string]bool{}
	for life := range 11 {
		p := startChild(t, c)
		mu.Lock()
		at = p.addr
		mu.Unlock()
		until(t, "the edge to be there", func() bool {
			s := httpGet(addr, "/api/edges/edge-1")
			return strings.Contains(s, fmt.Sprintf(`"devices":%d,`, devices)) && strings.Contains(s, `"ONLINE"`)
		})
		if life == 10 {
			break
		}
		stop, done := make(chan struct{}), make(chan []string, 1)
		go func() { done <- load(func() string { return addr }, devices, fmt.Sprintf("life%d", life), stop) }()
		tick := time.NewTimer(time.Duration(10+random.IntN(80)) * time.Millisecond)
		<-tick.C
		p.kill()
		close(stop)
		for _, ref := range <-done {
			accepted[ref] = true
		}
	}
	var ran []string
	until(t, "what the Gateway repeats to run", func() bool {
		m := httpGet(at, "/metrics")
		return strings.Contains(m, "subway_edge_queued_bytes 0\n") && strings.Contains(m, fmt.Sprintf("subway_edge_devices %d\n", devices))
	})
	for _, r := range robots {
		for ref := range r.once() {
			ran = append(ran, ref)
		}
	}
	completed(t, addr, ran)
	// Those that did not run had their ref on disk and were not with the device yet, which
	// nobody can tell from an execution afterwards: they end by their timeout.
	t.Logf("%d commands accepted, %d ran", len(accepted), len(ran))
	if len(ran) == 0 {
		t.Error("there was no load")
	}
}

// TestDeviceMoves answers at another edge what it was told at the first, and gets what
// comes then there.
func TestDeviceMoves(t *testing.T) {
	g := startGateway(t)
	addr := g.Addr().String()
	url := "ws://" + addr + "/ws"
	a := startEdge(t, options("edge-a", t.TempDir(), url))
	b := startEdge(t, options("edge-b", t.TempDir(), url))
	routed := func(edge string) {
		t.Helper()
		until(t, "the route by "+edge, func() bool { return strings.Contains(httpGet(addr, "/api/devices/td-1"), edge) })
	}
	atA := device1(t, a.Addr().String(), "td-1", nil)
	routed("edge-a")
	for i := range 10 {
		post(addr, "td-1", fmt.Sprintf("a%d", i))
	}
	atA.expect("COMMAND", "a9")
	atB := device1(t, b.Addr().String(), "td-1", nil)
	routed("edge-b")
	atA.close()
	var refs []string
	for i := range 10 {
		refs = append(refs, fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i))
		if !post(addr, "td-1", fmt.Sprintf("b%d", i)) {
			t.Fatal("not accepted after the old edge's goodbye")
		}
		atB.expect("COMMAND", fmt.Sprintf("b%d", i))
	}
	for _, ref := range refs {
		atB.respond(ref)
	}
	completed(t, addr, refs)
}

// TestTwoEdgesWithOneID: the newer one wins and the older one keeps away for a while.
func TestTwoEdgesWithOneID(t *testing.T) {
	g := startGateway(t)
	url := "ws://" + g.Addr().String() + "/ws"
	opt := options("edge-1", t.TempDir(), url)
	opt.Schedule.Superseded = time.Hour
	a := startEdge(t, opt)
	until(t, "the first", a.isUp)
	b := startEdge(t, options("edge-1", t.TempDir(), url))
	until(t, "the second", b.isUp)
	until(t, "the first to go", func() bool { return !a.isUp() })
	d := device1(t, b.Addr().String(), "td-1", nil)
	until(t, "the route", func() bool { return strings.Contains(httpGet(g.Addr().String(), "/api/devices/td-1"), "edge-1") })
	post(g.Addr().String(), "td-1", "r1")
	d.expect("COMMAND", "r1")
	if !b.isUp() || a.isUp() {
		t.Error("they take it from each other")
	}
	a.Retry() // an operator may
	until(t, "the first to be back", a.isUp)
}
