"""Makes the golden numbers of this folder from the Hugging Face implementation of Qwen3.

    python3 -m venv /tmp/hf && /tmp/hf/bin/pip install torch transformers safetensors numpy
    /tmp/hf/bin/python test/parity/generate.py

Everything runs in float64 from weights that are exact in BF16, so the numbers hold for every backend and what
differs is the backend's own rounding. For each shape: the model directory as save_pretrained writes it (BF16),
logits and log-probabilities of one sequence, the gradient of the mean negative log-likelihood of its masked
tokens, and the weights after one AdamW step with clipping and decay. Tensors too large to be stored whole are represented
by every STRIDE-th element; the Go test takes the same ones.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

HERE = pathlib.Path(__file__).parent / "testdata"
STRIDE = 7
OPTIM = {"learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 0.5}

SHAPES = {
    # grouped queries, own head, head_dim unlike hidden/heads
    "grouped_untied": dict(vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                           head_dim=10, intermediate_size=72, tie_word_embeddings=False, rope_theta=1e4, rms_norm_eps=1e-6),
    # the proportions of the published 4B model: heads wider than hidden/heads, tied, its rotation base
    "wide_tied": dict(vocab_size=128, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                      head_dim=16, intermediate_size=96, tie_word_embeddings=True, rope_theta=1e6, rms_norm_eps=1e-6),
}


def config(fields):
    fields = dict(fields)
    theta = fields.pop("rope_theta")
    return Qwen3Config(**fields, max_position_embeddings=128, rope_theta=theta, attention_bias=False, hidden_act="silu",
                       rope_parameters={"rope_type": "default", "rope_theta": theta},
                       use_sliding_window=False, attn_implementation="eager", torch_dtype="bfloat16")


def fill(model, seed):
    gen = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        x = torch.randn(p.shape, generator=gen, dtype=torch.float64) * 0.2
        if "norm" in name:
            x = 1 + x
        p.data = x.to(torch.bfloat16).to(torch.float64)


def thin(x):
    return x.detach().to(torch.float64).flatten()[::STRIDE].numpy().astype(np.float32)


def make(name, fields, seed):
    cfg = config(fields)
    model = Qwen3ForCausalLM(cfg).to(torch.float64)
    fill(model, seed)
    model.tie_weights()
    model.eval()
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    stored = Qwen3ForCausalLM(cfg).to(torch.bfloat16)
    stored.load_state_dict({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
    stored.tie_weights()
    stored.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)

    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, fields["vocab_size"], 45)
    mask = np.array([i > 0 and i % 4 != 0 for i in range(45)])
    ids = torch.tensor(tokens)[None]
    logits = model(input_ids=ids, use_cache=False).logits[0]
    lp = torch.log_softmax(logits, -1)
    picked = lp[:-1].gather(1, ids[0, 1:, None])[:, 0]
    loss = -picked[torch.tensor(mask[1:])].mean()
    loss.backward()
    params = dict(model.named_parameters())
    tensors = {"logits": logits.detach().numpy().astype(np.float32), "log_probs": picked.detach().numpy().astype(np.float32)}
    for n, p in params.items():
        tensors["grad." + n] = thin(p.grad)
    norm = torch.nn.utils.clip_grad_norm_(list(params.values()), OPTIM["clip_norm"])
    opt = torch.optim.AdamW(params.values(), lr=OPTIM["learning_rate"], betas=(OPTIM["beta1"], OPTIM["beta2"]),
                            eps=OPTIM["epsilon"], weight_decay=OPTIM["weight_decay"])
    opt.step()
    for n, p in params.items():
        tensors["step." + n] = thin(p)
    save_file(tensors, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps({
        "tokens": tokens.tolist(), "mask": mask.tolist(), "stride": STRIDE, "loss": loss.item(), "grad_norm": norm.item(), "optim": OPTIM,
        "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "numpy": np.__version__},
    }, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, (name, fields) in enumerate(SHAPES.items()):
        make(name, fields, 100 + i)
