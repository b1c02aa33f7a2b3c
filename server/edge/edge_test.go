package edge

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDevicesComeAndGo(t *testing.T) {
	st := newStation(t)
	e := startEdge(t, options("edge-1", t.TempDir(), st.url()))
	l := st.accept()
	if m := l.expect("REGISTER", ""); m.ClientType != "EDGE" || m.ClientID != "edge-1" || len(m.Devices) != 0 || fmt.Sprint(m.Capabilities) != "[dedupe]" || m.EdgeInfo.EdgeVersion != "dev" {
		t.Fatalf("registered with %s", m.raw)
	}
	d := device1(t, e.Addr().String(), "td-1", nil)
	if m := l.expect("REGISTER", ""); m.ClientID != "td-1" || m.EdgeInfo.EdgeID != "edge-1" || !strings.Contains(m.raw, `"deviceInfo":{"model":"x"}`) {
		t.Fatalf("announced with %s", m.raw)
	}
	newer := device1(t, e.Addr().String(), "td-1", nil)
	<-d.done
	if d.end.Code != 4409 {
		t.Fatalf("the older connection ended with %v", d.end)
	}
	l.expect("REGISTER", "")
	l.command("td-1", "r1", "")
	newer.expect("COMMAND", "r1")
	newer.send(`{"type":"UNREGISTER","clientId":"td-1"}`)
	<-newer.done
	if newer.end.Code != 1000 {
		t.Fatalf("the goodbye was answered with %v", newer.end)
	}
	if m := l.expect("UNREGISTER", ""); m.ClientID != "td-1" {
		t.Fatalf("told of %s", m.raw)
	}
	l.command("td-1", "r2", "")
	if m := l.expect("ERROR", "r2"); m.Code != "DEVICE_NOT_FOUND" {
		t.Fatalf("answered with %s", m.raw)
	}
	device1(t, e.Addr().String(), "td-2", nil)
	l.expect("REGISTER", "")
	l.cut()
	l = st.accept()
	if m := l.expect("REGISTER", ""); len(m.Devices) != 1 || string(m.Devices[0]) != `{"clientId":"td-2","deviceInfo":{"model":"x"}}` {
		t.Fatalf("registered with %s", m.raw)
	}
}

func TestRefusals(t *testing.T) {
	st := newStation(t)
	opt := options("edge-1", t.TempDir(), st.url())
	opt.MaxDevices = 2
	e := startEdge(t, opt)
	l := st.accept()
	p := dial(t, e.Addr().String(), nil)
	refused := func(code, format string, args ...any) {
		t.Helper()
		p.send(format, args...)
		if m := p.expect("ERROR", ""); m.Code != code {
			t.Errorf("%s was answered with %s", fmt.Sprintf(format, args...), m.raw)
		}
	}
	refused("NOT_REGISTERED", `{"type":"HEARTBEAT"}`)
	refused("INVALID_MESSAGE", `{"type":"REGISTER","clientType":"DEVICE"}`)
	refused("INVALID_MESSAGE", `[]`)
	refused("FORBIDDEN", `{"type":"REGISTER","clientId":"b","clientType":"BACKEND"}`)
	refused("FORBIDDEN", `{"type":"REGISTER","clientId":"e","clientType":"EDGE"}`)
	refused("FORBIDDEN", `{"type":"REGISTER","clientId":"td-1","clientType":"DEVICE","edgeInfo":{"edgeId":"other"}}`)
	refused("UNSUPPORTED_VERSION", `{"type":"REGISTER","clientId":"td-1","clientType":"DEVICE","version":"2.0"}`)
	p.send(`{"type":"REGISTER","clientId":"td-1","clientType":"DEVICE","edgeInfo":{"edgeId":"edge-1"}}`)
	first := p.expect("REGISTER_ACK", "")
	p.send(`{"type":"REGISTER","clientId":"td-1","clientType":"DEVICE"}`)
	if m := p.expect("REGISTER_ACK", ""); m.Epoch <= first.Epoch || m.SessionID != first.SessionID {
		t.Errorf("%s after %s", m.raw, first.raw)
	}
	refused("FORBIDDEN", `{"type":"REGISTER","clientId":"td-2","clientType":"DEVICE"}`)
	refused("FORBIDDEN", `{"type":"COMMAND","requestRef":"r","targetClientId":"td-1","command":{"commandType":"T"}}`)
	refused("FORBIDDEN", `{"type":"CANCEL","requestRef":"r"}`)
	refused("FORBIDDEN", `{"type":"UNREGISTER","clientId":"td-2"}`)
	refused("FORBIDDEN", `{"type":"DEVICE_STATUS","clientId":"td-2","status":{}}`)
	refused("INVALID_MESSAGE", `{"type":"REGISTER_ACK"}`)
	refused("INVALID_MESSAGE", `{"type":"COMMAND_RESPONSE","requestRef":"r"}`)

	other := device1(t, e.Addr().String(), "td-2", nil)
	l.command("td-1", "r1", "")
	p.expect("COMMAND", "r1")
	other.respond("r1")
	if m := other.expect("ERROR", "r1"); m.Code != "FORBIDDEN" {
		t.Errorf("another device's answer: %s", m.raw)
	}
	third := dial(t, e.Addr().String(), nil)
	third.send(`{"type":"REGISTER","clientId":"td-3","clientType":"DEVICE"}`)
	if m := third.expect("ERROR", ""); m.Code != "OVERLOADED" {
		t.Errorf("one device too many: %s", m.raw)
	}
	for range maxInvalid {
		third.send(`{`)
	}
	<-third.done
	if third.end.Code != 4400 {
		t.Errorf("after %d invalid messages it ended with %v", maxInvalid, third.end)
	}
}

