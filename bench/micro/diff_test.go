// Package micro tests the scripts of the micro-benchmarks, which are all there is in this directory.
package micro

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// diff returns a run of diff.sh that writes to a directory of the test.
func diff(t *testing.T, env ...string) (cmd *exec.Cmd, out string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "rev-parse", "--verify", "HEAD").Run(); err != nil {
		t.Skip("no git repository")
	}
	out = t.TempDir()
	cmd = exec.CommandContext(t.Context(), "./diff.sh")
	cmd.Env = append(os.Environ(), "OUT="+out, "GO=go", "BASE=", "HEAD=", "COUNT=1", "BENCH=^BenchmarkReader$", "BENCHTIME=10ms")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, out
}

// left lists what a run left behind in its directory and among git's worktrees.
func left(t *testing.T, out string) []string {
	t.Helper()
	found, err := filepath.Glob(out + "/diff.*")
	if err != nil {
		t.Fatal(err)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return path == out+"/diff.txt" })
	list, err := exec.CommandContext(t.Context(), "git", "worktree", "list", "--porcelain").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if strings.Contains(line, out) {
			found = append(found, line)
		}
	}
	return found
}

// TestDiff compares two revisions, and one with the tree as it is.
func TestDiff(t *testing.T) {
	for _, head := range []string{"HEAD", ""} {
		cmd, out := diff(t, "BASE=HEAD", "HEAD="+head)
		printed, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, err.(*exec.ExitError).Stderr)
		}
		text, err := os.ReadFile(out + "/diff.txt")
		if err != nil || !bytes.Equal(text, printed) {
			t.Errorf("diff.txt is not what was printed: %v", err)
		}
		for _, want := range []string{"base:", "head:", "Reader/200", "sec/op", "allocs/op"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		for _, side := range []string{"base", "head"} {
			runs, err := os.ReadFile(out + "/diff-" + side + ".txt")
			if err != nil || bytes.Count(runs, []byte("BenchmarkReader/200")) != 1 {
				t.Errorf("%s: %v\n%s", side, err, runs)
			}
		}
		if rest := left(t, out); len(rest) > 0 {
			t.Errorf("left behind: %q", rest)
		}
	}
}

// TestDiffRefused: a clear word, and nothing left behind.
func TestDiffRefused(t *testing.T) {
	f := func(want string, env ...string) {
		t.Helper()
		cmd, out := diff(t, env...)
		printed, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(printed), want) {
			t.Errorf("%q: %v %s", env, err, printed)
		}
		if rest := left(t, out); len(rest) > 0 {
			t.Errorf("%q: left behind: %q", env, rest)
		}
	}
	f("BASE=rev")
	f(`no revision "nope"`, "BASE=nope")
	f(`no revision "--help"`, "BASE=HEAD", "HEAD=--help")
	f("COUNT must be", "BASE=HEAD", "COUNT=-1")
	f("no benchmark matches", "BASE=HEAD", "BENCH=^None$")
	f("error parsing regexp", "BASE=HEAD", "BENCH=(")
}

// TestDiffInterrupted sends what a terminal sends for Ctrl-C while benchmarks run.
func TestDiffInterrupted(t *testing.T) {
	cmd, out := diff(t, "BASE=HEAD", "HEAD=HEAD", "COUNT=999")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for tick := time.Tick(10 * time.Millisecond); ; <-tick {
		if runs, _ := filepath.Glob(out + "/diff.*/diff-head.txt"); len(runs) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Error("no benchmark in a minute")
			break
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("%v\n%s", err, said.String())
	}
	if rest := left(t, out); len(rest) > 0 {
		t.Errorf("left behind: %q", rest)
	}
}
