package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"subway/core/router"
	"subway/server/gateway"
)

// childVariable makes the test's binary a Gateway in a process of its own, with this
// childOptions in JSON.
const childVariable = "SUBWAY_GATEWAY_TEST_CHILD"

// childOptions configure a Gateway in a process of its own.
type childOptions struct {
	MaxFiles   uint64 // limit of open files; 0: as it is
	MaxRecords int64
	Loops      int
}

// runChild is the child: it serves until its standard input ends.
func runChild() int {
	var o childOptions
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	if o.MaxFiles > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: o.MaxFiles, Max: o.MaxFiles}); err != nil {
			fmt.Println(err)
			return 2
		}
	}
	g, err := gateway.Start(gateway.Options{
		Listen: "127.0.0.1:0", OrphanResponses: true, Loops: o.Loops,
		Limits: router.Limits{MaxRecords: o.MaxRecords},
	})
	if err != nil {
		fmt.Println(err)
		return 2
	}
	fmt.Println("listening on", g.Addr())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case err := <-g.Failed():
		fmt.Fprintln(os.Stderr, "the port failed:", err)
		return 1
	case <-ended:
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = g.Shutdown(ctx)
	return 0
}

// startChild starts a Gateway in a process of its own and ends it after the test, which
// fails unless it was still well then.
func startChild(t testing.TB, o childOptions) (f *fixture, pid int) {
	t.Helper()
	config, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(config))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the Gateway's process ended badly: %v", err)
		}
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the Gateway's process says %q", line)
	}
	return newFixture(t, addr), cmd.Process.Pid
}
