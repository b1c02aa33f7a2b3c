package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Asker asks a gateway what became of single commands, for the books after a run. Its
// methods may be called from any goroutine.
type Asker struct {
	url       string
	transport *http.Transport
}

// askLimit bounds one question, however long the caller's context lives.
const askLimit = 30 * time.Second

// NewAsker makes an Asker for the gateway at this URL that keeps up to conns connections
// and has no more of them: further calls wait.
func NewAsker(gateway string, conns int) (*Asker, error) {
	base, err := gatewayURL(gateway)
	if err != nil {
		return nil, err
	}
	if conns < 1 || conns > maxWorkers {
		return nil, errors.New("attack: an Asker has 1 to 65536 connections")
	}
	t := newTransport(conns, nil)
	t.MaxConnsPerHost = conns
	return &Asker{url: base, transport: t}, nil
}

// Close closes the idle connections; no call may be under way.
func (a *Asker) Close() { a.transport.CloseIdleConnections() }

// Status asks for the state of a command: GET /api/commands/{ref} (PROTOCOL.md section
// 6). code is the error code of one that failed. found is false where the gateway says
// that it knows no such command. An answer that the contract does not have is an
// ErrAnswer.
func (a *Asker) Status(ctx context.Context, ref string) (status, code string, found bool, err error) {
	httpStatus, body, err := get(ctx, a.transport, a.url+"/api/commands/"+url.PathEscape(ref), maxAnswer)
	if err != nil {
		return "", "", false, err
	}
	var r reply
	if err := decode(body, &r); err != nil {
		return "", "", false, err
	}
	switch {
	case httpStatus == http.StatusNotFound && r.Code == "COMMAND_NOT_FOUND":
		return "", r.Code, false, nil
	case httpStatus != http.StatusOK:
		return "", r.Code, false, fmt.Errorf("%w: HTTP %d, %s", ErrAnswer, httpStatus, excerpt(body))
	case !r.Success || r.RequestRef != ref || r.Status == "":
		return "", "", false, fmt.Errorf("%w: %s", ErrAnswer, excerpt(body))
	}
	return r.Status, errorCode(r.Error), true, nil
}

// get reads the answer to a GET, of at most so many bytes.
func get(ctx context.Context, t *http.Transport, url string, most int64) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = ErrTooLong
	}
	return resp.StatusCode, body, err
}
