package router

import (
	"bytes"
	"strconv"

	"subway/core/wire"
)

// Waiter waits for the end of one command; all who wait for it share one.
type Waiter struct {
	done  chan struct{}
	end   *wire.CommandRecord // written before done is closed
	track *Delivery           // nil: the command has no callback
}

// Done is closed when the command ends. Any goroutine.
func (w *Waiter) Done() <-chan struct{} { return w.done }

// Record is as Router.Record tells the command once Done is closed, and nil before: also
// where a bound has had the record go already, so that who waited for the end is told it.
// Any goroutine.
func (w *Waiter) Record() *wire.CommandRecord {
	select {
	case <-w.done:
	default:
		return nil
	}
	v := *w.end
	v.Callback = w.track.view()
	return &v
}

// tell ends the waiting; the record's shard is held.
func (w *Waiter) tell(rec *record) {
	w.end, w.track = rec.view(), rec.track
	close(w.done)
}

// Wait returns what it takes to wait for a command's end; nil where it has ended already,
// or there is no record. Any goroutine.
func (r *Router) Wait(ref []byte) *Waiter {
	rec, sh := r.locked(ref, r.hashOf(ref))
	if rec == nil {
		return nil
	}
	defer sh.mu.Unlock()
	if rec.state.Final() {
		return nil
	}
	if rec.waiter == nil {
		rec.waiter = &Waiter{done: make(chan struct{})}
	}
	return rec.waiter
}

// Record returns what is known of a command, as GET /api/commands/{ref} tells it; nil
// where there is no record. Any goroutine.
func (r *Router) Record(ref []byte) *wire.CommandRecord {
	rec, sh := r.locked(ref, r.hashOf(ref))
	if rec == nil {
		return nil
	}
	defer sh.mu.Unlock()
	return rec.view()
}

// locked returns the record of a ref, whose hash is given, with its shard locked, or nil.
func (r *Router) locked(ref []byte, hash uint64) (*record, *shard) {
	sh := r.shardOf(hash)
	sh.mu.Lock()
	rec := r.known(sh, hash, ref)
	if rec == nil {
		sh.mu.Unlock()
		return nil, nil
	}
	return rec, sh
}

// known returns the record of a ref, or nil; one that has ended is read back from the
// archive. The shard is held.
func (r *Router) known(sh *shard, hash uint64, ref []byte) *record {
	if rec := sh.find(hash, ref); rec != nil {
		return rec
	}
	at := sh.past.find(hash, &r.archive, func(past []byte) bool { return pastRefIs(past, ref) })
	if at == 0 {
		return nil
	}
	return r.exhume(sh, at)
}

// view copies a record for the API; its shard is held. One that was read back from the
// archive is a copy already.
func (rec *record) view() *wire.CommandRecord {
	clone := bytes.Clone
	if rec.past != nil {
		clone = func(b []byte) []byte { return b }
	}
	v := &wire.CommandRecord{
		RequestRef: string(rec.ref()), Status: rec.state.String(), TargetClientID: rec.dev.id,
		CommandType: string(rec.commandType()), Priority: rec.priority.String(), TimeoutMs: rec.timeoutMs,
		CreatedAt: rec.created, UpdatedAt: rec.updated, Progress: clone(rec.progress),
		Result: clone(rec.result), Error: clone(rec.errorJSON), ExecutionTime: clone(rec.execution),
	}
	v.Callback = rec.track.view()
	v.Mark = rec.mark
	return v
}

// Trace returns the way of a command, derived from its record (PROTOCOL.md section 6);
// nil where there is no record. Any goroutine.
func (r *Router) Trace(ref []byte) *wire.Trace {
	rec, sh := r.locked(ref, r.hashOf(ref))
	if rec == nil {
		return nil
	}
	defer sh.mu.Unlock()
	source := "http"
	if rec.source != nil {
		source = rec.source.id
	}
	t := &wire.Trace{RequestRef: string(rec.ref()), StartTime: rec.created.Millis(), Status: "pending"}
	hop := func(node, action string, at wire.Time) {
		t.Path = append(t.Path, wire.Hop{Node: node, Timestamp: at.Millis(), Action: action})
	}
	hop(source, "send", rec.created)
	hop("gateway", "receive", rec.created)
	if rec.handed != 0 {
		hop("gateway", "forward", rec.handed)
	}
	if rec.progressed != 0 {
		hop("gateway", "receive", rec.progressed)
		hop("gateway", "forward", rec.progressed)
	}
	t.Mark = rec.mark
	if !rec.state.Final() {
		return t
	}
	if rec.state == Completed || rec.state == Failed {
		hop("gateway", "receive", rec.ended)
	}
	hop("gateway", "forward", rec.ended)
	t.Status = [...]string{"completed", "failed", "timeout", "failed"}[rec.state-Completed]
	t.Duration = new(int64)
	*t.Duration = rec.ended.Millis() - rec.created.Millis()
	return t
}

// RecordQuery selects commands for a listing. Zero members select all, but Limit, which
// is at least 1.
type RecordQuery struct {
	Status State
	Filter bool   // by Status
	Target string // device id
	Limit  int
	Cursor string
}

// selects reports whether a command in this state, for this target, passes the filters.
func (q *RecordQuery) selects(state State, target string) bool {
	return (!q.Filter || state == q.Status) && (q.Target == "" || target == q.Target)
}

// selectsPast is selects for an ended record where it stands in the archive: most of
// those that a listing looks at are not selected, and reading one back copies all of it.
func (q *RecordQuery) selectsPast(past []byte) bool {
	return (!q.Filter || State(past[pastState]) == q.Status) && (q.Target == "" || string(pastTargetOf(past)) == q.Target)
}

// maxLook bounds the records that one listing looks at; the places of those that are
// gone count too.
const maxLook = 100_000

// Records lists commands, newest first by acceptance; one call looks at maxLook records
// at most, so a page may be short and still have a next cursor. ok is false for a cursor
// that no listing gave. Any goroutine.
func (r *Router) Records(q *RecordQuery) (page []wire.CommandRecord, next string, ok bool) {
	before := r.seq.Load() + 1
	if q.Cursor != "" {
		var err error
		if before, err = strconv.ParseUint(q.Cursor, 36, 64); err != nil {
			return nil, "", false
		}
	}
	page = []wire.CommandRecord{}
	limit := max(q.Limit, 1)
	last, looked := r.walk(q, before, maxLook, func(rec *record) bool {
		page = append(page, *rec.view())
		return len(page) < limit
	})
	if (len(page) == limit || looked == maxLook) && r.any(last, maxLook-looked) {
		next = strconv.FormatUint(last, 36)
	}
	return page, next, true
}
