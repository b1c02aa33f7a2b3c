package socket

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
	"golang.org/x/sys/unix"
)

// maxCalls bounds what Do keeps for a loop.
const maxCalls = 1 << 20

// unbounded is for calls of our own: one for each schedule, one for each dial that failed,
// which its caller must hear of, and at most two for the time limits of each goodbye, which
// a loop with much to do must not lose.
const unbounded = math.MaxInt

// keepMax bounds the bytes of empty buffers that a loop keeps for its next rounds.
const keepMax = 8 << 20

// ErrLoopFull is Do's answer where a million calls wait already.
var ErrLoopFull = errors.New("too many calls wait for the loop")

// Loop is one event loop, and one goroutine. Do and Engine may be called from any
// goroutine, the rest on the loop only.
type Loop struct {
	engine *Engine
	client *gnet.Client // it has this loop alone: gnet lets nobody choose one among many
	bell   int          // a byte written here wakes the loop, through epoll: a call that asks for another starves no socket

	now   int64    // loop only: engine time at the beginning of the round
	depth int      // loop only: gnet calls OnClose within our writes
	dirty []*Conn  // loop only: connections with something to write, or to be closed
	free  [][]byte // loop only: empty buffers, in all kept bytes of them
	kept  int
	spare []func() // loop only: the batch before

	mu     sync.Mutex
	calls  []func() // under mu: what Do was given
	rung   bool     // under mu: a byte is on its way
	refuse bool     // under mu: Do takes no more
}

// Engine returns the engine of the loop.
func (l *Loop) Engine() *Engine { return l.engine }

// Now is the engine's time at the beginning of this round of the loop, or of its ticks.
func (l *Loop) Now() int64 { return l.now }

// Do lets the loop call f soon, after what it was given before. Calls that wait together
// run in one round. The error, ErrStopped or ErrLoopFull, says that f is never called.
func (l *Loop) Do(f func()) error { return l.post(f, maxCalls) }

func (l *Loop) post(f func(), limit int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.refuse:
		return ErrStopped
	case len(l.calls) >= limit:
		return ErrLoopFull
	}
	l.calls = append(l.calls, f)
	l.ringLocked()
	return nil
}

// ringLocked wakes the loop. One byte at most is under way, so the write never fails.
func (l *Loop) ringLocked() {
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.bell, []byte{1})
	}
}

// answer runs one batch of calls: those that they ask for come after the sockets' turn.
func (l *Loop) answer() {
	l.mu.Lock()
	batch := l.calls
	l.calls, l.rung = l.spare[:0], false
	l.mu.Unlock()
	for _, f := range batch {
		f()
	}
	clear(batch)
	l.spare = batch
	if cap(batch) > 64<<10 {
		l.spare = nil // a rare flood is not kept for ever
	}
}

// drain lets the loop take no more calls, and waits until those it took have run.
func (l *Loop) drain() {
	done := make(chan struct{})
	l.mu.Lock()
	l.refuse = true
	l.calls = append(l.calls, func() { close(done) })
	l.ringLocked()
	l.mu.Unlock()
	<-done
}

// close ends the loop and all its connections.
func (l *Loop) close() {
	if err := l.client.Stop(); err != nil {
		l.engine.o.Log.Error("socket: ending a loop", "err", err)
	}
	_ = unix.Close(l.bell)
}

// startLoop starts a loop and hangs its bell.
func (e *Engine) startLoop() (*Loop, error) {
	l := &Loop{engine: e}
	client, err := gnet.NewClient(&reactor{loop: l}, gnet.WithNumEventLoop(1), gnet.WithLogger(quiet{e.o.Log}), gnet.WithReadBufferCap(64<<10))
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	l.client = client
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		_ = client.Stop()
		return nil, os.NewSyscallError("socketpair", err)
	}
	l.bell = fds[1]
	file := os.NewFile(uintptr(fds[0]), "bell")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err == nil {
		_, err = client.EnrollContext(conn, bell{})
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// begin and end enclose a round.
func (l *Loop) begin() {
	if l.depth++; l.depth == 1 {
		l.now = l.engine.Now()
	}
}

func (l *Loop) end() {
	if l.depth == 1 {
		l.flush()
	}
	l.depth--
}

// flush writes what was sent in the round and closes what is to be closed. What that
// brings about (a failed write calls Close, a handler sends on another connection) is
// part of the round, and comes further back in dirty.
func (l *Loop) flush() {
	for i := 0; i < len(l.dirty); i++ {
		c := l.dirty[i]
		c.dirty = false
		c.flush()
	}
	clear(l.dirty)
	l.dirty = l.dirty[:0]
}

// buffer and recycle keep the frames of a round out of the garbage: a connection has a
// buffer only between its first Send and the end of the round.
func (l *Loop) buffer() []byte {
	n := len(l.free)
	if n == 0 {
		return make([]byte, 0, 512)
	}
	b := l.free[n-1]
	l.free[n-1], l.free = nil, l.free[:n-1]
	l.kept -= cap(b)
	return b
}

func (l *Loop) recycle(b []byte) {
	if l.kept+cap(b) <= keepMax {
		l.kept += cap(b)
		l.free = append(l.free, b[:0])
	}
}

// bell marks the connection that wakes the loop.
type bell struct{}

// reactor is what gnet calls, on the loop.
type reactor struct {
	gnet.BuiltinEventEngine
	loop *Loop
}

// OnOpen implements gnet.EventHandler.
func (r *reactor) OnOpen(g gnet.Conn) ([]byte, gnet.Action) {
	if c, ok := g.Context().(*Conn); ok {
		r.loop.begin()
		c.opened(g)
		r.loop.end()
	}
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (r *reactor) OnTraffic(g gnet.Conn) gnet.Action {
	r.loop.begin()
	if c, ok := g.Context().(*Conn); ok {
		c.read()
	} else {
		_, _ = g.Discard(-1)
		r.loop.answer()
	}
	r.loop.end()
	return gnet.None
}

// OnClose implements gnet.EventHandler.
func (r *reactor) OnClose(g gnet.Conn, err error) gnet.Action {
	if c, ok := g.Context().(*Conn); ok {
		r.loop.begin()
		c.gone(err)
		r.loop.end()
	}
	return gnet.None
}

// quiet sends gnet's own log where ours goes; its chatter is for debugging.
type quiet struct{ log *slog.Logger }

var _ logging.Logger = quiet{}

// Debugf implements logging.Logger.
func (q quiet) Debugf(format string, args ...any) { q.log.Debug(fmt.Sprintf(format, args...)) }

// Infof implements logging.Logger.
func (q quiet) Infof(format string, args ...any) { q.log.Debug(fmt.Sprintf(format, args...)) }

// Warnf implements logging.Logger. gnet warns of each event of a connection that ended in
// the same round: nothing is wrong with that.
func (q quiet) Warnf(format string, args ...any) { q.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf implements logging.Logger.
func (q quiet) Errorf(format string, args ...any) { q.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf implements logging.Logger; it ends nothing.
func (q quiet) Fatalf(format string, args ...any) { q.log.Error(fmt.Sprintf(format, args...)) }
