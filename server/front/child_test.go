package front

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const childEnv = "SUBWAY_FRONT_TEST_LIMIT"

// child serves, with as many descriptors as the variable says (0: as there are), if a
// test started this binary for that. It ends with its standard input. With "later"
// behind the number it learns only then how few there are.
func child() bool {
	limit, later := strings.CutSuffix(os.Getenv(childEnv), " later")
	if limit == "" {
		return false
	}
	lower := func() {
		if n, _ := strconv.ParseUint(limit, 10, 32); n > 0 {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
				panic(err)
			}
		}
	}
	if !later {
		lower()
	}
	f := serve(panicking{}, func(o *Options) {
		o.HTTP, o.Loops, o.Tick = api, 0, 0
	})
	if later {
		lower()
	}
	fmt.Println(f.s.Addr())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case err := <-f.s.Failed():
		fmt.Println("failed:", err)
		os.Exit(3)
	case <-ended:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = f.s.Shutdown(ctx)
	return true
}

// panicking is as much of a testing.TB as a child process needs.
type panicking struct{ testing.TB }

func (panicking) Helper()             {}
func (panicking) Cleanup(func())      {}
func (panicking) Fatal(args ...any)   { panic(fmt.Sprint(args...)) }
func (panicking) Logf(string, ...any) {}

// startChild starts this binary as a child. The returned function ends it.
func startChild(t *testing.T, limit string) (addr string, end func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+limit)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return addr[:len(addr)-1], func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child ended with %v", err)
		}
	}
}

// Where accept itself fails nobody is refused: who waits is taken in when others go.
func TestAcceptFails(t *testing.T) {
	addr, end := startChild(t, "128 later")
	defer end()
	var conns []net.Conn
	for i := range 200 {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, request)
		conns = append(conns, c)
	}
	for i, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 16)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		_ = c.Close()
	}
}

// More connections than there are descriptors, of every kind and all at once: what
// is beyond is shed, what is within is served, and the process lives.
func TestDescriptorsRunOut(t *testing.T) {
	addr, end := startChild(t, "128")
	defer end()
	var conns []net.Conn
	for i := range 400 {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		if i%2 == 0 {
			_, _ = io.WriteString(c, request)
		} else {
			_, _ = io.WriteString(c, get)
		}
	}
	served := 0
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, _ := c.Read(make([]byte, 16)); n > 0 {
			served++
		}
	}
	if served < 30 || served > 120 {
		t.Errorf("%d of %d connections were served with 128 descriptors", served, len(conns))
	}
	for _, c := range conns {
		_ = c.Close()
	}
	until(t, "served again", func() bool {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, get)
		b := make([]byte, 12)
		_, err = io.ReadFull(c, b)
		return err == nil && string(b) == "HTTP/1.1 200"
	})
}
