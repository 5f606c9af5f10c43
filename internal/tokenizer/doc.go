// Package tokenizer is Qwen's byte-level BPE: a tokenizer.json of that family, read, applied and trained.
//
// The pipeline is NFC, the Qwen split pattern (by a hand-written scanner, since the standard library's
// regular expressions have no look-ahead), the byte alphabet, and merges by rank. Encode recognises added tokens
// (template text); EncodePlain never does (statements, tool output), so untrusted text cannot become a control token. A
// tokenizer.json of another shape is refused. Letters, numbers and white space are those of the Go release's Unicode
// tables. It may import fault.
package tokenizer
