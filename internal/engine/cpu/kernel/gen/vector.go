package main

import (
	"fmt"
	"strings"
)

// vector describes a function over rows of 16-lane groups: pointers first, then n, then scalars, then results.
type vector struct {
	name     string
	pointers []string // loaded into DI, SI, DX, R8, R9 in this order
	scalars  []string // float32 arguments
	results  []string // float32 results
	sum      []string // virtual registers reduced into the results
	reduce   string   // instruction of the reduction
	before   func(e *emitter)
	body     func(e *emitter)
}

var pointerRegisters = []string{"DI", "SI", "DX", "R8", "R9"}

func (e *emitter) vector(v vector) {
	name := v.name + e.suffix()
	signature := fmt.Sprintf("func %s(%s *float32, n int", name, strings.Join(v.pointers, ", "))
	size := 8 * (len(v.pointers) + 1)
	n := size - 8
	offset := map[string]int{}
	for _, s := range v.scalars {
		signature += ", " + s + " float32"
		offset[s] = size
		size += 4
	}
	signature += ")"
	if len(v.results) > 0 {
		size = (size + 7) / 8 * 8
	}
	for _, r := range v.results {
		offset[r] = size
		size += 4
	}
	if len(v.results) > 0 {
		signature += " (" + strings.Join(v.results, ", ") + " float32)"
	}
	fmt.Fprintf(&e.stubs, "\n//go:noescape\n%s\n", signature)
	fmt.Fprintf(&e.out, "\n// %s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", signature, name, size)
	for i, p := range v.pointers {
		e.line("MOVQ %s+%d(FP), %s", p, 8*i, pointerRegisters[i])
	}
	e.line("MOVQ n+%d(FP), CX", n)
	e.line("SHLQ $2, CX")
	e.line("XORQ AX, AX")
	for i, s := range v.scalars {
		e.broadcast(fmt.Sprintf("%s+%d(FP)", s, offset[s]), fmt.Sprintf("v%d", i))
	}
	if v.before != nil {
		v.before(e)
	}
	loop := e.mark()
	fmt.Fprintf(&e.out, "%s:\n", loop)
	v.body(e)
	e.line("ADDQ $64, AX")
	e.line("CMPQ AX, CX")
	e.line("JLT %s", loop)
	for i, r := range v.results {
		e.lanes(v.reduce, v.sum[i], fmt.Sprintf("%s+%d(FP)", r, offset[r]))
	}
	e.line("VZEROUPPER")
	e.line("RET")
}

// lanes reduces 16 lanes in the order 8-4-2-1 and stores the result.
func (e *emitter) lanes(op, v, mem string) {
	low := e.operand(v, 0)[1:]
	if e.wide {
		e.line("VEXTRACTF32X8 $1, Z%s, Y15", low)
		e.line("%s Y15, Y%s, Y%s", op, low, low)
	} else {
		e.line("%s %s, Y%s, Y%s", op, e.operand(v, 1), low, low)
	}
	e.line("VEXTRACTF128 $1, Y%s, X15", low)
	e.line("%s X15, X%s, X%s", op, low, low)
	e.line("VPERMILPS $0x4e, X%s, X15", low)
	e.line("%s X15, X%s, X%s", op, low, low)
	e.line("VPERMILPS $0xb1, X%s, X15", low)
	e.line("%s X15, X%s, X%s", op, low, low)
	e.line("VMOVSS X%s, %s", low, mem)
}

func (e *emitter) zero(v string) {
	if e.wide {
		e.op("VPXORD", v, v, v)
		return
	}
	e.op("VXORPS", v, v, v)
}

