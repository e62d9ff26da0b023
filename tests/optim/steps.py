"""A hundred steps of every optimizer with every option on one problem; `expected_steps.json` holds what PyTorch computed.

`python tests/optim/steps.py` asks PyTorch anew and writes the file.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

STEPS = 100
FILE = pathlib.Path(__file__).with_name("expected_steps.json")

_ADAM = {
    "": {}, "decay": {"weight_decay": 0.1}, "amsgrad": {"amsgrad": True}, "maximize": {"maximize": True}, "betas": {"betas": (0.5, 0.9), "eps": 1e-3},
    "foreach": {"foreach": True, "amsgrad": True}, "fused": {"fused": True, "weight_decay": 0.1}, "fused amsgrad": {"fused": True, "amsgrad": True},
    "loop": {"foreach": False}, "differentiable": {"differentiable": True, "weight_decay": 0.1},
    "tensor lr": {"lr": "tensor 0.03"}, "tensor betas": {"betas": ("tensor 0.8", "tensor 0.95")},
}  # fmt: skip

# For each optimizer its options, by what they show; the problem's rate where it is not given is 0.03.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "SGD": {
        "": {}, "decay": {"weight_decay": 0.1}, "momentum": {"momentum": 0.9, "dampening": 0.3}, "nesterov": {"momentum": 0.8, "nesterov": True},
        "maximize": {"maximize": True, "lr": 1e-3}, "foreach": {"foreach": True, "momentum": 0.9}, "fused": {"fused": True, "momentum": 0.9,
        "weight_decay": 0.1}, "loop": {"foreach": False, "momentum": 0.5}, "differentiable": {"differentiable": True, "momentum": 0.9},
        "tensor lr": {"lr": "tensor 0.03"}, "tensor decay": {"weight_decay": "tensor 0.1", "momentum": 0.5},
    },
    "Adam": {**_ADAM, "decoupled": {"decoupled_weight_decay": True, "weight_decay": 0.2}},
    "AdamW": _ADAM,
    "Adagrad": {
        "": {}, "decay": {"weight_decay": 0.1}, "lr decay": {"lr_decay": 0.05}, "start": {"initial_accumulator_value": 0.3, "eps": 1e-4},
        "maximize": {"maximize": True}, "foreach": {"foreach": True}, "fused": {"fused": True, "lr_decay": 0.01},
        "differentiable": {"differentiable": True},
    },
    "Adadelta": {
        "": {"lr": 1.0}, "decay": {"weight_decay": 0.1, "rho": 0.7}, "maximize": {"maximize": True}, "foreach": {"foreach": True, "lr": 2.0},
        "differentiable": {"differentiable": True},
    },
    "Adamax": {
        "": {}, "decay": {"weight_decay": 0.1}, "maximize": {"maximize": True}, "betas": {"betas": (0.6, 0.9), "eps": 1e-2}, "foreach": {"foreach": True},
        "differentiable": {"differentiable": True},
    },
    "NAdam": {
        "": {}, "decay": {"weight_decay": 0.1}, "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True}, "momentum": {"momentum_decay": 0.1},
        "maximize": {"maximize": True}, "foreach": {"foreach": True}, "differentiable": {"differentiable": True},
    },
    "RAdam": {
        "": {}, "decay": {"weight_decay": 0.1}, "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True}, "betas": {"betas": (0.8, 0.9)},
        "maximize": {"maximize": True}, "foreach": {"foreach": True}, "differentiable": {"differentiable": True},
    },
    "RMSprop": {
        "": {}, "decay": {"weight_decay": 0.1}, "momentum": {"momentum": 0.5}, "centered": {"centered": True, "alpha": 0.9, "eps": 1e-3},
        "both": {"centered": True, "momentum": 0.5, "eps": 1e-3}, "maximize": {"maximize": True}, "foreach": {"foreach": True},
        "differentiable": {"differentiable": True},
    },
    "Rprop": {
        "": {}, "etas": {"etas": (0.3, 1.5), "step_sizes": (1e-4, 0.1)}, "maximize": {"maximize": True}, "foreach": {"foreach": True},
        "differentiable": {"differentiable": True},
    },
    "ASGD": {
        "": {}, "decay": {"weight_decay": 0.1}, "average": {"t0": 20, "lambd": 1e-2, "alpha": 0.5}, "maximize": {"maximize": True, "lr": 1e-3},
        "foreach": {"foreach": True}, "differentiable": {"differentiable": True},
    },
    "LBFGS": {"": {"lr": 0.5, "max_iter": 2}, "wolfe": {"line_search_fn": "strong_wolfe", "max_iter": 3, "lr": 1.0}, "short": {"history_size": 2, "max_iter": 4,
              "lr": 0.3}},
    "SparseAdam": {"": {}, "maximize": {"maximize": True}, "betas": {"betas": (0.5, 0.9), "eps": 1e-3}},
    "Adafactor": {
        "": {}, "decay": {"weight_decay": 0.1, "d": 2.0}, "eps": {"eps": (1e-4, 0.05), "beta2_decay": -0.5}, "maximize": {"maximize": True},
        "foreach": {"foreach": True}, "tensor lr": {"lr": "tensor 0.03"},
    },
}  # fmt: skip

CASES = [f"{name}: {what}" for name, options in OPTIONS.items() for what in options]


def _values(t: Any, count: int, shift: float, dtype: Any) -> Any:
    """Numbers without a pattern, the same everywhere."""
    return t.tensor([math.sin(12.9898 * (i + 1) + shift) for i in range(count)], dtype=dtype)


def run(t: Any, case: str, dtype: str) -> list[list[float]]:
    """The parameters after the steps, as lists of numbers, in `dtype`: "float32", "float64" or "complex128"."""
    name, _, what = case.partition(": ")
    kind = getattr(t, dtype)
    shapes = [(4, 3), (5,)]
    options = {"lr": 0.03, **OPTIONS[name][what]}
    options = {key: _option(t, value) for key, value in options.items()}
    sizes = [math.prod(shape) for shape in shapes]
    start = [_values(t, n, 0.1, kind).reshape(shape) for n, shape in zip(sizes, shapes, strict=True)]
    if options.get("differentiable"):  # steps that can be differentiated want parameters that are no leaves
        roots = [x.requires_grad_() for x in start]
        params = [x.clone() for x in roots]
        for p in params:
            p.retain_grad()
    else:
        params = [t.nn.Parameter(x) for x in start]
    targets = [_values(t, n, 1.7, kind).reshape(shape) * 0.5 for n, shape in zip(sizes, shapes, strict=True)]
    optimizer = getattr(t.optim, name)(params, **options)

    def gradients() -> float:
        """Those of a smooth bowl, written down: the least that can differ."""
        loss = 0.0
        with t.no_grad():
            for p, target in zip(params, targets, strict=True):
                away = p - target
                p.grad = away * (1 + away * away * 0.1)
                loss += float((away * away).abs().sum()) / 2 + float((away * away * away * away).abs().sum()) * 0.025
        return loss

    def sparse() -> None:
        for p, target in zip(params, targets, strict=True):
            with t.no_grad():
                away = p - target
            rows = t.tensor([[0, p.shape[0] - 1]])
            p.grad = t.sparse_coo_tensor(rows, away[rows[0]], p.shape)

    for _ in range(STEPS):
        if name == "LBFGS":
            optimizer.step(lambda: t.tensor(gradients(), dtype=kind))
            continue
        if name == "SparseAdam":
            sparse()
        else:
            gradients()
        optimizer.step()
    return [_numbers(t, p) for p in params]


def _option(t: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_option(t, v) for v in value)
    return t.tensor(float(value.split()[1])) if isinstance(value, str) and value.startswith("tensor ") else value


def _numbers(t: Any, p: Any) -> list[float]:
    p = p.detach()
    return (t.view_as_real(p) if p.is_complex() else p).double().reshape(-1).tolist()


if __name__ == "__main__":
    import torch

    found = {case: [float(f"{x:.10g}") for row in run(torch, case, "float64") for x in row] for case in CASES}
    FILE.write_text(json.dumps(found, separators=(",", ":")).replace('],"', '],\n"') + "\n")