// TestSeenBefore answers from the store, byte for byte, and hands nothing over twice.
func TestSeenBefore(t *testing.T) {
	st := newStation(t)
	e := startEdge(t, options("edge-1", t.TempDir(), st.url()))
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.expect("REGISTER", "")
	l.command("td-1", "answered", "")
	l.command("td-1", "open", "")
	d.expect("COMMAND", "answered")
	d.expect("COMMAND", "open")
	answer := `{"type":"COMMAND_RESPONSE","requestRef":"answered","status":"COMPLETED","result":{"n":1e400, "f":1.0}}`
	d.send("%s", answer)
	l.expect("COMMAND_RESPONSE", "answered")
	d.respond("answered") // once more: not passed on
	d.send(`{"type":"PROGRESS_UPDATE","requestRef":"answered","progress":1}`)
	d.sync()
	l.cut()
	l = st.accept()
	l.command("td-1", "answered", "")
	l.command("td-1", "open", "")
	if m := l.expect("COMMAND_RESPONSE", "answered"); m.raw != answer {
		t.Errorf("answered with %s", m.raw)
	}
	l.command("td-1", "new", "")
	d.expect("COMMAND", "new")
	if n := d.count("COMMAND", ""); n != 0 {
		t.Errorf("%d commands came again", n)
	}
	// The answer goes by itself on the new link, and may have crossed the command.
	if l.count("COMMAND_RESPONSE", "answered") > 1 || l.count("COMMAND_RESPONSE", "open")+l.count("PROGRESS_UPDATE", "") != 0 {
		t.Errorf("too much was passed on:\n%s", l.String())
	}
	d.respond("open")
	l.expect("COMMAND_RESPONSE", "open")
}

// TestOffline keeps what is said while the link is down, in order, the newest status only,
// and tells devices, but not too often.
func TestOffline(t *testing.T) {
	st := newStation(t)
	x := newProxy(t, st.srv.Addr().String())
	dir := t.TempDir()
	opt := options("edge-1", dir, x.url())
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.expect("REGISTER", "")
	for i := range 3 {
		l.command("td-1", fmt.Sprintf("r%d", i), "")
		d.expect("COMMAND", fmt.Sprintf("r%d", i))
	}
	_ = x.lis.Close()
	x.cut()
	until(t, "the link to be down", func() bool { return !e.isUp() })
	d.send(`{"type":"HEARTBEAT"}`)
	d.expect("HEARTBEAT_ACK", "")
	m := d.expect("ERROR", "")
	if m.Code != "GATEWAY_UNAVAILABLE" || m.RequestRef != "" || m.Details["service"] != "gateway" || m.Details["retryAfter"] == nil || m.Details["lastSeen"] == nil {
		t.Errorf("told %s", m.raw)
	}
	late := device1(t, e.Addr().String(), "td-2", nil)
	late.expect("ERROR", "")
	d.respond("r1")
	d.send(`{"type":"DEVICE_STATUS","clientId":"td-1","status":{"n":1}}`)
	d.send(`{"type":"PROGRESS_UPDATE","requestRef":"r0","progress":50}`)
	d.respond("r0")
	d.respond("elsewhere")
	d.send(`{"type":"DEVICE_STATUS","clientId":"td-1","status":{"n":2}}`)
	d.sync()
	if n := d.count("ERROR", ""); n != 0 {
		t.Errorf("told again:\n%s", d.String())
	}
	stopEdge(t, e) // and what waits is there after a restart
	<-d.done
	if d.end.Code != 1001 {
		t.Errorf("at the end the device was closed with %v", d.end)
	}
	opt.Gateways = []string{st.url()}
	startEdge(t, opt)
	l = st.accept()
	l.expect("COMMAND_RESPONSE", "elsewhere")
	l.expect("DEVICE_STATUS", "")
	until(t, "the barrier", func() bool { return l.count("HEARTBEAT", "") > 0 })
	l.mu.Lock()
	var order []string
	for _, m := range l.all {
		order = append(order, m.Type+m.RequestRef)
	}
	l.mu.Unlock()
	if got := strings.Join(order, " "); got != "REGISTER COMMAND_RESPONSEr1 PROGRESS_UPDATEr0 COMMAND_RESPONSEr0 HEARTBEAT" {
		t.Errorf("sent in this order: %s", got)
	}
}

