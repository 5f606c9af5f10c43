// Package kernel holds the float32 arithmetic of the CPU engine: one matrix micro-kernel, the vector
// operations around it, and the few scalar functions (exp, log, sine, power) that the math package does
// not promise to round alike on every architecture.
//
// Every operation exists three times: AVX-512 assembly, AVX2 assembly and Go. All three give the same bits,
// because the arithmetic is fixed, not only the formula:
//   - products and sums round separately (no fused multiply-add anywhere);
//   - an element of a matrix product is one chain of additions with k ascending, so tile sizes, blocking of k
//     (store and reload is exact), the batch around it and the number of threads cannot change it;
//   - a reduction along a row runs in 16 strided lanes that are added in the order 8-4-2-1.
//
// Level selects the variant. Best picks once by CPUID with the operating system's state check; the build tag
// purego removes the assembly, and the environment variable STEADY_CPU_KERNELS (avx512, avx2 or go) lowers the
// choice for tests. The assembly is written by the gen folder; go generate rewrites it and a test compares.
//
// Vector lengths are multiples of 16: callers pad rows with zeros (or -Inf before an exponential).
// The functions panic on slices that are too short: that is a bug of the caller. They are safe for
// concurrent use on disjoint outputs.
package kernel

//go:generate go run ./gen
