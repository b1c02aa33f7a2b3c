package front

import (
	"sync/atomic"

	"subway/core/wire"
)

// Stats are figures of a port at one moment; those that end in a past participle
// only grow.
type Stats struct {
	Waiting    int64 // connections that have sent no whole request head yet
	WebSockets int64
	HTTP       int64

	Shed    uint64 // connections closed at once, beyond MaxConns or for want of descriptors
	Refused uint64 // requests answered with an error before they reached anybody

	// Closed are the WebSockets that ended, each counted once, by CloseReason:
	//
	//	for i, n := range stats.Closed {
	//		count(front.CloseReason(i).String(), n)
	//	}
	Closed [numCloseReasons]uint64

	PartialBytes int64 // held by messages that have come in part
	WaitingBytes int64 // in outboxes, beyond the first 64 KiB of each
}

// CloseReason says why a WebSocket ended: with which code it was closed from this side
// (PROTOCOL.md section 2), or that the other side ended it. Its name can be a label.
type CloseReason uint8

const (
	closedNormal          CloseReason = iota // 1000
	closedGoingAway                          // 1001, or cut in a Shutdown
	closedProtocolError                      // 1002
	closedInvalidData                        // 1007
	closedTooBig                             // 1009
	closedTryAgain                           // 1013
	closedInvalidMessages                    // 4400
	closedUnregistered                       // 4408
	closedSuperseded                         // 4409
	closedSilent                             // 4410
	closedTooSlow                            // 4429
	closedByPeer                             // its close frame, or its half of TCP ended
	closedLost                               // reset, or broken otherwise
	closedOther                              // any other code
	numCloseReasons
)

var closeReasonNames = [numCloseReasons]string{
	"normal", "going_away", "protocol_error", "invalid_data", "too_big", "try_again", "invalid_messages",
	"unregistered", "superseded", "silent", "too_slow", "peer_closed", "lost", "other",
}

// String returns the name.
func (r CloseReason) String() string {
	if r < numCloseReasons {
		return closeReasonNames[r]
	}
	return "other"
}

// closedWith sorts the codes that we close with.
func closedWith(code uint16) CloseReason {
	switch code {
	case wire.CloseNormal:
		return closedNormal
	case wire.CloseGoingAway:
		return closedGoingAway
	case closeProtocol:
		return closedProtocolError
	case closeUTF8:
		return closedInvalidData
	case closeTooBig:
		return closedTooBig
	case wire.CloseTryAgain:
		return closedTryAgain
	case wire.CloseInvalid:
		return closedInvalidMessages
	case wire.CloseUnregistered:
		return closedUnregistered
	case wire.CloseSuperseded:
		return closedSuperseded
	case wire.CloseSilent:
		return closedSilent
	case wire.CloseTooSlow:
		return closedTooSlow
	}
	return closedOther
}

// closedWithout sorts the ends that no close frame came before.
func closedWithout(reason string) CloseReason {
	switch reason {
	case reasonGoing:
		return closedGoingAway
	case reasonPeerClosed:
		return closedByPeer
	}
	return closedLost
}

// counters are what Stats are read from.
type counters struct {
	total, waiting, websockets, http atomic.Int64

	shed, refused atomic.Uint64
	closed        [numCloseReasons]atomic.Uint64
}

// leave notes the end of a connection of a kind.
func (n *counters) leave(kind *atomic.Int64) {
	kind.Add(-1)
	n.total.Add(-1)
}

// Stats returns the port's figures.
func (s *Server) Stats() Stats {
	n := &s.stats
	st := Stats{
		Waiting:      n.waiting.Load(),
		WebSockets:   n.websockets.Load(),
		HTTP:         n.http.Load(),
		Shed:         n.shed.Load(),
		Refused:      n.refused.Load(),
		PartialBytes: s.budget.Used(),
		WaitingBytes: s.waiting.Load(),
	}
	for i := range st.Closed {
		st.Closed[i] = n.closed[i].Load()
	}
	return st
}

// shed decides whether a new connection with this descriptor is closed at once, and
// counts it where it is not.
func (s *Server) shed(fd int) bool {
	n := s.stats.total.Add(1)
	if n > int64(s.o.MaxConns) || fd >= s.fdGuard || s.draining.Load() {
		s.stats.total.Add(-1)
		s.stats.shed.Add(1)
		return true
	}
	s.stats.waiting.Add(1)
	return false
}
