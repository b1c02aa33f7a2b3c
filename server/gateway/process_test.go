package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// process is a Gateway in a process of its own, which may be killed.
type process struct {
	*fixture
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr written
	first  chan string   // the first line of its standard output
	line   string        // that, once read
	up     time.Time     // when it was read
	over   chan struct{} // closed when the process has ended
	err    error         // of Wait, then
	doomed bool          // how it ends is the test's own business
}

// written is what a process writes.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// spawn starts a process and waits for nothing. It is ended after the test, which fails
// unless it was still well then; what it wrote to standard error is shown with a failure.
func spawn(t testing.TB, o childOptions) *process {
	t.Helper()
	config, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0]), first: make(chan string, 1), over: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(config))
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = out
	err = p.cmd.Start()
	_ = out.Close()
	if err != nil {
		_ = stdout.Close()
		t.Fatal(err)
	}
	go func() {
		br := bufio.NewReader(stdout)
		line, _ := br.ReadString('\n')
		p.first <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, br)
		_ = stdout.Close()
		p.err = p.cmd.Wait()
		close(p.over)
	}()
	t.Cleanup(func() {
		p.end()
		if said := p.stderr.String(); t.Failed() && said != "" {
			t.Logf("process %d wrote:\n%.4000s", p.cmd.Process.Pid, said)
		}
	})
	p.fixture = &fixture{t: t}
	return p
}

// listens waits for the process to listen; false: it ended before, and line says why.
func (p *process) listens() bool {
	p.t.Helper()
	select {
	case p.line = <-p.first:
	case <-time.After(patience):
		p.kill()
		p.t.Fatal("the Gateway's process does not come up")
	}
	p.up = time.Now()
	addr, ok := strings.CutPrefix(p.line, "listening on ")
	if ok {
		p.fixture = newFixture(p.t, addr)
	}
	return ok
}

// launch starts a process that listens.
func launch(t testing.TB, o childOptions) *process {
	t.Helper()
	p := spawn(t, o)
	if !p.listens() {
		t.Fatalf("the Gateway's process says %q", p.line)
	}
	return p
}

// kill is kill -9, and waits until the process is gone.
func (p *process) kill() {
	p.doomed = true
	_ = p.cmd.Process.Kill()
	<-p.over
	if p.http != nil {
		p.http.CloseIdleConnections()
	}
}

// end has the process shut down, which it must do well.
func (p *process) end() {
	p.t.Helper()
	_ = p.stdin.Close()
	select {
	case <-p.over:
	case <-time.After(2 * patience):
		p.kill()
		p.t.Error("the Gateway's process does not end")
	}
	if p.err != nil && !p.doomed {
		p.t.Errorf("the Gateway's process ended badly: %v", p.err)
		p.doomed = true
	}
}
