"""Initialisations; the same lines run with rushlight and with PyTorch.

`python tests/nn/init_cases.py` writes PyTorch's results to `init.json`.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

# name: what is done with (library, nn.init)
CASES: dict[str, Any] = {
    "uniform_": lambda t, i: i.uniform_(t.empty(3, 5), -2, 3),
    "normal_": lambda t, i: i.normal_(t.empty(4, 5), 1, 0.5),
    "normal_ small": lambda t, i: i.normal_(t.empty(3), 0, 2),
    "trunc_normal_": lambda t, i: i.trunc_normal_(t.empty(5, 9), std=1.5),
    "trunc_normal_ tail": lambda t, i: i.trunc_normal_(t.empty(30), 0.0, 1.0, 1.5, 1.9),
    "constant_": lambda t, i: i.constant_(t.empty(2, 2), 0.3),
    "ones_": lambda t, i: i.ones_(t.empty(2)),
    "zeros_": lambda t, i: i.zeros_(t.empty(2)),
    "eye_": lambda t, i: i.eye_(t.empty(3, 4)),
    "dirac_ 1d": lambda t, i: i.dirac_(t.empty(4, 2, 3), 2),
    "dirac_ 2d": lambda t, i: i.dirac_(t.empty(2, 3, 3, 3)),
    "xavier_uniform_": lambda t, i: i.xavier_uniform_(t.empty(3, 5), gain=2.0),
    "xavier_normal_": lambda t, i: i.xavier_normal_(t.empty(4, 3, 2)),
    "kaiming_uniform_": lambda t, i: i.kaiming_uniform_(t.empty(3, 5), a=1.5),
    "kaiming_uniform_ out": lambda t, i: i.kaiming_uniform_(t.empty(3, 5), mode="fan_out", nonlinearity="relu"),
    "kaiming_normal_": lambda t, i: i.kaiming_normal_(t.empty(6, 2, 3, 3), nonlinearity="tanh"),
    "sparse_": lambda t, i: i.sparse_(t.empty(7, 3), 0.4),
    "generator": lambda t, i: i.normal_(t.empty(3), generator=t.Generator().manual_seed(7)),
    "not contiguous": lambda t, i: i.normal_(t.empty(5, 4).T),
    "float64": lambda t, i: i.uniform_(t.empty(4, dtype=t.float64)),
    "orthogonal_": lambda t, i: i.orthogonal_(t.empty(4, 3)),
    "orthogonal_ wide": lambda t, i: i.orthogonal_(t.empty(2, 3, 2), gain=2.0),
}


def run(t: Any, name: str) -> list[float]:
    t.manual_seed(11)
    return [round(float(v), 7) for v in [*CASES[name](t, t.nn.init).reshape(-1).tolist(), *t.rand(1).tolist()]]


if __name__ == "__main__":
    import torch

    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(run(torch, name))}" for name in CASES)
    pathlib.Path(__file__).with_name("init.json").write_text("{\n" + text + "\n}\n")
