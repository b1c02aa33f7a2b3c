package mqtt

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"subway/core/wire"
	"subway/server/edge/local"
)

// owners is an edge that a test plays: it knows which connection is whose, as the real
// one does, and counts the devices that left.
type owners struct {
	mu    sync.Mutex
	owner *owned // guarded by mu, as all below
	left  int
}

type owned struct {
	o      *owners
	c      local.Conn
	remote string
	reg    bool
}

func (o *owners) Now() wire.Time { return wire.Time(time.Now().UnixNano()) }

func (o *owners) Open(c local.Conn, remote string, _ wire.Time) local.Session {
	return &owned{o: o, c: c, remote: remote}
}

func (s *owned) Receive(msg []byte, _ wire.Time) {
	if !strings.Contains(string(msg), `"REGISTER"`) {
		return
	}
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.reg = true
	if old := s.o.owner; old != nil {
		old.c.CloseWith(wire.CloseSuperseded, "superseded")
	}
	s.o.owner = s
}

func (s *owned) Closed(wire.Time, string) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.o.owner == s {
		s.o.owner = nil
		s.o.left++
	}
}

func (s *owned) Invalid(wire.Time)  {}
func (s *owned) Writable(wire.Time) {}
func (s *owned) Registered() bool   { return s.reg }

// until polls a condition.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !f(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// hello sends a CONNECT of td-01 over a socket of its own.
func hello(t testing.TB, address string, version byte, keep uint16) net.Conn {
	t.Helper()
	sock, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sock.Close() })
	if version == 4 {
		_, err = sock.Write([]byte("\x10\x11\x00\x04MQTT\x04\x02" + string([]byte{byte(keep >> 8), byte(keep)}) + "\x00\x05td-01"))
	} else {
		p := packets.NewControlPacket(packets.CONNECT)
		c := p.Content.(*packets.Connect)
		c.ProtocolName, c.ProtocolVersion, c.ClientID, c.CleanStart, c.KeepAlive = "MQTT", 5, "td-01", true, keep
		_, err = p.WriteTo(sock)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sock
}

// TestTakeoverWithoutGap lets clients of both versions take over from each other: the
// device never leaves, and the newest has it.
func TestTakeoverWithoutGap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	o := &owners{}
	a, address := startAt(t, Options{}, o)
	const takeovers = 120
	last := ""
	for i := range takeovers + 1 {
		sock := hello(t, address, 4+byte(rnd.IntN(2)), 30)
		last = sock.LocalAddr().String()
		_ = sock.SetReadDeadline(time.Now().Add(patience))
		if _, err := sock.Read(make([]byte, 1)); err != nil { // the CONNACK: now this is the newest
			t.Fatal(err)
		}
		if rnd.IntN(4) > 0 || i == takeovers { // or the next one comes before it has registered
			until(t, "a registration", func() bool {
				o.mu.Lock()
				defer o.mu.Unlock()
				return o.owner != nil && o.owner.remote == last
			})
		}
	}
	until(t, "the older ones' end", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.conns) == 1
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left > 0 {
		t.Errorf("the device left %d times in %d takeovers", o.left, takeovers)
	}
	if o.owner == nil || o.owner.remote != last {
		t.Errorf("the device is %+v's, want %s's", o.owner, last)
	}
}
