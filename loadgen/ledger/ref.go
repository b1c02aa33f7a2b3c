package ledger

// A ref is lg-{run, 8 hex digits}-{number, 12 decimal digits}.
const (
	refDigits = 12
	refSize   = 3 + 8 + 1 + refDigits
)

func appendHex(dst []byte, v uint32) []byte {
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[v>>shift&15])
	}
	return dst
}

// AppendRef appends the requestRef of a command: 24 bytes.
func (b *Book) AppendRef(dst []byte, seq uint64) []byte {
	dst = append(dst, b.prefix...)
	n := len(dst)
	dst = append(dst, "000000000000"...)
	for i := n + refDigits - 1; i >= n; i-- {
		dst[i] = byte('0' + seq%10)
		seq /= 10
	}
	return dst
}

// Stray notes a notice about a ref of another run against this gateway, and reports
// whether it is one: what a run that was cut off left there is redelivered to whoever comes
// back under its names, and is nobody's fault.
func (b *Book) Stray(ref []byte) bool {
	if len(ref) != refSize || string(ref[:3]) != "lg-" || ref[11] != '-' || string(ref[:len(b.prefix)]) == string(b.prefix) {
		return false
	}
	b.add(strays)
	return true
}

// Seq reads the number out of a requestRef; false for a ref of another run or maker.
func (b *Book) Seq(ref []byte) (seq uint64, ok bool) {
	if len(ref) != refSize || string(ref[:len(b.prefix)]) != string(b.prefix) {
		return 0, false
	}
	for _, c := range ref[len(b.prefix):] {
		d := c - '0'
		if d > 9 {
			return 0, false
		}
		seq = seq*10 + uint64(d)
	}
	return seq, true
}
