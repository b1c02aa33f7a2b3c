package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"subway/core/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func now() wire.Time { return wire.Time(time.Now().UnixNano()) }

func open(t testing.TB, dir string, maxBytes int64, failing func(error)) (*Store, *Contents) {
	t.Helper()
	s, c, err := Open(Options{Dir: dir, Now: now(), MaxBytes: maxBytes, Retry: 20 * time.Millisecond, Failing: failing})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func wait(t testing.TB, what func(done func(error))) error {
	t.Helper()
	got := make(chan error, 1)
	what(func(err error) { got <- err })
	select {
	case err := <-got:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("the store did not answer")
		return nil
	}
}

func read(t testing.TB, s *Store, ref string) string {
	t.Helper()
	var answer []byte
	if err := wait(t, func(done func(error)) {
		s.ReadAnswer(ref, func(msg []byte, err error) {
			answer = msg
			done(err)
		})
	}); err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func items(t testing.TB, s *Store, after int64, maxBytes int) (seqs []int64, texts string) {
	t.Helper()
	if err := wait(t, func(done func(error)) {
		s.ReadItems(after, maxBytes, func(is []Item, err error) {
			for _, i := range is {
				seqs = append(seqs, i.Seq)
				texts += string(i.Msg) + " "
			}
			done(err)
		})
	}); err != nil {
		t.Fatal(err)
	}
	return seqs, texts
}

// TestKept opens again what was written.
func TestKept(t *testing.T) {
	dir := t.TempDir() + "/a dir?with=signs%20"
	s, c := open(t, dir, 0, nil)
	if c.Existed || len(c.Records) != 0 {
		t.Fatalf("new: %+v", c)
	}
	first := c.Epoch
	for i := range 3 {
		s.Remember(Record{Ref: fmt.Sprintf("r%d", i), Device: "td-1", Deadline: 7, TimeoutMs: 5}, nil)
	}
	s.Remember(Record{Ref: "r0", Device: "other"}, nil) // known: nothing changes
	s.Answer(Record{Ref: "r1", Device: "td-1"}, []byte(`{"a":1e400}`), nil)
	s.Answer(Record{Ref: "fresh", Device: "td-2", Deadline: 9}, []byte(`{}`), nil)
	s.Extend("r2", 70)
	s.Confirm([]string{"r1", "nowhere"})
	for i := range 5 {
		s.Keep(Item{Seq: int64(i + 1), Kind: Status, Device: "td-1", Msg: fmt.Appendf(nil, "m%d", i+1)}, nil)
	}
	s.Drop(2, 4)
	s.Forget([]string{"r0"})
	if got := read(t, s, "r1"); got != `{"a":1e400}` {
		t.Errorf("read %s", got)
	}
	if got := read(t, s, "r2") + read(t, s, "nowhere"); got != "" {
		t.Errorf("read %s", got)
	}
	if seqs, texts := items(t, s, 0, 4); fmt.Sprint(seqs) != "[1 3]" || texts != "m1 m3 " {
		t.Errorf("read %v %s", seqs, texts)
	}
	if seqs, _ := items(t, s, 3, 0); fmt.Sprint(seqs) != "[5]" {
		t.Errorf("read %v", seqs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, c = open(t, dir, 0, nil)
	defer s.Close()
	if !c.Existed || c.Epoch <= first || c.SetAside != "" || len(c.Items) != 3 || c.Items[1].Size != 2 {
		t.Errorf("opened again: %+v", c)
	}
	records := map[string]Record{}
	for _, r := range c.Records {
		records[r.Ref] = r
	}
	want := map[string]Record{
		"r1": {"r1", "td-1", 7, 5, 11, true}, "r2": {"r2", "td-1", 70, 5, 0, false}, "fresh": {"fresh", "td-2", 9, 0, 2, false},
	}
	if fmt.Sprint(records) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", records, want)
	}
}

// TestRefused keeps what may not be lost in memory, readable, while nothing can be written,
// and writes it when it can be.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	var failing, recovered atomic.Int64
	s, _ := open(t, dir, 1<<20, func(why error) {
		if why != nil {
			failing.Add(1)
		} else {
			recovered.Add(1)
		}
	})
	big := bytes.Repeat([]byte("x"), 900<<10)
	if err := wait(t, func(done func(error)) { s.Keep(Item{Seq: 1, Kind: Status, Msg: big}, done) }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s.Keep(Item{Seq: int64(i + 2), Kind: Response, Msg: big}, nil)
	}
	s.Answer(Record{Ref: "r1"}, []byte("answer"), nil)
	if err := wait(t, func(done func(error)) { s.Remember(Record{Ref: "r2"}, done) }); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a full store said %v", err)
	}
	if read(t, s, "r1") != "answer" {
		t.Error("an answer that waits for the disk cannot be read")
	}
	if seqs, _ := items(t, s, 1, 1<<30); fmt.Sprint(seqs) != "[2 3 4]" {
		t.Errorf("items that wait for the disk: %v", seqs)
	}
	if failing.Load() != 1 {
		t.Errorf("%d times told of failing", failing.Load())
	}
	s.Drop(1, 3, 4) // makes room for what was queued before it
	if err := wait(t, func(done func(error)) { s.Keep(Item{Seq: 5, Kind: Response, Msg: []byte("y")}, done) }); err != nil {
		t.Error(err)
	}
	if seqs, _ := items(t, s, 0, 1<<30); fmt.Sprint(seqs) != "[2 5]" || recovered.Load() != 1 {
		t.Errorf("items: %v, %d times recovered", seqs, recovered.Load())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, c := open(t, dir, 1<<20, nil)
	defer s.Close()
	if len(c.Items) != 2 || len(c.Records) != 1 {
		t.Errorf("opened again: %+v", c)
	}
}

// TestOneProcess: a second one is told so.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 0, nil)
	if _, _, err := Open(Options{Dir: dir, Now: now()}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, func(done func(error)) { s.Remember(Record{Ref: "late"}, done) }); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := wait(t, func(done func(error)) { s.ReadAnswer("late", func(_ []byte, err error) { done(err) }) }); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestDamage flips bytes all over a store: it is opened or set aside, and never more than that.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir, 0, nil)
	for i := range 200 {
		s.Answer(Record{Ref: fmt.Sprintf("ref-%d", i), Device: "td-1"}, bytes.Repeat([]byte("z"), 300), nil)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	aside := 0
	for at := 0; at < len(whole); at += 509 {
		spoiled := bytes.Clone(whole)
		for i := at; i < min(at+8, len(spoiled)); i++ {
			spoiled[i] ^= 0xff
		}
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, fileName), spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		s, c := open(t, d, 0, nil)
		if c.SetAside != "" {
			aside++
			if b, err := os.ReadFile(c.SetAside); err != nil || !bytes.Equal(b, spoiled) || c.Distrust == 0 {
				t.Errorf("byte %d: not set aside as it was: %v", at, err)
			}
		}
		if err := wait(t, func(done func(error)) { s.Remember(Record{Ref: "new"}, done) }); err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	if aside == 0 {
		t.Error("no damage was noticed")
	}
	t.Logf("%d set aside", aside)
}

// BenchmarkRemember measures a ref made stable, by how many come at the same time.
func BenchmarkRemember(b *testing.B) {
	for _, group := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(group), func(b *testing.B) {
			s, _ := open(b, b.TempDir(), 0, nil)
			defer s.Close()
			left := make(chan struct{}, group)
			for range group {
				left <- struct{}{}
			}
			b.ResetTimer()
			for i := range b.N {
				<-left
				s.Remember(Record{Ref: fmt.Sprintf("cmd-1705744800000-%09d", i), Device: "td-01"}, func(error) { left <- struct{}{} })
			}
			for range group {
				<-left
			}
		})
	}
}
