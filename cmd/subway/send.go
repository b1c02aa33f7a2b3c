package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"subway/core/wire"
)

const defaultGateway = "http://127.0.0.1:18081"

type sendCmd struct {
	Target  string   `arg:"" help:"The device."`
	Type    string   `arg:"" help:"The commandType, e.g. SET_BRIGHTNESS."`
	Members []string `arg:"" optional:"" name:"key=value" help:"Members of the command: JSON where the value is valid JSON, else text."`

	Gateway     string        `help:"The Gateway (${default})." default:"http://127.0.0.1:18081" placeholder:"URL"`
	Wait        time.Duration `help:"How long to wait for the command's end; 0s: only until it is accepted." default:"0s"`
	Priority    string        `help:"LOW, NORMAL or HIGH." enum:"LOW,NORMAL,HIGH,low,normal,high" default:"NORMAL"`
	Timeout     time.Duration `help:"How long the command may take; 0s: the Gateway's default, 30s." default:"0s"`
	Ref         string        `help:"The requestRef; without it the Gateway makes one." placeholder:"REF"`
	WhenOffline string        `help:"REJECT, or QUEUE: wait for an edge that is away." enum:"REJECT,QUEUE,reject,queue" default:"REJECT"`
	Callback    string        `help:"URL that is told of progress and the end." placeholder:"URL"`
	JSON        bool          `name:"json" help:"Print the command's record, or the error, as one line of JSON."`
}

// Help implements kong.HelpProvider.
func (sendCmd) Help() string {
	return `Example: subway send td-01 SET_BRIGHTNESS value=80 --wait 5s

Exit codes:
  0  COMPLETED; without --wait: accepted
  1  FAILED or CANCELLED
  2  wrong usage, or no Gateway there
  3  TIMEOUT
  4  not ended when --wait was over
  5  refused by the Gateway (TARGET_NOT_FOUND, EDGE_UNAVAILABLE, ...)`
}

// Run implements the command.
func (c *sendCmd) Run(out *console) error {
	body, err := c.body()
	if err != nil {
		return usage(err)
	}
	gateway, err := newAPI(c.Gateway)
	if err != nil {
		return usage(err)
	}
	defer gateway.close()
	raw, err := gateway.do("POST", "/api/commands", body, 0)
	if err != nil {
		return c.failed(out, err)
	}
	var accepted wire.CommandAnswer
	if err := decode(raw, &accepted); err != nil || accepted.RequestRef == "" {
		return gateway.strange()
	}
	if c.Wait <= 0 {
		c.say(out, raw, accepted.RequestRef+" accepted")
		return nil
	}
	c.say(out, nil, accepted.RequestRef+" accepted")
	return c.await(out, gateway, accepted.RequestRef)
}

// body makes the request; the error says what is wrong with the arguments.
func (c *sendCmd) body() ([]byte, error) {
	if c.Wait < 0 || c.Timeout < 0 || c.Timeout%time.Millisecond != 0 {
		return nil, errors.New("--wait and --timeout must not be negative, --timeout must be whole milliseconds")
	}
	b := wire.AppendString([]byte(`{"target_client_id":`), c.Target)
	b = wire.AppendString(append(b, `,"command":{"commandType":`...), c.Type)
	b, err := appendMembers(b, c.Members)
	if err != nil {
		return nil, err
	}
	b = append(b, `},"priority":"`+strings.ToUpper(c.Priority)+`","when_offline":"`+strings.ToUpper(c.WhenOffline)+`"`...)
	if c.Timeout > 0 {
		b = strconv.AppendInt(append(b, `,"timeout":`...), c.Timeout.Milliseconds(), 10)
	}
	if c.Ref != "" {
		b = wire.AppendString(append(b, `,"request_ref":`...), c.Ref)
	}
	if c.Callback != "" {
		b = wire.AppendString(append(b, `,"callback_url":`...), c.Callback)
	}
	return append(b, '}'), nil
}

