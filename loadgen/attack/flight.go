package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// flight is one request under way. A worker owns it from target until RoundTrip has
// failed or vegeta has closed the answer's body.
type flight struct {
	attack   *Attack
	index    []string // its number, as a header's values
	intended time.Time
	sent     time.Time
	answered time.Time
	commands []Command
	body     bytes.Buffer // the answer's
	unread   bytes.Reader // of body, by vegeta
	size     int          // of the last request, which the next will resemble
}

// fill has the caller fill the commands and returns the request's body. That is a new
// slice each time: net/http may still read it after the answer has come.
func (f *flight) fill() []byte {
	n := f.attack.opt.Batch
	if cap(f.commands) < n {
		f.commands = make([]Command, n)
	}
	f.commands = f.commands[:n]
	for i := range f.commands {
		f.commands[i] = Command{}
		f.attack.opt.Next(f.intended, &f.commands[i])
	}
	body := appendRequest(make([]byte, 0, f.size+64), f.commands)
	f.size = len(body)
	return body
}

// Read and Close implement the answer's body towards vegeta, which counts it.
func (f *flight) Read(b []byte) (int, error) { return f.unread.Read(b) }

func (f *flight) Close() error {
	f.release()
	return nil
}

const keptBody = 256 << 10 // a longer answer's memory is not kept

func (f *flight) release() {
	if f.body.Cap() > keptBody {
		f.body = bytes.Buffer{}
	}
	f.attack.free <- f
}

// RoundTrip implements http.RoundTripper for vegeta's attacker: it sends the request,
// reads all of the answer, and tells Done. An error's text is its Cause, so that
// vegeta's set of error texts stays small.
func (a *Attack) RoundTrip(req *http.Request) (*http.Response, error) {
	i, err := strconv.Atoi(req.Header.Get(slotHeader))
	if err != nil || i < 0 || i >= len(a.flights) {
		return nil, fmt.Errorf("BUG: a request without a slot: %w", err)
	}
	f := a.flights[i]
	delete(req.Header, slotHeader)
	delete(req.Header, "X-Vegeta-Seq") // a business system has none
	ctx, cancel := context.WithTimeout(req.Context(), a.opt.Timeout)
	defer cancel()
	f.sent = time.Now()
	if a.opt.Late != nil {
		a.opt.Late(f.sent.Sub(f.intended))
	}
	resp, err := f.exchange(req.WithContext(ctx))
	f.answered = time.Now()
	if err != nil {
		f.fail(err)
		f.release()
		return nil, causeError(Cause(err))
	}
	if a.opt.Batch > 1 {
		f.judgeBatch(resp.StatusCode)
	} else {
		f.judge(resp.StatusCode)
	}
	f.unread.Reset(f.body.Bytes())
	resp.Body = f
	return resp, nil
}

// exchange sends and reads the whole answer into f.body.
func (f *flight) exchange(req *http.Request) (*http.Response, error) {
	resp, err := f.attack.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	f.body.Reset()
	n, err := f.body.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if n > maxAnswer {
		return nil, ErrTooLong
	}
	return resp, nil
}

type causeError string

func (e causeError) Error() string { return string(e) }

// answer begins the Answer for command i.
func (f *flight) answer(i, status int) Answer {
	c := &f.commands[i]
	return Answer{Ref: c.Ref, Target: c.Target, Intended: f.intended, Sent: f.sent, Answered: f.answered, HTTP: status}
}

func (f *flight) fail(err error) {
	for i := range f.commands {
		a := f.answer(i, 0)
		a.Err, a.Unsent = err, neverLeft(err)
		f.attack.opt.Done(&a)
	}
}

// judge reads the answer to a single command.
func (f *flight) judge(status int) {
	a := f.answer(0, status)
	defer func() { f.attack.opt.Done(&a) }()
	var r reply
	if a.Err = decode(f.body.Bytes(), &r); a.Err != nil {
		return
	}
	if status != http.StatusOK {
		a.Code = r.Code
		if r.Code == "" {
			a.Err = fmt.Errorf("%w: HTTP %d without a code", ErrAnswer, status)
		}
		return
	}
	if a.Ref == "" {
		a.Ref = r.RequestRef
	}
	if !r.Success || r.RequestRef != a.Ref || a.Ref == "" {
		a.Err = fmt.Errorf("%w: it is about %q: %s", ErrAnswer, r.RequestRef, excerpt(f.body.Bytes()))
		return
	}
	a.Accepted = true
	if f.attack.opt.Wait > 0 {
		a.Status, a.Result, a.Code = r.Status, r.Result, errorCode(r.Error)
		if r.Status == "" {
			a.Err = fmt.Errorf("%w: no status", ErrAnswer)
		}
	}
}

// judgeBatch reads the answer to a batch, whose results stand in the order of the
// commands.
func (f *flight) judgeBatch(status int) {
	var r batchReply
	err := decode(f.body.Bytes(), &r)
	switch {
	case err != nil:
	case status != http.StatusOK && r.Code == "":
		err = fmt.Errorf("%w: HTTP %d without a code", ErrAnswer, status)
	case status == http.StatusOK && (!r.Success || len(r.Results) != len(f.commands)):
		err = fmt.Errorf("%w: %d results for %d commands", ErrAnswer, len(r.Results), len(f.commands))
	}
	for i := range f.commands {
		a := f.answer(i, status)
		switch {
		case err != nil:
			a.Err = err
		case status != http.StatusOK:
			a.Code = r.Code
		default:
			a.settle(&r.Results[i])
		}
		f.attack.opt.Done(&a)
	}
}

// settle reads one result of a batch.
func (a *Answer) settle(r *batchItem) {
	switch {
	case r.Target != "" && r.Target != a.Target:
		a.Err = fmt.Errorf("%w: a result for %q in the place of %q", ErrAnswer, r.Target, a.Target)
	case r.Code != "":
		a.Code = r.Code
	case r.RequestRef == "" || a.Ref != "" && r.RequestRef != a.Ref:
		a.Err = fmt.Errorf("%w: a result for %q in the place of %q", ErrAnswer, r.RequestRef, a.Ref)
	default:
		a.Ref, a.Accepted = r.RequestRef, true
	}
}
