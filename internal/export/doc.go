// Package export turns a checkpoint into a Hugging Face model directory in BF16 and proves it: every tensor is compared with the
// rounding of its FP32 source, every file has its digest in the certificate, and the tokenizer and a short
// forward pass are run from the exported files. Verify repeats the proof later and names the tensor that a
// changed byte belongs to. There is no optimiser state in an export. It may import checkpoint, engine, fault, model, tokenizer and weights.
package export
