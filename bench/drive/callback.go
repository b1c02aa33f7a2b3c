package drive

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// receiver takes callbacks in the driver's own loop and answers each at once: a receiver that is never the bottleneck. A command
// of the caller is settled when both its answer and its callback have come.
type receiver struct {
	run *run
	fd  int
	url string
}

// receiverConns bounds the connections that the server may open.
const receiverConns = 4096

var received = []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

// startCallbacks opens the receiver's port and has every caller ask for a callback from now on.
func (r *run) startCallbacks() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	v := &receiver{run: r, fd: fd}
	c, err := r.loop.add(fd, v, nil) // the loop closes it
	if err != nil {
		unix.Close(fd)
		return err
	}
	c.ready = v.accept
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1024)); err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	v.url = fmt.Sprintf("http://127.0.0.1:%d/callback", at.(*unix.SockaddrInet4).Port)
	for _, s := range r.sources {
		h := s.(*caller)
		h.wantsCallback = true
		h.request = newTemplate(r.postRequest(fmt.Sprintf(`,"callback_url":%q`, v.url)))
	}
	return nil
}

// accept takes one connection; epoll tells of the next again.
func (v *receiver) accept() error {
	fd, _, err := unix.Accept4(v.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED):
		return nil
	case err != nil:
		return fmt.Errorf("receiver: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if len(v.run.loop.conns) > receiverConns {
		unix.Close(fd)
		return fmt.Errorf("over %d connections to the receiver", receiverConns)
	}
	c, err := v.run.loop.add(fd, v, nil)
	if err != nil {
		unix.Close(fd)
		return err
	}
	c.mayEnd = true
	return nil
}

// read implements reader: one callback with a Content-Length.
func (v *receiver) read(c *conn, b []byte) (int, error) {
	head, body, size, err := cutAnswer(b)
	if size > 0 {
		v.callback(head, body)
		c.out = append(c.out, received...)
		c.send()
	}
	return size, err
}

func (v *receiver) callback(head, body []byte) {
	r := v.run
	ref := template{refAt: len(body) + 1}.findRef(body)
	var number uint64
	ok := len(ref) == refSize
	if ok {
		number, ok = digits(ref[refSourceAt : refSourceAt+3])
	}
	if !ok || int(number) >= len(r.sources) {
		r.result.Stray++
		r.note(body)
		return
	}
	h := r.sources[number].(*caller)
	slot, sequence, ok := cutRef(ref, h.ref)
	if !ok || slot != h.slot || sequence != h.count || h.calledBack {
		r.result.Stray++ // of no open command, or the second one
		r.note(body)
		return
	}
	if !bytes.HasPrefix(head, []byte("POST /callback ")) || !bytes.Contains(body, []byte(`"COMPLETED"`)) || !bytes.Contains(body, r.payload) {
		r.result.Corrupt++
		r.note(body)
	}
	h.calledBack = true
	r.lastAlive = r.loop.now
	if h.accepted {
		r.settle(h.number, h.slot, h.count, true)
	}
}
