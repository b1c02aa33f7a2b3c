package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the real program, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "subway")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "subway")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// cleanEnv is the environment without settings of ours.
func cleanEnv(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUBWAY_") {
			env = append(env, v)
		}
	}
	return append(env, more...)
}

// finish runs the program to its end.
func finish(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, cleanEnv(env...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("subway %s: %v, %v", strings.Join(args, " "), err, ctx.Err())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// process is the program while it runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of stdout
	done  chan struct{}

	mu   sync.Mutex
	errs bytes.Buffer // guarded by mu: stderr
}

// Write implements io.Writer for stderr.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.Write(b)
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.String()
}

// start starts the program; it is killed when the test ends.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), lines: make(chan string, 4096), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = cleanEnv(env...), p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.read(out)
		_ = p.cmd.Wait() // the exit code is looked at
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.lines)
	s := bufio.NewScanner(out)
	for s.Scan() {
		p.lines <- s.Text()
	}
}

// line waits for a line of stdout that holds all of the parts.
func (p *process) line(parts ...string) string {
	p.t.Helper()
	late := time.After(patience)
next:
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%v ended without %q; stderr: %s", p.cmd.Args, parts, p.stderr())
			}
			for _, part := range parts {
				if !strings.Contains(l, part) {
					continue next
				}
			}
			return l
		case <-late:
			p.t.Fatalf("%v did not say %q; stderr: %s", p.cmd.Args, parts, p.stderr())
		}
	}
}

// logged waits for a text on stderr.
func (p *process) logged(text string) {
	p.t.Helper()
	until(p.t, "stderr holds "+text, func() bool { return strings.Contains(p.stderr(), text) })
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the end and returns the exit code.
func (p *process) ends() int {
	p.t.Helper()
	go func() {
		for range p.lines { // what nobody reads must not hold the process up
		}
	}()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%v did not end; stderr: %s", p.cmd.Args, p.stderr())
	}
	return p.cmd.ProcessState.ExitCode()
}

// startGateway starts a Gateway on a port of its own and returns its host:port.
func startGateway(t *testing.T, args ...string) (p *process, address string) {
	t.Helper()
	p = start(t, nil, append([]string{"gateway", "--listen", "127.0.0.1:0"}, args...)...)
	return p, strings.TrimPrefix(p.line("listening on "), "listening on ")
}

// startDevice starts a device and waits until it has registered.
func startDevice(t *testing.T, address string, args ...string) *process {
	t.Helper()
	p := start(t, nil, append([]string{"device", "--connect", "ws://" + address + "/ws"}, args...)...)
	p.logged("registered")
	return p
}

// until polls a condition.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
