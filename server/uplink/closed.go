package uplink

import (
	"errors"
	"fmt"
)

// What Send may answer, and what may end a connection.
var (
	ErrDown     = errors.New("no connection")
	ErrFull     = errors.New("the outbox is full")
	ErrTooLarge = errors.New("the message is larger than the peer takes")

	ErrSilent       = errors.New("the peer was silent for two ping intervals")
	ErrStalled      = errors.New("the peer stopped reading")
	ErrUnconfirmed  = errors.New("the peer did not confirm the close")
	ErrUnregistered = errors.New("REGISTER was not answered in time")
)

// Close codes of RFC 6455 section 7.4.1 that are read here, besides package wire's.
const (
	closeProtocol uint16 = 1002
	closeNoCode   uint16 = 1005 // never on the wire: the close frame had none
	closeAbnormal uint16 = 1006 // never on the wire: there was no close frame
	closeUTF8     uint16 = 1007
	closeTooBig   uint16 = 1009
)

// Closed says how a connection ended.
type Closed struct {
	Code   uint16 // as on the wire; 1005: none was given, 1006: it was lost, 0: it never was
	Reason string
	Local  bool  // this side began
	Err    error // what broke the connection; nil where it was closed in order
}

// Error implements error.
func (c *Closed) Error() string {
	switch {
	case c.Err != nil && (c.Code == 0 || c.Code == closeAbnormal):
		return c.Err.Error()
	case c.Err != nil:
		return fmt.Sprintf("closed with %d: %v", c.Code, c.Err)
	case c.Reason != "":
		return fmt.Sprintf("closed with %d: %s", c.Code, c.Reason)
	}
	return fmt.Sprintf("closed with %d", c.Code)
}

// Unwrap returns what broke the connection.
func (c *Closed) Unwrap() error { return c.Err }

// violation is a rule of RFC 6455 that the peer broke.
type violation struct {
	code uint16
	text string
}

func (v *violation) Error() string { return v.text }
