package mqtt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"subway/core/wire"
)

// device is a client whose every packet a test sees.
type device struct {
	*paho.Client
	sock      net.Conn
	got       chan *paho.Publish
	dismissed chan byte // reason code of the broker's DISCONNECT
}

type tweak func(*paho.ClientConfig, *paho.Connect)

func connect(t testing.TB, address, id string, tweaks ...tweak) (*device, *paho.Connack) {
	t.Helper()
	sock, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{sock: sock, got: make(chan *paho.Publish, 1024), dismissed: make(chan byte, 1)}
	window := uint16(1000)
	cfg := paho.ClientConfig{
		Conn: sock,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			d.got <- p.Packet
			return true, nil
		}},
		OnServerDisconnect: func(p *paho.Disconnect) { d.dismissed <- p.ReasonCode },
	}
	cp := &paho.Connect{ClientID: id, CleanStart: true, KeepAlive: 30, Properties: &paho.ConnectProperties{ReceiveMaximum: &window}}
	for _, f := range tweaks {
		f(&cfg, cp)
	}
	d.Client = paho.NewClient(cfg)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ack, err := d.Connect(ctx, cp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Disconnect(&paho.Disconnect{})
		_ = sock.Close()
		<-d.Done()
	})
	return d, ack
}

func (d *device) subscribe(t testing.TB, id string, qos byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := d.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: commandTopic(id), QoS: qos}}}); err != nil {
		t.Fatal(err)
	}
}

func (d *device) publish(topic, payload string, qos byte) (*paho.PublishResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.Publish(ctx, &paho.Publish{Topic: topic, QoS: qos, Payload: []byte(payload)})
}

// fill gives commands until there is no room, and returns how many were taken.
func fill(t testing.TB, s *session, msg string) (n int) {
	t.Helper()
	for s.c.Append(wire.ClassCommand, []byte(msg), nil, nil) == wire.Accepted {
		if n++; n > 10_000 {
			t.Fatal("what is under way has no bound")
		}
	}
	return n
}

// TestWindow hands over no more than the device acknowledges, and goes on when it does.
func TestWindow(t *testing.T) {
	for name, c := range map[string]struct {
		receive uint16
		size    int
		want    int
	}{
		"messages":        {1000, 10, maxWindow},
		"its own maximum": {3, 10, 3},
		"bytes":           {1000, 30_000, 3},
		"a large one":     {1000, 900_000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, address := start(t, Options{})
			p, _ := connect(t, address, "td-01", func(cfg *paho.ClientConfig, cp *paho.Connect) {
				cfg.EnableManualAcknowledgment = true
				cfg.SendAcksInterval = time.Millisecond
				cp.Properties.ReceiveMaximum = &c.receive
			})
			s := await(t, "a session", d.opened)
			if r := s.c.Append(wire.ClassCommand, []byte("{}"), nil, nil); r != wire.Full {
				t.Errorf("before SUBSCRIBE: %v", r)
			}
			p.subscribe(t, "td-01", 1)
			await(t, "room", d.writable)
			msg := strings.Repeat("x", c.size)
			if n := fill(t, s, msg); n != c.want {
				t.Fatalf("%d are under way, want %d", n, c.want)
			}
			for range 3 {
				first := await(t, "a command", p.got)
				if string(first.Payload) != msg || first.QoS != 1 || first.Retain {
					t.Errorf("got %+v", first)
				}
				_ = p.Ack(first)
				await(t, "room", d.writable)
				if n := fill(t, s, msg); n != 1 {
					t.Errorf("there was room for %d", n)
				}
			}
		})
	}
}

