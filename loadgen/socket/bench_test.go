package socket

import (
	"io"
	"net"
	"testing"
)

// conversation is a connection to an echo whose messages go round, window of them at a
// time. Its round is made once: what is measured is the engine.
type conversation struct {
	c    *Conn
	msg  []byte
	left int // loop only: messages to come
	send int // loop only: messages to send
	done chan struct{}
	turn func()
}

func converse(t testing.TB, size, window int) *conversation {
	e := start(t, Options{})
	s := listen(t, upgrade(echo))
	v := &conversation{msg: make([]byte, size), done: make(chan struct{}, 1)}
	p := newParty()
	p.onMessage = func(c *Conn, _ []byte) {
		if v.send > 0 {
			v.send--
			c.Send(v.msg)
		}
		if v.left--; v.left == 0 {
			v.done <- struct{}{}
		}
	}
	v.c = dial(t, e, s.addr, p)
	v.turn = func() {
		for range min(window, v.left) {
			v.send--
			v.c.Send(v.msg)
		}
	}
	return v
}

// round sends n messages and waits for their echoes.
func (v *conversation) round(n int) {
	v.left, v.send = n, n
	if err := v.c.Loop().Do(v.turn); err != nil {
		panic(err)
	}
	<-v.done
}

// monologue sends n messages, per of them in a round, to a server that only reads; it waits
// where the kernel takes no more, as gnet then copies into buffers that it allocates.
func monologue(t testing.TB, size, per int) (send func(n int)) {
	e := start(t, Options{})
	s := listen(t, upgrade(func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	c := dial(t, e, s.addr, newParty())
	msg, done, left := make([]byte, size), make(chan struct{}, 1), 0
	var turn func()
	turn = func() {
		if c.Waiting() == 0 {
			for range min(per, left) {
				left--
				c.Send(msg)
			}
		}
		if left == 0 {
			done <- struct{}{}
			return
		}
		_ = c.Loop().Do(turn)
	}
	return func(n int) {
		left = n
		if err := c.Loop().Do(turn); err != nil {
			panic(err)
		}
		<-done
	}
}

// TestNothingIsAllocated counts all allocations of the process, the server's half too.
func TestNothingIsAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, size := range []int{16, 300, 20_000} {
		v := converse(t, size, 8)
		v.round(1000)
		if per := testing.AllocsPerRun(20, func() { v.round(1000) }) / 1000; per >= 0.01 {
			t.Errorf("%d bytes: %v allocations for each message that went round", size, per)
		}
		send := monologue(t, size, 16)
		send(1000)
		if per := testing.AllocsPerRun(20, func() { send(1000) }) / 1000; per >= 0.01 {
			t.Errorf("%d bytes: %v allocations for each message sent", size, per)
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	for name, c := range map[string]struct{ size, window int }{
		"256B/window=1": {256, 1}, "256B/window=64": {256, 64}, "16KiB/window=8": {16 << 10, 8},
	} {
		b.Run(name, func(b *testing.B) {
			v := converse(b, c.size, c.window)
			v.round(1000)
			b.ReportAllocs()
			b.ResetTimer()
			v.round(b.N)
		})
	}
}

func BenchmarkSend(b *testing.B) {
	for name, c := range map[string]struct{ size, per int }{
		"256B/round=1": {256, 1}, "256B/round=64": {256, 64},
	} {
		b.Run(name, func(b *testing.B) {
			send := monologue(b, c.size, c.per)
			send(1000)
			b.ReportAllocs()
			b.ResetTimer()
			send(b.N)
		})
	}
}
