package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	numWorkers   = 16
	ratePerSec   = 150
	answerWithin = 5 * time.Second // what a caller waits for an answer, beyond the wait it asked for
)

// load posts commands at a steady rate, each until it is answered.
type load struct {
	s       *system
	turn    *time.Ticker
	next    atomic.Uint64
	once    sync.Once
	stopped chan struct{} // closed: no more is posted,
	quit    chan struct{} // nor repeated
	workers sync.WaitGroup
}

func newLoad(s *system) *load {
	l := &load{s: s, turn: time.NewTicker(time.Second / ratePerSec), stopped: make(chan struct{}), quit: make(chan struct{})}
	for range numWorkers {
		l.workers.Go(l.work)
	}
	s.t.Cleanup(func() { // a test that failed does not wait for the answers
		close(l.quit)
		l.stop()
	})
	return l
}

// stop ends the load when everything that was posted is answered.
func (l *load) stop() {
	l.once.Do(func() { close(l.stopped) })
	l.turn.Stop()
	l.workers.Wait()
}

func (l *load) work() {
	for {
		select {
		case <-l.stopped:
			return
		case <-l.turn.C:
			l.one(l.next.Add(1))
		}
	}
}

// draw is what one command is. The same seed draws the same.
type draw struct {
	ref    string
	body   string
	waits  time.Duration // 0: its caller does not wait
	cancel bool
	reads  bool // its caller asks how it ended

	patient bool // it has the time
	unknown bool // there is no such device
}

func (l *load) draw(n uint64) draw {
	rnd := rand.New(rand.NewPCG(l.s.seed, n))
	d := draw{ref: fmt.Sprintf("r-%05d-%08x", n, rnd.Uint32()), cancel: rnd.IntN(25) == 0, reads: rnd.IntN(10) == 0}
	if rnd.IntN(5) == 0 {
		d.waits = time.Duration(100+rnd.IntN(2000)) * time.Millisecond
	}
	device := l.s.deviceID(rnd.IntN(numEdges * devicesPerEdge))
	if d.unknown = rnd.IntN(50) == 0; d.unknown {
		device = "nobody-1"
	}
	timeout := []int{patientMs, patientMs, patientMs, patientMs, 5_000, 800}[rnd.IntN(6)]
	d.patient = timeout == patientMs
	d.body = fmt.Sprintf(`{"target_client_id":%q,"request_ref":%q,"callback_url":%q,"timeout":%d,"priority":%q,"when_offline":%q,"command":{"commandType":"SET_LEVEL","value":%q,"with":%q}}`,
		device, d.ref, l.s.callbackURL(), timeout, []string{"LOW", "NORMAL", "HIGH"}[rnd.IntN(3)], []string{"REJECT", "REJECT", "QUEUE"}[rnd.IntN(3)],
		d.ref, strings.Repeat("x", rnd.IntN(1+max(l.s.shape.payload, 500))))
	return d
}

// refusals are the codes after which a command is as if it had not been posted.
var refusals = map[string]bool{"OVERLOADED": true, "EDGE_UNAVAILABLE": true, "GATEWAY_UNAVAILABLE": true}

// one posts a command until it is answered, and goes on with what its caller does. Once there was no answer a
// refusal says nothing of that attempt: it may still arrive, or an edge may know of it. So the caller repeats it then until
// it is accepted.
func (l *load) one(n uint64) {
	d, book := l.draw(n), l.s.book
	book.open(d.ref, d.patient)
	path := "/api/commands"
	if d.waits > 0 {
		path += fmt.Sprintf("?wait=%d", d.waits.Milliseconds())
	}
	for {
		status, answer, err := l.s.call("POST", path, d.body, d.waits+answerWithin)
		if err == nil && l.answered(d, status, answer) {
			break
		}
		book.with(d.ref, func(a *account) { a.silent = a.silent || err != nil })
		select {
		case <-time.After(50 * time.Millisecond): // a caller does not ask again at once
		case <-l.quit:
			return
		}
	}
	accepted := false
	book.with(d.ref, func(a *account) { accepted = a.accepted })
	switch {
	case accepted && d.cancel:
		l.cancel(d.ref)
	case accepted && d.reads:
		l.read(d.ref)
	}
}

// answered enters an answer to a POST; false: it does not say how the books stand.
func (l *load) answered(d draw, status int, answer []byte) (yes bool) {
	var a struct{ RequestRef, Status, Code string }
	if err := json.Unmarshal(answer, &a); err != nil || a.RequestRef != d.ref && status == 200 {
		l.s.book.complain("%s: a POST was answered with %d %q", d.ref, status, answer)
		return true
	}
	l.s.book.with(d.ref, func(of *account) {
		yes = true
		switch {
		case status == 200:
			of.accepted, of.anew = true, of.silent
			if isFinal(a.Status) {
				of.told[a.Status] = true
			}
		case a.Code == "DUPLICATE_REQUEST" && of.silent:
			of.accepted = true
		case refusals[a.Code] && of.silent:
			yes = false
		case refusals[a.Code], a.Code == "TARGET_NOT_FOUND" && d.unknown:
			of.refused = a.Code
		default:
			l.s.book.wrong = append(l.s.book.wrong, fmt.Sprintf("%s: a POST was answered with %d %q", d.ref, status, answer))
		}
	})
	return yes
}

// cancel cancels a command that was accepted.
func (l *load) cancel(ref string) {
	status, answer, err := l.s.call("DELETE", "/api/commands/"+ref, "", answerWithin)
	switch {
	case err != nil || status == 503 || status == 409: // down, or failing, or it had ended
	case status == 200:
		l.s.book.with(ref, func(a *account) { a.told["CANCELLED"] = true })
	default:
		l.s.book.complain("%s: a DELETE was answered with %d %q", ref, status, answer)
	}
}

// read asks how a command ended that was accepted.
func (l *load) read(ref string) {
	status, answer, err := l.s.call("GET", "/api/commands/"+ref+"?wait=1000", "", time.Second+answerWithin)
	if err != nil || status == 503 {
		return
	}
	var rec record
	if err := json.Unmarshal(answer, &rec); err != nil || status != 200 {
		l.s.book.complain("%s: a GET was answered with %d %q", ref, status, answer)
		return
	}
	if rec.final() {
		l.s.book.with(ref, func(a *account) { a.told[rec.Status] = true })
	}
}
