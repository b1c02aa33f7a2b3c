package drive

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
)

const (
	batchSizeMax = 1000 // PROTOCOL.md section 6: commands in one batch
	lengthWidth  = 9    // digits of a batch's Content-Length, filled up with spaces
)

// batcher posts commands in batches over one keep-alive connection, one batch at a time: commands that are issued gather until
// there are as many as a batch holds, and the answer settles them all.
type batcher struct {
	run      *run
	number   int
	conn     *conn
	ref      []byte
	item     template
	head     []byte // up to the empty line; Content-Length is patched
	lengthAt int
	body     []byte
	gathered []ticket
	held     bool     // in run.heldBack
	sent     []ticket // the batch on its way
}

// ticket is a slot and its sequence number: what a ref is made of.
type ticket struct {
	slot     int
	sequence uint64
}

const batchOpening = `{"commands":[`

func (r *run) connectBatchers() error {
	for i := range r.cfg.Backends {
		p, err := dial(r.cfg.Addr, netip.Addr{})
		if err != nil {
			return err
		}
		h := newBatcher(r, i)
		if h.conn, err = r.loop.add(p.fd, h, nil); err != nil {
			return err
		}
		r.sources = append(r.sources, h)
	}
	return nil
}

func newBatcher(r *run, number int) *batcher {
	h := &batcher{run: r, number: number, ref: newRef(r.number, number), body: []byte(batchOpening)}
	h.item = newTemplate(fmt.Appendf(nil, `{"target_client_id":"%s","command":{"commandType":"SHOW","data":%s},"request_ref":"%s"},`,
		targetPattern, r.payload, refPattern))
	h.head = fmt.Appendf(nil, "POST /api/commands/batch HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %*s\r\n\r\n",
		r.cfg.Addr, lengthWidth, "")
	h.lengthAt = len(h.head) - len("\r\n\r\n") - lengthWidth
	return h
}

// issue implements source.
func (h *batcher) issue(slot int, sequence uint64) {
	toEdge, device := h.run.pick()
	putRef(h.ref, slot, sequence)
	h.item.setRef(h.ref)
	putTarget(h.item.bytes[h.item.targetAt:], toEdge, device)
	h.body = append(h.body, h.item.bytes...)
	h.gathered = append(h.gathered, ticket{slot, sequence})
	if len(h.gathered) == h.run.cfg.Batch {
		h.post()
	}
}

// finish posts what has gathered when no more commands are issued.
func (h *batcher) finish() {
	if len(h.gathered) > 0 && !h.held {
		h.post()
	}
}

// post sends what has gathered, once the Edges keep up: a Gateway accepts faster than they answer, and would have to refuse
// what waits for them beyond its bound.
func (h *batcher) post() {
	r := h.run
	if r.issued-r.answered > int64(2*r.cfg.Backends*r.cfg.Batch) { // half of them may have yet to be sent
		h.held = true
		r.heldBack = append(r.heldBack, h)
		return
	}
	h.send()
}

// release lets a batch go that was held back, when an Edge has answered.
func (r *run) release() {
	if n := len(r.heldBack); n > 0 {
		h := r.heldBack[n-1]
		r.heldBack = r.heldBack[:n-1]
		h.held = false
		h.post()
	}
}

func (h *batcher) send() {
	h.body = append(h.body[:len(h.body)-1], "]}"...) // for the last comma
	length := h.head[h.lengthAt : h.lengthAt+lengthWidth]
	copy(length, "         ")
	digits := strconv.AppendInt(nil, int64(len(h.body)), 10)
	copy(length[lengthWidth-len(digits):], digits)
	h.conn.out = append(append(h.conn.out, h.head...), h.body...)
	h.conn.send()
	h.sent, h.gathered = h.gathered, h.sent[:0]
	h.body = append(h.body[:0], batchOpening...)
}

// read implements reader.
func (h *batcher) read(_ *conn, b []byte) (int, error) {
	head, body, size, err := cutAnswer(b)
	if size > 0 {
		h.answer(head, body)
	}
	return size, err
}

// answer settles the batch. Its results must be all accepted, with the refs in the order they were sent.
func (h *batcher) answer(head, body []byte) {
	r := h.run
	sent := h.sent
	h.sent = nil // settling issues the next
	accepted := bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) && bytes.Contains(body, fmt.Appendf(nil, `"accepted":%d`, len(sent)))
	rest := body
	for _, t := range sent {
		ref := h.item.findRef(rest)
		slot, sequence, ok := cutRef(ref, h.ref)
		if ok {
			at := bytes.Index(rest, ref)
			rest = rest[at+len(ref):]
		}
		completed := accepted && ok && slot == t.slot && sequence == t.sequence
		if !completed {
			r.answered++ // it may not have reached an edge; the run is wrong already
			r.note(body)
		}
		r.settle(h.number, t.slot, t.sequence, completed)
	}
}
