// Package weights moves model tensors between memory and files: safetensors, BF16 rounding, digests, Hugging Face
// model directories.
//
// Reading checks everything that a file claims before it is believed: bounds, overlap, types, shapes, duplicate
// names. Writing is deterministic: sorted names, a compact header padded to eight bytes. It may import fault and model.
package weights
