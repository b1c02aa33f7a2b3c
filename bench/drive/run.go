// Package drive loads a command server in a closed or an open loop and says what each command cost the server.
//
// Everything runs on the caller's goroutine in one epoll loop over ready-made frames: no JSON is parsed, nothing is allocated
// per command, so that the driver needs less than the server it drives. Every answer is checked: its ref must be open at the
// source that got it, exactly once, and its bytes must be those the edge sent.
//
// cmd/drive is its command line; cmd/compare runs that against several servers.
package drive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	stallMax    = 10 * time.Second // no answer for so long, with commands in flight: given up
	openWindow  = 4096             // commands in flight per Backend in the open loop
	notesMax    = 5
	latencyMax  = int64(10 * time.Minute)
	figuresKept = 3
)

// source issues commands. issue sends the command of a slot just opened.
type source interface {
	issue(slot int, sequence uint64)
}

// run is one load run: the sources, their books, and what was counted.
type run struct {
	cfg      *Config
	loop     *loop
	sources  []source
	books    []ledger
	random   *rand.PCG
	number   uint32 // makes the refs of this run its own
	payload  []byte
	result   Result
	latency  *hdrhistogram.Histogram
	issued   int64
	settled  int64
	answered int64 // commands the edges have answered
	heldBack []*batcher
	edges    []*edge
	acksDue  int // REGISTER_ACKs that edges wait for

	issuing   bool
	issueMax  int64 // stop issuing when issued reaches it
	pace      pacer
	lastTurn  int   // open loop: the source whose turn it was
	lastAlive int64 // loop time of the last answer
}

// Run connects the parties, warms up, measures and drains. An error means that there is no figure; a run that was carried
// through but saw wrong answers returns a Result whose Bad says so.
func Run(cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &run{
		cfg:     &cfg,
		loop:    l,
		random:  rand.NewPCG(cfg.Seed, 0),
		number:  uint32(time.Now().UnixMilli()),
		payload: payload(cfg.Kind, cfg.Payload),
		latency: hdrhistogram.New(1, latencyMax, figuresKept),
	}
	if err := r.connect(); err != nil {
		return nil, err
	}
	if err := r.warmAndMeasure(); err != nil {
		return nil, err
	}
	if change := r.change(); change != nil {
		if err := r.again(change); err != nil {
			return nil, err
		}
	}
	return &r.result, nil
}

func (r *run) warmAndMeasure() error {
	if r.cfg.Warmup > 0 {
		if err := r.phase(r.cfg.Warmup, 0); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	return r.measure()
}

func (r *run) connect() error {
	window := r.cfg.Window
	if r.cfg.Rate > 0 {
		window = max(window, openWindow)
	}
	if r.cfg.HTTP {
		window = max(1, r.cfg.Batch)
	}
	r.books = make([]ledger, r.cfg.Backends)
	for i := range r.books {
		r.books[i] = newLedger(window)
	}
	if r.cfg.Rate > 0 {
		p, err := newPacer(r.loop)
		if err != nil {
			return err
		}
		r.pace = p
	}
	switch {
	case r.cfg.Proto == ProtoNATS:
		return r.connectNATS()
	case r.cfg.Proto == ProtoMQTT:
		return r.connectMQTT()
	case r.cfg.Batch > 0:
		return errors.Join(r.connectEdges(), r.connectBatchers())
	case r.cfg.HTTP:
		return errors.Join(r.connectEdges(), r.connectHTTP())
	}
	return errors.Join(r.connectEdges(), r.connectBackends())
}

// phase issues commands for a time, or until limit (0: none) were issued, and waits for all answers.
func (r *run) phase(length time.Duration, limit int) error {
	l := r.loop
	l.now = l.clock()
	end := l.now + int64(length)
	r.issueMax = 1 << 62
	if limit > 0 {
		r.issueMax = r.issued + int64(limit)
	}
	r.issuing, r.lastAlive = true, l.now
	if err := r.begin(); err != nil {
		return err
	}
	for r.issuing {
		if err := r.turn(); err != nil {
			return err
		}
		if l.clock() >= end || r.issued >= r.issueMax {
			r.issuing = false
		}
	}
	for _, s := range r.sources {
		if b, ok := s.(*batcher); ok {
			b.finish()
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	for r.settled < r.issued || r.answered < r.issued {
		if err := r.turn(); err != nil {
			return err
		}
		if l.clock()-r.lastAlive > int64(stallMax/2) {
			break // counted as lost by measure
		}
	}
	return nil
}

// begin issues the first commands: in the closed loop everything the windows hold.
func (r *run) begin() error {
	if r.cfg.Rate > 0 {
		return r.pace.start(r.loop.now, r.cfg.Rate)
	}
	for i := range r.sources {
		for len(r.books[i].free) > 0 && r.issued < r.issueMax {
			r.open(i, r.loop.now)
		}
	}
	return r.loop.flush()
}

func (r *run) turn() error {
	ready, err := r.loop.round()
	if err != nil {
		return err
	}
	now := r.loop.clock()
	if r.cfg.Rate > 0 && r.issuing {
		r.issueDue(now)
		if err := r.loop.flush(); err != nil {
			return err
		}
	}
	if ready == 0 && r.settled < r.issued && now-r.lastAlive > int64(stallMax) {
		return errors.New("stalled: no answer for 10 s")
	}
	return nil
}

// issueDue issues what the schedule has made due, as far as there are free slots. What finds none is issued later, its latency
// counted from when it was due.
func (r *run) issueDue(now int64) {
	for r.issued < r.issueMax && r.pace.next <= now {
		for range r.sources {
			r.lastTurn = (r.lastTurn + 1) % len(r.sources)
			if len(r.books[r.lastTurn].free) > 0 {
				break
			}
		}
		if len(r.books[r.lastTurn].free) == 0 {
			return
		}
		r.open(r.lastTurn, r.pace.next)
		r.pace.advance()
	}
}

// open issues one command of a source; its latency counts from started.
func (r *run) open(source int, started int64) {
	slot, sequence := r.books[source].open(started)
	r.issued++
	r.sources[source].issue(slot, sequence)
}

// settle takes an answer to a source's command and, in the closed loop, issues the next.
func (r *run) settle(source, slot int, sequence uint64, completed bool) {
	started, ok := r.books[source].settle(slot, sequence)
	if !ok {
		r.result.Stray++
		return
	}
	r.settled++
	r.lastAlive = r.loop.now
	if completed {
		r.result.Commands++
	} else {
		r.result.Failed++
	}
	r.latency.RecordValue(min(max(r.loop.now-started, 1), latencyMax))
	if r.issuing && r.cfg.Rate == 0 && r.issued < r.issueMax {
		r.open(source, r.loop.now)
	}
}

// note keeps the first few messages that should not have come.
func (r *run) note(msg []byte) {
	if len(r.result.Notes) < notesMax {
		r.result.Notes = append(r.result.Notes, string(msg[:min(len(msg), 300)]))
	}
}

// pick returns a device at random.
func (r *run) pick() (edge, device int) {
	v := r.random.Uint64()
	first := uint64(0)
	if r.cfg.Stuck {
		first = 1 // edge 0 is the one
	}
	edges, devices := uint64(r.cfg.Edges)-first, uint64(r.cfg.Devices)
	return int(first + v>>32*edges>>32), int(v & (1<<32 - 1) * devices >> 32)
}
