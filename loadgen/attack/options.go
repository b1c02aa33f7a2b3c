package attack

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	maxWorkers = 65_536
	maxRate    = 1e6   // requests per second
	maxBatch   = 1_000 // commands in one request (PROTOCOL.md section 6)
	maxWait    = 60 * time.Second
	maxAnswer  = 4 << 20 // bytes of an answer's body
)

// Options says what to send where. URL, Next and Done are required.
type Options struct {
	// URL is the gateway's: http://host:port, without a path.
	URL string
	// Rate is in commands per second: an open loop, in which requests leave at their
	// instants whatever happened to those before. A batch is due when its commands would
	// be, so Rate/Batch requests leave per second, at most 1,000,000. 0: a closed loop,
	// each worker sends when it has its answer.
	Rate float64
	// Workers is how many requests there are at most at a time: 1 to 65,536, default 256.
	// In an open loop a request that finds all of them busy leaves late.
	Workers int
	// Wait, if positive, asks for the final state in the answer (?wait=): at most 60 s,
	// in whole milliseconds.
	Wait time.Duration
	// Batch above 1 posts that many commands in a request, at most 1,000; not with Wait.
	Batch int
	// Timeout is for one request, from leaving to the end of its answer; default Wait and
	// 10 s more. It must be longer than Wait.
	Timeout time.Duration
	// Sources are the local addresses to connect from, in turn; none: the system picks.
	Sources []netip.Addr
	// Next fills c, which is zero. intended is when the request is due, in a closed loop
	// now. It is called on vegeta's goroutines, many at a time.
	Next func(intended time.Time, c *Command)
	// Done is told the outcome, once for every command that Next filled; on vegeta's
	// goroutines, many at a time. A slow Done keeps a worker busy.
	Done func(a *Answer)
	// Late, if set, is told how long after its instant a request was handed to the HTTP
	// transport, once for each request.
	Late func(d time.Duration)
}

// Command is what to post: the members of PROTOCOL.md section 6. Empty ones are left out.
type Command struct {
	Ref         string
	Target      string
	Type        string // commandType
	Value       []byte // JSON, command.value; must not change until Done was called
	Priority    string
	TimeoutMs   int64
	Callback    string
	WhenOffline string
}

// Answer is what became of one command's request. It is valid until Done returns.
type Answer struct {
	Ref    string // as sent; where none was, the gateway's, empty if it did not say
	Target string
	// Intended is when the request was due, Sent when it was handed to the transport,
	// Answered when the answer's last byte was read, or the request failed.
	Intended, Sent, Answered time.Time
	HTTP                     int // status, 0: no answer
	// Accepted says that the gateway took the command: its answer names it and is no
	// refusal.
	Accepted bool
	// Code is the gateway's error code: why it refused the command, or, with Wait, why it
	// ended as it did.
	Code string
	// Status is, with Wait, the command's state, which after Wait may not be a final one.
	Status string
	Result []byte // with Wait, the result byte for byte
	// Err says that there was no answer, or one that does not fit the contract. Without
	// Unsent the gateway may have taken the command or not. Cause names the kind.
	Err    error
	Unsent bool // nothing left: there was no connection
}

// Latency counts from the intended instant.
func (a *Answer) Latency() time.Duration { return a.Answered.Sub(a.Intended) }

// complete fills in defaults and says what is wrong.
func (o *Options) complete() error {
	setDefault(&o.Workers, 256)
	setDefault(&o.Batch, 1)
	setDefault(&o.Timeout, max(o.Wait, 0)+10*time.Second)
	base, err := gatewayURL(o.URL)
	if err != nil {
		return err
	}
	o.URL = base
	for _, check := range []struct {
		bad  bool
		what string
	}{
		{o.Next == nil || o.Done == nil, "Next and Done must be set"},
		{o.Workers < 1 || o.Workers > maxWorkers, fmt.Sprintf("workers: 1 to %d", maxWorkers)},
		{o.Batch < 1 || o.Batch > maxBatch, fmt.Sprintf("batch: 1 to %d", maxBatch)},
		{!goodRate(o.Rate / float64(max(o.Batch, 1))), fmt.Sprintf("rate: 0 to %.0f requests per second", maxRate)},
		{o.Wait < 0 || o.Wait > maxWait, "wait: 0 to " + maxWait.String()},
		{o.Wait%time.Millisecond != 0, "wait: whole milliseconds"},
		{o.Wait > 0 && o.Batch > 1, "a batch cannot be waited for"},
		{o.Timeout <= o.Wait, "timeout: longer than wait"},
	} {
		if check.bad {
			return errors.New("attack: " + check.what)
		}
	}
	return nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// goodRate is false for NaN too.
func goodRate(perSecond float64) bool { return perSecond >= 0 && perSecond <= maxRate }

// gatewayURL returns the URL of a gateway without a slash at its end.
func gatewayURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("attack: the gateway's URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("attack: the gateway's URL is %q, want http://host:port", s)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", fmt.Errorf("attack: the gateway's URL %q holds more than scheme, host and port", s)
	}
	return u.Scheme + "://" + u.Host, nil
}
