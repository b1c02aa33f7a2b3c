package router

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"subway/core/wire"
)

// restoring is what is known while the records of a journal are taken in.
type restoring struct {
	open  map[string]*reopened // by requestRef
	last  uint64               // the highest seq
	ended map[uint64]int32     // records put in the order of acceptance, by chunk
}

// reopened is a command that has not ended, as far as the records go that were read.
type reopened struct {
	head       [openHead]byte
	ref        []byte
	mem        []byte // as record.mem
	source     string
	target     string
	edge       string
	direct     bool
	msg        []byte
	once       bool // msg is not to be handed over again
	deadline   wire.Time
	handed     wire.Time
	progressed wire.Time
}

func newRestoring() *restoring {
	return &restoring{open: map[string]*reopened{}, ended: map[uint64]int32{}}
}

var errShort = errors.New("the record is too short")

// Restore takes in a record that a Router journalled, in the order of the journal and
// before any session is opened; Restored ends that. One goroutine. The error says what is
// wrong with the record; what stands in it before that may have been taken in.
func (r *Router) Restore(kind byte, rec []byte, now wire.Time) error {
	var err error
	switch kind {
	case kindAccepted:
		err = r.restore.accepted(rec)
	case kindHanded:
		err = r.restore.handed(rec)
	case kindDeadline:
		err = r.restore.moved(rec)
	case kindVoid:
		delete(r.restore.open, string(rec))
	case kindEnded:
		err = r.restoreEnded(rec, now)
	case kindEdge:
		err = r.restoreEdge(rec)
	case kindForget, kindRoutes, kindUnroute:
		err = r.restoreRoutes(kind, rec)
	default:
		err = fmt.Errorf("kind %d is not known", kind)
	}
	return err
}

func (x *restoring) accepted(b []byte) error {
	if len(b) < openHead {
		return errShort
	}
	le := binary.LittleEndian
	o := &reopened{head: [openHead]byte(b)}
	h, b := b[:openHead], b[openHead:]
	refLen, typeLen, urlLen := int(h[openRef]), int(le.Uint32(h[openType:])), int(le.Uint32(h[openURL:]))
	sizes := []int{refLen + typeLen + urlLen, int(h[openSource]), int(h[openTarget]), int(h[openEdge]), int(le.Uint32(h[openMsg:]))}
	var parts [5][]byte
	for i, n := range sizes {
		if n < 0 || n > len(b) {
			return errShort
		}
		parts[i], b = b[:n:n], b[n:]
	}
	o.mem = slices.Clone(parts[0])
	o.ref = o.mem[:refLen]
	o.source, o.target, o.edge, o.msg = string(parts[1]), string(parts[2]), string(parts[3]), slices.Clone(parts[4])
	o.direct = h[openFlags]&flagDirect != 0
	o.deadline, o.handed, o.progressed = wire.Time(le.Uint64(h[openDeadline:])), wire.Time(le.Uint64(h[openHanded:])), wire.Time(le.Uint64(h[openProgressed:]))
	waits := o.handed == 0 && o.progressed == 0
	if waits && len(o.msg) == 0 || !waits && o.edge == "" || len(o.ref) == 0 || o.target == "" {
		return errors.New("the command has no message, edge, ref or target")
	}
	x.last = max(x.last, le.Uint64(h[openSeq:]))
	x.open[string(o.ref)] = o
	return nil
}

func (x *restoring) handed(b []byte) error {
	if len(b) < 10 || len(b) < 10+int(b[9]) {
		return errShort
	}
	n := 10 + int(b[9])
	if n == 10 && binary.LittleEndian.Uint64(b) != 0 {
		return errors.New("a command was handed to no edge")
	}
	if o := x.open[string(b[n:])]; o != nil {
		o.handed = wire.Time(binary.LittleEndian.Uint64(b))
		o.direct, o.once, o.edge = b[8]&flagDirect != 0, b[8]&flagAgain == 0, string(b[10:n])
	}
	return nil
}

func (x *restoring) moved(b []byte) error {
	if len(b) < 16 {
		return errShort
	}
	if o := x.open[string(b[16:])]; o != nil {
		o.deadline, o.progressed = wire.Time(binary.LittleEndian.Uint64(b)), wire.Time(binary.LittleEndian.Uint64(b[8:]))
	}
	return nil
}

