package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// client fetches over HTTP.
type client struct{ http *http.Client }

func newClient(opt Options) client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // the hash and the ranges are of the bytes as they are stored
	t.ResponseHeaderTimeout = opt.Stall
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = 1, opt.Stall
	t.MaxResponseHeaderBytes = 64 << 10
	return client{&http.Client{Transport: t, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 5 || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
			return errors.New("redirected too often, or away from HTTP")
		}
		return nil
	}}}
}

// download is one download, in as many pieces as it takes. One goroutine uses it.
type download struct {
	store  *Store
	src    Source
	tell   func(Progress)
	file   *os.File
	have   int64 // bytes on disk
	total  int64 // 0: not known
	pieces bool  // not all of it came by one answer
	told   time.Time
}

// refused is an answer that will be the same next time.
type refused struct{ f *Failure }

func (r *refused) Error() string { return r.f.Error() }

// run downloads until all is there. It tries again what failed, unless the server said
// that it makes no sense, or maxAttempts in a row brought nothing.
func (d *download) run(ctx context.Context, name string) (err error) {
	d.file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.file.Sync(), d.file.Close()) }()
	if d.have, err = d.file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	d.pieces = d.have > 0
	wait := d.store.opt.Retry
	for failed := 0; ; {
		before := d.have
		err := d.piece(ctx)
		var no *refused
		switch {
		case err == nil:
			return nil
		case errors.As(err, &no):
			return no.f
		case ctx.Err() != nil:
			return ctx.Err()
		case isStorage(err):
			return err
		case d.have > before:
			failed, wait = 0, d.store.opt.Retry
		}
		if failed++; failed == maxAttempts {
			return failure("DOWNLOAD_FAILED", "%v", err)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, maxWait)
	}
}

// isStorage tells our disk's errors from the network's.
func isStorage(err error) bool {
	var p *os.PathError
	return errors.As(err, &p)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// piece makes one request for what is missing and writes what comes.
func (d *download) piece(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(d.store.opt.Stall, func() { cancel(fmt.Errorf("no byte for %v", d.store.opt.Stall)) })
	defer stall.Stop()
	r, err := d.request(ctx)
	if err == nil {
		defer r.Body.Close()
		var done bool
		if done, err = d.begin(r); err == nil && !done {
			err = d.copy(r.Body, func() { stall.Reset(d.store.opt.Stall) })
		}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (d *download) request(ctx context.Context) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, d.src.URL, nil)
	if err != nil {
		return nil, &refused{failure("INVALID_PROGRAM", "%v", err)}
	}
	q.Header.Set("Accept-Encoding", "identity")
	q.Header.Set("User-Agent", "subway-device")
	if d.have > 0 {
		q.Header.Set("Range", "bytes="+strconv.FormatInt(d.have, 10)+"-")
	}
	return d.store.client.http.Do(q)
}

// begin reads the head of an answer: where its body belongs and how long all will be.
func (d *download) begin(r *http.Response) (done bool, err error) {
	switch r.StatusCode {
	case http.StatusOK:
		if err := d.restart(); err != nil {
			return false, err
		}
		d.total = max(r.ContentLength, 0)
	case http.StatusPartialContent:
		first, total, ok := contentRange(r.Header.Get("Content-Range"))
		if !ok || first != d.have {
			return false, d.restartWith(errors.New("the server sent another range than was asked for"))
		}
		d.pieces, d.total = true, total
	case http.StatusRequestedRangeNotSatisfiable:
		if _, total, ok := contentRange(r.Header.Get("Content-Range")); ok && total == d.have && total > 0 {
			return true, nil // all of it was there
		}
		return false, d.restartWith(errors.New("the server has no such range"))
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false, fmt.Errorf("the server answered with %s", r.Status)
	default:
		err := failure("DOWNLOAD_FAILED", "the server answered with %s", r.Status)
		if r.StatusCode < 500 {
			return false, &refused{err}
		}
		return false, err
	}
	if d.total > d.store.opt.MaxBytes {
		return false, &refused{d.tooLarge()}
	}
	d.report(true)
	return false, nil
}

func (d *download) tooLarge() *Failure {
	return failure("PROGRAM_TOO_LARGE", "a program may have %d bytes", d.store.opt.MaxBytes)
}

// restart throws away what is there: the server sends all of it.
func (d *download) restart() error {
	if err := d.file.Truncate(0); err != nil {
		return err
	}
	_, err := d.file.Seek(0, io.SeekStart)
	d.have, d.total, d.pieces = 0, 0, false
	return err
}

func (d *download) restartWith(reason error) error {
	if err := d.restart(); err != nil {
		return err
	}
	return reason
}

// copy writes the body to the file. What was written stays, however it ends.
func (d *download) copy(body io.Reader, alive func()) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			alive()
			if d.have+int64(n) > d.store.opt.MaxBytes {
				d.have += int64(n)
				return &refused{d.tooLarge()}
			}
			if _, err := d.file.Write(buf[:n]); err != nil {
				return err
			}
			d.have += int64(n)
			d.report(false)
		}
		if err == io.EOF {
			if d.total > 0 && d.have != d.total {
				return io.ErrUnexpectedEOF
			}
			d.report(true)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// report tells of the bytes, not too often.
func (d *download) report(always bool) {
	if now := time.Now(); always || now.Sub(d.told) >= d.store.opt.Every {
		d.told = now
		d.tell(Progress{Stage: Downloading, Bytes: d.have, Total: d.total})
	}
}

// contentRange reads `bytes 5-9/10` and `bytes */10` (RFC 9110 section 14.4); a total that
// is not known is 0.
func contentRange(h string) (first, total int64, ok bool) {
	rest, ok := strings.CutPrefix(h, "bytes ")
	span, all, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return 0, 0, false
	}
	if all != "*" {
		n, err := strconv.ParseInt(all, 10, 64)
		if err != nil || n < 0 {
			return 0, 0, false
		}
		total = n
	}
	if span == "*" {
		return 0, total, true
	}
	low, _, cut := strings.Cut(span, "-")
	first, err := strconv.ParseInt(low, 10, 64)
	return first, total, cut && err == nil && first >= 0
}
