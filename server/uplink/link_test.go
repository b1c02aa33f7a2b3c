package uplink

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"

	"subway/core/wire"
)

const (
	registerText = `{"type":"REGISTER","clientId":"td-01","clientType":"DEVICE"}`
	ackText      = `{"type":"REGISTER_ACK","clientId":"td-01","clientType":"DEVICE","status":"REGISTERED","epoch":1}`
)

// attempt is a server's part in a scripted run: what becomes of one attempt to connect.
type attempt func(p *peer)

// refuse lets the attempt fail before TCP.
var refuse attempt

// lose registers the party and closes with code after a while; 0 cuts TCP.
func lose(after time.Duration, code uint16) attempt {
	return func(p *peer) {
		_, _, _ = p.frame()
		_ = p.text(ackText)
		<-time.After(after)
		if code != 0 {
			_ = p.close(code, "")
			_, _, _ = p.frame()
		}
	}
}

// deny closes without registering.
func deny(code uint16) attempt {
	return func(p *peer) {
		_, _, _ = p.frame()
		_ = p.close(code, "")
		_, _, _ = p.frame()
	}
}

// answer answers REGISTER with a message and waits for the end.
func answer(text string) attempt {
	return func(p *peer) {
		_, _, _ = p.frame()
		_ = p.text(text)
		for {
			h, _, err := p.frame()
			if err != nil {
				return
			}
			if h.OpCode == ws.OpClose {
				_ = p.close(1000, "")
				return
			}
		}
	}
}

// dialled is one call of NetDial.
type dialled struct {
	at      time.Duration
	address string
}

// script runs a Link in fake time against scripted attempts and returns when it dialled
// whom, and what it reported. The last attempt is repeated until there were n.
func script(t *testing.T, n int, cfg Config, script []attempt) (dials []dialled, downs []Down) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		cfg.Register = func() []byte { return []byte(registerText) }
		cfg.Down = func(d Down) { downs = append(downs, d) }
		cfg.Options.NetDial = func(_ context.Context, _, address string) (net.Conn, error) {
			dials = append(dials, dialled{time.Since(began), address})
			if len(dials) == n {
				cancel()
				return nil, errors.New("the script is over")
			}
			act := script[min(len(dials), len(script))-1]
			if act == nil {
				return nil, errors.New("connection refused")
			}
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if p, err := accept(theirs); err == nil {
					act(p)
				}
			}()
			return ours, nil
		}
		if cfg.URLs == nil {
			cfg.URLs = []string{"ws://a:1/ws"}
		}
		l, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.Run(ctx)
		<-time.After(2 * time.Minute) // in fake time: for sockets that are still closing
	})
	return dials, downs
}

// gaps returns the time between attempts, in rounded seconds.
func gaps(dials []dialled) (s []float64) {
	for i := 1; i < len(dials); i++ {
		s = append(s, (dials[i].at - dials[i-1].at).Round(time.Millisecond).Seconds())
	}
	return s
}

// exact is a schedule without chance.
func exact() Config { return Config{Schedule: Schedule{Random: func() float64 { return 0 }}} }