// restoreEnded takes in an ended command.
func (r *Router) restoreEnded(b []byte, now wire.Time) error {
	if err := checkPast(b); err != nil {
		return err
	}
	le := binary.LittleEndian
	ref := b[pastHead : pastHead+int(b[pastRef])]
	delete(r.restore.open, string(ref))
	seq, ended := le.Uint64(b[pastSeq:]), wire.Time(le.Uint64(b[pastEnded:]))
	r.restore.last = max(r.restore.last, seq)
	if ended+wire.Time(r.limits.Retention) <= now {
		return nil
	}
	hash := r.hashOf(ref)
	sh := r.shardOf(hash)
	sh.mu.Lock()
	if sh.past.find(hash, &r.archive, func(past []byte) bool { return pastRefIs(past, ref) && pastSeqIs(past, seq) }) != 0 {
		sh.mu.Unlock()
		return nil // told twice
	}
	at, room, full := r.archive.reserve(len(b), hash, seq, ended, &r.limits)
	copy(room, b)
	le.PutUint64(room[pastMark:], 0)
	var track *Delivery
	if b[pastFlags]&flagCallback != 0 {
		track = new(Delivery)
	}
	sh.addPast(hash, at, track)
	sh.mu.Unlock()
	r.order.put(seq, hash)
	r.restore.ended[seq/chunkSize]++
	if full {
		r.evict(now)
	}
	return nil
}

// checkPast says what is wrong with bytes that should be an ended record.
func checkPast(b []byte) error {
	if len(b) < pastHead {
		return errShort
	}
	all := pastHead + int(b[pastRef]) + int(b[pastSource]) + int(b[pastTarget]) + int(b[pastEdge])
	for _, at := range []int{pastType, pastProgress, pastResult, pastError, pastExecution} {
		all += int(binary.LittleEndian.Uint32(b[at:]))
	}
	if all != len(b) || State(b[pastState]) < Completed || State(b[pastState]) >= numStates {
		return errShort
	}
	return nil
}

// TrackOf returns what keeps the state of a command's final callback, or nil. Any goroutine.
func (r *Router) TrackOf(ref []byte) *Delivery {
	rec, sh := r.locked(ref, r.hashOf(ref))
	if rec == nil {
		return nil
	}
	defer sh.mu.Unlock()
	return rec.track
}

// restoreEdge takes in an edge, or direct device.
func (r *Router) restoreEdge(b []byte) error {
	if len(b) < edgeHead || len(b) != edgeHead+int(b[17])+int(b[18]) || b[17] == 0 {
		return errShort
	}
	r.topo.Lock()
	defer r.topo.Unlock()
	id := b[edgeHead : edgeHead+int(b[17])]
	e := r.edgeKnown(string(id), b[0]&flagDirect != 0)
	e.dedupe, e.goodbye = b[0]&flagDedupe != 0, b[0]&flagGoodbye != 0
	e.version = string(b[edgeHead+len(id):])
	e.seen.Store(int64(binary.LittleEndian.Uint64(b[1:])))
	e.away = wire.Time(binary.LittleEndian.Uint64(b[9:]))
	return nil
}

// edgeKnown returns the edge of this id, made if need be; topo is held.
func (r *Router) edgeKnown(id string, direct bool) *edge {
	of := r.edgesBy(direct)
	e := of[id]
	if e == nil {
		e = &edge{id: id, direct: direct, told: wordOffline}
		of[id] = e
	}
	return e
}

// restoreRoutes takes in what became of routes.
func (r *Router) restoreRoutes(kind byte, b []byte) error {
	r.topo.Lock()
	defer r.topo.Unlock()
	if kind == kindUnroute {
		if d := r.routes.find(b); d != nil && d.edge.Load() != nil {
			r.dropRoute(d)
		}
		return nil
	}
	if len(b) < 2 {
		return errShort
	}
	direct := b[0]&flagDirect != 0
	if kind == kindForget {
		if e := r.edgesBy(direct)[string(b[1:])]; e != nil {
			r.forgetEdge(e)
		}
		return nil
	}
	n := int(b[1])
	if b = b[2:]; n == 0 || len(b) < n {
		return errShort
	}
	e := r.edgeKnown(string(b[:n]), direct)
	for b = b[n:]; len(b) > 0; b = b[1+n:] {
		if n = int(b[0]); n == 0 || len(b) < 1+n {
			return errShort
		}
		r.restoreRoute(e, b[1:1+n])
	}
	return nil
}

// restoreRoute routes a device to e; topo is held.
func (r *Router) restoreRoute(e *edge, id []byte) {
	d := r.deviceKnown(id)
	if from := d.edge.Load(); from == e {
		return
	} else if from != nil {
		r.detach(d, from)
	}
	d.epoch.Store(r.epoch.Load())
	d.seen.Store(e.seen.Load())
	e.attach(d)
	d.edge.Store(e)
}

