package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Options of an Engine; zero values are the defaults.
type Options struct {
	Loops      int           // event loops, 1
	Dials      int           // connections that are made at a time, 64
	MaxMessage int           // bytes of a message, 1 MiB + 4 KiB (PROTOCOL.md section 2); beyond, ErrTooBig
	MaxOutbox  int           // bytes that may wait in a connection, those of this round too, 16 MiB; beyond, ErrOutboxFull
	Goodbye    time.Duration // for the server's answer to a close frame, 5 s; it then gets at most 1 s to end TCP
	Log        *slog.Logger
}

// Errors that a connection ends with, beside *CloseError, *ProtocolError, *RefusedError
// and those of the system.
var (
	ErrOutboxFull = errors.New("the peer does not read: too many bytes wait for it")
	ErrStopped    = errors.New("the engine was stopped")
	ErrTooBig     = errors.New("a message over the limit")
	ErrAborted    = errors.New("aborted")
	ErrDialsFull  = errors.New("too many dials wait")
)

// Engine runs the loops. Its methods may be called from any goroutine, Stop and what
// Every returns from any that is not a loop's.
type Engine struct {
	o      Options
	start  time.Time
	loops  []*Loop
	ctx    context.Context // ends when Stop begins
	cancel context.CancelFunc
	merged atomic.Int64

	stop    sync.Once
	drained chan struct{} // closed when no call waits for any loop, and none can any more
	workers sync.WaitGroup

	mu      sync.Mutex
	queue   []*Conn // under mu: dials that wait, at most maxQueued
	dialing int     // under mu: goroutines that dial, at most o.Dials
	stopped bool    // under mu: no new worker
}

// Start starts the loops.
func Start(o Options) (*Engine, error) {
	setDefault(&o.Loops, 1)
	setDefault(&o.Dials, 64)
	setDefault(&o.MaxMessage, 1<<20+4096)
	setDefault(&o.MaxOutbox, 16<<20)
	if o.Goodbye <= 0 {
		o.Goodbye = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{o: o, start: time.Now(), drained: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for range o.Loops {
		l, err := e.startLoop()
		if err != nil {
			e.Stop()
			return nil, fmt.Errorf("socket: starting a loop: %w", explain(err))
		}
		e.loops = append(e.loops, l)
	}
	return e, nil
}

func setDefault(v *int, to int) {
	if *v <= 0 {
		*v = to
	}
}

// Loops returns the loops, in the same order always.
func (e *Engine) Loops() []*Loop { return e.loops }

// Now is the time since Start in nanoseconds; it never goes back.
func (e *Engine) Now() int64 { return int64(time.Since(e.start)) }

// Stop closes every connection without a goodbye, ends the loops and returns when no
// goroutine and no descriptor of the engine is left. Handlers hear ErrStopped, on their
// loops; when Stop has returned nothing is called any more. It may be called twice.
func (e *Engine) Stop() { e.stop.Do(e.end) }

func (e *Engine) end() {
	e.mu.Lock()
	e.stopped = true
	waiting := e.queue
	e.queue = nil
	e.mu.Unlock()
	e.cancel()
	for _, c := range waiting {
		c.refuse(ErrStopped)
	}
	e.workers.Wait() // a worker may still give a connection to a loop: the loops end after them
	for _, l := range e.loops {
		l.drain()
	}
	close(e.drained)
	for _, l := range e.loops {
		l.close()
	}
}

// work runs f on a goroutine that Stop waits for; false: Stop has begun.
func (e *Engine) work(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.stopped {
		e.workers.Go(f)
	}
	return !e.stopped
}
