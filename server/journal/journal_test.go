package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestRoundTrip appends records of all sizes over several openings.
func TestRoundTrip(t *testing.T) {
	random := chance(t)
	o := options(t.TempDir())
	o.SegmentBytes = 1 << 20
	var want []string
	last := uint64(0)
	for range 6 {
		j, got := open(t, o)
		same(t, got, want)
		if j.Stored() != last || j.Mark() != last+1 {
			t.Fatalf("opened at %d, next %d, closed at %d", j.Stored(), j.Mark(), last)
		}
		for range 40 {
			size := random.IntN(300)
			switch random.IntN(10) {
			case 0:
				size = random.IntN(1<<20 + 1)
			case 1:
				size = 0
			}
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			cut := random.IntN(size + 1)
			mark := j.Append(b[:cut], b[cut:])
			want = append(want, string(b))
			if mark < last {
				t.Fatalf("mark %d after %d", mark, last)
			}
			if last = mark; random.IntN(5) == 0 {
				stored(t, j, mark)
			}
		}
		shut(t, j)
		last = j.Stored()
	}
	j, got := open(t, o)
	same(t, got, want)
	shut(t, j)
}

// TestGroups has many append at once: groups are far fewer than records, marks rise, each
// one's order is kept, and OnStored hears of every group.
func TestGroups(t *testing.T) {
	o := options(t.TempDir())
	o.SegmentBytes = 1 << 20
	j, _ := open(t, o)
	var heard []uint64
	j.OnStored(func(mark uint64) { heard = append(heard, mark) })
	const writers, each = 50, 400
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			last := uint64(0)
			for i := range each {
				mark := j.Append(fmt.Appendf(nil, "%d:", w), fmt.Appendf(nil, "%d", i))
				if mark < last || mark == 0 {
					t.Errorf("mark %d after %d", mark, last)
				}
				last = mark
			}
			if err := j.Wait(context.Background(), last); err != nil || j.Stored() < last {
				t.Errorf("mark %d, stored %d: %v", last, j.Stored(), err)
			}
		})
	}
	wg.Wait()
	s := j.Stats()
	if s.Records != writers*each || s.Groups*10 > s.Records || s.Unstored != 0 || s.Syncs < s.Groups || s.SyncTime == 0 || s.DiskBytes == 0 {
		t.Errorf("figures: %+v", s)
	}
	shut(t, j)
	for i, mark := range heard {
		if mark != uint64(i+1) {
			t.Fatalf("heard of %d as number %d", mark, i+1)
		}
	}
	if uint64(len(heard)) != s.Groups {
		t.Errorf("heard of %d groups of %d", len(heard), s.Groups)
	}
	next := map[string]int{}
	j, got := open(t, o)
	for _, r := range got {
		w, n, _ := strings.Cut(r, ":")
		if n != fmt.Sprint(next[w]) {
			t.Fatalf("writer %s: record %s instead of %d", w, n, next[w])
		}
		next[w]++
	}
	if len(got) != writers*each {
		t.Errorf("%d records", len(got))
	}
	shut(t, j)
}

// TestLargeGroups splits what is more than a group holds, and what waits is bounded by Full.
func TestLargeGroups(t *testing.T) {
	o := options(t.TempDir())
	o.MaxUnstored = 1 << 20
	hold := make(chan struct{})
	o.fails = func(op, name string) error {
		if op == "sync" {
			<-hold
		}
		return nil
	}
	j, _ := open(t, o)
	var want []string
	for i := range 10 {
		want = append(want, strings.Repeat(fmt.Sprint(i), 1<<20))
		j.Append(nil, []byte(want[i]))
	}
	huge := strings.Repeat("huge", 6<<20)
	want = append(want, huge, "end")
	j.Append([]byte(huge), nil)
	last := j.Append([]byte("end"), nil)
	if last < 4 || !j.Full() || j.Failing() != nil {
		t.Errorf("mark %d, full %v, failing %v", last, j.Full(), j.Failing())
	}
	close(hold)
	stored(t, j, last)
	until(t, "room", func() bool { return !j.Full() })
	shut(t, j)
	j, got := open(t, o)
	same(t, got, want)
	shut(t, j)
}

