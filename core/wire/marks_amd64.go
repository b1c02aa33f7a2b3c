package wire

import "golang.org/x/sys/cpu"

// hasAVX2 says that markBlocks and allASCII may be called. Tests set it to false to see the
// other road.
var hasAVX2 = cpu.X86.HasAVX2

// markBlocks sets bit j%8 of bits[j/8] where p[j] is a quote, a backslash or a control character,
// and clears the others of what it writes, (n+63)/64 times 8 bytes. It reads no byte after p[n-1], but the 64
// that end there, so there must be so many.
//
//go:noescape
func markBlocks(bits *byte, p *byte, n int)

// allASCII reports whether none of n bytes, which must be at least 32, has its high bit set.
//
//go:noescape
func allASCII(p *byte, n int) bool