// appendMembers appends key=value pairs as members of a command.
func appendMembers(b []byte, pairs []string) ([]byte, error) {
	seen := map[string]bool{"commandType": true}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is no member of a command: it should look like value=80", pair)
		}
		if seen[key] {
			return nil, fmt.Errorf("the command's member %q is given twice", key)
		}
		seen[key] = true
		b = append(wire.AppendString(append(b, ','), key), ':')
		if json.Valid([]byte(value)) {
			b = append(b, value...)
		} else {
			b = wire.AppendString(b, value)
		}
	}
	return b, nil
}

// pollSlice is how long one look at a command waits for its end: progress shows this late
// at most.
const pollSlice = 200 * time.Millisecond

// await follows a command until its end or the end of the wait.
func (c *sendCmd) await(out *console, gateway *api, ref string) error {
	until := time.Now().Add(c.Wait)
	progress := ""
	for {
		slice := max(min(time.Until(until), pollSlice), 0)
		raw, err := gateway.do("GET", "/api/commands/"+url.PathEscape(ref)+"?wait="+strconv.FormatInt(slice.Milliseconds(), 10), nil, slice)
		if gone := (*silence)(nil); errors.As(err, &gone) {
			return c.end(out, nil, exitOpen, fmt.Sprintf("%s was accepted and its end is not known: %v", ref, err))
		}
		if err != nil {
			return c.failed(out, err)
		}
		var rec wire.CommandRecord
		if err := decode(raw, &rec); err != nil || rec.Status == "" {
			return gateway.strange()
		}
		if p := string(rec.Progress); p != progress {
			progress = p
			c.say(out, nil, "progress "+p)
		}
		switch rec.Status {
		case "COMPLETED":
			c.say(out, raw, "COMPLETED"+measured(&rec)+result(&rec))
			return nil
		case "FAILED", "CANCELLED", "TIMEOUT":
			return c.ended(out, raw, &rec)
		}
		if time.Until(until) <= 0 {
			return c.end(out, raw, exitOpen, fmt.Sprintf("%s is still %s after %s", ref, rec.Status, c.Wait))
		}
	}
}

// ended tells of a command that did not complete.
func (c *sendCmd) ended(out *console, raw []byte, rec *wire.CommandRecord) error {
	var e struct {
		Code    string
		Message string
		Details struct{ Stage string }
	}
	_ = json.Unmarshal(rec.Error, &e) // a device may call anything an error
	text := rec.Status + measured(rec)
	if e.Code != "" && e.Code != rec.Status {
		text += ": " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	switch e.Details.Stage {
	case "PENDING":
		text += " (it never left the Gateway)"
	case "DISPATCHED", "IN_PROGRESS":
		text += " (the device may have executed it)"
	}
	if rec.Status == "TIMEOUT" {
		return c.end(out, raw, exitTimeout, text)
	}
	return c.end(out, raw, exitFail, text)
}

// end prints the record for a program, or leaves the text for main to print.
func (c *sendCmd) end(out *console, raw []byte, code int, text string) error {
	if c.JSON {
		c.say(out, raw, "")
		return &exitError{code: code}
	}
	return &exitError{code, errors.New(text)}
}

// failed tells of a request that was refused, or of a Gateway that is not there.
func (c *sendCmd) failed(out *console, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return usage(err)
	}
	return c.end(out, r.body, exitRefused, r.Error())
}

// say prints a line: the text for a human, or what the Gateway said for a program.
func (c *sendCmd) say(out *console, raw []byte, text string) {
	switch {
	case !c.JSON:
		fmt.Fprintln(out.stdout, oneLine(text))
	case raw != nil:
		fmt.Fprintln(out.stdout, compact(raw))
	}
}

func measured(rec *wire.CommandRecord) string {
	if rec.ExecutionTime == nil {
		return ""
	}
	return " in " + string(rec.ExecutionTime) + " ms"
}

func result(rec *wire.CommandRecord) string {
	if rec.Result == nil {
		return ""
	}
	return ": " + string(rec.Result)
}
