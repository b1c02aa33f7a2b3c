package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// Source says what to install.
type Source struct {
	URL    string `json:"url"`    // http or https
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
}

// Stage is what an installation is doing.
type Stage string

// The stages, in their order.
const (
	Downloading Stage = "DOWNLOADING"
	Verifying   Stage = "VERIFYING"
	Installing  Stage = "INSTALLING"
)

// Progress tells of an installation.
type Progress struct {
	Stage        Stage
	Bytes, Total int64 // Total 0: not known
}

// Failure is why a program was not installed; the one that was active still is.
type Failure struct {
	Code string // INVALID_PROGRAM, DOWNLOAD_FAILED, PROGRAM_TOO_LARGE, HASH_MISMATCH, STORAGE_FAILED
	Text string
}

// Error implements error.
func (f *Failure) Error() string { return f.Code + ": " + f.Text }

func failure(code, format string, args ...any) *Failure {
	return &Failure{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Check says what is wrong with a source, nil for nothing.
func (s Source) Check() *Failure {
	u, err := url.ParseRequestURI(s.URL)
	switch {
	case s.URL == "":
		return failure("INVALID_PROGRAM", "url is required")
	case len(s.URL) > maxURL || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return failure("INVALID_PROGRAM", "url must be an http or https address")
	case !validHash(strings.ToLower(s.SHA256)):
		return failure("INVALID_PROGRAM", "sha256 must be 64 hexadecimal digits")
	}
	return nil
}

func validHash(sum string) bool {
	return len(sum) == 2*sha256.Size && strings.Trim(sum, "0123456789abcdef") == ""
}

// Wait waits until no other installation is under way; whoever got its turn calls Done.
func (s *Store) Wait(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done ends the turn that Wait gave.
func (s *Store) Done() { <-s.turn }

// Install downloads a program, holds it against its hash and makes it the active one. It
// may take until Options.Timeout after began; tell hears of it, on the caller's goroutine.
// The error is ctx's, or a *Failure. What was downloaded until then is kept for the next
// attempt at the same hash. The caller has its turn from Wait.
func (s *Store) Install(ctx context.Context, src Source, began time.Time, tell func(Progress)) (Program, error) {
	if f := src.Check(); f != nil {
		return Program{}, f
	}
	src.SHA256 = strings.ToLower(src.SHA256)
	if p, ok := s.Active(); ok && p.SHA256 == src.SHA256 {
		return p, nil
	}
	bounded, cancel := context.WithDeadline(ctx, began.Add(s.opt.Timeout))
	defer cancel()
	s.sweep(src.SHA256)
	p, err := s.install(bounded, src, tell)
	if err != nil && ctx.Err() != nil {
		return Program{}, ctx.Err()
	}
	if bounded.Err() != nil && err != nil {
		return Program{}, failure("DOWNLOAD_FAILED", "not complete after %v", s.opt.Timeout)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return Program{}, failure("STORAGE_FAILED", "no space left for the program")
	}
	var f *Failure
	if err != nil && !errors.As(err, &f) {
		err = failure("STORAGE_FAILED", "%v", err)
	}
	return p, err
}

// install makes at most two downloads: the second only where the first was put together
// from pieces and came out wrong.
func (s *Store) install(ctx context.Context, src Source, tell func(Progress)) (Program, error) {
	name := s.path(src.SHA256 + ".part")
	for {
		d := download{store: s, src: src, tell: tell}
		if err := d.run(ctx, name); err != nil {
			if d.have >= s.opt.MaxBytes {
				_ = os.Remove(name)
			}
			return Program{}, err
		}
		tell(Progress{Stage: Verifying, Bytes: d.have, Total: d.have})
		sum, n, err := hashFile(name)
		if err != nil {
			return Program{}, err
		}
		if sum == src.SHA256 {
			tell(Progress{Stage: Installing, Bytes: n, Total: n})
			p := Program{URL: src.URL, SHA256: sum, Bytes: n}
			return p, s.activate(p)
		}
		if err := os.Remove(name); err != nil {
			return Program{}, err
		}
		if !d.pieces {
			return Program{}, failure("HASH_MISMATCH", "the SHA-256 of the download is %s", sum)
		}
	}
}

func hashFile(name string) (sum string, n int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