// TestNotices go beyond the window, up to a bound.
func TestNotices(t *testing.T) {
	d, _, address := start(t, Options{})
	p, _ := connect(t, address, "td-01", func(cfg *paho.ClientConfig, _ *paho.Connect) { cfg.EnableManualAcknowledgment = true })
	s := await(t, "a session", d.opened)
	if r := s.c.Append(wire.ClassNotice, []byte(`{"type":"CANCEL","requestRef":"early"}`), nil, nil); r != wire.Accepted {
		t.Errorf("before SUBSCRIBE: %v", r)
	}
	p.subscribe(t, "td-01", 2)
	s.command(t, "{}")
	await(t, "a command", p.got)
	for _, msg := range []string{`{"type":"REGISTER_ACK"}`, `{"type":"HEARTBEAT_ACK"}`, `{"type":"CANCEL","requestRef":"r1"}`} {
		s.c.Append(wire.ClassNotice, []byte(msg), nil, nil)
	}
	if got := await(t, "CANCEL", p.got); string(got.Payload) != `{"type":"CANCEL","requestRef":"r1"}` {
		t.Errorf("got %s", got.Payload)
	}
	n := 0
	for s.c.Append(wire.ClassNotice, []byte(`{"type":"CANCEL","requestRef":"r1"}`), nil, nil) == wire.Accepted {
		if n++; n > 1000 {
			t.Fatal("notices have no bound")
		}
	}
	if code := await(t, "the end", p.dismissed); code != 0x97 {
		t.Errorf("dismissed with %#x", code)
	}
	if reason := await(t, "the end", d.closed); reason != "4429" {
		t.Errorf("closed for %s", reason)
	}
}

// TestReceiveMaximum of one: a notice does not wait for the acknowledgement of a command,
// and takes no room from the next.
func TestReceiveMaximum(t *testing.T) {
	d, _, address := start(t, Options{})
	one := uint16(1)
	p, _ := connect(t, address, "td-01", func(cfg *paho.ClientConfig, cp *paho.Connect) {
		cfg.EnableManualAcknowledgment, cfg.SendAcksInterval = true, time.Millisecond
		cp.Properties.ReceiveMaximum = &one
	})
	s := await(t, "a session", d.opened)
	p.subscribe(t, "td-01", 1)
	for range 5 {
		s.command(t, `{"type":"COMMAND"}`)
		command := await(t, "a command", p.got)
		s.c.Append(wire.ClassNotice, []byte(`{"type":"CANCEL","requestRef":"r1"}`), nil, nil)
		if got := await(t, "CANCEL", p.got); !strings.Contains(string(got.Payload), "CANCEL") || got.QoS != 0 {
			t.Errorf("got %+v", got)
		}
		if r := s.c.Append(wire.ClassCommand, []byte("{}"), nil, nil); r != wire.Full {
			t.Errorf("a second command: %v", r)
		}
		_ = p.Ack(command)
		await(t, "room", d.writable)
	}
}

// TestTakeover lets the newer connection win, whose session is a new one.
func TestTakeover(t *testing.T) {
	d, _, address := start(t, Options{})
	expiry := uint32(3600)
	lasting := func(_ *paho.ClientConfig, cp *paho.Connect) {
		cp.CleanStart, cp.Properties.SessionExpiryInterval = false, &expiry
		cp.WillMessage = &paho.WillMessage{Topic: "subway/td-01/status", Payload: []byte(`{"online":false}`)}
	}
	one, _ := connect(t, address, "td-01", lasting, func(cfg *paho.ClientConfig, _ *paho.Connect) { cfg.EnableManualAcknowledgment = true })
	d.hears(t, `"REGISTER"`)
	s := await(t, "a session", d.opened)
	one.subscribe(t, "td-01", 1)
	s.command(t, `{"n":1}`)
	await(t, "a command", one.got) // and it is not acknowledged
	two, ack := connect(t, address, "td-01", lasting)
	if ack.SessionPresent {
		t.Error("the session was kept")
	}
	if code := await(t, "the end", one.dismissed); code != 0x8e {
		t.Errorf("dismissed with %#x", code)
	}
	if reason := await(t, "the end", d.closed); reason != "4409" {
		t.Errorf("closed for %s", reason)
	}
	d.hears(t, `"REGISTER"`)
	if r := s.c.Append(wire.ClassCommand, []byte("{}"), nil, nil); r != wire.Gone {
		t.Errorf("a command to the older one: %v", r)
	}
	s = await(t, "a session", d.opened)
	two.subscribe(t, "td-01", 1)
	s.command(t, `{"n":2}`)
	if got := await(t, "a command", two.got); string(got.Payload) != `{"n":2}` {
		t.Errorf("got %s", got.Payload)
	}
	_ = two.sock.Close()
	d.hears(t, `{"online":false}`)
	await(t, "the end", d.closed)
	three, ack := connect(t, address, "td-01", lasting)
	if ack.SessionPresent {
		t.Error("the session outlived the connection")
	}
	s = await(t, "a session", d.opened)
	three.subscribe(t, "td-01", 1)
	s.command(t, `{"n":3}`)
	if got := await(t, "a command", three.got); string(got.Payload) != `{"n":3}` {
		t.Errorf("got %s", got.Payload)
	}
}

