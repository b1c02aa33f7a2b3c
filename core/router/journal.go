package router

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

	"subway/core/wire"
)

// Journal is a log on stable storage of what must survive the process (PROTOCOL.md
// section 9). Its methods may be called from any goroutine and must not block.
type Journal interface {
	// Append adds a record, copied, and returns its mark. Marks never fall. What is
	// sent with wire.Durable afterwards leaves when that mark is stored.
	Append(kind byte, rec []byte) (mark uint64)
	// Hold has what is appended until Release stand in one group, which a crash keeps or
	// loses as a whole. It is short, and not held twice by one goroutine.
	Hold()
	Release()
	// Stored is the mark up to which all is on stable storage.
	Stored() uint64
	// Full says that no new commands may be accepted: too much waits to be stored, or
	// nothing can be.
	Full() bool
}

// The kinds of records that a Router journals; Restore takes them in. Those of others,
// which share the log, begin at KindOther.
//
// A command is in the log from its acceptance on: as a whole, once more at each
// checkpoint, and at its end in the form that the archive keeps. So the log may lose its
// head up to the oldest record of either kind that is still needed.
const (
	kindAccepted byte = 1 + iota // a command as it stands, also at a checkpoint
	kindHanded                   // it is about to be handed over, or is back in the queue
	kindDeadline                 // progress moved its deadline
	kindVoid                     // it was refused after all
	kindEnded                    // its record in the archive's form
	kindEdge                     // an edge or direct device as it stands, without its devices
	kindForget                   // it is not known any more, nor are its devices
	kindRoutes                   // devices that are routed to an edge
	kindUnroute                  // a device that has no route any more

	KindOther byte = 64
)

// An accepted command is a head and, one after the other: requestRef, commandType and
// callback URL, the ids of its source, target and edge, and the message where it may have
// to be sent. All numbers are little-endian.
const (
	openSeq        = 0 // uint64, as are the times
	openCreated    = 8
	openDeadline   = 16
	openHanded     = 24
	openProgressed = 32
	openTimeout    = 40 // uint32, milliseconds
	openRef        = 44 // uint8, a length, as are the next three
	openSource     = 45
	openTarget     = 46
	openEdge       = 47
	openPriority   = 48
	openFlags      = 49
	openType       = 52 // uint32, as are the next two
	openURL        = 56
	openMsg        = 60
	openHead       = 64
)

// logged is memory for one record.
type logged struct{ b []byte }

var loggedPool = sync.Pool{New: func() any { return new(logged) }}

func (l *logged) release() {
	if cap(l.b) > 64<<10 {
		l.b = nil
	}
	loggedPool.Put(l)
}

// log journals a record made by fill and returns its mark.
func (r *Router) log(kind byte, fill func(b []byte) []byte) (mark uint64) {
	if r.journal == nil || r.restore != nil {
		return 0
	}
	l := loggedPool.Get().(*logged)
	l.b = fill(l.b[:0])
	mark = r.journal.Append(kind, l.b)
	l.release()
	return mark
}

// logAccepted journals a command as it stands: waiting for e, or handed to it. m is its
// message, where the record does not keep it. Its shard is held.
func (r *Router) logAccepted(rec *record, e *edge, m *message, handed wire.Time) {
	if r.journal == nil {
		return
	}
	rec.stored = rec.deadline
	l := loggedPool.Get().(*logged)
	source, flags := "", byte(0)
	if rec.source != nil {
		source, flags = rec.source.id, flagBackend
	}
	if e.direct {
		flags |= flagDirect
	}
	if handed != 0 && !e.dedupe {
		m = &message{} // it never gets it again
	}
	var head [openHead]byte
	le := binary.LittleEndian
	le.PutUint64(head[openSeq:], rec.seq)
	le.PutUint64(head[openCreated:], uint64(rec.created))
	le.PutUint64(head[openDeadline:], uint64(rec.deadline))
	le.PutUint64(head[openHanded:], uint64(handed))
	le.PutUint64(head[openProgressed:], uint64(rec.progressed))
	le.PutUint32(head[openTimeout:], uint32(rec.timeoutMs))
	head[openRef], head[openSource], head[openTarget], head[openEdge] = byte(rec.refLen), byte(len(source)), byte(len(rec.dev.id)), byte(len(e.id))
	head[openPriority], head[openFlags] = byte(rec.priority), flags
	le.PutUint32(head[openType:], uint32(rec.typeLen))
	le.PutUint32(head[openURL:], uint32(len(rec.callback())))
	le.PutUint32(head[openMsg:], uint32(m.size()))
	b := append(append(l.b[:0], head[:]...), rec.mem...)
	b = append(append(append(b, source...), rec.dev.id...), e.id...)
	l.b = m.appendTo(b)
	if mark := r.journal.Append(kindAccepted, l.b); rec.mark == 0 { // else a checkpoint says it again
		rec.mark = mark
	}
	l.release()
}

// logHanded journals that a command is handed to e at this time, or with 0 that it is
// not; again says that its message is kept, to be handed over again. Its shard is held.
func (r *Router) logHanded(rec *record, e *edge, at wire.Time, again bool) {
	r.log(kindHanded, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, uint64(at))
		flags := flagOf(e.direct)
		if again {
			flags |= flagAgain
		}
		b = append(append(b, flags, byte(len(e.id))), e.id...)
		return append(b, rec.ref()...)
	})
}

