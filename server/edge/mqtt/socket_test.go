package mqtt

import (
	"io"
	"testing"
	"time"
)

// TestKeepAlive lets a client be silent for one and a half of it, also where that is no
// whole number of seconds (MQTT-3.1.2-22), and where it is the adapter's and not its own.
func TestKeepAlive(t *testing.T) {
	for name, c := range map[string]struct {
		version byte
		keep    uint16
		longest time.Duration
		want    time.Duration
	}{
		"1 s":         {5, 1, 0, 1500 * time.Millisecond},
		"3 s":         {4, 3, 0, 4500 * time.Millisecond},
		"none":        {4, 0, time.Second, 1500 * time.Millisecond},
		"a long one":  {5, 600, time.Second, 1500 * time.Millisecond},
		"a short one": {5, 1, 3 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _, address := start(t, Options{KeepAlive: c.longest})
			sock := hello(t, address, c.version, c.keep)
			began := time.Now() // the broker counts from when it has read the CONNECT
			_ = sock.SetReadDeadline(began.Add(patience))
			if _, err := io.Copy(io.Discard, sock); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if took < c.want-20*time.Millisecond || took > c.want+400*time.Millisecond {
				t.Errorf("closed after %v, want %v", took, c.want)
			}
			if reason := await(t, "the end", d.closed); reason != "lost" {
				t.Errorf("closed for %s", reason)
			}
		})
	}
}

// TestKeepAliveIsRenewed with each packet.
func TestKeepAliveIsRenewed(t *testing.T) {
	t.Parallel()
	_, _, address := start(t, Options{})
	sock := hello(t, address, 4, 1)
	_ = sock.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(sock, make([]byte, 4)); err != nil { // CONNACK
		t.Fatal(err)
	}
	tick := time.NewTicker(800 * time.Millisecond)
	defer tick.Stop()
	for range 2 {
		<-tick.C
		if _, err := sock.Write([]byte{0xc0, 0}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(sock, make([]byte, 2)); err != nil { // PINGRESP
			t.Fatal(err)
		}
	}
	last := time.Now()
	_, _ = io.Copy(io.Discard, sock)
	if took := time.Since(last); took < 1450*time.Millisecond || took > 10*time.Second {
		t.Errorf("closed %v after the last packet", took)
	}
}