// TestPayloads that are too large, empty, no text, or messages of their own.
func TestPayloads(t *testing.T) {
	d, _, address := start(t, Options{MaxMessage: 5000})
	p, ack := connect(t, address, "td-01", func(_ *paho.ClientConfig, cp *paho.Connect) {
		cp.Properties.User = paho.UserProperties{{Key: "model", Value: "P\"3"}, {Key: "firmware", Value: "2.1"}}
		cp.KeepAlive = 0
	})
	if k := ack.Properties.ServerKeepAlive; k == nil || *k != 60 {
		t.Errorf("the keep-alive is %v", k)
	}
	if n := ack.Properties.MaximumPacketSize; n == nil || *n != 5000+packetRoom {
		t.Errorf("the largest packet is %v", n)
	}
	d.hears(t, `"REGISTER"`, `"deviceInfo":{"model":"P\"3","firmware":"2.1"}`)
	for _, c := range []struct{ topic, payload, want string }{
		{"status", "", ""},
		{"status", "\xff", "invalid"},
		{"status", "nonsense", "nonsense"},
		{"status", `{}`, `{"type":"DEVICE_STATUS","clientId":"td-01","status":{}}`},
		{"status", ` { "status" : {"a":1} } `, ` { "status" : {"a":1} ,"type":"DEVICE_STATUS","clientId":"td-01"}`},
		{"status", `{"clientId":"td-01","status":{}}`, `{"clientId":"td-01","status":{},"type":"DEVICE_STATUS"}`},
		{"status", `{"status":"fine"}`, `{"type":"DEVICE_STATUS","clientId":"td-01","status":{"status":"fine"}}`},
		{"response", ` { } `, ` { "type":"COMMAND_RESPONSE"}`},
		{"response", `{"type":"ERROR","code":"X"}`, `{"type":"ERROR","code":"X"}`},
		{"progress", `{"type":"HEARTBEAT"}`, `{"type":"HEARTBEAT"}`},
		{"progress", `[]`, `[]`},
		{"response", strings.Repeat("x", 5000), strings.Repeat("x", 5000)},
	} {
		if r, err := p.publish("subway/td-01/"+c.topic, c.payload, 1); err != nil || r.ReasonCode != 0 {
			t.Fatalf("%s: %+v, %v", c.payload, r, err)
		}
		if c.want != "" {
			if got := await(t, c.want, d.messages); got != c.want {
				t.Errorf("%s became %s, want %s", c.payload, got, c.want)
			}
		}
	}
	_, _ = p.publish("subway/td-01/response", strings.Repeat("x", 5001), 0)
	if code := await(t, "the end", p.dismissed); code != 0x95 {
		t.Errorf("dismissed with %#x", code)
	}
	if reason := await(t, "the end", d.closed); reason != "1009" {
		t.Errorf("closed for %s", reason)
	}
}

// TestRefused is what the edge does not let in; it gets no further.
func TestRefused(t *testing.T) {
	for word, code := range map[string]byte{"FORBIDDEN": 0x87, "OVERLOADED": 0x89} {
		t.Run(word, func(t *testing.T) {
			d, _, address := start(t, Options{})
			no := fmt.Sprintf(`{"type":"ERROR","code":%q,"message":"no"}`, word)
			d.refuse.Store(&no)
			p, _ := connect(t, address, "td-01")
			if got := await(t, "the end", p.dismissed); got != code {
				t.Errorf("dismissed with %#x", got)
			}
			await(t, "the end", d.closed)
		})
	}
}

