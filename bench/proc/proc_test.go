package proc

import (
	"os"
	"testing"
	"time"
)

func TestOwnProcess(t *testing.T) {
	pid := os.Getpid()
	before, err := CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	own := OwnCPUTime()
	for deadline := time.Now().Add(5 * time.Second); OwnCPUTime()-own < 50*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatal("no CPU time in 5 s of spinning")
		}
	}
	after, err := CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	if used := after - before; used < 50*time.Millisecond || used > 10*time.Second {
		t.Errorf("50 ms of spinning counted as %v", used)
	}
	user, system, err := CPUSplit(pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := user + system; got < after-50*time.Millisecond || got > after+100*time.Millisecond {
		t.Errorf("stat says %v, the clock %v", got, after)
	}
	if rss, err := RSS(pid); err != nil || rss < 1<<20 || rss > 1<<34 {
		t.Errorf("RSS %d, %v", rss, err)
	}
}

func TestNoProcess(t *testing.T) {
	const none = 1 << 22 // the kernel's largest pid, exclusive
	if _, err := CPUTime(none); err == nil {
		t.Error("CPUTime of nobody")
	}
	if _, err := RSS(none); err == nil {
		t.Error("RSS of nobody")
	}
}
