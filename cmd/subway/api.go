package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/mailru/easyjson"
	"github.com/valyala/fasthttp"

	"subway/core/wire"
)

// Limits of a call.
const (
	dialTimeout = 5 * time.Second
	callTimeout = 15 * time.Second // besides what the call is asked to wait
	maxAnswer   = 8 << 20
)

// api calls a Gateway's HTTP API (PROTOCOL.md section 6). One goroutine uses it.
type api struct {
	base   string
	client fasthttp.Client
}

func newAPI(base string) (*api, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no Gateway: it should look like %s", base, defaultGateway)
	}
	return &api{
		base: strings.TrimRight(base, "/"),
		client: fasthttp.Client{
			NoDefaultUserAgentHeader: true, MaxResponseBodySize: maxAnswer,
			DialTimeout: func(address string, timeout time.Duration) (net.Conn, error) {
				return net.DialTimeout("tcp", address, dialTimeout)
			},
		},
	}, nil
}

func (a *api) close() { a.client.CloseIdleConnections() }

// do makes a call and returns the answer's body. The error is a *refusal where the Gateway
// said no. extra is how long the call is asked to wait.
func (a *api) do(method, path string, body []byte, extra time.Duration) ([]byte, error) {
	q, r := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(q)
	defer fasthttp.ReleaseResponse(r)
	q.Header.SetMethod(method)
	q.SetRequestURI(a.base + path)
	if body != nil {
		q.Header.SetContentType("application/json")
		q.SetBody(body)
	}
	if err := a.client.DoTimeout(q, r, callTimeout+extra); err != nil {
		return nil, &silence{fmt.Errorf("no answer from %s: %w", a.base, plain(err))}
	}
	answer := bytes.Clone(r.Body())
	if r.StatusCode() == 200 {
		return answer, nil
	}
	no := &refusal{body: answer}
	if easyjson.Unmarshal(bytes.Clone(answer), &no.ErrorAnswer) != nil || no.Code == "" {
		return nil, fmt.Errorf("%s does not answer like a Gateway (HTTP %d)", a.base, r.StatusCode())
	}
	return nil, no
}

func (a *api) strange() error {
	return usage(fmt.Errorf("%s does not answer like a Gateway", a.base))
}

// plain shortens what the network says.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	if errors.Is(err, fasthttp.ErrConnectionClosed) {
		return errors.New("it closed the connection")
	}
	return err
}

// silence is that no answer came: a command that was accepted before may be on its way.
type silence struct{ error }

// refusal is an answer of the Gateway that says no.
type refusal struct {
	wire.ErrorAnswer
	body []byte
}

// Error implements error.
func (r *refusal) Error() string { return r.Code + ": " + r.ErrorAnswer.Error }

// decode reads an answer into a struct that borrows from raw.
func decode(raw []byte, v easyjson.Unmarshaler) error { return easyjson.Unmarshal(raw, v) }

// compact makes one line of JSON that was checked before.
func compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return oneLine(string(raw))
	}
	return b.String()
}
