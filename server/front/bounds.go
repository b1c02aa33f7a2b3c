package front

import (
	"bytes"
	"strconv"
)

// bounds finds where HTTP/1.1 requests end in the bytes of a connection (RFC 9112), so that
// a pipelined request is not given to fasthttp before the one in front of it is answered:
// fasthttp keeps an answer back while it holds bytes of a next request, even where that is
// not complete or takes a minute. It judges nothing and changes no byte; where it loses its
// way it takes all that comes for the same request.
type bounds struct {
	state   boundsState
	chunked bool
	long    bool     // the line did not fit
	n       int      // bytes of line
	length  int64    // that the head said
	left    int64    // of the body, or of the chunk
	line    [64]byte // the start of the line in progress
}

type boundsState uint8

const (
	beforeRequest boundsState = iota // empty lines count for nothing
	inHead
	atChunk
	afterChunk
	inTrailer
	lostBounds
)

// next returns how many of the bytes belong to the request in progress: at least one
// where there are any.
func (b *bounds) next(data []byte) (n int) {
	for n < len(data) && b.state != lostBounds {
		if b.left > 0 {
			k := min(b.left, int64(len(data)-n))
			n += int(k)
			if b.left -= k; b.left == 0 && !b.chunked {
				*b = bounds{}
				return n
			}
			continue
		}
		i := bytes.IndexByte(data[n:], '\n')
		if i < 0 {
			b.add(data[n:])
			break
		}
		b.add(data[n : n+i])
		n += i + 1
		if b.endLine() {
			*b = bounds{}
			return n
		}
	}
	return len(data)
}

func (b *bounds) add(part []byte) {
	k := copy(b.line[b.n:], part)
	b.n += k
	b.long = b.long || k < len(part)
}

// endLine takes a line and reports whether it ends the request.
func (b *bounds) endLine() (ends bool) {
	line := bytes.TrimSuffix(b.line[:b.n], []byte{'\r'})
	empty := len(line) == 0
	switch b.state {
	case beforeRequest:
		if !empty {
			b.state = inHead
		}
	case inHead:
		ends = b.field(line)
	case atChunk:
		size, _, _ := bytes.Cut(line, []byte{';'})
		left, err := strconv.ParseInt(string(trimOWS(size)), 16, 64)
		switch {
		case err != nil || left < 0:
			b.state = lostBounds
		case left == 0:
			b.state = inTrailer
		default:
			b.left, b.state = left, afterChunk
		}
	case afterChunk:
		b.state = atChunk
	case inTrailer:
		ends = empty
	}
	b.n, b.long = 0, false
	return ends
}

// field takes a line of the head and reports whether it ends a request without a body.
func (b *bounds) field(line []byte) (ends bool) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	switch {
	case len(line) == 0 && b.chunked:
		b.state = atChunk
	case len(line) == 0:
		b.left = b.length
		return b.left == 0
	case isName(name, "transfer-encoding"):
		b.chunked = true
	case isName(name, "content-length"):
		length, err := strconv.ParseInt(string(trimOWS(value)), 10, 64)
		if err != nil || length < 0 || b.long {
			b.state = lostBounds
		}
		b.length = length
	}
	return false
}
