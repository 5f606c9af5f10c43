// Package cuda is the engine for NVIDIA GPUs, behind the build tag cuda. It samples from and trains Qwen3-architecture models in BF16 or float32, on one GPU.
//
// Kernels are in kernels/*.cu, embedded and compiled for the GPU at hand by NVRTC when an engine starts; compiled code is kept in
// a folder by a digest of source, architecture and compiler. Matrix products of BF16 run in the engine's own kernels on Hopper, except the fast training step's, else in
// cuBLASLt where it is found; others run in a plain kernel.
//
// Reproducibility: every kernel computes a row from that row alone in a fixed order. The engine's own products sum the inner dimension in parts that follow from the
// matrix; cuBLASLt gets row blocks of one fixed size and one algorithm a shape, which adds parts of a split inner dimension in a fixed order. So a request has the same tokens and record bits whatever else is in the batch, and a scored token the bits
// of the sampled one. Bits may differ between kinds of GPU and versions of the libraries.
//
// Training has two forms. In BF16, for heads 128 wide, products take all rows of a micro-batch at once, attention runs in cuDNN over packed sequences, and
// activations are kept as far as memory allows; log-probabilities differ from the sampler's by roundings. Otherwise, and with Options.Exact, the forward
// pass is the sampler's, kernel for kernel: a token sampled from the published weights has the same log-probability in both.
//
// In both, every gradient has one writer and one order of summation: no atomic sums of floating-point numbers, and cuDNN's deterministic form. Logits exist for
// some trained tokens at a time. The figures depend on the batch's plan, and on the algorithms chosen for the products, which are kept in a file.
//
// Precision: weights, cached keys and values and the inputs of products are rounded to BF16 (or kept in float32); sums, the residual stream, norms and
// the softmax are float32, the sums over the vocabulary float64.
//
// One goroutine with a thread of its own owns the GPU's context; all others talk to it through the batch. Formulas follow
// the Qwen3 model of the Hugging Face library. Callers: policy hosts through package engine.
package cuda
