// Package peers builds and starts the servers that are compared. Each is a process of its own, on a free port of 127.0.0.1,
// kept to one processor; it ends with the program that started it.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 5 * time.Second
	pollEvery    = 10 * time.Millisecond
)

// ErrNoCompiler says that there is no C compiler to build the floor with.
var ErrNoCompiler = errors.New("no C compiler (cc) in PATH")

// ErrMissing says that a peer is not installed here; the error that wraps it says what to install.
var ErrMissing = errors.New("not installed")

// BuildFloor compiles source (floor.c) to binary.
func BuildFloor(ctx context.Context, source, binary string) error {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return ErrNoCompiler
	}
	out, err := exec.CommandContext(ctx, cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", binary, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", source, err, out)
	}
	return nil
}

// Peer is a server that may be measured. In Argv and Config {port} and {addr} stand for where it is to listen, {dir} for an empty
// directory of its own; {config} in Argv is a file with Config in it.
type Peer struct {
	Name   string
	Proto  string // a drive.Proto constant
	Argv   []string
	Config string
}

// Parse reads a peer from NAME=PROTO:COMMAND ARGUMENT ... (separated by spaces).
func Parse(text string) (Peer, error) {
	name, rest, ok1 := strings.Cut(text, "=")
	proto, command, ok2 := strings.Cut(rest, ":")
	argv := strings.Fields(command)
	if !ok1 || !ok2 || name == "" || len(argv) == 0 {
		return Peer{}, fmt.Errorf("peer %q is not NAME=PROTO:COMMAND", text)
	}
	return Peer{Name: name, Proto: proto, Argv: argv}, nil
}

// Process is a peer that runs. Its methods are for one goroutine.
type Process struct {
	Addr netip.AddrPort
	PID  int

	name  string
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
	err   error         // why, once done is closed
	dir   string
	log   string
	alive bool
}

// Start runs a peer on processor cpu (negative: any) and waits until it accepts connections. What it prints goes to a file
// that Stop removes and errors quote.
func Start(ctx context.Context, p Peer, cpu int) (*Process, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-"+p.Name+"-")
	if err != nil {
		return nil, err
	}
	s := &Process{Addr: addr, name: p.Name, dir: dir, log: filepath.Join(dir, "output"), done: make(chan struct{})}
	if err := s.start(p, cpu); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := s.await(ctx); err != nil {
		err = fmt.Errorf("%s: %w\n%s", p.Name, err, s.output())
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Process) start(p Peer, cpu int) error {
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	config := filepath.Join(s.dir, "config")
	place := strings.NewReplacer("{port}", strconv.Itoa(int(s.Addr.Port())), "{addr}", s.Addr.String(), "{dir}", data, "{config}", config)
	if p.Config != "" {
		// Readable by all: a broker started by root reads it as another user.
		if err := os.WriteFile(config, []byte(place.Replace(p.Config)), 0o644); err != nil {
			return err
		}
	}
	var argv []string
	if cpu >= 0 {
		argv = []string{"taskset", "-c", strconv.Itoa(cpu)} // it execs: the pid stays
	}
	for _, a := range p.Argv {
		argv = append(argv, place.Replace(a))
	}
	output, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer output.Close()
	s.cmd = exec.Command(argv[0], argv[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = output, output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.PID, s.alive = s.cmd.Process.Pid, true
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	return nil
}

// await polls until the port accepts.
func (s *Process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("does not listen on %s: %w", s.Addr, ctx.Err())
		case <-s.done:
			return fmt.Errorf("ended: %w", s.err)
		case <-tick.C:
		}
		if conn, err := net.DialTimeout("tcp4", s.Addr.String(), time.Second); err == nil {
			return conn.Close()
		}
	}
}

// Stop asks the process to end, kills it after 5 s, and removes its directory. It returns an error when the process had
// ended before.
func (s *Process) Stop() error {
	if !s.alive {
		return nil
	}
	s.alive = false
	defer os.RemoveAll(s.dir)
	select {
	case <-s.done:
		return fmt.Errorf("%s ended early: %w\n%s", s.name, errors.Join(s.err, errors.New("not asked to")), s.output())
	default:
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // gone meanwhile: done says so
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	return nil
}

// output returns the end of what the process printed.
func (s *Process) output() string {
	const tail = 4 << 10
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tail):])
}

// freePort returns an address nobody listened on a moment ago.
func freePort() (netip.AddrPort, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer l.Close()
	return netip.ParseAddrPort(l.Addr().String())
}
