package front

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// someRequest makes a request of one of the forms that a body can have.
func someRequest(rng *rand.Rand) string {
	body := strings.Repeat("\r\nx", rng.IntN(40))
	switch rng.IntN(5) {
	case 0:
		return "GET /" + strings.Repeat("a", rng.IntN(100)) + " HTTP/1.1\r\nHost: a\r\n\r\n"
	case 1:
		return "\r\nPOST / HTTP/1.1\r\nContent-Length: 0\r\nHost: a\r\n\r\n"
	case 2:
		return fmt.Sprintf("POST / HTTP/1.1\r\ncontent-LENGTH:\t%d \r\n\r\n%s", len(body), body)
	case 3:
		return "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	}
	return fmt.Sprintf("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\ny\r\n%X \r\n%sz\r\n0\r\nTrailer: x\r\n\r\n", len(body)+1, body)
}

// Whatever pieces requests come in, each is found to end where it does.
func TestBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var stream string
		ends := map[int]bool{}
		for range 1 + rng.IntN(6) {
			stream += someRequest(rng)
			ends[len(stream)] = true
		}
		var b bounds
		for at := 0; at < len(stream); {
			piece := stream[at:min(at+1+rng.IntN(90), len(stream))]
			n := b.next([]byte(piece))
			if n < 1 || n < len(piece) && !ends[at+n] {
				t.Fatalf("%d of %q, after %q", n, piece, stream[:at])
			}
			for end := at + 1; end < at+n; end++ {
				if ends[end] {
					t.Fatalf("passed an end in %q, after %q", piece, stream[:at])
				}
			}
			at += n
		}
		if b != (bounds{}) {
			t.Fatalf("it waits for more of %q", stream)
		}
	}
	for _, lost := range []string{
		"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 0" + strings.Repeat("0", 80) + "1\r\n\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
	} {
		var b bounds
		if all := lost + "GET / HTTP/1.1\r\n\r\n"; b.next([]byte(all)) != len(all) {
			t.Errorf("%q is taken apart", lost)
		}
	}
}

// A request is answered though another, which takes long or is not complete, came with it.
func TestPipelinedAnswersAreNotKeptBack(t *testing.T) {
	hold := make(chan struct{})
	f := serve(t, func(o *Options) {
		o.HTTP = func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) == "/slow" {
				<-hold
			}
			ctx.SetBody(append([]byte{}, ctx.PostBody()...))
		}
	})
	const done = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
	for name, behind := range map[string][2]string{
		"slow":           {"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		"half a body":    {"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", "cd"},
		"no chunk":       {"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "2\r\nab\r\n0\r\n\r\n"},
		"half a head":    {"GET /b HTTP", "/1.1\r\nHost: a\r\n\r\n"},
		"chunked, whole": {"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ""},
	} {
		conn := f.tcp()
		br := bufio.NewReader(conn)
		answer := func() {
			t.Helper()
			r, err := http.ReadResponse(br, nil)
			if err != nil || r.StatusCode != 200 {
				t.Fatal(name, r, err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(conn, done+done+behind[0])
		answer()
		answer()
		if name == "slow" {
			close(hold)
		}
		_, _ = io.WriteString(conn, behind[1])
		answer()
	}
}

func BenchmarkBounds(b *testing.B) {
	request := []byte("POST /api/commands HTTP/1.1\r\nHost: 127.0.0.1:18081\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n" + strings.Repeat("x", 200))
	var s bounds
	b.ReportAllocs()
	for b.Loop() {
		if s.next(request) != len(request) {
			b.Fatal("not one request")
		}
	}
}
