package edge

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// logged collects what an edge logs.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), part)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// smallDisk mounts a disk of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("a small disk cannot be mounted: %v", err)
		}
		t.Skipf("a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all that is left of a disk; the file returned gives it back when removed.
func fill(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for {
			if _, err = f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return name
}

// TestDiskFull refuses new commands and says so, passes on answers to those it knows, and
// recovers without a restart; nothing is lost by it.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	st := newStation(t)
	logs := &logged{}
	opt := options("edge-1", dir, st.url())
	opt.Logger = logs.logger()
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "before", "")
	l.command("td-1", "slow", "")
	d.expect("COMMAND", "before")
	d.expect("COMMAND", "slow")
	ballast := fill(t, dir)
	refused := ""
	for n := 0; refused == ""; n++ { // the log has some room of its own
		ref := fmt.Sprintf("full%d", n)
		l.command("td-1", ref, "")
		until(t, "the end of "+ref, func() bool {
			if m, ok := l.take("ERROR", ref); ok {
				if refused = ref; m.Code != "OVERLOADED" || m.Details["retryAfter"] == nil {
					t.Errorf("refused with %s", m.raw)
				}
			}
			return refused != "" || d.count("COMMAND", ref) > 0
		})
	}
	if !logs.has("the disk refuses") {
		t.Error("nothing was logged")
	}
	d.respond("before")
	d.respond("unknown")
	l.expect("COMMAND_RESPONSE", "before")
	l.expect("COMMAND_RESPONSE", "unknown")
	l.command("td-1", "before", "")
	l.expect("COMMAND_RESPONSE", "before") // from memory
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	until(t, "the disk to be seen to be free", func() bool { return logs.has("the disk takes changes again") })
	l.command("td-1", refused, "") // a command that was refused used up no ref
	d.expect("COMMAND", refused)
	stopEdge(t, e)
	startEdge(t, opt)
	l = st.accept()
	l.command("td-1", "before", "")
	l.expect("COMMAND_RESPONSE", "before")
}

// TestDiskFullAtStart starts with a store that can be read.
func TestDiskFullAtStart(t *testing.T) {
	dir := smallDisk(t)
	st := newStation(t)
	opt := options("edge-1", dir, st.url())
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "r1", "")
	d.expect("COMMAND", "r1")
	d.respond("r1")
	l.expect("COMMAND_RESPONSE", "r1")
	stopEdge(t, e)
	fill(t, dir)
	startEdge(t, opt)
	l = st.accept()
	l.command("td-1", "r1", "")
	l.expect("COMMAND_RESPONSE", "r1")
}

// TestStoreLimit refuses new commands when the store holds as much as it may.
func TestStoreLimit(t *testing.T) {
	st := newStation(t)
	opt := options("edge-1", t.TempDir(), st.url())
	opt.StoreBytes = 1 << 20
	e := startEdge(t, opt)
	l := st.accept()
	d := device1(t, e.Addr().String(), "td-1", nil)
	l.command("td-1", "r1", "")
	l.command("td-1", "r2", "")
	d.expect("COMMAND", "r2")
	d.send(`{"type":"COMMAND_RESPONSE","requestRef":"r1","status":"COMPLETED","result":"%s"}`, strings.Repeat("x", 1<<20-100))
	l.expect("COMMAND_RESPONSE", "r1")
	l.command("td-1", "r3", "")
	if m := l.expect("ERROR", "r3"); m.Code != "OVERLOADED" {
		t.Errorf("refused with %s", m.raw)
	}
	d.respond("r2")
	l.expect("COMMAND_RESPONSE", "r2")
	l.command("td-1", "r1", "")
	l.expect("COMMAND_RESPONSE", "r1")
}