func (e *Edge) isUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.up.registered
}

// TestConfirmed: what the Gateway has is not sent again; what it may lack is.
func TestConfirmed(t *testing.T) {
	st := newStation(t)
	st.deaf.Store(true)
	opt := options("edge-1", t.TempDir(), st.url())
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "r1", "")
	d.expect("COMMAND", "r1")
	d.respond("r1")
	l.expect("COMMAND_RESPONSE", "r1")
	l.expect("HEARTBEAT", "") // which stays unanswered
	d.close()
	l.expect("UNREGISTER", "")
	st.deaf.Store(false)
	l.cut()
	l = st.accept() // the device is gone, so the Gateway would not ask
	l.expect("COMMAND_RESPONSE", "r1")
	l.expect("HEARTBEAT", "")
	until(t, "the confirmation", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.refs["r1"].confirmed
	})
	l.cut()
	l = st.accept()
	l.command("td-1", "gone", "")
	l.expect("ERROR", "gone")
	if n := l.count("COMMAND_RESPONSE", ""); n != 0 {
		t.Errorf("sent again:\n%s", l.String())
	}
	stopEdge(t, e)
	startEdge(t, opt)
	l = st.accept()
	l.command("td-1", "gone", "")
	l.expect("ERROR", "gone")
	if n := l.count("COMMAND_RESPONSE", ""); n != 0 {
		t.Errorf("sent again after a restart:\n%s", l.String())
	}
	l.command("td-1", "r1", "")
	l.expect("COMMAND_RESPONSE", "r1")
}

// TestAskedAfterwards: a Gateway that did not know a ref yet when its answer went by itself
// gets the answer when it asks, on the same link and before anything is confirmed.
func TestAskedAfterwards(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(map[bool]string{false: "sent before", true: "in the backlog"}[kept], func(t *testing.T) {
			st := newStation(t)
			st.deaf.Store(true)
			x := newProxy(t, st.srv.Addr().String())
			e := startEdge(t, options("edge-1", t.TempDir(), x.url()))
			l := st.accept()
			d := device1(t, e.Addr().String(), "td-1", nil)
			l.command("td-1", "r1", "")
			d.expect("COMMAND", "r1")
			if !kept {
				d.respond("r1")
				l.expect("COMMAND_RESPONSE", "r1")
			}
			x.shutOff(true)
			until(t, "the link to be down", func() bool { return !e.isUp() })
			if kept {
				d.respond("r1")
				d.sync()
			}
			x.shutOff(false)
			l = st.accept()
			l.expect("COMMAND_RESPONSE", "r1")
			for range 3 {
				l.command("td-1", "r1", "")
				l.expect("COMMAND_RESPONSE", "r1")
			}
			if d.count("COMMAND", "") != 0 {
				t.Error("a command was handed over again")
			}
		})
	}
}

