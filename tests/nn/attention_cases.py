"""Attention and Transformers; the same lines run with rushlight and with PyTorch.

`python tests/nn/attention_cases.py` writes PyTorch's results to `attention.json`.
"""

from __future__ import annotations

import json
import pathlib
import warnings
from typing import Any

ATTENTION: dict[str, tuple[dict[str, Any], str]] = {
    "self": ({}, "self"),
    "cross": ({}, "cross"),
    "three inputs": ({"kdim": 6, "vdim": 6}, "three"),
    "bias_kv": ({"bias": False, "add_bias_kv": True}, "cross"),
    "zero_attn": ({"add_zero_attn": True, "batch_first": True}, "self"),
    "dropout": ({"dropout": 0.3}, "self"),
}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "norm_first": {"norm_first": True, "activation": "gelu", "dropout": 0.0},
    "no bias": {"bias": False},
}


def _plain(tensor: Any) -> list[float]:
    return [round(float(v), 5) for v in tensor.detach().reshape(-1).tolist()]


def run_attention(t: Any, name: str) -> dict[str, Any]:
    options, inputs = ATTENTION[name]
    t.manual_seed(0)
    layer = t.nn.MultiheadAttention(8, 2, **options)
    first = options.get("batch_first", False)
    q = (t.randn(3, 5, 8) if first else t.randn(5, 3, 8)).requires_grad_(True)
    k = q if inputs == "self" else t.randn(4, 3, options.get("kdim", 8))
    v = k if inputs != "three" else t.randn(4, 3, options["vdim"])
    keys = k.size(1 if first else 0)
    padding = t.tensor([[False] * keys, [False] * (keys - 1) + [True], [False] * (keys - 1) + [True]])
    mask = t.ones(5, keys).triu(1).bool()
    found: dict[str, Any] = {"repr": repr(layer), "names": list(layer.state_dict())}
    for label, call in {
        "weights": {},
        "none": {"need_weights": False},
        "each head": {"average_attn_weights": False},
        "padding": {"key_padding_mask": padding},
        "mask": {"attn_mask": mask, "need_weights": False},
        "both": {"attn_mask": mask, "key_padding_mask": padding},
    }.items():
        out, weights = layer(q, k, v, **call)
        q.grad = None
        (out * out).sum().backward()
        found[label] = [_plain(out), None if weights is None else _plain(weights), _plain(q.grad)]
    found["grads"] = [_plain(p.grad.sum()) for p in layer.parameters()]
    return found


def run_transformer(t: Any, name: str, training: bool) -> dict[str, Any]:
    options = TRANSFORMERS[name]
    t.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = t.nn.Transformer(8, 2, 2, 2, 16, **options).train(training)
    first = options.get("batch_first", False)
    source = t.randn(3, 5, 8) if first else t.randn(5, 3, 8)
    target = t.randn(3, 4, 8) if first else t.randn(4, 3, 8)
    mask = model.generate_square_subsequent_mask(4)
    padding = t.tensor([[False] * 5, [False] * 4 + [True], [False] * 3 + [True] * 2])
    out = model(source, target, tgt_mask=mask)
    padded = model(source, target, src_key_padding_mask=padding, tgt_mask=mask, memory_key_padding_mask=padding)
    with t.no_grad():
        encoded = model.encoder(source, src_key_padding_mask=padding)
    (out * out).sum().backward()
    return {
        "repr": repr(model),
        "names": list(model.state_dict()),
        "out": _plain(out),
        "padded": _plain(padded),
        "encoded": _plain(encoded),
        "grads": [_plain(p.grad.abs().sum()) for p in model.parameters()],
    }


def run_all(t: Any) -> dict[str, Any]:
    found: dict[str, Any] = {name: run_attention(t, name) for name in ATTENTION}
    for name in TRANSFORMERS:
        for training in (True, False):
            found[f"{name} {training}"] = run_transformer(t, name, training)
    return found


if __name__ == "__main__":
    import torch

    warnings.simplefilter("ignore")
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in run_all(torch).items())
    pathlib.Path(__file__).with_name("attention.json").write_text("{\n" + text + "\n}\n")
