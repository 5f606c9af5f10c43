// Package cpu is the fast engine without a GPU: it samples from and trains Qwen3-architecture models in float32
// with its own kernels (package kernel), no cgo and no library.
//
// What makes its results reproducible: every output element is one chain of separately rounded operations whose
// order depends on the model and the data only. So tokens, records, gradients and weights have the same
// bits for any number of threads, any batch around a sequence, any instruction set of package kernel, and the
// log-probability of a token sampled with the cache equals that of the training forward pass.
//
// Sampler: one goroutine runs all requests as one batch, token by token. The cache consists of pages of 32 tokens;
// requests with the same beginning share its pages, computed once, and pages stay for a while for later prompts.
// Trainer: micro-batches of sequences laid end to end, no padding between them; only trained tokens get logits;
// probabilities of attention are recomputed in the backward pass. Sums over tokens run in row order within a
// micro-batch and over micro-batches in the plan's order.
//
// All widths are padded to multiples of 32 with zeros inside. Weights are packed once per version.
// What it does not do: truncated sampling, dropout, other architectures, weights in fewer bits than float32.
//
// Formulas follow the Qwen3 model of the Hugging Face library; the loss is rl.Row's. Callers: packages learner and
// policy hosts through package engine.
package cpu
