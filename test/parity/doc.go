// Package parity compares the engines with golden numbers of the Hugging Face implementation of Qwen3: logits,
// log-probabilities, gradients and one AdamW step of small models with random weights. generate.py makes
// testdata; each golden.json names the versions of the libraries that it came from.
package parity