// TestClosed: what comes after Close is not kept, and nobody waits for it.
func TestClosed(t *testing.T) {
	j, _ := open(t, options(t.TempDir()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := j.Wait(ctx, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ended with %v", err)
	}
	waited := make(chan error)
	go func() { waited <- j.Wait(context.Background(), 7) }()
	keepEach(t, j, "a")
	shut(t, j)
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("the wait ended with %v", err)
	}
	if err := j.Wait(context.Background(), j.Append([]byte("late"), nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := j.Wait(context.Background(), 1); err != nil {
		t.Errorf("what was stored before Close: %v", err)
	}
}

// TestOpenStopsAtTheCaller: an error of fn is the caller's.
func TestOpenStopsAtTheCaller(t *testing.T) {
	o := options(t.TempDir())
	j, _ := open(t, o)
	keepEach(t, j, "a", "b")
	shut(t, j)
	stop := errors.New("no more")
	if _, err := Open(o, func(uint64, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(o.Dir); len(entries) != 1 {
		t.Errorf("it left %v", entries)
	}
}

// TestTruncate frees files, also when nothing is appended, and survives a restart.
func TestTruncate(t *testing.T) {
	o := options(t.TempDir())
	j, _ := open(t, o)
	want := numbered(100, 2000)
	keepEach(t, j, want...)
	before := j.Stats().DiskBytes
	j.Truncate(95)
	j.Truncate(3) // marks do not fall
	until(t, "files to go", func() bool { return j.Stats().DiskBytes < before/3 })
	shut(t, j)
	j, got := open(t, o)
	same(t, got, want[94:])
	j.Truncate(1000) // the last group stays
	keepEach(t, j, "more")
	shut(t, j)
	j, got = open(t, o)
	if len(got) == 0 || got[len(got)-1] != "more" || len(got) > 2 || j.Stored() != 101 {
		t.Errorf("stored %d, %d records", j.Stored(), len(got))
	}
	shut(t, j)
}

// TestSealed closes right after the group that fills a segment: the next segment is not
// begun yet, and raft-wal alone would refuse everything from then on.
func TestSealed(t *testing.T) {
	o := options(t.TempDir())
	o.SegmentBytes = 4 << 10
	var want []string
	for i := range 30 {
		j, got := open(t, o)
		same(t, got, want)
		want = append(want, fmt.Sprint(i, strings.Repeat("x", 5000)))
		j.Append(nil, []byte(want[i]))
		shut(t, j)
	}
}

// TestInspect reads while a process appends, what was closed, and nothing where there is none.
func TestInspect(t *testing.T) {
	o := options(t.TempDir())
	if _, err := Inspect(o.Dir, nil); err == nil || !strings.Contains(err.Error(), "there is no journal") {
		t.Errorf("an empty directory: %v", err)
	}
	j, _ := open(t, o)
	want := numbered(50, 2000)
	keepEach(t, j, want...)
	for _, live := range []bool{true, false} {
		if !live {
			shut(t, j)
		}
		was := files(t, j.where.dir)
		var got []string
		info, err := Inspect(o.Dir, func(_ uint64, rec []byte) error {
			got = append(got, string(rec))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		if info.First != 1 || info.Last != 50 || info.Groups != 50 || info.Records != 50 || info.Format != 1 || info.Segments < 3 ||
			info.LostGroups+info.LostBytes != 0 || len(info.Damage) != 0 || info.DiskBytes == 0 || info.Newest.Before(info.Oldest) {
			t.Errorf("live %v: %+v", live, info)
		}
		if now := files(t, j.where.dir); !live && fmt.Sprint(now) != fmt.Sprint(was) {
			t.Error("a file was changed")
		}
	}
	if info, err := Inspect(filepath.Join(o.Dir, "journal"), nil); err != nil || info.Records != 50 {
		t.Errorf("the log's own directory: %+v, %v", info, err)
	}
}

// TestInspectLive reads over and over while groups come and segments go.
func TestInspectLive(t *testing.T) {
	o := options(t.TempDir())
	j, _ := open(t, o)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			mark := j.Append([]byte("record"), make([]byte, 1000))
			if _ = j.Wait(context.Background(), mark); i%50 == 0 {
				j.Truncate(mark)
			}
		}
	})
	for range 100 {
		last := uint64(0)
		info, err := Inspect(o.Dir, func(mark uint64, rec []byte) error {
			if mark < last || len(rec) != 1006 {
				t.Errorf("mark %d after %d, %d bytes", mark, last, len(rec))
			}
			last = mark
			return nil
		})
		if err != nil {
			t.Errorf("%+v: %v", info, err)
		}
		if len(info.Damage) > 0 || info.LostGroups > 0 {
			t.Errorf("%+v", info)
		}
	}
	close(stop)
	wg.Wait()
	shut(t, j)
}

// TestAppendAllocates nothing once its buffers have grown.
func TestAppendAllocates(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	o := options(t.TempDir())
	j, _ := open(t, o)
	head, body := make([]byte, 40), make([]byte, 160)
	gate := make(chan struct{})
	j.OnStored(func(uint64) { <-gate })
	round := func() { // Append alone runs meanwhile: the committer is held
		for range 2000 {
			j.Append(head, body)
		}
	}
	j.Append(head, body)
	until(t, "the first group", func() bool { return j.Stored() == 1 })
	for range 3 { // AllocsPerRun has two rounds
		round()
		round()
		round()
		gate <- struct{}{}
		until(t, "the group", func() bool { return j.Stats().Unstored == 0 })
	}
	if n := testing.AllocsPerRun(1, round); n > 0 {
		t.Errorf("%v allocations in 2,000 appends", n)
	}
	close(gate)
	shut(t, j)
}
