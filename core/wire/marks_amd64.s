#include "textflag.h"

DATA limits<>+0(SB)/8, $0x1f5c220000000000
GLOBL limits<>(SB), RODATA|NOPTR, $8

// hits sets the bits of the 32 bytes at off(SI) in to: a quote (Y0), a backslash (Y1), or no
// more than 0x1f (Y2).
#define hits(off, bytes, a, b, to) \
	VMOVDQU   off(SI), bytes   \
	VPCMPEQB  bytes, Y0, a     \
	VPCMPEQB  bytes, Y1, b     \
	VPOR      a, b, a          \
	VPMINUB   bytes, Y2, b     \
	VPCMPEQB  b, bytes, b      \
	VPOR      a, b, a          \
	VPMOVMSKB a, to

// func markBlocks(bits *byte, p *byte, n int)
TEXT ·markBlocks(SB), NOSPLIT, $0-24
	MOVQ         bits+0(FP), DI
	MOVQ         p+8(FP), SI
	MOVQ         n+16(FP), CX
	VPBROADCASTB limits<>+5(SB), Y0
	VPBROADCASTB limits<>+6(SB), Y1
	VPBROADCASTB limits<>+7(SB), Y2
	SUBQ         $64, CX
	JLT          tail

block:
	hits(0, Y3, Y4, Y5, AX)
	hits(32, Y6, Y7, Y8, BX)
	SHLQ $32, BX
	ORQ  BX, AX
	MOVQ AX, (DI)
	ADDQ $64, SI
	ADDQ $8, DI
	SUBQ $64, CX
	JGE  block

tail: // CX is what is left less 64: read the 64 bytes that end where it ends
	ADDQ CX, SI
	CMPQ CX, $-64
	JEQ  done
	hits(0, Y3, Y4, Y5, AX)
	hits(32, Y6, Y7, Y8, BX)
	SHLQ $32, BX
	ORQ  BX, AX
	NEGQ CX
	SHRQ CX, AX
	MOVQ AX, (DI)

done:
	VZEROUPPER
	RET

// func allASCII(p *byte, n int) bool
TEXT ·allASCII(SB), NOSPLIT, $0-17
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	SUBQ $128, CX
	JLT  rest

four:
	VMOVDQU   (SI), Y0
	VMOVDQU   32(SI), Y1
	VPOR      64(SI), Y0, Y0
	VPOR      96(SI), Y1, Y1
	VPOR      Y0, Y1, Y0
	VPMOVMSKB Y0, AX
	TESTL     AX, AX
	JNE       no
	ADDQ      $128, SI
	SUBQ      $128, CX
	JGE       four

rest: // CX is what is left less 128
	ADDQ $96, CX
	JLT  end

one:
	VMOVDQU   (SI), Y0
	VPMOVMSKB Y0, AX
	TESTL     AX, AX
	JNE       no
	ADDQ      $32, SI
	SUBQ      $32, CX
	JGE       one

end: // CX is what is left less 32: the 32 bytes that end where it ends
	VMOVDQU   (SI)(CX*1), Y0
	VPMOVMSKB Y0, AX
	TESTL     AX, AX
	JNE       no
	VZEROUPPER
	MOVB      $1, ret+16(FP)
	RET

no:
	VZEROUPPER
	MOVB $0, ret+16(FP)
	RET
