package mqtt

import (
	"net"
	"time"
)

// socket is a client's connection as the broker sees it. The broker sets a deadline for
// its keep-alive only, and rounds one and a half of it down to whole seconds.
type socket struct {
	net.Conn
	keep time.Duration // the keep-alive; written before the broker sets its first deadline, and used by the goroutine that reads from the client only
}

// SetDeadline lets the client be silent for one and a half of its keep-alive from now
// (MQTT-3.1.2-22), whatever the broker makes of it. Deadlines of this package's own are
// set on the Conn within.
func (s *socket) SetDeadline(t time.Time) error {
	if s.keep > 0 {
		t = time.Now().Add(s.keep * 3 / 2)
	}
	return s.Conn.SetDeadline(t)
}

// cutOff fails what is read and written after a time, whatever the keep-alive.
func cutOff(conn net.Conn, after time.Duration) {
	if s, ok := conn.(*socket); ok {
		conn = s.Conn
	}
	_ = conn.SetDeadline(time.Now().Add(after))
}
