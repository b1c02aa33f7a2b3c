package router

import (
	"slices"
	"sort"
	"strings"
)

// DevicesMatchingAny calls fn, prefix by prefix in their order, with the index of the
// prefix and the ids of the devices that begin with it, in order, up to limit of them for
// each. It looks at every device once, however many prefixes there are, holds no lock
// that a message waits for, and keeps limit devices at most for each distinct prefix. Any
// goroutine.
func (r *Router) DevicesMatchingAny(prefixes []string, limit int, fn func(i int, id string)) {
	m := newMatcher(prefixes, limit)
	r.routes.each(func(d *device) bool {
		if d.edge.Load() != nil {
			m.add(d)
		}
		return true
	})
	for i := range m.found {
		slices.SortFunc(m.found[i].items, func(a, b *device) int { return strings.Compare(a.id, b.id) })
	}
	for i, prefix := range prefixes {
		at, _ := slices.BinarySearch(m.prefixes, prefix)
		for _, d := range m.found[at].items {
			fn(i, d.id)
		}
	}
}

// matcher sorts devices by the prefixes that they begin with. All prefixes of an id that
// are in a sorted list are the last one not after the id, or prefixes of that: between a
// prefix of the id and the id stands nothing that does not begin with the prefix.
type matcher struct {
	prefixes []string // sorted, each once
	shorter  []int    // index of the longest other prefix of each; -1: none
	found    []smallest[*device]
}

func newMatcher(prefixes []string, limit int) *matcher {
	m := &matcher{prefixes: slices.Compact(slices.Sorted(slices.Values(prefixes)))}
	m.shorter, m.found = make([]int, len(m.prefixes)), make([]smallest[*device], len(m.prefixes))
	for i, p := range m.prefixes {
		at := i - 1
		for at >= 0 && !strings.HasPrefix(p, m.prefixes[at]) {
			at = m.shorter[at]
		}
		m.shorter[i] = at
		m.found[i] = smallest[*device]{limit: limit, id: func(d *device) string { return d.id }}
	}
	return m
}

// add gives d to every prefix of its id.
func (m *matcher) add(d *device) {
	at := sort.Search(len(m.prefixes), func(i int) bool { return m.prefixes[i] > d.id }) - 1
	for ; at >= 0; at = m.shorter[at] {
		if strings.HasPrefix(d.id, m.prefixes[at]) {
			m.found[at].add(d)
		}
	}
}
