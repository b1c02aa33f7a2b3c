package front

import "sync/atomic"

// Budget bounds the bytes that all incomplete messages of a server hold together.
// It may be used by any goroutine.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns the bytes that are taken at the moment.
func (b *Budget) Used() int64 { return b.used.Load() }

// take takes n bytes, or none and returns false where fewer are left.
func (b *Budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *Budget) put(n int64) { b.used.Add(-n) }