// TestSilence ends a device that keeps its connection and says nothing, and its will is
// told; a client that never says who it is gets no answer.
func TestSilence(t *testing.T) {
	d, _, address := start(t, Options{KeepAlive: time.Second, RegisterTimeout: 50 * time.Millisecond})
	mute, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	_ = mute.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(mute); err != nil || len(b) > 0 {
		t.Errorf("who says nothing got %q, %v", b, err)
	}
	sock, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	hello := packets.NewControlPacket(packets.CONNECT)
	c := hello.Content.(*packets.Connect)
	c.ProtocolName, c.ProtocolVersion, c.ClientID, c.CleanStart = "MQTT", 5, "td-01", true
	c.WillFlag, c.WillTopic, c.WillMessage, c.WillProperties = true, "subway/td-01/status", []byte(`{"online":false}`), &packets.Properties{}
	if _, err := hello.WriteTo(sock); err != nil {
		t.Fatal(err)
	}
	d.hears(t, `"REGISTER"`)
	d.hears(t, `{"online":false}`)
	if reason := await(t, "the end", d.closed); reason != "lost" {
		t.Errorf("closed for %s", reason)
	}
}

// TestBlocked takes over from a device that neither reads nor goes, without being held up.
func TestBlocked(t *testing.T) {
	d, _, address := start(t, Options{CloseTimeout: 50 * time.Millisecond})
	sock, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	_ = sock.(*net.TCPConn).SetReadBuffer(4 << 10)
	hello := packets.NewControlPacket(packets.CONNECT)
	c := hello.Content.(*packets.Connect)
	c.ProtocolName, c.ProtocolVersion, c.ClientID, c.CleanStart = "MQTT", 5, "td-01", true
	_, _ = hello.WriteTo(sock)
	sub := packets.NewControlPacket(packets.SUBSCRIBE)
	s5 := sub.Content.(*packets.Subscribe)
	s5.PacketID, s5.Subscriptions = 1, []packets.SubOptions{{Topic: commandTopic("td-01"), QoS: 0}}
	if _, err := sub.WriteTo(sock); err != nil {
		t.Fatal(err)
	}
	s := await(t, "a session", d.opened)
	msg := strings.Repeat("x", 1<<20)
	stuck := time.NewTimer(200 * time.Millisecond)
	defer stuck.Stop()
	for blocked := false; !blocked; { // until the kernel takes no more for it
		switch s.c.Append(wire.ClassCommand, []byte(msg), nil, nil) {
		case wire.Accepted:
		case wire.Full:
			stuck.Reset(200 * time.Millisecond)
			select {
			case <-d.writable:
			case <-stuck.C:
				blocked = true
			}
		}
	}
	began := time.Now()
	connect(t, address, "td-01")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the takeover took %v", took)
	}
	if reason := await(t, "the end", d.closed); reason != "4409" {
		t.Errorf("closed for %s", reason)
	}
}

// TestCrowd closes who is too many, and all at the end, telling why.
func TestCrowd(t *testing.T) {
	d, a, address := start(t, Options{MaxConnections: 2, RegisterTimeout: time.Hour})
	p, _ := connect(t, address, "td-01")
	s := await(t, "a session", d.opened)
	mute, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	sock, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	_ = sock.SetReadDeadline(time.Now().Add(patience))
	if _, err := sock.Read(make([]byte, 1)); err == nil {
		t.Error("the third got an answer")
	}
	began := time.Now()
	if err := a.Shutdown(context.Background()); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("the end took %v: %v", time.Since(began), err)
	}
	if code := await(t, "the end", p.dismissed); code != 0x8b {
		t.Errorf("dismissed with %#x", code)
	}
	if reason := await(t, "the end", d.closed); reason != "1001" {
		t.Errorf("closed for %s", reason)
	}
	if r := s.c.Append(wire.ClassCommand, nil, nil, nil); r != wire.Gone {
		t.Errorf("a command after the end: %v", r)
	}
	s.c.CloseWith(wire.CloseNormal, "")
}

