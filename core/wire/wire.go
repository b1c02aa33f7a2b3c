// Package wire turns bytes into messages and messages into bytes: PROTOCOL.md
// sections 2, 3 and 6, and nothing else. It knows no connection, starts no
// goroutine and reads no clock; every function may be called from any
// goroutine as long as one value is used by one goroutine at a time.
//
// The way in is [Envelope.Scan]: one pass over the top level of a message that
// checks all of it as strict JSON and remembers where the members stand that
// PROTOCOL.md names. The payload is checked and never touched. What a message
// must hold is then read by the method of its type ([Envelope.Command],
// [Envelope.Response], ...), which also says what is wrong with it.
//
//	if !wire.ValidUTF8(msg) {
//		return closeWith(1007) // a binary message: INVALID_MESSAGE
//	}
//	if err := env.Scan(msg, wire.DefaultMaxDepth); err != nil {
//		return answer(err.(*wire.Fault), env.Ref(scratch))
//	}
//	switch env.Type {
//	case wire.TypeCommand:
//		fault := env.Command(&command, &scratch)
//		...
//		out = append(out, msg[:env.Close()]...)
//		out = env.AppendAdditions(out, &additions)
//		out = append(out, msg[env.Close():]...)
//
// The way out is a family of append functions that encode into the caller's
// slice. Answers of the HTTP API are small typed structs in api.go.
//
// Ownership: what a read returns is borrowed, either from the message or from
// the Scratch that was passed in. It is valid until the caller reuses either.
package wire

// Limits of this package. Messages themselves are bounded by whoever reads
// them from a connection (PROTOCOL.md section 2: 1 MiB).
const (
	// DefaultMaxDepth is the JSON nesting that PROTOCOL.md section 2 allows;
	// the outermost object is level 1.
	DefaultMaxDepth = 64
	// MaxDepth bounds what a configuration may ask for; Scan cuts to it.
	MaxDepth = 512
	// MaxMessage is the largest message whose offsets fit a Value, in bytes.
	MaxMessage = 1<<31 - 1
	// MaxIDBytes bounds an id and a requestRef, after decoding.
	MaxIDBytes = 128
	// MaxAdditions bounds what a Gateway adds to a message it forwards, in
	// bytes (PROTOCOL.md section 2: receivers take 4 KiB more).
	MaxAdditions = 4096
	// DefaultTimeoutMs holds where a command names no timeout.
	DefaultTimeoutMs = 30_000
	// MaxTimeoutMs is the longest timeout a command may ask for.
	MaxTimeoutMs = 86_400_000
	// Version is the protocol version that this package speaks.
	Version = "1.0"
)
