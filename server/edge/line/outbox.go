package line

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"

	"subway/core/wire"
)

// outbox holds the lines that wait to be sent. Its methods may be called from any
// goroutine and do not block; one goroutine takes.
type outbox struct {
	mu     sync.Mutex
	buf    []byte // guarded by mu, as all below
	spare  []byte
	max    int
	under  int    // bytes that were taken and are being written
	full   bool   // a command was refused: tell when there is room
	closed bool   // nothing more is taken in
	why    string // the reason of seal

	wake chan struct{} // capacity 1
}

const keepOutbox = 64 << 10 // the largest buffer that is kept when all was sent

func (o *outbox) init(max int) { o.max, o.wake = max, make(chan struct{}, 1) }

// append takes a line in, by the rules of its class (core/wire, Class). It allocates only
// while the buffer grows.
func (o *outbox) append(class wire.Class, a, b, c []byte) wire.Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return wire.Gone
	}
	waits := len(o.buf) + o.under
	switch {
	case class == wire.ClassCommand && waits > maxCommands:
		o.full = true
		return wire.Full
	case class == wire.ClassStatus && waits > maxStatus:
		return wire.Dropped
	case waits > 0 && waits+len(a)+len(b)+len(c)+1 > o.max:
		return wire.Full
	}
	begin := len(o.buf)
	o.buf = append(append(append(o.buf, a...), b...), c...)
	oneLine(o.buf[begin:])
	o.buf = append(o.buf, '\n')
	o.signal()
	return wire.Accepted
}

// oneLine makes space of line ends: within a JSON text they can be nothing else.
func oneLine(b []byte) {
	for _, end := range [2]byte{'\n', '\r'} {
		rest := b
		for i := bytes.IndexByte(rest, end); i >= 0; i = bytes.IndexByte(rest, end) {
			rest[i] = ' '
			rest = rest[i:]
		}
	}
}

// seal appends the line that says why the connection ends, as the last; it reports false
// if there was one already.
func (o *outbox) seal(code uint16, reason string, now wire.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.closed, o.why = true, strconv.Itoa(int(code))
	if code != wire.CloseNormal {
		details := append([]byte(`{"closeCode":`), o.why...)
		o.buf = append(wire.AppendError(o.buf, wordOf(code).String(), reason, append(details, '}'), nil, now), '\n')
	}
	o.signal()
	return true
}

// wordOf returns the error code that says what a close code says.
func wordOf(code uint16) wire.Code {
	switch code {
	case wire.CloseGoingAway:
		return wire.CodeGatewayUnavailable
	case wire.CloseTryAgain:
		return wire.CodeOverloaded
	case closeTooBig:
		return wire.CodePayloadTooLarge
	case wire.CloseInvalid:
		return wire.CodeInvalidMessage
	case wire.CloseUnregistered:
		return wire.CodeNotRegistered
	case wire.CloseUnauthorized:
		return wire.CodeUnauthorized
	case wire.CloseVersion:
		return wire.CodeUnsupportedVersion
	case wire.CloseTooSlow:
		return wire.CodeRateLimited
	case wire.CloseSilent:
		return wire.CodeConnectionLost
	}
	return wire.CodeForbidden
}

// drop throws away what waits: the connection is lost.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.buf, o.spare = true, nil, nil
	o.signal()
}

func (o *outbox) sealed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// reason names why the connection ended.
func (o *outbox) reason(err error) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.why != "":
		return o.why
	case errors.Is(err, io.EOF):
		return "peer closed"
	}
	return "lost"
}

// take returns what waits; last says that nothing will follow. The bytes are the caller's
// until it gives them back.
func (o *outbox) take() (b []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, o.buf, o.spare = o.buf, o.spare, nil
	o.under = len(b)
	return b, o.closed
}

// giveBack says that what was taken was written; it reports whether somebody waits for
// room and has it.
func (o *outbox) giveBack(b []byte) (room bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.under = 0
	if cap(b) <= keepOutbox && o.spare == nil {
		o.spare = b[:0]
	}
	room = o.full && len(o.buf) <= maxCommands && !o.closed
	if room {
		o.full = false
	}
	return room
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
