package attack

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// What an answer may be that is none of PROTOCOL.md section 6.
var (
	ErrAnswer  = errors.New("the answer is not what the contract says")
	ErrTooLong = errors.New("the answer is longer than 4 MiB")
)

// Cause names the kind of an error in a few words without addresses or numbers, for
// counting: there are at most a dozen. It is empty for nil.
func Cause(err error) string {
	for _, known := range [...]struct {
		err  error
		name string
	}{
		{ErrAnswer, "answer not understood"},
		{ErrTooLong, "answer too long"},
		{ErrNotGateway, "not a gateway"},
		{syscall.ECONNREFUSED, "connection refused"},
		{syscall.ECONNRESET, "connection reset"},
		{syscall.EPIPE, "connection closed"},
		{syscall.EADDRNOTAVAIL, "no local port left"},
		{syscall.EMFILE, "too many open files"},
		{context.DeadlineExceeded, "timeout"},
		{os.ErrDeadlineExceeded, "timeout"},
		{context.Canceled, "cancelled"},
		{io.EOF, "connection closed"},
		{io.ErrUnexpectedEOF, "connection closed"},
		{net.ErrClosed, "connection closed"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	var t interface{ Timeout() bool }
	switch {
	case err == nil:
		return ""
	case errors.As(err, &t) && t.Timeout():
		return "timeout"
	case serverClosedIdle(err):
		return "connection closed"
	}
	return "network error"
}

// serverClosedIdle knows net/http's error for a kept connection that the server closed
// just when it was used again; it is not exported.
func serverClosedIdle(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "http: server closed idle connection" {
			return true
		}
	}
	return false
}

// neverLeft tells errors that came before a connection was there.
func neverLeft(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}