// TestReturn: after a restart devices have a while to come back, in which commands wait
// for them and their routes stay; then those that did not are given up.
func TestReturn(t *testing.T) {
	st := newStation(t)
	opt := options("edge-1", t.TempDir(), st.url())
	first := startEdge(t, opt)
	st.accept()
	stopEdge(t, first)
	opt.Return = 2 * time.Second
	e := startEdge(t, opt)
	l := st.accept()
	if m := l.expect("REGISTER", ""); strings.Contains(m.raw, `"devices"`) {
		t.Errorf("registered with %s", m.raw)
	}
	l.command("td-1", "r1", "")
	l.command("td-2", "r2", "")
	l.send(`{"type":"CANCEL","requestRef":"r0"}`)
	until(t, "the commands to wait", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.refs["r2"] != nil
	})
	d := device1(t, e.Addr().String(), "td-1", nil)
	d.expect("COMMAND", "r1")
	if m := l.expect("REGISTER", ""); m.ClientID != "td-1" {
		t.Errorf("announced with %s", m.raw)
	}
	if n := l.count("ERROR", ""); n != 0 {
		t.Errorf("refused early:\n%s", l.String())
	}
	if m := l.expect("ERROR", "r2"); m.Code != "DEVICE_NOT_FOUND" {
		t.Errorf("refused with %s", m.raw)
	}
	if m := l.expect("REGISTER", ""); len(m.Devices) != 1 {
		t.Errorf("registered with %s", m.raw)
	}
}

// TestSilentLink notices within two intervals that a link which stays open is dead.
func TestSilentLink(t *testing.T) {
	st := newStation(t)
	x := newProxy(t, st.srv.Addr().String())
	opt := options("edge-1", t.TempDir(), x.url())
	opt.Ping = 200 * time.Millisecond
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "r1", "")
	d.expect("COMMAND", "r1")
	x.hold()
	began := time.Now()
	d.respond("r1")
	l = st.accept()
	if took := time.Since(began); took > 2*opt.Ping+time.Second {
		t.Errorf("noticed after %v", took)
	}
	l.command("td-1", "r1", "")
	l.expect("COMMAND_RESPONSE", "r1")
	if n := d.count("COMMAND", ""); n != 0 {
		t.Error("the command was handed over again")
	}
}

// TestHalfOpenLink: what was said into a link that takes and delivers nothing is said again
// on the next one without being asked for, in order and before what is newer; what has
// arrived is not.
func TestHalfOpenLink(t *testing.T) {
	st := newStation(t)
	x := newProxy(t, st.srv.Addr().String())
	opt := options("edge-1", t.TempDir(), x.url())
	opt.Ping = 300 * time.Millisecond
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	refs := []string{"r0", "r1", "r2", "r3", "r4", "newer"}
	for _, ref := range refs {
		l.command("td-1", ref, "")
		d.expect("COMMAND", ref)
	}
	status := func(n int) { d.send(`{"type":"DEVICE_STATUS","clientId":"td-1","status":{"n":%d}}`, n) }
	status(0)
	l.expect("DEVICE_STATUS", "")
	x.hold()
	status(1)
	for i := range 5 {
		d.respond(refs[4-i])
	}
	status(2)
	d.respond("elsewhere")
	d.sync()
	if !e.isUp() {
		t.Fatal("the link was noticed to be dead too early")
	}
	l = st.accept()
	until(t, "the link to be up", e.isUp)
	d.respond("newer")
	until(t, "all of it", func() bool { return l.count("COMMAND_RESPONSE", "") == 7 && l.count("DEVICE_STATUS", "") > 0 })
	l.mu.Lock()
	order := ""
	for _, m := range l.all {
		if m.Type == "COMMAND_RESPONSE" || m.Type == "DEVICE_STATUS" {
			order += " " + m.RequestRef
		}
	}
	l.mu.Unlock()
	if !strings.HasPrefix(order, " r4 r3 r2 r1 r0 ") {
		t.Errorf("sent again in this order:%s", order)
	}
	if m := l.expect("DEVICE_STATUS", ""); !strings.Contains(m.raw, `"n":2`) || l.count("DEVICE_STATUS", "") != 0 {
		t.Errorf("the status sent again is %s, then:\n%s", m.raw, l.String())
	}
	until(t, "the confirmation", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.unconfirmed) == 0 && len(e.up.spoken)+len(e.up.strays)+e.up.spokenBytes == 0 && len(e.backlog.items) == 0
	})
	l.cut()
	l = st.accept()
	l.command("td-9", "gone", "")
	l.expect("ERROR", "gone")
	if l.count("COMMAND_RESPONSE", "")+l.count("DEVICE_STATUS", "") != 0 {
		t.Errorf("sent again though it had arrived:\n%s", l.String())
	}
}

