package drive

import (
	"bytes"
	"fmt"
	"net/netip"
)

// backend is one command source over WebSocket.
type backend struct {
	run     *run
	number  int
	conn    *conn
	ref     []byte   // its refs' pattern, patched per command
	command template // a frame
	expect  template // the response, as its edges send it
}

// edge answers every command at once, for all its devices.
type edge struct {
	run      *run
	number   int
	conn     *conn
	command  template // what comes in, when it comes as it was sent
	response template // a frame
}

func (r *run) floor() bool { return r.cfg.Proto == ProtoFloor }

// greeting registers a party, or announces it to the floor.
func (r *run) greeting(role byte, number int, register []byte) greeting {
	if r.floor() {
		return announcement(fmt.Appendf(nil, "%c%02d", role, number))
	}
	return registration(register)
}

func (r *run) connectEdges() error {
	for i := range r.cfg.Edges {
		p, err := dialWebSocket(r.cfg.Addr, netip.Addr{}, r.greeting('E', i, edgeRegister(i, r.cfg.Devices)))
		if err != nil {
			return fmt.Errorf("edge %d: %w", i, err)
		}
		e := &edge{
			run: r, number: i,
			command:  newTemplate(commandText(r.floor(), r.payload)),
			response: newTemplate(responseText(r.floor(), r.payload)).framed(),
		}
		if e.conn, err = r.loop.add(p.fd, framing{e}, p.in); err != nil {
			return err
		}
		r.edges = append(r.edges, e)
	}
	return nil
}

// edgeRegister is the REGISTER of an edge with its complete set of devices.
func edgeRegister(number, devices int) []byte {
	register := fmt.Appendf(nil, `{"type":"REGISTER","clientId":"edge-%02d","clientType":"EDGE","capabilities":["dedupe"],`+
		`"version":"1.0","devices":[`, number)
	id := []byte(targetPattern)
	for d := range devices {
		if d > 0 {
			register = append(register, ',')
		}
		putTarget(id, number, d)
		register = fmt.Appendf(register, "%q", id)
	}
	return append(register, "]}"...)
}

func (r *run) connectBackends() error {
	for i := range r.cfg.Backends {
		register := fmt.Appendf(nil, `{"type":"REGISTER","clientId":"backend-%02d","clientType":"BACKEND","version":"1.0"}`, i)
		p, err := dialWebSocket(r.cfg.Addr, netip.Addr{}, r.greeting('B', i, register))
		if err != nil {
			return fmt.Errorf("backend %d: %w", i, err)
		}
		b := &backend{
			run: r, number: i, ref: newRef(r.number, i),
			command: newTemplate(commandText(r.floor(), r.payload)).framed(),
			expect:  newTemplate(responseText(r.floor(), r.payload)),
		}
		if b.conn, err = r.loop.add(p.fd, framing{b}, p.in); err != nil {
			return err
		}
		r.sources = append(r.sources, b)
	}
	return nil
}

// issue implements source.
func (b *backend) issue(slot int, sequence uint64) {
	toEdge, device := b.run.pick()
	putRef(b.ref, slot, sequence)
	b.command.setRef(b.ref)
	putTarget(b.command.bytes[b.command.targetAt:], toEdge, device)
	b.command.setRoute(toEdge, b.number)
	b.conn.out = append(b.conn.out, b.command.bytes...)
	b.conn.send()
}

// message implements messageReader: responses, and the notices every Backend gets.
func (b *backend) message(_ *conn, msg []byte) error {
	r := b.run
	ref := b.expect.findRef(msg)
	if ref == nil {
		if !bytes.Contains(msg, []byte(`_STATUS"`)) {
			r.result.Unexpected++
			r.note(msg)
		}
		return nil
	}
	slot, sequence, ok := cutRef(ref, b.ref)
	if !ok {
		r.result.Stray++
		r.note(msg)
		return nil
	}
	completed := true
	switch {
	case b.expect.matches(msg):
	case bytes.Contains(msg, []byte(`"type":"ERROR"`)):
		completed = false
		r.answered++ // by nobody, but nothing is to be waited for
		r.note(msg)
	default:
		r.result.Corrupt++
		r.note(msg)
	}
	r.settle(b.number, slot, sequence, completed)
	return nil
}

// message implements messageReader: every COMMAND gets its COMMAND_RESPONSE.
func (e *edge) message(_ *conn, msg []byte) error {
	r := e.run
	ref := e.command.findRef(msg)
	if ref == nil && r.acksDue > 0 && bytes.Contains(msg, []byte(`"REGISTER_ACK"`)) {
		r.acksDue--
		return nil
	}
	if len(ref) != refSize || bytes.Contains(msg[:min(len(msg), 40)], []byte(`"ERROR"`)) {
		r.result.Unexpected++
		r.note(msg)
		return nil
	}
	if !e.intact(msg) {
		r.result.Corrupt++
		r.note(msg)
	}
	e.response.setRef(ref)
	if e.response.routeAt >= 0 {
		copy(e.response.bytes[e.response.routeAt:], msg[:len(routePattern)])
	}
	e.conn.out = append(e.conn.out, e.response.bytes...)
	e.conn.send()
	r.answered++
	r.release()
	r.lastAlive = r.loop.now
	return nil
}

// intact reports whether a command is for this edge and carries the bytes that were sent. Over WebSocket they must be the
// message as it came, to which a gateway may add members at the end; over HTTP the gateway makes the message.
func (e *edge) intact(msg []byte) bool {
	at, sent := e.command.targetAt, e.command.bytes
	rest := sent[at+targetSize : len(sent)-1]
	if !e.run.cfg.HTTP {
		return len(msg) >= len(sent) && e.owns(msg[at:]) && bytes.HasPrefix(msg[at+targetSize:], rest)
	}
	at = bytes.Index(msg, []byte(`"td-`)) + 1
	return at > 0 && len(msg) >= at+targetSize && e.owns(msg[at:]) && bytes.Contains(msg, e.run.payload)
}

func (e *edge) owns(id []byte) bool {
	number, ok := digits(id[3:5])
	return ok && int(number) == e.number
}
