// Package interop runs clients of the design note's kind, in their own languages and on
// their own libraries, against the built binary. See README.md.
package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaryDir)
		os.Exit(code)
	}))
}

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// need skips the test where the tools are not there, and fails it where they must be.
func need(t *testing.T) {
	t.Helper()
	missing := func(what string) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing, see README.md", what)
		}
		t.Skipf("%s is missing, see README.md", what)
	}
	for _, tool := range []string{"node", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(tool)
		}
	}
	if _, err := os.Stat("node/node_modules/ws/package.json"); err != nil {
		missing("node/node_modules (make -C interop deps)")
	}
}

// binaryDir holds the binary; "": it has not been built.
var binaryDir string

// build builds the binary once.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "subway-interop")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "subway")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/subway").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// program is a running program that speaks in lines.
type program struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // its output is read to the end

	mu    sync.Mutex
	lines []string // guarded by mu: not asked for yet
}

// launch starts a program that ends, after the test at the latest, with its stdin.
func launch(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: filepath.Base(strings.Join(append([]string{name}, args...), " ")), cmd: exec.Command(name, args...), ended: make(chan struct{})}
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go p.listen(stdout)
	t.Cleanup(func() {
		p.end()
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("%s says on stderr: %s", p.name, stderr.Bytes())
		}
	})
	return p
}

func (p *program) listen(stdout io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		p.mu.Lock()
		p.lines = append(p.lines, strings.TrimSpace(line))
		p.mu.Unlock()
	}
}

// end kills the program and waits for it.
func (p *program) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.cmd.Wait()
}

// tell writes a line in JSON.
func (p *program) tell(order any) {
	p.t.Helper()
	b, err := json.Marshal(order)
	if err == nil {
		_, err = p.stdin.Write(append(b, '\n'))
	}
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// hear waits for a line that fits and returns it; it is not found again.
func (p *program) hear(what string, fits func(line string) bool) string {
	p.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if line, ok := p.take(fits); ok {
			return line
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Fatalf("%s: waited in vain for %s; what else it said:\n%s", p.name, what, strings.Join(p.lines, "\n"))
		}
	}
}

func (p *program) take(fits func(line string) bool) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, line := range p.lines {
		if fits(line) {
			p.lines = append(p.lines[:i:i], p.lines[i+1:]...)
			return line, true
		}
	}
	return "", false
}

// object is a JSON object, by names with dots between.
type object map[string]any

func (o object) get(path string) any {
	name, rest, more := strings.Cut(path, ".")
	if !more {
		return o[name]
	}
	inner, _ := o[name].(map[string]any)
	return object(inner).get(rest)
}

func (o object) str(path string) string { s, _ := o.get(path).(string); return s }

// event waits for an object in which the members have these values: names and values in
// turn.
func (p *program) event(members ...string) object {
	p.t.Helper()
	var found object
	p.hear(strings.Join(members, " "), func(line string) bool {
		found = nil
		if json.Unmarshal([]byte(line), &found) != nil {
			return false
		}
		for i := 0; i+1 < len(members); i += 2 {
			if found.str(members[i]) != members[i+1] {
				return false
			}
		}
		return true
	})
	return found
}
