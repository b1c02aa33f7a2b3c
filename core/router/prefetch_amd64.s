#include "textflag.h"

// func prefetch(addr, bytes uintptr)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ addr+0(FP), AX
	MOVQ bytes+8(FP), CX
	SHRQ $6, CX // and one line more; where they begin late in a line the last may be left out
loop:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	SUBQ $1, CX
	JCC  loop // until it was 0 before
	RET
