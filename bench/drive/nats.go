package drive

import (
	"bytes"
	"fmt"
	"net/netip"
)

// NATS request/reply in the same loop, so that the servers are all that differs: sources publish to a device's subject with a
// reply subject of their own inbox, edges subscribe to each of their devices and publish the payload to the reply subject. Only
// what that needs of the text protocol is here (INFO, CONNECT, SUB, PUB, MSG, PING, PONG).

const (
	natsSubject = "dev.00.0000"
	natsInbox   = "_R.000.00000.0000000000" // source, slot, sequence
)

type natsSource struct {
	run    *run
	number int
	conn   *conn
	frame  []byte // PUB subject inbox size payload
	inbox  int    // where the inbox stands in it
	edgeAt int
}

type natsEdge struct {
	run    *run
	number int
	conn   *conn
	frame  []byte // PUB inbox size payload
}

// dialNATS connects and subscribes; the PONG says that the server knows it all.
func (r *run) dialNATS(subscribe []byte) (*plainConn, error) {
	p, err := dial(r.cfg.Addr, netip.Addr{})
	if err != nil {
		return nil, err
	}
	if _, err := p.until("\r\n"); err != nil {
		return nil, err
	}
	hello := append([]byte("CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"go\",\"protocol\":1}\r\n"), subscribe...)
	if err := p.write(append(hello, "PING\r\n"...)); err != nil {
		return nil, err
	}
	if answer, err := p.until("\r\n"); err != nil || string(answer) != "PONG\r\n" {
		return nil, fmt.Errorf("NATS said %q: %w", answer, err)
	}
	return p, nil
}

func (r *run) connectNATS() error {
	for i := range r.cfg.Edges {
		var subscribe []byte
		for d := range r.cfg.Devices {
			subscribe = fmt.Appendf(subscribe, "SUB dev.%02d.%04d %d\r\n", i, d, d+1)
		}
		p, err := r.dialNATS(subscribe)
		if err != nil {
			return fmt.Errorf("edge %d: %w", i, err)
		}
		e := &natsEdge{run: r, number: i, frame: fmt.Appendf(nil, "PUB %s %d\r\n%s\r\n", natsInbox, len(r.payload), r.payload)}
		if e.conn, err = r.loop.add(p.fd, natsReader{e.message}, p.in); err != nil {
			return err
		}
	}
	for i := range r.cfg.Backends {
		p, err := r.dialNATS(fmt.Appendf(nil, "SUB _R.%03d.*.* 1\r\n", i))
		if err != nil {
			return fmt.Errorf("requester %d: %w", i, err)
		}
		s := &natsSource{run: r, number: i, frame: fmt.Appendf(nil, "PUB %s %s %d\r\n%s\r\n", natsSubject, natsInbox, len(r.payload), r.payload)}
		s.edgeAt = len("PUB dev.")
		s.inbox = len("PUB ") + len(natsSubject) + 1
		putDigits(s.frame[s.inbox+3:s.inbox+6], uint64(i))
		if s.conn, err = r.loop.add(p.fd, natsReader{s.message}, p.in); err != nil {
			return err
		}
		r.sources = append(r.sources, s)
	}
	return nil
}

// issue implements source.
func (s *natsSource) issue(slot int, sequence uint64) {
	toEdge, device := s.run.pick()
	putDigits(s.frame[s.edgeAt:s.edgeAt+2], uint64(toEdge))
	putDigits(s.frame[s.edgeAt+3:s.edgeAt+7], uint64(device))
	putDigits(s.frame[s.inbox+7:s.inbox+12], uint64(slot))
	putDigits(s.frame[s.inbox+13:s.inbox+23], sequence)
	s.conn.out = append(s.conn.out, s.frame...)
	s.conn.send()
}

func (s *natsSource) message(subject, _, payload []byte) {
	r := s.run
	if len(subject) != len(natsInbox) {
		r.result.Stray++
		r.note(subject)
		return
	}
	owner, ok1 := digits(subject[3:6])
	slot, ok2 := digits(subject[7:12])
	sequence, ok3 := digits(subject[13:23])
	if !ok1 || !ok2 || !ok3 || int(owner) != s.number {
		r.result.Stray++
		r.note(subject)
		return
	}
	if !bytes.Equal(payload, r.payload) {
		r.result.Corrupt++
		r.note(subject)
	}
	r.settle(s.number, int(slot), sequence, true)
}

func (e *natsEdge) message(_, reply, payload []byte) {
	r := e.run
	if len(reply) != len(natsInbox) || !bytes.Equal(payload, r.payload) {
		r.result.Corrupt++
		r.note(reply)
		return
	}
	copy(e.frame[len("PUB "):], reply)
	e.conn.out = append(e.conn.out, e.frame...)
	e.conn.send()
	r.answered++
	r.lastAlive = r.loop.now
}

// natsReader cuts MSG subject sid [reply] size CRLF payload CRLF.
type natsReader struct {
	message func(subject, reply, payload []byte)
}

func (n natsReader) read(c *conn, b []byte) (int, error) {
	used := 0
	for {
		rest := b[used:]
		end := bytes.IndexByte(rest, '\n')
		if end < 1 {
			return used, nil
		}
		line := rest[:end-1]
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")):
			subject, reply, size, err := natsMessage(line)
			if err != nil {
				return used, err
			}
			if len(rest) < end+1+size+2 {
				return used, nil
			}
			n.message(subject, reply, rest[end+1:end+1+size])
			used += end + 1 + size + 2
		case string(line) == "PING":
			c.out = append(c.out, "PONG\r\n"...)
			c.send()
			used += end + 1
		case string(line) == "PONG" || bytes.HasPrefix(line, []byte("INFO ")):
			used += end + 1
		default:
			return used, fmt.Errorf("NATS said %q", line)
		}
	}
}

// natsMessage reads a MSG line without its CRLF.
func natsMessage(line []byte) (subject, reply []byte, size int, err error) {
	rest := line[len("MSG "):]
	subject, rest, _ = bytes.Cut(rest, []byte(" "))
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // sid
	if before, after, found := bytes.Cut(rest, []byte(" ")); found {
		reply, rest = before, after
	}
	n, ok := digits(rest)
	if !ok || len(rest) == 0 || n > messageMax {
		return nil, nil, 0, fmt.Errorf("NATS said %q", line)
	}
	return subject, reply, int(n), nil
}
