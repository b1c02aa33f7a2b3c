package drive

// A ref is cmd-{run 8}-{source 3}-{slot 5}-{sequence 10}: 33 bytes, unique over sources, slots and runs, of the length that
// other clients make. The fixed width lets ready frames be patched in place.
const (
	refSize     = 33
	refRunAt    = 4
	refSourceAt = 13
	refSlotAt   = 17
	refCountAt  = 23
	refPattern  = "cmd-00000000-000-00000-0000000000"
)

// Largest numbers a ref can hold.
const (
	sourcesMax = 1000
	slotsMax   = 100_000
)

// putDigits writes v in decimal over all of b, with leading zeros.
func putDigits(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

// digits reads a decimal number of fixed width; ok is false when b holds anything else.
func digits(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		d := c - '0'
		if d > 9 {
			return 0, false
		}
		v = v*10 + uint64(d)
	}
	return v, true
}

// putRef patches the parts that differ between the refs of one source.
func putRef(ref []byte, slot int, sequence uint64) {
	putDigits(ref[refSlotAt:refSlotAt+5], uint64(slot))
	putDigits(ref[refCountAt:refSize], sequence)
}

// newRef returns the pattern of a source's refs.
func newRef(run uint32, source int) []byte {
	ref := []byte(refPattern)
	putDigits(ref[refRunAt:refRunAt+8], uint64(run)%100_000_000)
	putDigits(ref[refSourceAt:refSourceAt+3], uint64(source))
	return ref
}

// cutRef reads a ref that this source made; ok is false for any other.
func cutRef(ref, pattern []byte) (slot int, sequence uint64, ok bool) {
	if len(ref) != refSize || string(ref[:refSlotAt]) != string(pattern[:refSlotAt]) {
		return 0, 0, false
	}
	s, ok1 := digits(ref[refSlotAt : refSlotAt+5])
	n, ok2 := digits(ref[refCountAt:refSize])
	return int(s), n, ok1 && ok2 && ref[refSlotAt+5] == '-'
}
