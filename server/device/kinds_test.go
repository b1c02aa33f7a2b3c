package device

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"subway/server/edge"
	"subway/server/edge/line"
	"subway/server/edge/local"
	"subway/server/edge/mqtt"
	"subway/server/uplink"
)

// station is a real edge with its adapters, which can go and come back at its addresses.
type station struct {
	t       testing.TB
	gateway string
	dir     string
	at      map[string]string // addresses by scheme
	edge    *edge.Edge
}

func newStation(t testing.TB, gateway string) *station {
	t.Helper()
	const free = "127.0.0.1:0"
	s := &station{t: t, gateway: gateway, dir: t.TempDir(), at: map[string]string{"ws": free, "mqtt": free, "tcp": free}}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *station) start() {
	s.t.Helper()
	adapter := func(make local.Make, scheme string) local.Adapter {
		a, err := make(s.at[scheme])
		if err != nil {
			s.t.Fatal(err)
		}
		return a
	}
	e, err := edge.Start(edge.Options{
		ID: "edge-001", Gateways: []string{s.gateway}, DataDir: s.dir, Listen: s.at["ws"],
		Adapters: []edge.Named{{Name: "mqtt", Adapter: adapter(mqtt.New, "mqtt")}, {Name: "line", Adapter: adapter(line.New, "tcp")}},
		Schedule: steady,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.edge = e
	s.at = map[string]string{"ws": e.Addr().String(), "mqtt": e.AdapterAddr("mqtt").String(), "tcp": e.AdapterAddr("line").String()}
}

func (s *station) stop() {
	if s.edge == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.edge.Shutdown(ctx); err != nil {
		s.t.Error(err)
	}
	s.edge = nil
}

func (s *station) url(scheme string) string {
	url := scheme + "://" + s.at[scheme]
	if scheme == "ws" {
		url += "/ws"
	}
	return url
}

// steady is a schedule that does not give up.
var steady = uplink.Schedule{First: time.Millisecond, GoingAway: time.Millisecond, Slow: 50 * time.Millisecond}

var schemes = []string{"ws", "mqtt", "tcp"}

func online(t testing.TB, api, id string) bool {
	t.Helper()
	d, found := call(t, "GET", api+"/api/devices/"+id, "")["device"].(map[string]any)
	return found && d["connection"] == "ONLINE"
}

// knows says whether a command has reached the device.
func knows(d *Device, ref string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory.known[ref] != nil
}

// TestKinds runs each kind of device behind a real Edge at a real Gateway, which cannot
// tell them apart.
func TestKinds(t *testing.T) {
	ws, api := realGateway(t)
	s := newStation(t, ws)
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			id := scheme + "-01"
			send := func(command string) map[string]any {
				return call(t, "POST", api+waiting, fmt.Sprintf(`{"target_client_id":%q,"command":%s}`, id, command))
			}
			_, reports, stop := start(t, Options{ID: id, Behaviour: Behaviour{Progress: 2, FailTypes: []string{"BREAK"}, StatusInterval: time.Second}}, s.url(scheme))
			until(t, "it is online and its status known", func() bool {
				d, found := call(t, "GET", api+"/api/devices/"+id, "")["device"].(map[string]any)
				return found && d["connection"] == "ONLINE" && d["status"] != nil && text(t, d["deviceInfo"]) == `{"model":"simulated"}`
			})
			if got := send(`{"commandType":"SET_BRIGHTNESS","value":80}`); got["status"] != "COMPLETED" || text(t, got["result"]) != `{"brightness":80}` || got["progress"] != 66.0 {
				t.Errorf("it became %s", text(t, got))
			}
			if got := send(`{"commandType":"BREAK"}`); got["status"] != "FAILED" {
				t.Errorf("it became %s", text(t, got))
			}
			if got := send(`{"commandType":"SHOW","text":"` + strings.Repeat("é", 500_000) + `"}`); got["status"] != "COMPLETED" {
				t.Errorf("a large one became %.300s", text(t, got))
			}
			for range 3 {
				await(t, "a report", reports)
			}
			stop()
			until(t, "it is offline", func() bool { return !online(t, api, id) })
		})
	}
}

// TestKindsCancel tells each kind of device that a command has ended.
func TestKindsCancel(t *testing.T) {
	ws, api := realGateway(t)
	s := newStation(t, ws)
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			id := scheme + "-01"
			d, reports, _ := start(t, Options{ID: id, Behaviour: Behaviour{DelayMin: time.Hour}}, s.url(scheme))
			until(t, "it is online", func() bool { return online(t, api, id) })
			ref := call(t, "POST", api+"/api/commands", fmt.Sprintf(`{"target_client_id":%q,"command":{"commandType":"X"}}`, id))["requestRef"].(string)
			until(t, "the device has it", func() bool { return knows(d, ref) })
			call(t, "DELETE", api+"/api/commands/"+ref, "")
			if r := await(t, "a report", reports); r.Outcome != Cancelled || r.Ref != ref {
				t.Errorf("reported %+v", r)
			}
		})
	}
}

