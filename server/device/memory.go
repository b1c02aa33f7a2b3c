package device

import "time"

// entry is what is known of one requestRef.
type entry struct {
	ref       string
	cancelled chan struct{} // closed by CANCEL
	ended     bool
	answer    []byte    // nil while it runs, and for ever if it was cancelled
	at        time.Time // of the answer
	unsent    bool      // the answer found no connection
}

// memory holds the commands that wait or run, which are bounded by the queue, and the
// newest of those that ended. It is guarded by Device.mu.
type memory struct {
	known map[string]*entry
	ended []*entry // oldest first
	bytes int      // of their refs and answers
}

// begin adds a new command; the ref must not be known.
func (m *memory) begin(ref string) *entry {
	if m.known == nil {
		m.known = map[string]*entry{}
	}
	e := &entry{ref: ref, cancelled: make(chan struct{})}
	m.known[ref] = e
	return e
}

// forget takes back a command that was not accepted.
func (m *memory) forget(e *entry) { delete(m.known, e.ref) }

// end keeps the answer (nil for none) and lets the oldest go where there are too many.
func (m *memory) end(e *entry, answer []byte) {
	if e.ended {
		return
	}
	e.ended, e.answer, e.at = true, answer, time.Now()
	m.ended = append(m.ended, e)
	m.bytes += e.size()
	for len(m.ended) > maxAnswers || m.bytes > maxBytes && len(m.ended) > 1 {
		oldest := m.ended[0]
		m.ended[0] = nil
		m.ended = m.ended[1:]
		m.bytes -= oldest.size()
		delete(m.known, oldest.ref)
	}
}

// cancel ends a command that waits or runs; it reports false where there is none.
func (m *memory) cancel(ref string) bool {
	e := m.known[ref]
	if e == nil || e.ended {
		return false
	}
	close(e.cancelled)
	m.end(e, nil)
	return true
}

func (e *entry) size() int { return len(e.ref) + len(e.answer) }
