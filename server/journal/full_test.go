package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestDiskFull appends until the disk is full, says so, and stores everything when there
// is room again.
func TestDiskFull(t *testing.T) {
	random := chance(t)
	for range 3 {
		o := options(smallDisk(t, "2m"))
		o.SegmentBytes = 256 << 10
		logs := &logged{}
		o.Logger = logs.logger()
		j, _ := open(t, o)
		var want []string
		add := func() uint64 {
			want = append(want, numbered(1, random.IntN(9000))...)
			return j.Append([]byte(want[len(want)-1]), nil)
		}
		mark := add()
		stored(t, j, mark)
		ballast := fill(t, o.Dir)
		until(t, "the disk to be full", func() bool {
			if j.Stored() >= mark { // one at a time: what waits must fit when there is room
				mark = add()
			}
			return j.Failing() != nil
		})
		for range 100 {
			add()
		}
		if err := j.Failing(); !errors.Is(err, syscall.ENOSPC) || !j.Full() || j.Stats().FailingSince.IsZero() {
			t.Errorf("failing %v, full %v, %+v", err, j.Full(), j.Stats())
		}
		tries := j.Stats().Failures
		until(t, "more tries", func() bool { return j.Stats().Failures > tries+3 })
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		stored(t, j, add())
		until(t, "the end of it", func() bool { return !j.Full() && j.Failing() == nil })
		if n := strings.Count(logs.String(), "the disk refuses"); n != 1 || !strings.Contains(logs.String(), "takes the journal again") {
			t.Error(logs.String())
		}
		shut(t, j)
		j, got := open(t, o)
		same(t, got, want)
		shut(t, j)
	}
}

// TestTruncateMakesRoom: on a full disk the head can be cut off, and that ends it.
func TestTruncateMakesRoom(t *testing.T) {
	o := options(smallDisk(t, "2m"))
	o.SegmentBytes = 64 << 10
	j, _ := open(t, o)
	keepEach(t, j, numbered(30, 20<<10)...)
	fill(t, o.Dir)
	var mark uint64
	until(t, "the disk to be full", func() bool {
		if j.Stored() >= mark { // one at a time: what waits must fit when there is room
			mark = j.Append(make([]byte, 5000), nil)
		}
		return j.Failing() != nil
	})
	j.Truncate(25)
	stored(t, j, mark)
	shut(t, j)
}

// TestDiskFullAtStart reads what is there and begins as a failing journal.
func TestDiskFullAtStart(t *testing.T) {
	o := options(smallDisk(t, "1m"))
	o.SegmentBytes = 4 << 10
	j, _ := open(t, o)
	keepEach(t, j, strings.Repeat("fills a segment", 400))
	shut(t, j)
	if err := os.Remove(filepath.Join(j.where.dir, metaSpare)); err != nil { // its room is given away too
		t.Fatal(err)
	}
	ballast := fill(t, o.Dir)
	j, got := open(t, o)
	if len(got) != 1 || j.Mark() != 2 || j.Stored() != 1 {
		t.Errorf("%d records, mark %d, stored %d", len(got), j.Mark(), j.Stored())
	}
	mark := j.Append([]byte("while it is full"), nil)
	until(t, "it to fail, or to be stored where the next segment was begun in time", func() bool {
		return j.Failing() != nil || j.Stored() == mark
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	stored(t, j, mark)
	shut(t, j)
	j, got = open(t, o)
	if len(got) != 2 || got[1] != "while it is full" {
		t.Errorf("%d records", len(got))
	}
	shut(t, j)
}

// TestCloseWhileFailing ends soon and says what is lost.
func TestCloseWhileFailing(t *testing.T) {
	o := options(t.TempDir())
	o.Retry = time.Hour
	var broken atomic.Bool
	o.fails = func(op, _ string) error {
		if broken.Load() {
			return &os.PathError{Op: op, Err: syscall.EIO}
		}
		return nil
	}
	j, _ := open(t, o)
	keepEach(t, j, "a")
	broken.Store(true)
	mark := j.Append([]byte("b"), nil)
	until(t, "it to fail", func() bool { return j.Failing() != nil })
	waited := make(chan error)
	go func() { waited <- j.Wait(context.Background(), mark) }()
	if err := j.Close(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "could not be stored") {
		t.Errorf("closed with %v", err)
	}
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("the wait ended with %v", err)
	}
}

// TestFaults fails calls of the file system at random: nothing is lost, nothing is there
// twice, and what was said to be stored was synced by a call that succeeded.
func TestFaults(t *testing.T) {
	random := chance(t)
	for range 20 {
		o := options(quickDir(t))
		o.Retry = 50 * time.Microsecond
		o.SegmentBytes = 8 << 10
		var mu sync.Mutex
		armed, hits := false, 0
		o.fails = func(op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			if !armed || random.IntN(4) > 0 {
				return nil
			}
			hits++
			return &os.PathError{Op: op, Path: name, Err: []syscall.Errno{syscall.EIO, syscall.ENOSPC}[random.IntN(2)]}
		}
		arm := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			armed = on
		}
		logs := &logged{}
		o.Logger = logs.logger()
		j, _ := open(t, o)
		arm(true)
		var want []string
		for i := range 100 {
			want = append(want, numbered(1, (i*1237)%5000)...)
			if mark := j.Append(nil, []byte(want[i])); i%7 == 0 {
				stored(t, j, mark)
			}
		}
		stored(t, j, j.Mark()-1)
		arm(false)
		shut(t, j)
		if hits == 0 {
			t.Error("nothing failed")
		}
		j, got := open(t, o)
		same(t, got, want)
		shut(t, j)
		if entries, _ := os.ReadDir(o.Dir); len(entries) != 1 {
			t.Fatalf("%v\n%s", entries, logs)
		}
	}
}
