package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
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
	DataDir    string
	Segment    int
	Drain      time.Duration // 0: one second
	Retention  time.Duration
	Ping       time.Duration
	Silence    time.Duration
	Log        bool // to standard error
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
	opt := gateway.Options{
		Listen: "127.0.0.1:0", OrphanResponses: true, Loops: o.Loops, DataDir: o.DataDir, Segment: o.Segment,
		PingInterval: o.Ping, SilenceTimeout: o.Silence,
		Limits: router.Limits{MaxRecords: o.MaxRecords, Retention: o.Retention},
	}
	if o.Log {
		opt.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	g, err := gateway.Start(opt)
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
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(o.Drain, time.Second))
	defer cancel()
	_ = g.Shutdown(ctx)
	return 0
}

// startChild starts a Gateway in a process of its own and ends it after the test, which
// fails unless it was still well then.
func startChild(t testing.TB, o childOptions) (f *fixture, pid int) {
	t.Helper()
	p := launch(t, o)
	return p.fixture, p.cmd.Process.Pid
}
