package main

import "fmt"

// gemm emits the panel kernel: tiles of up to 8 rows (AVX-512) or 6 rows (AVX2) by 32 columns, each element one
// accumulator over k. AVX2 covers the 32 columns in two passes of 16.
//
// Registers: SI tile of A, DX panel of B, DI tile of C, CX rows left, R8 and R9 row and column stride of A, R10
// and R11 row strides of B and C (bytes), AX three row strides; R13 and R15 walk A (rows 0-3, 4-7), BX walks B.
func (e *emitter) gemm() {
	name := "gemm" + e.suffix()
	fmt.Fprintf(&e.stubs, "\n//go:noescape\nfunc %s(m, k int, a *float32, ars, acs int, b *float32, bs int, c *float32, ldc int, acc bool)\n", name)
	fmt.Fprintf(&e.out, "\n// func %s(m, k int, a *float32, ars, acs int, b *float32, bs int, c *float32, ldc int, acc bool)\nTEXT ·%s(SB), NOSPLIT, $0-73\n", name, name)
	for _, p := range [][2]string{
		{"m+0", "CX"}, {"a+16", "SI"}, {"ars+24", "R8"}, {"acs+32", "R9"}, {"b+40", "DX"}, {"bs+48", "R10"}, {"c+56", "DI"}, {"ldc+64", "R11"},
	} {
		e.line("MOVQ %s(FP), %s", p[0], p[1])
	}
	e.line("LEAQ (R8)(R8*2), AX")
	tiles := []int{6, 4, 2, 1}
	if e.wide {
		tiles = []int{8, 4, 2, 1}
	}
	for _, rows := range tiles {
		next, top := e.mark(), e.mark()
		fmt.Fprintf(&e.out, "%s:\n", top)
		e.line("CMPQ CX, $%d", rows)
		e.line("JLT %s", next)
		if e.wide {
			e.tile(rows, 0, 64)
		} else {
			e.tile(rows, 0, 32)
			e.tile(rows, 64, 32)
		}
		for range rows {
			e.line("ADDQ R8, SI")
			e.line("ADDQ R11, DI")
		}
		e.line("SUBQ $%d, CX", rows)
		e.line("JMP %s", top)
		fmt.Fprintf(&e.out, "%s:\n", next)
	}
	e.line("VZEROUPPER")
	e.line("RET")
}

// tile emits one tile of rows by two vectors of the given width in bytes, starting at a byte offset in the panel.
func (e *emitter) tile(rows, offset, width int) {
	r := "Y"
	if e.wide {
		r = "Z"
	}
	zero, start, loop := e.mark(), e.mark(), e.mark()
	each := func(op string) {
		e.line("MOVQ DI, R13")
		for i := range rows {
			for j := range 2 {
				reg, mem := fmt.Sprintf("%s%d", r, 2*i+j), fmt.Sprintf("%d(R13)", offset+j*width)
				if op == "load" {
					e.line("VMOVUPS %s, %s", mem, reg)
				} else {
					e.line("VMOVUPS %s, %s", reg, mem)
				}
			}
			if i+1 < rows {
				e.line("ADDQ R11, R13")
			}
		}
	}
	e.line("CMPB acc+72(FP), $0")
	e.line("JEQ %s", zero)
	each("load")
	e.line("JMP %s", start)
	fmt.Fprintf(&e.out, "%s:\n", zero)
	for i := range 2 * rows {
		if e.wide {
			e.line("VPXORD Z%d, Z%d, Z%d", i, i, i)
		} else {
			e.line("VXORPS Y%d, Y%d, Y%d", i, i, i)
		}
	}
	fmt.Fprintf(&e.out, "%s:\n", start)
	e.line("MOVQ SI, R13")
	if rows > 4 {
		e.line("LEAQ (SI)(R8*4), R15")
	}
	e.line("MOVQ DX, BX")
	e.line("MOVQ k+8(FP), R12")
	fmt.Fprintf(&e.out, "%s:\n", loop)
	e.products(r, rows, offset, width)
	e.line("ADDQ R9, R13")
	if rows > 4 {
		e.line("ADDQ R9, R15")
	}
	e.line("ADDQ R10, BX")
	e.line("DECQ R12")
	e.line("JNZ %s", loop)
	each("store")
}

// products emits one step of k for a tile: a product and a sum, separately rounded, per vector.
func (e *emitter) products(r string, rows, offset, width int) {
	b0, b1, next := 12, 13, 14
	if e.wide {
		b0, b1, next = 16, 17, 18
	}
	e.line("VMOVUPS %d(BX), %s%d", offset, r, b0)
	e.line("VMOVUPS %d(BX), %s%d", offset+width, r, b1)
	addresses := []string{"(R13)", "(R13)(R8*1)", "(R13)(R8*2)", "(R13)(AX*1)", "(R15)", "(R15)(R8*1)", "(R15)(R8*2)", "(R15)(AX*1)"}
	for i := range rows {
		x, t := next, next+1
		if e.wide {
			x, t = 18+i%7*2, 19+i%7*2
		}
		e.line("VBROADCASTSS %s, %s%d", addresses[i], r, x)
		e.line("VMULPS %s%d, %s%d, %s%d", r, b0, r, x, r, t)
		e.line("VMULPS %s%d, %s%d, %s%d", r, b1, r, x, r, x)
		e.line("VADDPS %s%d, %s%d, %s%d", r, t, r, 2*i, r, 2*i)
		e.line("VADDPS %s%d, %s%d, %s%d", r, x, r, 2*i+1, r, 2*i+1)
	}
}
