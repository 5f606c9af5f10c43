//go:build cuda

package cuda

import (
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
)

// Options of an engine. The zero value is usable: GPU 0, BF16, libraries from the usual places.
type Options struct {
	// Device is the number of the GPU as the driver counts.
	Device int
	// Precision defaults to BF16.
	Precision Precision
	// Driver, NVRTC, CUBLASLt and CUDNN name library files; empty for the usual places. Without cuDNN, attention in training runs in plain kernels, slowly.
	Driver, NVRTC, CUBLASLt, CUDNN string
	// Exact makes a trainer compute with the sampler's kernels: an on-policy token has the same log-probability in both, bit for bit, and a step takes
	// more than ten times as long. Float32, and models whose heads are not 128 wide, always do.
	Exact bool
	// PlainProducts keeps cuBLASLt and the engine's own products on tensor cores out: products run in a plain kernel, slowly. Float32 always does.
	PlainProducts bool
	// KernelDir keeps compiled kernels; empty to compile at every start.
	KernelDir string
	// CacheTokens is the number of tokens whose keys and values fit; 0 for half of the memory that is free beside the weights, or what Sequences need
	// if that is less. A request waits until its whole length fits.
	CacheTokens int
	// Sequences bounds the running requests; more wait. Default 256.
	Sequences int
	// Rows bounds the tokens of one step, prompts included. Default 1024. It does not change results.
	Rows int

	// slots bounds the layers whose activations are kept, in tests; 0 for the memory that is free.
	slots int
	// libraryProducts keeps the engine's own products out, in tests.
	libraryProducts bool
	// compile stands in for NVRTC in tests; nil for NVRTC.
	compile func(arch string, p Precision) ([]byte, error)
}

// tile is the number of rows of every cuBLASLt product. It is part of the result: the same algorithm runs on the same shape, whatever the batch is.
// On an H200 a product of 128 rows takes as long as one of a single row, because reading the weights is what takes time.
const tile = plan.Tile

func (o Options) withDefaults() (Options, error) {
	if o.Precision == "" {
		o.Precision = BF16
	}
	if o.Sequences == 0 {
		o.Sequences = 256
	}
	if o.Rows == 0 {
		o.Rows = 1024
	}
	if o.Precision != BF16 && o.Precision != Float32 || o.Sequences < 1 || o.Rows < 1 || o.CacheTokens < 0 || o.Device < 0 {
		return o, fault.New(fault.Invalid, "cuda.Options", "precision %q, %d sequences, %d rows, %d cache tokens, device %d",
			o.Precision, o.Sequences, o.Rows, o.CacheTokens, o.Device)
	}
	o.Rows = plan.SamplerRows(o.Rows, o.Sequences)
	return o, nil
}

// pad rounds n up to a multiple of m.
func pad(n, m int) int { return plan.Pad(n, m) }