// TestSchedule holds the loop against PROTOCOL.md section 5.
func TestSchedule(t *testing.T) {
	const lived = 7.0
	live := lived * time.Second
	unauthorized := `{"type":"ERROR","code":"UNAUTHORIZED","message":"no"}`
	for name, c := range map[string]struct {
		script []attempt
		want   []float64 // seconds between attempts
	}{
		"never there":      {[]attempt{refuse}, []float64{5, 10, 20, 40, 80, 300, 300}},
		"lost, then there": {[]attempt{lose(live, 0), refuse, refuse, lose(live, 0), refuse}, []float64{lived + 5, 10, 20, lived + 5, 10}},
		"going away":       {[]attempt{lose(live, 1001), refuse}, []float64{lived, 5, 10, 20}},
		"going away twice": {[]attempt{deny(1001), deny(1001), refuse}, []float64{0, 5, 10, 20}},
		"superseded":       {[]attempt{lose(live, 4409), refuse}, []float64{lived + 60, 5, 10}},
		"not allowed":      {[]attempt{deny(4403)}, []float64{300, 300}},
		"not known":        {[]attempt{lose(live, 4401), refuse, lose(live, 0), refuse}, []float64{lived + 300, 300, lived + 5}},
		"other version":    {[]attempt{deny(4426), refuse}, []float64{300, 300}},
		"refused by ERROR": {[]attempt{answer(unauthorized)}, []float64{300, 300}},
		"overloaded":       {[]attempt{answer(strings.ReplaceAll(unauthorized, "UNAUTHORIZED", "OVERLOADED"))}, []float64{5, 10, 20, 40, 80, 300}},
		"no answer":        {[]attempt{answer("not JSON")}, []float64{15, 20, 30, 50}},
		"closed in order":  {[]attempt{lose(live, 1000), refuse}, []float64{lived + 5, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			dials, _ := script(t, len(c.want)+1, exact(), c.script)
			got := gaps(dials)
			for i := range got {
				// A pipe cannot be half closed: the end of a handshake takes up to a second.
				if got[i] < c.want[i] || got[i] > c.want[i]+1 {
					t.Fatalf("attempts came after %v, want %v", got, c.want)
				}
			}
		})
	}
}

// TestGoingAwayAtOnce counts the second after 1001 from the close frame: it does not wait
// for a Gateway that leaves TCP open, whether it reads the answer or not.
func TestGoingAwayAtOnce(t *testing.T) {
	for name, reads := range map[string]bool{"reads": true, "reads nothing": false} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Schedule: Schedule{Random: func() float64 { return 0.85 }}}
			dials, downs := script(t, 2, cfg, []attempt{func(p *peer) {
				_, _, _ = p.frame()
				_ = p.text(ackText)
				_ = p.close(wire.CloseGoingAway, "")
				if reads {
					_, _, _ = p.frame()
				}
				<-time.After(time.Minute)
			}})
			if len(dials) != 2 || dials[1].at > time.Second || downs[0].End.Code != wire.CloseGoingAway {
				t.Errorf("dialled at %v, down %+v", dials, downs)
			}
		})
	}
}

// TestJitter only ever shortens, but for 4409 which it must not.
func TestJitter(t *testing.T) {
	rnd := seeded(t)
	for range 200 {
		r := retry{Schedule: Schedule{Random: rnd.Float64}.withDefaults()}
		for _, most := range []time.Duration{5, 10, 20, 40, 80} {
			most *= time.Second
			if wait, offline := r.next(0); wait > most || wait < most*3/4 || offline {
				t.Fatalf("a delay of %v became %v, offline %v", most, wait, offline)
			}
		}
		if wait, offline := r.next(0); wait != 5*time.Minute || !offline {
			t.Fatalf("then %v, offline %v", wait, offline)
		}
		r.registered()
		if wait, _ := r.next(wire.CloseGoingAway); wait < 0 || wait > time.Second {
			t.Fatalf("after 1001: %v", wait)
		}
		if wait, _ := r.next(wire.CloseSuperseded); wait < time.Minute {
			t.Fatalf("after 4409: %v", wait)
		}
	}
}