// logDeadline journals that a command's deadline moved, once it has moved by half of the
// timeout; its shard is held.
func (r *Router) logDeadline(rec *record) {
	if r.journal == nil || rec.deadline-rec.stored < wire.Time(rec.timeoutMs)*1e6/2 && rec.stored != 0 {
		return
	}
	rec.stored = rec.deadline
	r.log(kindDeadline, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, uint64(rec.deadline))
		b = binary.LittleEndian.AppendUint64(b, uint64(rec.progressed))
		return append(b, rec.ref()...)
	})
}

// logVoid journals that a command was refused after all; its shard is held.
func (r *Router) logVoid(rec *record) (mark uint64) {
	return r.log(kindVoid, func(b []byte) []byte { return append(b, rec.ref()...) })
}

// logEdge journals an edge; topo is held.
func (r *Router) logEdge(e *edge) {
	r.log(kindEdge, func(b []byte) []byte { return appendEdge(b, e) })
}

// appendEdge appends flags, the times of the last message and since when it is away (0: it is
// connected), and the lengths and bytes of id and version.
func appendEdge(b []byte, e *edge) []byte {
	flags := flagOf(e.direct)
	if e.dedupe {
		flags |= flagDedupe
	}
	if e.goodbye {
		flags |= flagGoodbye
	}
	b = append(b, flags)
	away := wire.Time(0)
	if e.isAway {
		away = e.away
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(e.seen.Load()))
	b = binary.LittleEndian.AppendUint64(b, uint64(away))
	version := e.version[:min(len(e.version), 255)]
	b = append(append(b, byte(len(e.id)), byte(len(version))), e.id...)
	return append(b, version...)
}

const (
	edgeHead = 19 // before id and version

	flagAgain   = 1 << 5
	flagDedupe  = 1 << 6
	flagGoodbye = 1 << 7
)

func flagOf(direct bool) byte {
	if direct {
		return flagDirect
	}
	return 0
}

// logForget journals that an edge and its devices are not known any more; topo is held.
func (r *Router) logForget(e *edge) {
	r.log(kindForget, func(b []byte) []byte { return append(append(b, flagOf(e.direct)), e.id...) })
}

// logRoute journals the route of a device; topo is held.
func (r *Router) logRoute(d *device, e *edge) {
	r.log(kindRoutes, func(b []byte) []byte { return appendDevice(appendRoutes(b, e), d) })
}

// appendRoutes begins a record of routes to e; ids follow.
func appendRoutes(b []byte, e *edge) []byte {
	return append(append(b, flagOf(e.direct), byte(len(e.id))), e.id...)
}

func appendDevice(b []byte, d *device) []byte { return append(append(b, byte(len(d.id))), d.id...) }

// logUnroute journals that a device has no route any more; topo is held.
func (r *Router) logUnroute(d *device) {
	r.log(kindUnroute, func(b []byte) []byte { return append(b, d.id...) })
}

// together has the records of a command's end and of its callback kept or lost as one; its
// shard is held. The caller calls apart when both are journalled.
func (r *Router) together(rec *record) {
	if rec.track != nil && r.journal != nil {
		r.journal.Hold()
	}
}

func (r *Router) apart(rec *record) {
	if rec.track != nil && r.journal != nil {
		r.journal.Release()
	}
}

// Checkpoint journals all that is open anew: edges, their devices, and the commands that
// have not ended. What was journalled before it began is then needed for ended records
// alone, see OldestEnd. It calls wait now and then, with no lock held, and ends where that
// returns false. One goroutine at a time.
func (r *Router) Checkpoint(wait func() bool) bool {
	r.topo.Lock()
	edges := r.allEdges()
	r.topo.Unlock()
	slices.SortFunc(edges, func(a, b *edge) int { return cmp.Compare(a.id, b.id) }) // so that it can be replayed
	for _, e := range edges {
		if !wait() {
			return false
		}
		r.topo.Lock()
		if r.edgesBy(e.direct)[e.id] == e {
			r.logEdge(e)
			r.logRoutes(e)
		}
		r.topo.Unlock()
	}
	for i := range r.shards {
		if !wait() {
			return false
		}
		sh := &r.shards[i]
		sh.mu.Lock()
		for _, x := range sh.slots {
			if x.rec != nil {
				r.logOpen(x.rec)
			}
		}
		sh.mu.Unlock()
	}
	return wait()
}

// allEdges returns the edges and direct devices; topo is held.
func (r *Router) allEdges() (all []*edge) {
	for _, of := range []map[string]*edge{r.edges, r.directs} {
		for _, e := range of {
			all = append(all, e)
		}
	}
	return all
}

// logRoutes journals all routes to e, in records of no great size; topo is held.
func (r *Router) logRoutes(e *edge) {
	for d := e.devices; d != nil; {
		r.log(kindRoutes, func(b []byte) []byte {
			b = appendRoutes(b, e)
			for ; d != nil && len(b) < 16<<10; d = d.next {
				b = appendDevice(b, d)
			}
			return b
		})
	}
}

// logOpen journals a command in flight; its shard is held.
func (r *Router) logOpen(rec *record) {
	m := message{}
	if rec.kept {
		m.a = rec.msg
	}
	handed := rec.handed
	if rec.state != Pending && handed == 0 {
		handed = rec.updated // its device has it, however it came there
	}
	e := rec.lockEdge()
	r.logAccepted(rec, e, &m, handed)
	e.mu.Unlock()
}

// OldestEnd returns when the oldest of the ended commands that are kept ended, or the
// time given where there are none: what was journalled well before that is needed for open
// commands alone. Any goroutine.
func (r *Router) OldestEnd(otherwise wire.Time) wire.Time {
	a := &r.archive
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n == 0 {
		return otherwise
	}
	return min(otherwise, a.queue.first().ended)
}