// exp computes v5 = exp(v2) with v3, v4, v6 and v7 as scratch; v2 stays.
func (e *emitter) exp() {
	if e.wide {
		e.line("VCMPPS $0x1d, %s, Z2, K1", e.operand("=low", 0))
	} else {
		e.op("VCMPPS", "$0x1d", "=low", "v2", "v7")
	}
	e.op("VMINPS", "=high", "v2", "v3")
	e.op("VMULPS", "=log2e", "v3", "v4")
	e.op("VADDPS", "=magic", "v4", "v4")
	e.op("VSUBPS", "=magic", "v4", "v5")
	e.op("VMULPS", "=ln2hi", "v5", "v6")
	e.op("VSUBPS", "v6", "v3", "v3")
	e.op("VMULPS", "=ln2lo", "v5", "v6")
	e.op("VSUBPS", "v6", "v3", "v3")
	e.op("VMULPS", "=p0", "v3", "v5")
	for _, p := range []string{"=p1", "=p2", "=p3", "=p4"} {
		e.op("VADDPS", p, "v5", "v5")
		e.op("VMULPS", "v3", "v5", "v5")
	}
	e.op("VADDPS", "=p5", "v5", "v5")
	e.op("VMULPS", "v3", "v3", "v6")
	e.op("VMULPS", "v6", "v5", "v5")
	e.op("VADDPS", "v3", "v5", "v5")
	e.op("VADDPS", "=one", "v5", "v5")
	e.op("VPSLLD", "$23", "v4", "v4")
	e.op("VPADDD", "v4", "v5", "v5")
	if e.wide {
		e.line("VMOVAPS.Z Z5, K1, Z5")
	} else {
		e.op("VANDPS", "v7", "v5", "v5")
	}
}

// sigmoid computes v5 = 1/(1+exp(-g)) for g in memory.
func (e *emitter) sigmoid(g string) {
	e.zero("v2")
	e.op("VSUBPS", g, "v2", "v2")
	e.exp()
	e.op("VADDPS", "=one", "v5", "v5")
	e.op("VMOVUPS", "=one", "v6")
	e.op("VDIVPS", "v5", "v6", "v5")
}

