package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// content makes bytes that differ by seed, and their hash.
func content(seed uint64, n int) (b []byte, sum string) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b = make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	h := sha256.Sum256(b)
	return b, hex.EncodeToString(h[:])
}

func open(t *testing.T, opt Options) *Store {
	t.Helper()
	if opt.Dir == "" {
		opt.Dir = t.TempDir()
	}
	opt.Retry = time.Millisecond
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// serve answers the n-th request, from 0, by f.
func serve(t *testing.T, f func(n int, w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	var count atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f(int(count.Add(1))-1, w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/p.bin"
}

// file answers as a web server does that knows ranges.
func file(b []byte) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "p.bin", time.Time{}, bytes.NewReader(b))
	}
}

// cut sends the head and the first n bytes, and breaks the connection.
func cut(w http.ResponseWriter, b []byte, n int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b[:n])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func install(s *Store, url, sum string, tell func(Progress)) (Program, error) {
	if tell == nil {
		tell = func(Progress) {}
	}
	return s.Install(context.Background(), Source{url, sum}, time.Now(), tell)
}

// holds checks which program is active and that its bytes are there.
func holds(t *testing.T, s *Store, want []byte) {
	t.Helper()
	p, ok := s.Active()
	if !ok {
		t.Fatal("no program is active")
	}
	f, err := s.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the active program has %d bytes, want %d others; %v", len(got), len(want), err)
	}
}

func failed(t *testing.T, err error, code string) {
	t.Helper()
	var f *Failure
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("ended with %v, want %s", err, code)
	}
}

// TestInstall downloads, verifies, activates, tells of it, and knows it after a restart.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, Every: 1})
	one, sumOne := content(1, 300_000)
	two, sumTwo := content(2, 5)
	var seen []Progress
	p, err := install(s, serve(t, file(one)), strings.ToUpper(sumOne), func(p Progress) { seen = append(seen, p) })
	if err != nil || p.SHA256 != sumOne || p.Bytes != 300_000 {
		t.Fatalf("%+v, %v", p, err)
	}
	holds(t, s, one)
	n := len(seen)
	if n < 5 || seen[0] != (Progress{Downloading, 0, 300_000}) || seen[n-3] != (Progress{Downloading, 300_000, 300_000}) ||
		seen[n-2] != (Progress{Verifying, 300_000, 300_000}) || seen[n-1] != (Progress{Installing, 300_000, 300_000}) {
		t.Errorf("told %v", seen)
	}
	if again, err := install(s, "http://127.0.0.1:1/elsewhere", sumOne, nil); err != nil || again != p {
		t.Errorf("what is active was installed again: %v, %v", again, err)
	}
	if _, err := install(s, serve(t, file(two)), sumTwo, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, sumOne)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old program is still there: %v", err)
	}
	if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("opened twice: %v", err)
	}
	_ = s.Close()
	s = open(t, Options{Dir: dir})
	holds(t, s, two)
	_ = s.Close()
	if err := os.WriteFile(filepath.Join(dir, sumTwo), []byte("xxxxx"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	if _, ok := s.Active(); ok || s.Damaged() == nil || !strings.Contains(s.Damaged().Error(), "damaged") {
		t.Errorf("a damaged program plays: %v", s.Damaged())
	}
	if _, err := install(s, serve(t, file(two)), sumTwo, nil); err != nil || s.Damaged() != nil {
		t.Errorf("it cannot be repaired: %v, %v", err, s.Damaged())
	}
}

// TestResume goes on where it was cut, and where the process before it stopped.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	b, sum := content(3, 500_000)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ranges []string
	url := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range"))
		switch n {
		case 0:
			cut(w, b, 100_000)
		case 1: // the process ends while this one waits
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 100000-499999/%d", len(b)))
			w.WriteHeader(206)
			_, _ = w.Write(b[100_000:200_000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			file(b)(n, w, r)
		}
	})
	s := open(t, Options{Dir: dir, Every: 1})
	_, err := s.Install(ctx, Source{url, sum}, time.Now(), func(p Progress) {
		if p.Bytes == 200_000 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	_ = s.Close()
	s = open(t, Options{Dir: dir})
	if _, err := install(s, url, sum, nil); err != nil {
		t.Fatal(err)
	}
	holds(t, s, b)
	if got := strings.Join(ranges, " "); got != " bytes=100000- bytes=200000-" {
		t.Errorf("asked for %q", got)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 3 {
		t.Errorf("the directory holds %v", entries)
	}
}

// TestAnswers of servers that do it otherwise.
func TestAnswers(t *testing.T) {
	b, sum := content(4, 100_000)
	other, _ := content(5, 100_000)
	for name, f := range map[string]func(n int, w http.ResponseWriter, r *http.Request){
		"knows no ranges": func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 0 {
				cut(w, b, 5000)
			}
			_, _ = w.Write(b)
		},
		"changed meanwhile": func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				cut(w, other, 5000)
			}
			file(b)(n, w, r)
		},
		"is busy": func(n int, w http.ResponseWriter, r *http.Request) {
			if n < 3 {
				w.WriteHeader([]int{503, 429, 408}[n])
				return
			}
			file(b)(n, w, r)
		},
		"sends another range": func(n int, w http.ResponseWriter, r *http.Request) {
			switch n {
			case 0:
				cut(w, b, 5000)
			case 1:
				w.Header().Set("Content-Range", "bytes 7-99999/100000")
				w.WriteHeader(206)
			default:
				file(b)(n, w, r)
			}
		},
		"has it shorter": func(n int, w http.ResponseWriter, r *http.Request) {
			switch n {
			case 0:
				cut(w, b, 5000)
			case 1:
				w.Header().Set("Content-Range", "bytes */10")
				w.WriteHeader(416)
			default:
				file(b)(n, w, r)
			}
		},
		"redirects": func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				http.Redirect(w, r, "/q.bin", http.StatusFound)
				return
			}
			file(b)(n, w, r)
		},
		"stalls": func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write(b[:10])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			file(b)(n, w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Stall: 50 * time.Millisecond})
			if _, err := install(s, serve(t, f), sum, nil); err != nil {
				t.Fatal(err)
			}
			holds(t, s, b)
		})
	}
}

