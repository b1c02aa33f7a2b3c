//go:build !amd64

package wire

var hasAVX2 = false

func markBlocks(_ *byte, _ *byte, _ int) { panic("BUG: no AVX2 here") }

func allASCII(_ *byte, _ int) bool { panic("BUG: no AVX2 here") }
