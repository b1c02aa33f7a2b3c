package drive

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// caller posts commands over one keep-alive connection, one at a time.
type caller struct {
	run     *run
	number  int
	conn    *conn
	ref     []byte
	request template
	slot    int // the request on its way
	count   uint64

	wantsCallback bool // each request asks for one
	calledBack    bool // the callback of the request on its way has come
	accepted      bool // its answer has come
}

func (r *run) connectHTTP() error {
	request := r.postRequest("")
	for i := range r.cfg.Backends {
		p, err := dial(r.cfg.Addr, netip.Addr{})
		if err != nil {
			return err
		}
		h := &caller{run: r, number: i, ref: newRef(r.number, i), request: newTemplate(request)}
		if h.conn, err = r.loop.add(p.fd, h, nil); err != nil {
			return err
		}
		r.sources = append(r.sources, h)
	}
	return nil
}

// postRequest returns the request of a command with more members (each with a comma before it).
func (r *run) postRequest(more string) []byte {
	body := fmt.Sprintf(`{"target_client_id":"%s","command":{"commandType":"SHOW","data":%s},"request_ref":"%s"%s}`,
		targetPattern, r.payload, refPattern, more)
	path := "/api/commands"
	if r.cfg.Wait > 0 {
		path += "?wait=" + strconv.FormatInt(r.cfg.Wait.Milliseconds(), 10)
	}
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, r.cfg.Addr, len(body), body)
}

// issue implements source.
func (h *caller) issue(slot int, sequence uint64) {
	toEdge, device := h.run.pick()
	h.slot, h.count = slot, sequence
	h.accepted, h.calledBack = false, !h.wantsCallback
	putRef(h.ref, slot, sequence)
	h.request.setRef(h.ref)
	putTarget(h.request.bytes[h.request.targetAt:], toEdge, device)
	h.conn.out = append(h.conn.out, h.request.bytes...)
	h.conn.send()
}

// read implements reader: one answer with a Content-Length, as the gateway's all are here.
func (h *caller) read(_ *conn, b []byte) (int, error) {
	head, body, size, err := cutAnswer(b)
	if size > 0 {
		h.answer(head, body)
	}
	return size, err
}

// cutAnswer returns head and body of the HTTP message with a Content-Length at the start of b, and its size in all, 0 when it is
// not complete.
func cutAnswer(b []byte) (head, body []byte, size int, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, nil, 0, nil
	}
	head = b[:end+2]
	n, err := contentLength(head)
	if err != nil || len(b) < end+4+n {
		return nil, nil, 0, err
	}
	return head, b[end+4 : end+4+n], end + 4 + n, nil
}

func (h *caller) answer(head, body []byte) {
	r := h.run
	completed := bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) && bytes.Contains(body, h.ref)
	if r.cfg.Wait > 0 {
		completed = completed && bytes.Contains(body, []byte(`"COMPLETED"`)) && bytes.Contains(body, r.payload)
	}
	if !completed {
		r.answered++
		r.note(body)
	}
	h.accepted = true
	if h.calledBack || !completed {
		r.settle(h.number, h.slot, h.count, completed)
	}
}

// contentLength finds the header in a head whose lines all end in CRLF.
func contentLength(head []byte) (int, error) {
	const name = "content-length:"
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\r\n"))
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			n, err := strconv.Atoi(string(bytes.TrimSpace(line[len(name):])))
			if err != nil || n < 0 || n > messageMax {
				return 0, fmt.Errorf("answer with %q", line)
			}
			return n, nil
		}
		head = rest
	}
	return 0, errors.New("an answer without Content-Length")
}
