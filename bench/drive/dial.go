package drive

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds each blocking step before a connection enters the loop.
const dialTimeout = 10 * time.Second

// plainConn is a blocking connection on its way into the loop; in holds what was read and not yet used.
type plainConn struct {
	fd int
	in []byte
}

// dial connects from an address (the zero Addr: any) with a time limit on every later read and write.
func dial(to netip.AddrPort, from netip.Addr) (*plainConn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	limit := unix.NsecToTimeval(int64(dialTimeout))
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
	)
	if err == nil && from.IsValid() {
		// The port is picked at connect, by the pair of addresses: else one address's ports bound all.
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
			unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}))
	}
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return &plainConn{fd: fd}, nil
}

func (p *plainConn) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(p.fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("write: %w", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

// fill reads once, appending to p.in.
func (p *plainConn) fill() error {
	if len(p.in) > messageMax+frameHeadMax {
		return errors.New("too much before the first answer")
	}
	var b [16 << 10]byte
	n, err := unix.Read(p.fd, b[:])
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("read: %w", err)
	}
	if err == nil && n == 0 {
		return errors.New("the server closed the connection")
	}
	p.in = append(p.in, b[:max(n, 0)]...)
	return nil
}

// until reads up to and including mark and returns it.
func (p *plainConn) until(mark string) ([]byte, error) {
	for {
		if i := bytes.Index(p.in, []byte(mark)); i >= 0 {
			head := p.in[:i+len(mark)]
			p.in = p.in[i+len(mark):]
			return head, nil
		}
		if err := p.fill(); err != nil {
			return nil, err
		}
	}
}

// frame reads the next server frame.
func (p *plainConn) frame() (opcode byte, payload []byte, err error) {
	for {
		opcode, payload, size, err := cutFrame(p.in)
		if err != nil {
			return 0, nil, err
		}
		if size > 0 {
			p.in = p.in[size:]
			return opcode, payload, nil
		}
		if err := p.fill(); err != nil {
			return 0, nil, err
		}
	}
}

// greeting is how a party makes itself known over a fresh WebSocket: what it sends, and which frame says that it was understood.
type greeting struct {
	frames []byte
	done   func(opcode byte, payload []byte) (bool, error)
}

// registration is the greeting for a gateway (PROTOCOL.md section 3, REGISTER).
func registration(message []byte) greeting {
	done := func(opcode byte, payload []byte) (bool, error) {
		switch {
		case opcode == opClose:
			return false, closedBy(payload)
		case opcode > opBinary:
			return false, nil
		case bytes.Contains(payload, []byte(`"REGISTER_ACK"`)):
			return true, nil
		case bytes.Contains(payload, []byte(`"ERROR"`)):
			return false, fmt.Errorf("registration refused: %s", payload)
		}
		return false, nil // CONNECTION_STATUS of others
	}
	return greeting{frames: appendFrame(nil, opText, message), done: done}
}

// announcement is the greeting for the floor: it acknowledges nothing, but answers a ping behind the announcement (none: nil) in
// order.
func announcement(message []byte) greeting {
	done := func(opcode byte, payload []byte) (bool, error) {
		if opcode == opClose {
			return false, closedBy(payload)
		}
		return opcode == opPong, nil
	}
	var frames []byte
	if message != nil {
		frames = appendFrame(frames, opText, message)
	}
	return greeting{frames: appendFrame(frames, opPing, nil), done: done}
}

// dialWebSocket connects, upgrades and greets.
func dialWebSocket(to netip.AddrPort, from netip.Addr, g greeting) (*plainConn, error) {
	p, err := dial(to, from)
	if err != nil {
		return nil, err
	}
	if err := p.greet(to.String(), g); err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	return p, nil
}

func (p *plainConn) greet(host string, g greeting) error {
	if err := p.write(upgradeRequest(host)); err != nil {
		return err
	}
	head, err := p.until("\r\n\r\n")
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if err := checkUpgrade(head); err != nil {
		return err
	}
	if err := p.write(g.frames); err != nil {
		return err
	}
	for {
		opcode, payload, err := p.frame()
		if err != nil {
			return fmt.Errorf("registration: %w", err)
		}
		if done, err := g.done(opcode, payload); done || err != nil {
			return err
		}
	}
}
