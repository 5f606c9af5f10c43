// Package pretrain warm-starts the demo model: it trains the small tokenizer and the small Qwen3-architecture
// model on the generated corpus with this project's own trainer, and writes a Hugging Face model directory.
//
// Everything is a function of the options: the same bytes on every machine and for any number of threads. The first steps see
// conversations without the tool section, which is most of a prompt and the same in each; the last ones
// see the prompt of a run. The package may import chat, demo, engine, fault, model, rl, tokenizer and weights.
package pretrain