// TestUnsubscribe stops the commands and not the device.
func TestUnsubscribe(t *testing.T) {
	d, _, address := start(t, Options{})
	p, _ := connect(t, address, "td-01")
	s := await(t, "a session", d.opened)
	p.subscribe(t, "td-01", 1)
	s.command(t, "{}")
	await(t, "a command", p.got)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := p.Unsubscribe(ctx, &paho.Unsubscribe{Topics: []string{commandTopic("td-01")}}); err != nil {
		t.Fatal(err)
	}
	if r := s.c.Append(wire.ClassCommand, []byte("{}"), nil, nil); r != wire.Full {
		t.Errorf("after UNSUBSCRIBE: %v", r)
	}
	p.subscribe(t, "td-01", 0)
	s.command(t, `{"again":true}`)
	if got := await(t, "a command", p.got); string(got.Payload) != `{"again":true}` || got.QoS != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAddress(t *testing.T) {
	if _, err := New("nonsense"); err == nil {
		t.Error("an address without a port passes")
	}
	_, _, taken := start(t, Options{})
	a, err := New(taken)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Start(nil); err == nil {
		t.Error("an address that is taken passes")
	}
	if err := a.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// FuzzMessage makes messages of payloads, which hold all that was in them.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{`{}`, ` { } `, `{"a":1}`, `{"type":null}`, `{"type":"X"}`, `{"status":{}}`, `{"status":{},"clientId":"x"}`, `[]`, `{"a":"}"}`, "{\"a\":1}\n", ``, `{`} {
		for k := range 4 {
			f.Add(seed, k)
		}
	}
	var s shaper
	var env wire.Envelope
	f.Fuzz(func(t *testing.T, payload string, k int) {
		got := s.message(kind(1+uint(k)%4), "td-01", []byte(payload))
		_ = env.Scan([]byte(payload), wire.DefaultMaxDepth-1) // a status is wrapped once
		if env.Close() == 0 || env.Has(wire.MemberType) {
			if env.Has(wire.MemberType) && string(got) != payload {
				t.Fatalf("%q became %q", payload, got)
			}
			return
		}
		inside := strings.TrimRight(strings.TrimSpace(payload), "}")
		if !bytes.Contains(got, []byte(inside)) {
			t.Fatalf("%q became %q", payload, got)
		}
		_ = env.Scan(got, wire.DefaultMaxDepth)
		if env.Close() == 0 || !env.Has(wire.MemberType) {
			t.Fatalf("%q became %q", payload, got)
		}
	})
}

// BenchmarkCommand hands commands of 200 bytes to a device that acknowledges them.
func BenchmarkCommand(b *testing.B) {
	d, _, address := start(b, Options{})
	p, _ := connect(b, address, "td-01")
	s := await(b, "a session", d.opened)
	p.subscribe(b, "td-01", 1)
	msg := `{"type":"COMMAND","x":"` + strings.Repeat("x", 175) + `"}`
	got := make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		defer close(got)
		for range b.N {
			<-p.got
		}
	}()
	for range b.N {
		s.command(b, msg)
	}
	<-got
}

// TestShape allocates nothing for messages that have a type.
func TestShape(t *testing.T) {
	var s shaper
	msg := []byte(`{"type":"COMMAND_RESPONSE","requestRef":"r1","status":"COMPLETED","result":{"brightness":80}}`)
	bare := []byte(`{"requestRef":"r1","status":"COMPLETED","result":{"brightness":80}}`)
	if n := testing.AllocsPerRun(1000, func() {
		if !bytes.Equal(s.message(kindResponse, "td-01", msg), msg) || len(s.message(kindResponse, "td-01", bare)) != len(msg) {
			t.Fatal("not what it should be")
		}
		s.shrink()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
