package callback

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestReceiver is not a test but the process that BenchmarkDeliver sends to, so that
// the receiver's CPU is not counted: RECEIVER=1 makes it listen until its input ends.
func TestReceiver(t *testing.T) {
	if os.Getenv("RECEIVER") == "" {
		t.Skip("only for BenchmarkDeliver")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nRECEIVER %s\n", l.Addr())
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 16<<10)
			ok := []byte("HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2030 00:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			for {
				if n, err := c.Read(buf); err != nil || !bytes.HasSuffix(buf[:n], []byte("}")) {
					return
				}
				if _, err := c.Write(ok); err != nil {
					return
				}
			}
		}()
	}
}

func receiver(b *testing.B) string {
	cmd := exec.Command(os.Args[0], "-test.run=^TestReceiver$")
	cmd.Env = append(os.Environ(), "RECEIVER=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	for r := bufio.NewScanner(out); r.Scan(); {
		if addr, ok := strings.CutPrefix(r.Text(), "RECEIVER "); ok {
			return "http://" + addr
		}
	}
	b.Fatal("no receiver")
	return ""
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDeliver is a final notice from Notify to the receiver's 200: cpu-us/op is
// this process's, the kernel's part for its sockets included.
func BenchmarkDeliver(b *testing.B) {
	url := receiver(b)
	o := open(b, Options{PerHostQueue: 1 << 30, MaxBytes: 1 << 40})
	n := final(url+"/cb/{request_ref}", "", nil)
	n.Result = []byte(`{"data":"` + strings.Repeat("x", 200) + `"}`)
	var ref []byte
	before := cpu()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ref = fmt.Appendf(ref[:0], "cmd-1705744800000-%09d", i)
		n.Ref = ref
		o.Notify(n)
		if i%64 == 0 { // a window, so that the queue stays short
			untilBench(o, 256)
		}
	}
	untilBench(o, 0)
	b.ReportMetric(float64(cpu()-before)/1e3/float64(b.N), "cpu-us/op")
	if st := o.Stats(); st.Outcomes[Sent] < uint64(b.N) {
		b.Fatalf("%+v", st)
	}
}

func untilBench(o *Outbox, most int) {
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for o.Stats().Queued > most {
		<-tick.C
	}
}

// BenchmarkBareExchange is the floor of BenchmarkDeliver: as many goroutines write as
// many bytes and read the answer, and nothing else.
func BenchmarkBareExchange(b *testing.B) {
	addr := strings.TrimPrefix(receiver(b), "http://")
	o := New(Options{})
	n, u := parsed("http://"+addr+"/cb/{request_ref}", "cmd-1705744800000-000000001")
	out := append(o.appendHead(nil, newHost("k", &u, 1), n), n.body()...)
	out = append(out[:len(out)-1], strings.Repeat(" ", 200)+"}"...)
	var wg sync.WaitGroup
	before := cpu()
	for g := range 8 {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 4096)
			for i := g; i < b.N; i += 8 {
				c.Write(out)
				c.Read(buf)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(cpu()-before)/1e3/float64(b.N), "cpu-us/op")
}

func parsed(url, ref string) (*notice, target) {
	u, err := parseURL([]byte(url))
	if err != nil {
		panic(err)
	}
	return newNotice(final(url, ref, nil), &u), u
}

// BenchmarkNotify is what the event loop pays: the copy and the queue, while the host's
// slots are taken.
func BenchmarkNotify(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	n := final("http://"+l.Addr().String()+"/cb/{request_ref}", "", nil)
	n.Result = []byte(`{"data":"` + strings.Repeat("x", 200) + `"}`)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	var ref []byte
	var o *Outbox
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%4096 == 0 {
			b.StopTimer()
			if o != nil {
				o.Close(ended)
			}
			o = New(Options{PerHostConns: 1, AttemptTimeout: time.Hour})
			b.StartTimer()
		}
		ref = fmt.Appendf(ref[:0], "cmd-1705744800000-%09d", i)
		n.Ref = ref
		o.Notify(n)
	}
	o.Close(ended)
}

func BenchmarkAppendHead(b *testing.B) {
	o := New(Options{})
	n, u := parsed("http://eudi.example/cb/{request_ref}?a=b", "cmd-1705744800000-k3j9x0q2a")
	h := newHost("k", &u, 1)
	buf := o.appendHead(nil, h, n)
	b.ReportAllocs()
	for b.Loop() {
		buf = o.appendHead(buf[:0], h, n)
	}
}

// The pieces that run per attempt and per lookup do not allocate.
func TestZeroAllocations(t *testing.T) {
	o := New(Options{})
	n, u := parsed("http://eudi.example/cb/{request_ref}?a=b", `cmd-"+1`)
	h := newHost("k", &u, 1)
	buf := o.appendHead(nil, h, n)
	if a := testing.AllocsPerRun(100, func() { buf = o.appendHead(buf[:0], h, n) }); a != 0 {
		t.Errorf("appendHead: %v allocations", a)
	}
	notice := final("http://eudi.example/cb", "r", nil)
	if a := testing.AllocsPerRun(100, func() { buf = appendBody(buf[:0], notice) }); a != 0 {
		t.Errorf("appendBody: %v allocations", a)
	}
	o.mu.Lock()
	o.hostLocked(&u)
	o.mu.Unlock()
	if a := testing.AllocsPerRun(100, func() {
		o.mu.Lock()
		o.hostLocked(&u)
		o.mu.Unlock()
	}); a != 0 {
		t.Errorf("hostLocked: %v allocations", a)
	}
}

// BenchmarkCheckURL is what posting a command with a callback pays more.
func BenchmarkCheckURL(b *testing.B) {
	o := New(Options{})
	for _, url := range []string{"http://127.0.0.1:45678/callback", "https://eudi.example/cb/{request_ref}?a=b"} {
		b.Run(url[:8], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := o.CheckURL([]byte(url)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
