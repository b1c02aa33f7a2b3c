package journal

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runChild appends to a journal until it is killed and prints what is stored: the number
// of the first records that are, for each of its writers.
func runChild(dir string) int {
	o := options(dir)
	var next [childWriters]int
	j, err := Open(o, func(_ uint64, rec []byte) error {
		w, n, err := parseChild(string(rec))
		if err == nil {
			next[w] = n + 1
		}
		return err
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := range childWriters {
		wg.Go(func() {
			for n := next[w]; ; n++ {
				mark := j.Append(fmt.Appendf(nil, "%d %d ", w, n), childBody(w, n))
				if err := j.Wait(context.Background(), mark); err != nil {
					return
				}
				mu.Lock()
				fmt.Printf("%d %d\n", w, n)
				mu.Unlock()
				if n%40 == 0 {
					j.Truncate(min(mark/2, mark-1))
				}
			}
		})
	}
	wg.Wait()
	return 0
}

const childWriters = 4

// childBody depends on the record's number, so that a torn one shows.
func childBody(w, n int) []byte {
	return []byte(strings.Repeat(fmt.Sprint(w*7919+n, ","), 1+(n*37)%200))
}

func parseChild(rec string) (w, n int, err error) {
	parts := strings.SplitN(rec, " ", 3)
	if len(parts) != 3 {
		return 0, 0, fmt.Errorf("record %.40q", rec)
	}
	w, err = strconv.Atoi(parts[0])
	if err == nil {
		n, err = strconv.Atoi(parts[1])
	}
	if err != nil || w < 0 || w >= childWriters || parts[2] != string(childBody(w, n)) {
		return 0, 0, fmt.Errorf("torn record %.40q: %v", rec, err)
	}
	return w, n, nil
}

// TestKilled kills a process that appends, over and over in one directory. What it said was
// stored is there, in order and whole.
func TestKilled(t *testing.T) {
	random := chance(t)
	dir := t.TempDir()
	total := 0
	for range 15 {
		said := killedAfter(t, dir, time.Duration(1+random.IntN(60))*time.Millisecond)
		logs := &logged{}
		o := options(dir)
		o.Logger = logs.logger()
		var found [childWriters]int
		for w := range found {
			found[w] = -1
		}
		j, err := Open(o, func(_ uint64, rec []byte) error {
			w, n, err := parseChild(string(rec))
			if err == nil && found[w] >= 0 && n != found[w]+1 {
				err = fmt.Errorf("writer %d: record %d behind %d", w, n, found[w])
			}
			if err == nil {
				found[w] = n
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		shut(t, j)
		if strings.Contains(logs.String(), "damaged") {
			t.Fatal(logs.String())
		}
		for w := range said {
			if found[w] < said[w] {
				t.Fatalf("writer %d: %d was stored, %d is there", w, said[w], found[w])
			}
			total = max(total, said[w])
		}
	}
	if total == 0 {
		t.Error("nothing was stored")
	}
	t.Logf("up to record %d", total)
}

// killedAfter runs a child that long after its first record, and returns what it said.
func killedAfter(t *testing.T, dir string, life time.Duration) (said [childWriters]int) {
	t.Helper()
	for w := range said {
		said[w] = -1
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = cmd.Process.Signal(syscall.SIGKILL) }
	guard := time.AfterFunc(patience, kill)
	defer guard.Stop()
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		var w, n int
		if _, err := fmt.Sscanf(lines.Text(), "%d %d", &w, &n); err != nil {
			t.Errorf("the child said %s", lines.Text())
			break
		}
		said[w] = n
		if first {
			time.AfterFunc(life, kill)
		}
	}
	kill()
	_ = cmd.Wait()
	return said
}
