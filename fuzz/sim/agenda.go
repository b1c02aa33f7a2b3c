package sim

import "subway/core/wire"

// agenda holds what is to happen, in a heap by time and, within one time, by the order of
// asking.
type agenda struct {
	events []event
	asked  uint64
}

type event struct {
	at  wire.Time
	seq uint64
	do  func()
}

func (e *event) before(x *event) bool { return e.at < x.at || e.at == x.at && e.seq < x.seq }

func (a *agenda) add(at wire.Time, do func()) {
	a.asked++
	a.events = append(a.events, event{at, a.asked, do})
	q := a.events
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if q[up].before(&q[i]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

// next takes out what comes first; there is something.
func (a *agenda) next() event {
	q := a.events
	first, n := q[0], len(q)-1
	q[0], q[n] = q[n], event{}
	q = q[:n]
	a.events = q
	for i := 0; ; {
		least := 2*i + 1
		if least >= n {
			return first
		}
		if right := least + 1; right < n && q[right].before(&q[least]) {
			least = right
		}
		if q[i].before(&q[least]) {
			return first
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