var vectors = []vector{
	{
		name: "dot", pointers: []string{"a", "b"}, results: []string{"sum"}, sum: []string{"v0"}, reduce: "VADDPS",
		before: func(e *emitter) { e.zero("v0") },
		body: func(e *emitter) {
			e.op("VMOVUPS", "DI", "v1")
			e.op("VMULPS", "SI", "v1", "v1")
			e.op("VADDPS", "v1", "v0", "v0")
		},
	},
	{
		name: "max", pointers: []string{"a"}, results: []string{"top"}, sum: []string{"v0"}, reduce: "VMAXPS",
		before: func(e *emitter) { e.op("VMOVUPS", "=-inf", "v0") },
		body: func(e *emitter) {
			e.op("VMOVUPS", "DI", "v1")
			e.op("VMAXPS", "v0", "v1", "v0")
		},
	},
	{
		name: "expSum", pointers: []string{"dst", "src"}, scalars: []string{"shift"}, results: []string{"sum"},
		sum: []string{"v1"}, reduce: "VADDPS",
		before: func(e *emitter) { e.zero("v1") },
		body: func(e *emitter) {
			e.op("VMOVUPS", "SI", "v2")
			e.op("VSUBPS", "v0", "v2", "v2")
			e.exp()
			e.op("VMOVUPS", "v5", "DI")
			e.op("VADDPS", "v5", "v1", "v1")
		},
	},
	{
		name: "expEntropy", pointers: []string{"dst", "src"}, scalars: []string{"shift"}, results: []string{"sum", "weighted"},
		sum: []string{"v0", "v1"}, reduce: "VADDPS",
		before: func(e *emitter) { e.zero("v0"); e.zero("v1") },
		body: func(e *emitter) {
			e.broadcast("shift+24(FP)", "v3")
			e.op("VMOVUPS", "SI", "v2")
			e.op("VSUBPS", "v3", "v2", "v2")
			e.exp()
			e.op("VMOVUPS", "v5", "DI")
			e.op("VADDPS", "v5", "v0", "v0")
			// Below the limit the exponential is 0; the limit in place of the argument avoids 0 times -Inf.
			e.op("VMAXPS", "=low", "v2", "v2")
			e.op("VMULPS", "v2", "v5", "v5")
			e.op("VADDPS", "v5", "v1", "v1")
		},
	},
	{
		name: "scale", pointers: []string{"y", "x"}, scalars: []string{"s"},
		body: func(e *emitter) {
			e.op("VMULPS", "SI", "v0", "v1")
			e.op("VMOVUPS", "v1", "DI")
		},
	},
	{
		name: "axpy", pointers: []string{"y", "x"}, scalars: []string{"s"},
		body: func(e *emitter) {
			e.op("VMULPS", "SI", "v0", "v1")
			e.op("VADDPS", "DI", "v1", "v1")
			e.op("VMOVUPS", "v1", "DI")
		},
	},
	{
		name: "mul", pointers: []string{"y", "a", "b"},
		body: func(e *emitter) {
			e.op("VMOVUPS", "SI", "v0")
			e.op("VMULPS", "DX", "v0", "v0")
			e.op("VMOVUPS", "v0", "DI")
		},
	},
	{
		name: "mulAcc", pointers: []string{"y", "a", "b"}, scalars: []string{"s"},
		body: func(e *emitter) {
			e.op("VMOVUPS", "SI", "v1")
			e.op("VMULPS", "DX", "v1", "v1")
			e.op("VMULPS", "v0", "v1", "v1")
			e.op("VADDPS", "DI", "v1", "v1")
			e.op("VMOVUPS", "v1", "DI")
		},
	},
	{
		name: "norm", pointers: []string{"y", "x", "w"}, scalars: []string{"r"},
		body: func(e *emitter) {
			e.op("VMULPS", "SI", "v0", "v1")
			e.op("VMULPS", "DX", "v1", "v1")
			e.op("VMOVUPS", "v1", "DI")
		},
	},
	{
		name: "siluMul", pointers: []string{"h", "gate", "up"},
		body: func(e *emitter) {
			e.sigmoid("SI")
			e.op("VMULPS", "SI", "v5", "v5")
			e.op("VMULPS", "DX", "v5", "v5")
			e.op("VMOVUPS", "v5", "DI")
		},
	},
	{
		name: "siluGrad", pointers: []string{"dgate", "dup", "dh", "gate", "up"},
		body: func(e *emitter) {
			e.sigmoid("R8")
			e.op("VMULPS", "R8", "v5", "v3") // g*s
			e.op("VSUBPS", "v5", "v6", "v6") // 1-s; v6 holds 1
			e.op("VMULPS", "v6", "v3", "v6") // g*s*(1-s)
			e.op("VADDPS", "v6", "v5", "v5") // silu'
			e.op("VMOVUPS", "DX", "v1")      // dh
			e.op("VMULPS", "R9", "v1", "v2") // dh*u
			e.op("VMULPS", "v3", "v1", "v1") // dh*g*s
			e.op("VMULPS", "v5", "v2", "v2")
			e.op("VMOVUPS", "v1", "SI")
			e.op("VMOVUPS", "v2", "DI")
		},
	},
	{
		name: "softmaxGrad", pointers: []string{"ds", "p", "dp"}, scalars: []string{"delta"},
		body: func(e *emitter) {
			e.op("VMOVUPS", "DX", "v1")
			e.op("VSUBPS", "v0", "v1", "v1")
			e.op("VMULPS", "SI", "v1", "v1")
			e.op("VMOVUPS", "v1", "DI")
		},
	},
	{name: "adamW", pointers: []string{"w", "m", "v", "grad", "params"}, body: adamW},
}

// adamW takes its scalars from the fields of AdamParams at R9.
func adamW(e *emitter) {
	param := func(i int) string {
		e.broadcast(fmt.Sprintf("%d(R9)", 4*i), "v7")
		return "v7"
	}
	e.op("VMULPS", "R8", param(8), "v0") // clipped gradient
	e.op("VMULPS", "SI", param(0), "v1")
	e.op("VMULPS", "v0", param(1), "v2")
	e.op("VADDPS", "v2", "v1", "v1") // first moment
	e.op("VMULPS", "DX", param(2), "v3")
	e.op("VMULPS", "v0", param(3), "v2")
	e.op("VMULPS", "v0", "v2", "v2")
	e.op("VADDPS", "v2", "v3", "v3") // second moment
	e.op("VMOVUPS", "v1", "SI")
	e.op("VMOVUPS", "v3", "DX")
	e.op("VSQRTPS", "v3", "v4")
	e.op("VMULPS", "v4", param(5), "v4")
	e.op("VADDPS", "v4", param(6), "v4")
	e.op("VMULPS", "DI", param(7), "v5")
	e.op("VMULPS", "v1", param(4), "v2")
	e.op("VDIVPS", "v4", "v2", "v2")
	e.op("VSUBPS", "v2", "v5", "v5")
	e.op("VMOVUPS", "v5", "DI")
}
