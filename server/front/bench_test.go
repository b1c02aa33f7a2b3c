package front

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// process is a server in a process of its own, so that its processor time and its
// memory can be told from the client's.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr string
}

func start(b testing.TB, loops int) *process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=0", fmt.Sprint("GOMAXPROCS=", loops))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, addr: strings.TrimSpace(addr)}
	b.Cleanup(func() {
		_ = p.in.Close()
		_ = p.cmd.Wait()
	})
	return p
}

// cpu returns the processor time that the process has used.
func (p *process) cpu(b testing.TB) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_ = stat
	total := time.Duration(0)
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
	for _, t := range tasks {
		s, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", p.cmd.Process.Pid, t.Name()))
		if err != nil {
			continue
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(s))[0], 10, 64)
		total += time.Duration(ns)
	}
	return total
}

// rss returns the resident memory of the process in bytes.
func (p *process) rss(b testing.TB) int64 {
	s, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(s))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func (p *process) dial(b testing.TB) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func (p *process) websocket(b testing.TB) net.Conn {
	c := p.dial(b)
	_, _ = io.WriteString(c, request)
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil || !strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
		b.Fatalf("%q %v", buf[:n], err)
	}
	return c
}

// BenchmarkEcho sends 200-byte messages through sockets, with window messages under
// way on each connection. server-us/op is the server's processor time.
func BenchmarkEcho(b *testing.B) {
	for _, bc := range []struct{ conns, window int }{{1, 1}, {16, 1}, {16, 32}, {256, 8}} {
		b.Run(fmt.Sprintf("conns=%d/window=%d", bc.conns, bc.window), func(b *testing.B) {
			p := start(b, 1)
			msg := text(strings.Repeat("x", 200))
			answer := 4 + 200
			conns := make([]net.Conn, bc.conns)
			for i := range conns {
				conns[i] = p.websocket(b)
				defer conns[i].Close()
			}
			burst := []byte(strings.Repeat(string(msg), bc.window))
			rounds := max(b.N/(bc.conns*bc.window), 1)
			b.ReportAllocs()
			before := p.cpu(b)
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, c := range conns {
				wg.Go(func() {
					buf := make([]byte, answer*bc.window)
					for range rounds {
						if _, err := c.Write(burst); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(c, buf); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			n := float64(rounds * bc.conns * bc.window)
			b.ReportMetric(float64(p.cpu(b)-before)/1e3/n, "server-us/msg")
			b.ReportMetric(n/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkHandshake opens and resets WebSockets one after the other.
func BenchmarkHandshake(b *testing.B) {
	p := start(b, 1)
	before := p.cpu(b)
	for b.Loop() {
		c := p.websocket(b)
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	b.ReportMetric(float64(p.cpu(b)-before)/1e3/float64(b.N), "server-us/op")
}

// BenchmarkHTTP posts 200 bytes on a connection that is kept.
func BenchmarkHTTP(b *testing.B) {
	p := start(b, 1)
	c := p.dial(b)
	defer c.Close()
	req := "POST /body HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n" + strings.Repeat("x", 200)
	buf := make([]byte, 4096)
	before := p.cpu(b)
	for b.Loop() {
		_, _ = io.WriteString(c, req)
		if n, err := c.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "200") {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(p.cpu(b)-before)/1e3/float64(b.N), "server-us/op")
}

// BenchmarkIdle holds idle WebSockets and reports what one costs, and what all of
// them together cost in processor time.
func BenchmarkIdle(b *testing.B) {
	const n = 9000
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Cur < n+500 {
		b.Skip("too few descriptors")
	}
	for b.Loop() {
		p := start(b, 2)
		p.websocket(b).Close()
		before := p.rss(b)
		conns := make([]net.Conn, n)
		for i := range conns {
			conns[i] = p.websocket(b)
		}
		b.ReportMetric(float64(p.rss(b)-before)/n, "B/conn")
		<-time.After(7 * time.Second) // the collector is done with what opening them left
		cpu, at := p.cpu(b), time.Now()
		<-time.After(5 * time.Second)
		b.ReportMetric(float64(p.cpu(b)-cpu)/float64(time.Since(at))*100, "%cpu-idle")
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
