package socket

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEveryTickIsRun blocks a loop for a hundred ticks: they are late, and all there.
func TestEveryTickIsRun(t *testing.T) {
	const d, n = time.Millisecond, 300
	e := start(t, Options{Loops: 2})
	var mu sync.Mutex
	ticks, late := map[*Loop][]int64{}, map[*Loop][]int64{}
	before := e.Now()
	stop := e.Every(d, func(l *Loop, intended, now int64) {
		mu.Lock()
		defer mu.Unlock()
		ticks[l] = append(ticks[l], intended)
		late[l] = append(late[l], now-intended)
	})
	slow := e.Loops()[0]
	begun := make(chan struct{})
	if err := slow.Do(func() {
		close(begun)
		for until := e.Now() + int64(100*d); e.Now() < until; { // busy, as a loop with too much to do
		}
	}); err != nil {
		t.Fatal(err)
	}
	receive(t, "the loop", begun)
	until(t, "the ticks", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ticks[e.Loops()[0]]) >= n && len(ticks[e.Loops()[1]]) >= n
	})
	stop()
	after := e.Now()
	stop()

	mu.Lock()
	defer mu.Unlock()
	for i, l := range e.Loops() {
		for j, intended := range ticks[l] {
			if want := ticks[l][0] + int64(j)*int64(d); intended != want {
				t.Fatalf("loop %d: tick %d was intended for %d, want %d", i, j, intended, want)
			}
		}
		if first := ticks[l][0]; first != ticks[slow][0] || first < before+int64(d) {
			t.Errorf("loop %d: the first tick was intended for %d, begun at %d", i, first, before)
		}
		if last := ticks[l][len(ticks[l])-1]; last > after {
			t.Errorf("loop %d: a tick of the future", i)
		}
		if early := slices.Min(late[l]); early < 0 {
			t.Errorf("loop %d: a tick was %d ns early", i, -early)
		}
		slices.Sort(late[l])
		t.Logf("loop %d: late by %v in the middle, %v at most", i, time.Duration(late[l][len(late[l])/2]), time.Duration(slices.Max(late[l])))
	}
	if worst := slices.Max(late[slow]); worst < int64(90*d) {
		t.Errorf("a loop that was blocked for %v was only %v late", 100*d, time.Duration(worst))
	}
	if e.Merged() != 0 {
		t.Errorf("%d ticks were merged", e.Merged())
	}
}

// TestTicksFarBehindAreMerged gives a loop a minute of ticks at once.
func TestTicksFarBehindAreMerged(t *testing.T) {
	e := start(t, Options{})
	var ran []int64
	s := &schedule{engine: e, every: int64(time.Second), f: func(_ *Loop, intended, _ int64) {
		ran = append(ran, (intended+int64(1000*time.Hour))/int64(time.Second))
	}}
	b := &beat{schedule: s, loop: e.Loops()[0]}
	s.begun = -int64(1000 * time.Hour) // all of it is in the past
	for _, c := range []struct {
		due, first, last, merged int64
	}{{10, 1, 10, 0}, {20, 11, 20, 0}, {80, 71, 80, 50}} {
		ran = nil
		b.due.Store(c.due)
		do(t, b.loop, b.run)
		if len(ran) == 0 || ran[0] != c.first || ran[len(ran)-1] != c.last || int64(len(ran)) != c.last-c.first+1 || e.Merged() != c.merged {
			t.Errorf("due %d: ran %v, merged %d", c.due, ran, e.Merged())
		}
	}
	s.every = int64(time.Hour) // longer than what a loop may be behind
	ran = nil
	b.due.Store(81)
	do(t, b.loop, b.run)
	if len(ran) != 1 || e.Merged() != 50 {
		t.Errorf("ran %v, merged %d", ran, e.Merged())
	}
}

// TestEveryStopsAtOnce stops schedules in the middle of long waits, and within a backlog.
func TestEveryStopsAtOnce(t *testing.T) {
	e := start(t, Options{})
	began := time.Now()
	e.Every(time.Hour, func(*Loop, int64, int64) {})()
	e.Every(0, func(*Loop, int64, int64) {})() // as often as may be
	var stopped atomic.Bool
	var after atomic.Int64
	stop := e.Every(10*time.Microsecond, func(*Loop, int64, int64) {
		if stopped.Load() {
			after.Add(1)
		}
	})
	until(t, "a while", func() bool { return e.Now() > int64(20*time.Millisecond) })
	stop()
	stopped.Store(true)
	do(t, e.Loops()[0], func() {})
	if after.Load() != 0 {
		t.Errorf("%d ticks after the end", after.Load())
	}
	if took := time.Since(began); took > patience {
		t.Errorf("stopping took %v", took)
	}
}
