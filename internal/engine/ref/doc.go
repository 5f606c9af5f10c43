// Package ref is the oracle: the Qwen3 architecture, its gradients and AdamW written once more as plainly as possible,
// with every sum in float64. It is naive on purpose and never optimised: no packing, no threads, no
// shared buffers, one function per equation. The conformance suite in enginetest compares every other backend
// with it, and test/parity compares it with numbers of the Hugging Face implementation.
//
// What it shares with the backends: weights in a forward pass are the BF16 rounding of the FP32 masters, masters and
// moments are float32. What it does not share: activations and gradients are float64 here, so a
// difference to a float32 backend is that backend's rounding error.
//
// It may import engine, fault, model, rl and weights. Formulas and symbols are in docs/numerics.md.
package ref
