package faults

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// program is the real program.
var program string

// until polls a condition.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// launch says how a process is started.
type launch struct {
	name    string
	args    []string
	files   int           // limit of open files; 0: as it is
	stepped bool          // it has a wall clock of its own,
	off     time.Duration // which is off by this much
	line    func(string)  // takes what it prints, after the first line where ready
	ready   bool          // wait for the line that says where it listens
}

// process is the program while it runs.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	log   string        // the file of its stderr
	done  chan struct{} // closed when it has ended
	clock steppable
}

// spawn starts the program. It is killed when the test ends, and should the test's own process be.
func spawn(t testing.TB, l launch) *process {
	t.Helper()
	p := &process{t: t, name: l.name, cmd: l.command(), log: filepath.Join(t.TempDir(), l.name), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if l.stepped {
		p.clock, err = startStepped(p.start, l.off)
	} else {
		_, err = p.start(&syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL})
	}
	if p.cmd.Process == nil {
		t.Fatal(err)
	}
	first := make(chan string, 1)
	go p.read(out, l, first)
	t.Cleanup(p.clean)
	if err != nil {
		skip(t, "a process is given no clock of its own here: %v", err)
	}
	if l.ready {
		p.await(first)
	}
	return p
}

// command is what is executed; a shell lowers the limit of files and makes way.
func (l launch) command() *exec.Cmd {
	argv := append([]string{program}, l.args...)
	if l.files > 0 {
		argv = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, l.files)}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SUBWAY_") })
	return cmd
}

// read takes what the process prints, until its end.
func (p *process) read(out io.Reader, l launch, first chan<- string) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	if l.ready && lines.Scan() {
		first <- lines.Text()
	}
	for lines.Scan() {
		l.line(lines.Text())
	}
	_ = p.cmd.Wait() // its exit code is looked at by stop
}

func (p *process) start(attr *syscall.SysProcAttr) (pid int, err error) {
	p.cmd.SysProcAttr = attr
	if err := p.cmd.Start(); err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, nil
}

// await waits for the line that says where it listens.
func (p *process) await(first <-chan string) {
	p.t.Helper()
	select {
	case line := <-first:
		if !strings.HasPrefix(line, "listening on ") {
			p.t.Fatalf("%s says %q", p.name, line)
		}
	case <-p.done:
		p.t.Fatalf("%s does not start", p.name)
	case <-time.After(patience):
		p.t.Fatalf("%s does not listen", p.name)
	}
}

// skip leaves a test out with a word, unless nothing may be left out.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends it with SIGKILL; it must not have ended before.
func (p *process) kill() {
	p.t.Helper()
	if !p.alive() {
		p.t.Errorf("%s had ended by itself: %v", p.name, p.cmd.ProcessState)
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop ends it in order.
func (p *process) stop() {
	p.t.Helper()
	if !p.alive() {
		p.t.Errorf("%s had ended by itself: %v", p.name, p.cmd.ProcessState)
		return
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%s ended with %d", p.name, code)
	}
}

// logged counts what it logged of a kind.
func (p *process) logged(part string) int {
	p.t.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return bytes.Count(log, []byte(part))
}

// clean ends it after the test, and reads what it logged.
func (p *process) clean() {
	_ = p.cmd.Process.Kill()
	<-p.done
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	for _, bad := range []string{"panic:", "fatal error:", "BUG:", "DATA RACE"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			p.t.Errorf("%s logged:\n%s", p.name, log[i:min(len(log), i+8<<10)])
		}
	}
	if p.t.Failed() {
		const shown = 4 << 10
		p.t.Logf("the end of the log of %s, process %d:\n%s", p.name, p.cmd.Process.Pid, log[max(0, len(log)-shown):])
	}
}
