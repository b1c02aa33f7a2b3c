package callback

import (
	"sync"
	"time"

	"subway/core/wire"
)

// noticeOverhead is what a notice costs besides its bytes, lane and timer included.
const noticeOverhead = 512

// notice is a Notice retained. data holds URL, ref and body in one piece.
type notice struct {
	order    link[notice] // in lane.notices
	spare    link[notice] // in host.spare
	lane     *lane
	data     []byte
	urlLen   int
	refLen   int
	restAt   int // path and query in url, as a target has them
	restEnd  int
	serial   uint64 // of a progress: part of its X-Callback-Id
	number   uint64 // of a final notice that is journalled; 0: it is not
	attempts int    // begun in this series
	final    bool
	track    Tracker
	created  wire.Time
	dead     *DeadLetter // once it is one
}

func (n *notice) url() []byte  { return n.data[:n.urlLen] }
func (n *notice) rest() []byte { return n.data[n.restAt:n.restEnd] }
func (n *notice) ref() []byte  { return n.data[n.urlLen : n.urlLen+n.refLen] }
func (n *notice) body() []byte { return n.data[n.urlLen+n.refLen:] }
func (n *notice) size() int    { return cap(n.data) + noticeOverhead }

func (n *notice) tell(state uint8) {
	if n.track != nil {
		n.track.SetCallback(state, n.attempts)
	}
}

// noticePool has notices to be used again, with their bytes where these are few.
var noticePool = sync.Pool{New: func() any { return new(notice) }}

// keepData is the capacity up to which a notice keeps its bytes.
const keepData = 1 << 10

// free lets go of a notice that nobody needs any more: in no lane, no dead letter, and
// not with a worker.
func (n *notice) free() {
	if cap(n.data) > keepData {
		n.data = nil
	}
	*n = notice{data: n.data[:0]}
	noticePool.Put(n)
}

// newNotice makes the one copy; t is the URL taken apart.
func newNotice(n *Notice, t *target) *notice {
	m := noticePool.Get().(*notice)
	data := m.data
	if size := len(n.URL) + len(n.Ref) + bodySize(n); cap(data) < size {
		data = make([]byte, 0, size)
	}
	data = append(append(data, n.URL...), n.Ref...)
	*m = notice{
		urlLen: len(n.URL), refLen: len(n.Ref), data: appendBody(data, n),
		restAt: t.restAt, restEnd: t.restAt + len(t.rest),
		final: n.Final, created: n.Now,
	}
	if n.Final {
		m.track = n.Track
	}
	return m
}

type laneState uint8

const (
	resting  laneState = iota // empty, or just being worked on under Outbox.mu
	ready                     // in host.ready
	underWay                  // its head is with a worker
	retrying                  // its head waits for its timer
)

// lane holds the notices of one request to one host. It is in host.lanes while it has any.
type lane struct {
	key       string // the ref
	host      *host
	state     laneState
	notices   list[notice]
	final     bool // a final notice is among them
	readyLink link[lane]
	timer     *time.Timer
	round     uint64 // tells a timer that fires late from the one awaited
}

func (f *lane) stopTimer() {
	f.round++
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

// oldestSpare returns the first progress that is not under way; nil if there is none.
func (f *lane) oldestSpare() *notice {
	n := f.notices.head
	if n != nil && f.state == underWay {
		n = n.order.next
	}
	if n == nil || n.final {
		return nil
	}
	return n
}

// host is one receiver: scheme, host and port.
type host struct {
	key  string
	addr string // what is dialled
	name string // the host's name for TLS
	to   target // its slices are the host's own

	lanes map[string]*lane
	ready list[lane]
	spare list[notice] // progress not under way, oldest first: what may give way
	count int          // notices
	bytes int

	busy    int // slots it has
	limit   int // slots it may have
	breaker breaker

	waitLink   link[host]
	unusedLink link[host]
	waitsIn    *list[host]

	idle   []*conn // longest unused first
	reaper *time.Timer
}

const (
	firstLimit = 4 // slots of a host that is new
	leastLimit = 2 // and of one that fails
)

func newHost(key string, t *target, conns int) *host {
	authority := append([]byte(nil), t.authority...)
	h := &host{key: key, limit: min(firstLimit, conns), lanes: make(map[string]*lane)}
	h.to = *t
	h.to.authority, h.to.rest = authority, nil
	h.to.name = append([]byte(nil), t.name...)
	h.addr = string(t.appendAddress(nil))
	h.name = string(h.to.bareName())
	h.ready.at = func(f *lane) *link[lane] { return &f.readyLink }
	h.spare.at = func(n *notice) *link[notice] { return &n.spare }
	return h
}

// laneLocked returns the request's lane at a host, made if need be.
func (o *Outbox) laneLocked(h *host, ref []byte) *lane {
	f := h.lanes[string(ref)]
	if f != nil {
		return f
	}
	if k := len(o.spareLanes) - 1; k >= 0 {
		f, o.spareLanes = o.spareLanes[k], o.spareLanes[:k]
	} else {
		f = new(lane)
		f.notices.at = func(n *notice) *link[notice] { return &n.order }
	}
	f.key, f.host = string(ref), h
	h.lanes[f.key] = f
	return f
}

// maxSpareLanes bounds Outbox.spareLanes.
const maxSpareLanes = 1024

// endLaneLocked takes a lane without notices out of its host. It is used again for
// another request, so its round goes on: a timer that fires late finds it changed.
func (o *Outbox) endLaneLocked(f *lane) {
	f.stopTimer()
	f.host.ready.remove(f)
	delete(f.host.lanes, f.key)
	f.key, f.host, f.state, f.final = "", nil, resting, false
	if len(o.spareLanes) < maxSpareLanes {
		o.spareLanes = append(o.spareLanes, f)
	}
}

// learn moves the limit after an attempt: one more slot for an answer, half of them for
// a receiver that cannot be reached or keeps silent.
func (h *host) learn(reached bool, most int) {
	if reached {
		h.limit = min(h.limit+1, most)
	} else {
		h.limit = min(max(h.limit/2, leastLimit), most)
	}
}
