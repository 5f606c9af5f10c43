// Package tokenizer is Qwen's byte-level BPE: a tokenizer.json of that family, read, applied and trained.
//
// The pipeline is NFC, the Qwen split pattern (by a hand-written scanner, since the standard library's
// regular expressions have no look-ahead), the byte alphabet, and merges by rank. Encode recognises added tokens
// (template text); EncodePlain never does (statements, tool output), so untrusted text cannot become a control token. A
// tokenizer.json of another shape is refused. Letters, numbers and white space, and the characters
// that form C knows, are those of the tokenizers library (testdata/unicode.py), whatever tables of Unicode the Go release has. It may import fault and jsonl.
package tokenizer
