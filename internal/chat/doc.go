// Package chat renders conversations with Qwen3's chat template, written in Go.
//
// A rendering is a list of parts marked as template or content, so that a tokenizer can recognise control tokens in
// the one and never in the other. A model whose template is not known here is refused, never rendered wrongly.
// It may import fault, jsonl and tokenizer.
package chat
