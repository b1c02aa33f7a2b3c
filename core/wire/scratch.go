package wire

// maxScratch bounds what a Scratch keeps between messages, in bytes.
const maxScratch = 64 << 10

// Scratch holds the strings of one message that had to be decoded because they
// were written with escapes; the others are read where they stand. Each reading
// method that takes one begins anew, so what the last returned is valid until
// the next. It is reusable, keeps at most 64 KiB, and its zero value is ready.
type Scratch struct{ buf []byte }

func (s *Scratch) reset() {
	if cap(s.buf) > maxScratch {
		s.buf = nil
	}
	s.buf = s.buf[:0]
}

// str returns the decoded bytes of a string of b.
func (s *Scratch) str(b []byte, v Value) []byte {
	if !v.Escaped {
		return v.inner(b)
	}
	off := len(s.buf)
	s.buf = decode(s.buf, v.inner(b))
	return s.buf[off:len(s.buf):len(s.buf)]
}

// id returns the decoded bytes of a value of b if it is a string that is an id.
func (s *Scratch) id(b []byte, v Value) ([]byte, bool) {
	if v.Kind != KindString || v.End-v.Off-2 > 6*MaxIDBytes {
		return nil, false
	}
	id := s.str(b, v)
	return id, ValidID(id)
}
