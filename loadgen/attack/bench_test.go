package attack

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// plainServer accepts every command; it is as cheap as fasthttp is.
func plainServer(b *testing.B) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		const before = `"request_ref":"`
		body := string(ctx.PostBody())
		var ref string
		for i := range len(body) - len(before) {
			if body[i:i+len(before)] == before {
				ref = body[i+len(before) : i+len(before)+12]
				break
			}
		}
		fmt.Fprintf(ctx, `{"success":true,"requestRef":%q}`, ref)
	}, MaxIdleWorkerDuration: idleWorker}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	b.Cleanup(func() {
		ln.Close()
		<-served
		_ = s.Shutdown() // the listener is closed already
	})
	return "http://" + ln.Addr().String()
}

func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkClosedLoop is the ceiling: generator and server in one process. cpu-us/op holds both.
func BenchmarkClosedLoop(b *testing.B) {
	url := plainServer(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var asked, failed atomic.Int64
	o := Options{URL: url, Workers: 32,
		Next: func(_ time.Time, c *Command) {
			n := asked.Add(1)
			c.Ref, c.Target, c.Type, c.Value = fmt.Sprintf("cmd-%08d", n), "td-01", "SHOW", payload
			if n == int64(b.N) {
				cancel()
			}
		},
		Done: func(a *Answer) {
			if !a.Accepted {
				failed.Add(1)
			}
		},
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	if _, err := Run(ctx, o); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(asked.Load()), "cpu-us/op")
	if failed.Load() > 0 {
		b.Fatalf("%d failed", failed.Load())
	}
}

// payload is a command's value of 200 bytes.
var payload = []byte(`"` + string(slices.Repeat([]byte{'x'}, 200)) + `"`)

// BenchmarkLate says how late requests of an open loop leave.
func BenchmarkLate(b *testing.B) {
	for _, rate := range []float64{100, 1000, 5000} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			url := plainServer(b)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var mu sync.Mutex
			var lags []time.Duration
			o := Options{URL: url, Rate: rate, Workers: 32, Done: func(*Answer) {},
				Next: func(_ time.Time, c *Command) { c.Ref, c.Target, c.Type = "cmd-00000000", "td-01", "SHOW" },
				Late: func(d time.Duration) {
					mu.Lock()
					defer mu.Unlock()
					if lags = append(lags, d); len(lags) == b.N {
						cancel()
					}
				},
			}
			before := cpu()
			if _, err := Run(ctx, o); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(len(lags)), "cpu-us/op")
			slices.Sort(lags)
			b.ReportMetric(float64(percentile(lags, 0.5).Microseconds()), "late-p50-us")
			b.ReportMetric(float64(percentile(lags, 0.99).Microseconds()), "late-p99-us")
		})
	}
}