// TestBacklogBound drops the oldest status first, then progress, and never a response
// whose command has not timed out.
func TestBacklogBound(t *testing.T) {
	st := newStation(t)
	x := newProxy(t, st.srv.Addr().String())
	opt := options("edge-1", t.TempDir(), x.url())
	opt.StoreBytes = 1 << 20
	e := startEdge(t, opt)
	l := st.accept()
	var ds []*party
	for i := range 4 {
		ds = append(ds, device1(t, e.Addr().String(), fmt.Sprintf("td-%d", i), nil))
	}
	for i := range 3 {
		l.command("td-0", fmt.Sprintf("r%d", i), "")
		ds[0].expect("COMMAND", fmt.Sprintf("r%d", i))
	}
	_ = x.lis.Close()
	x.cut()
	until(t, "the link to be down", func() bool { return !e.isUp() })
	big := strings.Repeat("x", 300<<10)
	for i, d := range ds {
		d.send(`{"type":"DEVICE_STATUS","clientId":"td-%d","status":{"x":"%s"}}`, i, big)
		d.sync()
	}
	left := func() (status, progress, responses int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.backlog.kinds[3].Len(), e.backlog.kinds[2].Len(), e.backlog.kinds[1].Len()
	}
	if s, _, _ := left(); s != 3 {
		t.Errorf("%d of 4 status were kept", s)
	}
	ds[0].send(`{"type":"PROGRESS_UPDATE","requestRef":"r0","progress":{"x":"%s"}}`, big)
	ds[0].send(`{"type":"COMMAND_RESPONSE","requestRef":"r0","status":"COMPLETED","result":"%s"}`, big)
	ds[0].send(`{"type":"COMMAND_RESPONSE","requestRef":"r1","status":"COMPLETED","result":"%s"}`, big)
	ds[0].sync()
	if s, p, r := left(); s != 0 || p != 0 || r != 2 {
		t.Errorf("status %d, progress %d, responses %d were kept", s, p, r)
	}
	ds[0].send(`{"type":"COMMAND_RESPONSE","requestRef":"r2","status":"COMPLETED","result":"%s"}`, big)
	ds[0].send(`{"type":"COMMAND_RESPONSE","requestRef":"orphan","status":"COMPLETED","result":"%s"}`, strings.Repeat("y", 900<<10))
	if m := ds[0].expect("ERROR", "orphan"); m.Code != "OVERLOADED" {
		t.Errorf("told %s", m.raw)
	}
	if _, _, r := left(); r != 3 {
		t.Errorf("%d of 3 responses were kept", r)
	}
}

// TestStoreSetAside: a store that is damaged or newer is kept under another name, and the
// edge works on without asking the Gateway to repeat what it cannot recognise.
func TestStoreSetAside(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"damaged": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 100; i < len(b); i++ {
				b[i] ^= 0x5a
			}
			write(t, path, b)
		},
		"no database": func(t *testing.T, path string) { write(t, path, bytes.Repeat([]byte("lorem ipsum "), 1000)) },
		"truncated": func(t *testing.T, path string) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		},
		"empty": func(t *testing.T, path string) { write(t, path, nil) },
		"newer": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[63] = 7 // user_version, see the SQLite file format, section 1.3
			write(t, path, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStation(t)
			dir := t.TempDir()
			opt := options("edge-1", dir, st.url())
			e := startEdge(t, opt)
			l := st.accept()
			d := device1(t, e.Addr().String(), "td-1", nil)
			l.command("td-1", "r1", "")
			d.expect("COMMAND", "r1")
			stopEdge(t, e)
			spoil(t, filepath.Join(dir, "store.db"))
			spoiled, err := os.ReadFile(filepath.Join(dir, "store.db"))
			if err != nil {
				t.Fatal(err)
			}
			logs := &logged{}
			opt.Logger = logs.logger()
			e = startEdge(t, opt)
			if !logs.has("the store cannot be used") || name == "newer" && !logs.has("newer version") {
				t.Error("nothing was logged")
			}
			aside, _ := filepath.Glob(filepath.Join(dir, "store.db.set-aside-*"))
			if len(aside) != 1 {
				t.Fatalf("set aside: %v", aside)
			}
			if b, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(b, spoiled) {
				t.Errorf("what was set aside is not what was there: %v", err)
			}
			l = st.accept()
			if m := l.expect("REGISTER", ""); len(m.Capabilities) != 0 {
				t.Errorf("registered with %s", m.raw)
			}
			d = device1(t, e.Addr().String(), "td-1", nil)
			l.command("td-1", "r2", "")
			d.expect("COMMAND", "r2")
			d.respond("r2")
			l.expect("COMMAND_RESPONSE", "r2")
			stopEdge(t, e) // and it is remembered
			startEdge(t, opt)
			if m := st.accept().expect("REGISTER", ""); len(m.Capabilities) != 0 {
				t.Errorf("after another start it registered with %s", m.raw)
			}
		})
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	startEdge(t, options("edge-1", dir, "ws://127.0.0.1:1/ws"))
	for want, opt := range map[string]Options{
		"in use by another process": options("edge-1", dir, "ws://127.0.0.1:1/ws"),
		"no address to connect to":  options("edge-1", t.TempDir()),
		"is not an id":              options("edge 1", t.TempDir(), "ws://127.0.0.1:1/ws"),
		"needs a data directory":    options("edge-1", "", "ws://127.0.0.1:1/ws"),
		"should look like":          options("edge-1", t.TempDir(), "http://127.0.0.1:1/ws"),
		"not a loopback":            func() Options { o := options("edge-1", t.TempDir(), "ws://x/ws"); o.Listen = ":0"; return o }(),
		"not a directory":           options("edge-1", "/dev/null", "ws://127.0.0.1:1/ws"),
	} {
		if _, err := Start(opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted %q, got %v", want, err)
		}
	}
}