// TestCancel passes a CANCEL on once; what is queued never leaves.
func TestCancel(t *testing.T) {
	st := newStation(t)
	opt := options("edge-1", t.TempDir(), st.url())
	hold := make(chan struct{})
	opt.hook = func(point, ref string) {
		if point == "remembered" && ref == "held" {
			<-hold
		}
	}
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "r1", "")
	d.expect("COMMAND", "r1")
	l.send(`{"type":"CANCEL","requestRef":"r1","targetClientId":"td-1","extra":1}`)
	if m := d.expect("CANCEL", "r1"); !strings.Contains(m.raw, `"extra":1`) {
		t.Errorf("passed on as %s", m.raw)
	}
	l.send(`{"type":"CANCEL","requestRef":"r1"}`)
	l.command("td-1", "held", "")
	l.command("td-1", "late", `,"timeout":50`)
	l.command("td-1", "next", "")
	l.send(`{"type":"CANCEL","requestRef":"held"}`)
	until(t, "the CANCEL", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		held, late := e.refs["held"], e.refs["late"]
		return held != nil && held.dropped && late != nil && late.deadline < e.now()
	})
	close(hold)
	d.expect("COMMAND", "next")
	if n := d.count("COMMAND", "held") + d.count("COMMAND", "late") + d.count("CANCEL", ""); n != 0 {
		t.Errorf("too much came:\n%s", d.String())
	}
}

// TestQueueBounds fills a device's queue by priority and keeps the order of priorities.
func TestQueueBounds(t *testing.T) {
	st := newStation(t)
	opt := options("edge-1", t.TempDir(), st.url())
	opt.MaxWaiting = 80
	hold := make(chan struct{})
	opt.hook = func(point, ref string) {
		if point == "remembered" && ref == "first" {
			<-hold
		}
	}
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "first", "")
	until(t, "the first to be committed", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.refs["first"] != nil
	})
	for i := range 79 {
		l.command("td-1", fmt.Sprintf("low%d", i), `,"priority":"LOW"`)
	}
	for i := range 20 {
		l.command("td-1", fmt.Sprintf("normal%d", i), "")
	}
	for i := range 20 {
		l.command("td-1", fmt.Sprintf("high%d", i), `,"priority":"HIGH"`)
	}
	if m := l.expect("ERROR", "high19"); m.Code != "OVERLOADED" {
		t.Errorf("refused with %s", m.raw)
	}
	for ref, refused := range map[string]int{"low58": 0, "low59": 1, "normal9": 0, "normal10": 1, "high9": 0, "high10": 1} {
		if n := l.count("ERROR", ref); n != refused {
			t.Errorf("%s was refused %d times", ref, n)
		}
	}
	close(hold)
	d.expect("COMMAND", "low58")
	position := map[string]int{}
	d.mu.Lock()
	for i, m := range d.all {
		position[m.RequestRef] = i
	}
	d.mu.Unlock()
	if position["high0"] > position["high9"] || position["high9"] > position["normal0"] || position["normal9"] > position["low57"] {
		t.Errorf("they left in this order: %v", position)
	}
}

func TestHTTP(t *testing.T) {
	st := newStation(t)
	x := newProxy(t, st.srv.Addr().String())
	dir := t.TempDir()
	e := startEdge(t, options("edge-1", dir, x.url()))
	st.accept()
	until(t, "the link", e.isUp)
	b, err := os.ReadFile(filepath.Join(dir, "listen"))
	if err != nil || strings.TrimSpace(string(b)) != e.Addr().String() {
		t.Fatalf("the file says %q, %v", b, err)
	}
	get := func(path string, status int, part string) {
		t.Helper()
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := c.Get("http://" + e.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		if r.StatusCode != status || !strings.Contains(string(body), part) {
			t.Errorf("%s: %d %s", path, r.StatusCode, body)
		}
	}
	get("/healthz", 200, "ok")
	get("/readyz", 200, `"link":"ONLINE"`)
	get("/metrics", 200, "subway_edge_link_up 1")
	get("/version", 200, "edge")
	get("/", 200, "edge-1")
	get("/nowhere", 404, "NOT_FOUND")
	_ = x.lis.Close()
	x.cut()
	until(t, "the end of the schedule", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.up.offline
	})
	get("/readyz", 503, "PERMANENTLY_OFFLINE")
}