// TestComplete finds all of it on disk: only the activation had been missing.
func TestComplete(t *testing.T) {
	b, sum := content(6, 1000)
	s := open(t, Options{})
	if err := os.WriteFile(s.path(sum+".part"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := install(s, serve(t, file(b)), sum, nil); err != nil {
		t.Fatal(err)
	}
	holds(t, s, b)
}

// TestFailures leave the program that was active.
func TestFailures(t *testing.T) {
	old, sumOld := content(7, 1000)
	b, sum := content(8, 3000)
	s := open(t, Options{MaxBytes: 2500})
	if _, err := install(s, serve(t, file(old)), sumOld, nil); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, c := range []struct {
		code string
		sum  string
		f    func(n int, w http.ResponseWriter, r *http.Request)
	}{
		{"HASH_MISMATCH", sum, file(b[:2000])},
		{"PROGRAM_TOO_LARGE", sum, file(b)},
		{"PROGRAM_TOO_LARGE", sum, func(_ int, w http.ResponseWriter, _ *http.Request) {
			for range 3 { // chunked: nothing says how long it will be
				_, _ = w.Write(b[:1000])
				_ = http.NewResponseController(w).Flush()
			}
		}},
		{"DOWNLOAD_FAILED", sum, func(_ int, w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(404)
		}},
		{"DOWNLOAD_FAILED", sum, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		{"DOWNLOAD_FAILED", sum, func(_ int, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }},
		{"DOWNLOAD_FAILED", sum, func(_ int, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "ftp://127.0.0.1/", http.StatusFound)
		}},
	} {
		_, err := install(s, serve(t, c.f), c.sum, nil)
		failed(t, err, c.code)
		holds(t, s, old)
	}
	if asked != 1 {
		t.Errorf("a 404 was asked for %d times", asked)
	}
	_, err := install(s, "http://127.0.0.1:1/", sum, nil)
	failed(t, err, "DOWNLOAD_FAILED")
	for _, bad := range []Source{{}, {"http://h/", "abc"}, {"http://h/", strings.Repeat("g", 64)}, {"file:///etc/passwd", sum}, {"http:///x", sum}, {"h/x", sum}} {
		_, err := install(s, bad.URL, bad.SHA256, nil)
		failed(t, err, "INVALID_PROGRAM")
	}
	holds(t, s, old)
}

// TestTimeout counts from the beginning, over restarts.
func TestTimeout(t *testing.T) {
	_, sum := content(9, 10)
	s := open(t, Options{Timeout: time.Hour})
	_, err := s.Install(context.Background(), Source{"http://127.0.0.1:1/", sum}, time.Now().Add(-time.Hour), func(Progress) {})
	failed(t, err, "DOWNLOAD_FAILED")
}

// TestJob is there after a restart until it is ended, and a damaged one is none.
func TestJob(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	if _, found := s.Pending(); found {
		t.Error("a new store has a job")
	}
	want := Job{Ref: "r1", Source: Source{"http://h/", "x"}, Began: time.Unix(1000, 0).UTC()}
	if err := s.Begin(want); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = open(t, Options{Dir: dir})
	if j, found := s.Pending(); !found || j != want {
		t.Errorf("after a restart: %+v, %v", j, found)
	}
	if err := errors.Join(s.End(), s.End()); err != nil {
		t.Error(err)
	}
	if _, found := s.Pending(); found {
		t.Error("an ended job is pending")
	}
	if err := os.WriteFile(filepath.Join(dir, "job.json"), []byte(`{"requestRef":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found := s.Pending(); found {
		t.Error("a damaged job is pending")
	}
}

// TestSweep keeps the newest of the downloads that were not finished.
func TestSweep(t *testing.T) {
	s := open(t, Options{})
	for i := range 8 {
		_, sum := content(uint64(100+i), 10)
		name := s.path(sum + ".part")
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	_, oldest := content(100, 10)
	s.sweep(oldest)
	left, _ := filepath.Glob(s.path("*.part"))
	if len(left) != maxParts {
		t.Errorf("%d parts are left", len(left))
	}
	for i := range 8 {
		_, sum := content(uint64(100+i), 10)
		if _, err := os.Stat(s.path(sum + ".part")); (err == nil) != (i == 0 || i > 4) {
			t.Errorf("part %d: %v", i, err)
		}
	}
}

func TestContentRange(t *testing.T) {
	for in, want := range map[string]string{
		"bytes 5-9/10": "5 10 true", "bytes 0-0/*": "0 0 true", "bytes */7": "0 7 true", "": "0 0 false", "bytes 5/10": "5 10 false",
		"bytes -5-9/10": "0 10 false", "bytes 5-9": "0 0 false", "lines 1-2/3": "0 0 false", "bytes 1-2/x": "0 0 false", "bytes 1-2/-3": "0 0 false",
	} {
		first, total, ok := contentRange(in)
		if got := fmt.Sprint(first, total, ok); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