// TestTurns tries several addresses in turn within one attempt of the schedule.
func TestTurns(t *testing.T) {
	cfg := exact()
	cfg.URLs = []string{"ws://a:1/ws", "ws://b:1/ws", "ws://c:1/ws"}
	live := 7 * time.Second
	dials, downs := script(t, 12, cfg, []attempt{
		refuse, lose(live, 0), // a, b
		refuse, refuse, refuse, // c, a, b: the first attempt after the loss
		refuse, lose(live, 1001), // c, a
		lose(live, 4409), // b
		deny(4403),       // c: nobody else is asked
		refuse,
	})
	want := "abcabcabcabc"
	for i, d := range dials {
		if d.address[:1] != want[i:i+1] {
			t.Fatalf("dialled %v, want %s", dials, want)
		}
	}
	if got, want := gaps(dials)[:9], []float64{0, 7 + 5, 0, 0, 10, 0, 7, 7 + 60, 300}; !near(got, want) {
		t.Errorf("attempts came after %v, want %v", got, want)
	}
	codes := make([]uint16, len(downs))
	for i, d := range downs {
		codes[i] = d.End.Code
	}
	if want := []uint16{1006, 0, 1001, 4409, 4403}; !slices.Equal(codes[:5], want) {
		t.Errorf("reported %v, want %v", codes, want)
	}
	if !downs[0].Registered || downs[1].Registered || downs[0].URL != cfg.URLs[1] {
		t.Errorf("reported %+v", downs[:2])
	}
}

func near(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(g, w float64) bool { return g >= w && g <= w+1 })
}

// TestOffline is reported once the attempts are used up.
func TestOffline(t *testing.T) {
	_, downs := script(t, 9, exact(), []attempt{refuse})
	sum := time.Duration(0)
	for i, d := range downs {
		if d.Offline != (i >= 5) {
			t.Errorf("failure %d: %+v", i+1, d)
		}
		if i < 5 {
			sum += d.Wait
		}
	}
	if sum != 155*time.Second {
		t.Errorf("the delays sum up to %v", sum)
	}
}

// TestHandshakeRefusals count as the close code of the same meaning.
func TestHandshakeRefusals(t *testing.T) {
	for status, want := range map[int]uint16{401: 4401, 403: 4403, 426: 4426, 503: 0} {
		if got := codeOfStatus(ws.StatusError(status)); got != want {
			t.Errorf("%d counts as %d, want %d", status, got, want)
		}
	}
}

// TestLinkToGateway registers, sends, hears that the Gateway goes down, finds the next
// one, and says goodbye.
func TestLinkToGateway(t *testing.T) {
	first, g1 := realGateway(t)
	second, g2 := realGateway(t)
	defer stopGateway(t, g2)
	ups, downs, messages := make(chan string, 8), make(chan Down, 8), make(chan string, 8)
	l, err := New(Config{
		URLs:     []string{first, second},
		Register: func() []byte { return []byte(registerText) },
		Goodbye:  []byte(`{"type":"UNREGISTER","clientId":"td-01"}`),
		Schedule: Schedule{GoingAway: time.Millisecond},
		Up:       func(url string, _ []byte) { ups <- url },
		Down:     func(d Down) { downs <- d },
		Receive:  func(msg []byte) { messages <- string(msg) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Send(nil); err != ErrDown {
		t.Errorf("before a connection: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	if url := await(t, "the first Gateway", ups); url != first {
		t.Errorf("connected to %s", url)
	}
	if err := l.Send([]byte(`{"type":"HEARTBEAT"}`)); err != nil {
		t.Error(err)
	}
	if msg := await(t, "an answer", messages); !strings.Contains(msg, "HEARTBEAT_ACK") {
		t.Errorf("got %s", msg)
	}
	stopGateway(t, g1)
	if d := await(t, "the end", downs); d.End.Code != 1001 || !d.Registered {
		t.Errorf("ended with %+v", d.End)
	}
	if url := await(t, "the second Gateway", ups); url != second {
		t.Errorf("connected to %s", url)
	}
	if d := devices(t, second); !strings.Contains(d, `"ONLINE"`) {
		t.Errorf("the device is %s", d)
	}
	cancel()
	await(t, "the end of Run", done)
	if d := devices(t, second); strings.Contains(d, `"ONLINE"`) {
		t.Errorf("after the goodbye the device is %s", d)
	}
}

// devices asks the Gateway for its devices.
func devices(t *testing.T, url string) string {
	t.Helper()
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := fresh.Get("http" + strings.TrimSuffix(strings.TrimPrefix(url, "ws"), "/ws") + "/api/devices")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