// deviceKnown returns the device of this id, made if need be.
func (r *Router) deviceKnown(id []byte) *device {
	return r.routes.findOrAdd(id, func(id string) *device {
		return &device{id: id, kind: r.metrics.kinds.index([]byte(wire.DeviceType(id)))}
	})
}

// Restored ends the restoring: edges are away, and the commands that have not ended are
// in flight again, or wait. It returns how many there are. Those whose time is over end at
// the next Tick.
func (r *Router) Restored(now wire.Time) (open int) {
	x := r.restore
	r.restore = nil
	r.seq.Store(x.last)
	r.topo.Lock()
	defer r.topo.Unlock()
	again := make([]*reopened, 0, len(x.open))
	for _, o := range x.open {
		again = append(again, o)
	}
	slices.SortFunc(again, func(a, b *reopened) int { return cmp.Compare(a.seq(), b.seq()) })
	for _, o := range again {
		r.reopen(o, now)
		x.ended[o.seq()/chunkSize]++
	}
	r.order.settle(x.last, x.ended)
	edges := r.allEdges()
	for _, e := range edges {
		if e.away == 0 { // it was connected: how long it was then is no time that it is away
			e.away = now
		}
		for d := e.devices; d != nil; d = d.next { // a route may have been journalled before its edge
			d.seen.Store(max(d.seen.Load(), e.seen.Load()))
		}
	}
	slices.SortFunc(edges, func(a, b *edge) int { return cmp.Or(cmp.Compare(a.away, b.away), cmp.Compare(a.id, b.id)) })
	for _, e := range edges {
		r.awayOf(e).push(e, min(e.away, now))
	}
	return len(again)
}

func (o *reopened) seq() uint64 { return binary.LittleEndian.Uint64(o.head[openSeq:]) }

// reopen puts a command that has not ended back where it was; topo is held.
func (r *Router) reopen(o *reopened, now wire.Time) {
	h := &o.head
	le := binary.LittleEndian
	hash := r.hashOf(o.ref)
	sh := r.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rec := sh.fresh()
	rec.hash, rec.shard, rec.seq = hash, sh, o.seq()
	rec.mem, rec.refLen, rec.typeLen = append(rec.mem[:0], o.mem...), len(o.ref), int(le.Uint32(h[openType:]))
	r.holdMore(excess(rec.mem))
	rec.priority, rec.timeoutMs = wire.Priority(min(h[openPriority], byte(wire.PriorityHigh))), int64(le.Uint32(h[openTimeout:]))
	rec.created = wire.Time(le.Uint64(h[openCreated:]))
	rec.deadline = min(o.deadline, now+wire.Time(rec.timeoutMs)*1e6) // the clock may have been set back
	rec.stored = rec.deadline
	rec.handed, rec.progressed = o.handed, o.progressed
	rec.updated = max(rec.created, rec.handed, rec.progressed)
	if h[openFlags]&flagBackend != 0 {
		rec.source = &backend{id: o.source, idBytes: []byte(o.source)}
	}
	if len(rec.callback()) > 0 {
		rec.track = new(Delivery)
	}
	rec.counters = new(lastType).counters(&r.metrics, rec.commandType())
	if len(o.msg) > 0 && !o.once {
		r.retain(rec, &message{a: o.msg})
	}
	rec.dev = r.deviceKnown([]byte(o.target))
	switch {
	case rec.progressed != 0:
		rec.state = InProgress
	case rec.handed != 0:
		rec.state = Dispatched
	}
	if rec.state != Pending {
		e := r.edgesBy(o.direct)[o.edge]
		if e == nil { // forgotten, and will be again
			e = r.edgeKnown(o.edge, o.direct)
			e.away = 1
		}
		e.fly(rec)
		if rec.dev.edge.Load() == nil {
			r.stray[rec.dev] = struct{}{}
		}
	} else if e := rec.dev.edge.Load(); e != nil {
		e.enqueue(rec)
	} else {
		r.limbo.arrive(rec)
		r.stray[rec.dev] = struct{}{}
	}
	r.pending.Add(1)
	sh.add(rec)
	r.order.put(rec.seq, hash)
}

// settle says that of all the seqs up to last no others are in use than these many, by
// chunk.
func (o *order) settle(last uint64, used map[uint64]int32) {
	if last > 0 {
		used[last/chunkSize] += 0
	}
	for base, n := range used {
		given := int32(chunkSize)
		if base == last/chunkSize {
			given = int32(last%chunkSize) + 1
		}
		if base == 0 {
			given-- // there is no seq 0
		}
		if n < given {
			o.leave(o.chunk(base*chunkSize), given-n)
		}
	}
}
