package journal

import (
	"sync"
	"testing"
)

// What is appended during one Hold is in one group, while others append and groups are stored.
func TestHold(t *testing.T) {
	j, _ := open(t, options(quickDir(t)))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 300 {
				j.Hold()
				first := j.Append([]byte("end"), nil)
				j.Append([]byte("between"), nil)
				last := j.Append([]byte("callback"), nil)
				j.Release()
				if first != last {
					t.Errorf("marks %d and %d", first, last)
				}
				j.Append([]byte("other"), nil)
			}
		})
	}
	all.Wait()
	shut(t, j)
	if n := j.Stats().Groups; n < 2 {
		t.Errorf("%d groups", n)
	}
}
