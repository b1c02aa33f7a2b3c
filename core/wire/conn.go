package wire

// Class says how a connection treats a message that it is asked to send while others wait.
type Class uint8

// The classes of outgoing messages (PROTOCOL.md sections 2 and 3).
const (
	ClassCommand Class = iota // refused with Full while the way is blocked: the sender keeps it, in its order of priority
	ClassNotice               // kept up to the outbox's bound, beyond which the connection is closed with 4429
	ClassStatus               // dropped while more than the status limit waits

	// Durable is a flag beside a class: the message leaves only when all that was
	// journalled before it was appended is on stable storage (PROTOCOL.md section 9). Other
	// notices may leave before it; commands do not, with the flag or without.
	Durable Class = 0x80
)

// Result is what became of a message given to a connection.
type Result uint8

// The results of an append.
const (
	Accepted Result = iota
	Full            // nothing was taken; the session is told when there is room again
	Dropped         // nothing was taken; only a ClassStatus message ends so
	Gone            // the connection is closed or closing
)

// Close codes of PROTOCOL.md section 2, and those of RFC 6455 section 7.4.1 that Subway sends itself.
const (
	CloseNormal       uint16 = 1000
	CloseGoingAway    uint16 = 1001
	CloseTryAgain     uint16 = 1013
	CloseInvalid      uint16 = 4400
	CloseUnauthorized uint16 = 4401
	CloseForbidden    uint16 = 4403
	CloseUnregistered uint16 = 4408
	CloseSuperseded   uint16 = 4409
	CloseSilent       uint16 = 4410
	CloseVersion      uint16 = 4426
	CloseTooSlow      uint16 = 4429
)
