package loadgen_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binary is the real program, built once.
var binary string

// processLifetime are goroutines of libraries that live as long as the process.
var processLifetime = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "subway-loadgen")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "subway")
	if out, err := exec.Command("go", "build", "-o", binary, "subway/cmd/subway").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	if err := flag.Set("test.parallel", "4"); err != nil { // runs wait most of the time
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if err := goleak.Find(processLifetime...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// process is a run of the program.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer // stdout, until done
	done chan struct{}

	mu   sync.Mutex
	errs bytes.Buffer // stderr; under mu
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

// start runs the program; it is killed with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), done: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUBWAY_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is looked at
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // or it has ended
		<-p.done
	})
	return p
}

// ends waits for the exit code.
func (p *process) ends() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("it does not end:\n%s", p.stderr())
	}
	return p.cmd.ProcessState.ExitCode()
}

// says waits until stderr has a text.
func (p *process) says(text string) {
	p.t.Helper()
	until(p.t, text+" on stderr", func() bool { return strings.Contains(p.stderr(), text) })
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// startGateway starts the real gateway and returns its URL.
func startGateway(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "gateway", "--listen", "127.0.0.1:0", "--drain", "1s", "--log-level", "error")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatal(errors.New("the gateway said "+line), err)
	}
	return cmd, "http://" + address
}