// TestKindsReconnect takes the Edge away while a command runs; the answer comes after it.
func TestKindsReconnect(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			ws, api := realGateway(t)
			s := newStation(t, ws)
			id := scheme + "-01"
			d, reports, _ := start(t, Options{ID: id, Schedule: steady, Behaviour: Behaviour{DelayMin: 300 * time.Millisecond}}, s.url(scheme))
			until(t, "it is online", func() bool { return online(t, api, id) })
			ref := call(t, "POST", api+"/api/commands", fmt.Sprintf(`{"target_client_id":%q,"command":{"commandType":"X"}}`, id))["requestRef"].(string)
			until(t, "the device has it", func() bool { return knows(d, ref) })
			s.stop()
			if r := await(t, "a report", reports); r.Outcome != Completed {
				t.Errorf("reported %+v", r)
			}
			s.start()
			if got := call(t, "GET", api+"/api/commands/"+ref+"?wait=8000", ""); got["status"] != "COMPLETED" {
				t.Errorf("it became %s", text(t, got))
			}
		})
	}
}

// serving is one connection of a kind, and how it ended.
func serving(t *testing.T, url, id string) (c uplink.Transport, messages chan string, ended chan *uplink.Closed) {
	t.Helper()
	c, err := dialer(id, uplink.Options{})(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	messages, ended = make(chan string, 100), make(chan *uplink.Closed, 1)
	go func() { ended <- c.Serve(func(msg []byte) { messages <- string(msg) }) }()
	t.Cleanup(func() { c.Close(1000, "") })
	if err := c.Send(appendRegister(nil, id, 0)); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "REGISTER_ACK", messages); !strings.Contains(got, `"REGISTER_ACK"`) {
		t.Fatalf("got %s", got)
	}
	return c, messages, ended
}

// TestKindsEnd says the same of why a connection ended, whatever it speaks.
func TestKindsEnd(t *testing.T) {
	ws, api := realGateway(t)
	s := newStation(t, ws)
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			id := scheme + "-01"
			one, _, ended := serving(t, s.url(scheme), id)
			_, _, _ = serving(t, s.url(scheme), id)
			if end := await(t, "the end", ended); end.Code != 4409 || end.Local {
				t.Errorf("superseded: %+v", end)
			}
			if err := one.Send([]byte("{}")); err != uplink.ErrDown {
				t.Errorf("a message after the end: %v", err)
			}
			two, _, ended := serving(t, s.url(scheme), id)
			if err := two.Send([]byte(strings.Repeat("x", 1<<20+1))); err != uplink.ErrTooLarge {
				t.Errorf("a message over the limit: %v", err)
			}
			two.Close(1000, "enough")
			two.Close(1001, "late")
			if end := await(t, "the end", ended); end.Code != 1000 || !end.Local || end.Err != nil {
				t.Errorf("closed: %+v", end)
			}
			until(t, "it is offline", func() bool { return !online(t, api, id) })
		})
	}
	ends := map[string]chan *uplink.Closed{}
	for _, scheme := range schemes {
		_, _, ends[scheme] = serving(t, s.url(scheme), scheme+"-02")
	}
	s.stop()
	for scheme, ended := range ends {
		if end := await(t, "the end", ended); end.Code != 1001 || end.Local {
			t.Errorf("%s: the edge went: %+v", scheme, end)
		}
	}
}

// TestKindsSilence notices an Edge that is there no more.
func TestKindsSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the kernel shakes hands, nothing follows
	c, err := dialer("td-01", uplink.Options{PingInterval: 30 * time.Millisecond})(context.Background(), "tcp://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if end := c.Serve(func([]byte) {}); end.Err != uplink.ErrSilent {
		t.Errorf("ended with %+v", end)
	}
	if _, err := dialer("td-01", uplink.Options{DialTimeout: 30 * time.Millisecond})(context.Background(), "mqtt://"+l.Addr().String()); err == nil {
		t.Error("a mute broker was connected to")
	}
}

func TestURLs(t *testing.T) {
	for _, good := range []string{"ws://127.0.0.1:18081/ws", "wss://h/ws", "mqtt://h:1883", "tcp://[::1]:9"} {
		if err := checkURLs([]string{good}); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "mqtt://h", "mqtt://:1", "tcp://h:1/x", "tcp://u@h:1", "mqtt://h:1?x=1", "mqtts://h:1", "tcp://h:1#x", "http://h"} {
		if checkURLs([]string{bad}) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
