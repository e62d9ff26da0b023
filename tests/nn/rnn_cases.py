"""Recurrent layers; the same lines run with rushlight and with PyTorch.

`python tests/nn/rnn_cases.py` writes PyTorch's results to `rnn.json`.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

_OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    " deep": {"num_layers": 2, "bidirectional": True},
    " batch first": {"bias": False, "batch_first": True},
    " dropout": {"num_layers": 2, "dropout": 0.5},
}
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    f"{kind}{name}{how}": (kind, options, how)
    for kind in ("RNN", "LSTM", "GRU")
    for name, options in {
        **_OPTIONS,
        **({" relu": {"nonlinearity": "relu"}} if kind == "RNN" else {}),
        **({" projected": {"proj_size": 2, "num_layers": 2, "bidirectional": True}} if kind == "LSTM" else {}),
    }.items()
    for how in ("", " packed", " unsorted")
}
CELLS = ("RNNCell", "LSTMCell", "GRUCell")


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    flat = value.detach().reshape(-1).tolist()
    return [round(float(v), 6) for v in flat]


def run(t: Any, name: str) -> dict[str, Any]:
    kind, options, how = CASES[name]
    t.manual_seed(0)
    layer = getattr(t.nn, kind)(3, 4, **options)
    first = options.get("batch_first", False)
    x = t.randn(2, 5, 3) if first else t.randn(5, 2, 3)
    x.requires_grad_(True)
    tools = t.nn.utils.rnn
    given: Any = x
    lengths = None
    if how:
        wanted = [5, 3] if how == " packed" else [2, 5]
        given = tools.pack_padded_sequence(x, wanted, batch_first=first, enforce_sorted=how == " packed")
    out, state = layer(given)
    if how:
        out, lengths = tools.pad_packed_sequence(out, batch_first=first)
    states = state if isinstance(state, tuple) else (state,)
    ((out * out).sum() + sum((s * s).sum() for s in states)).backward()
    return {
        "repr": repr(layer),
        "names": list(layer.state_dict()),
        "out": _plain(out),
        "state": _plain(states),
        "lengths": None if lengths is None else lengths.tolist(),
        "grad": _plain(x.grad),
        "grads": [_plain(p.grad) for p in layer.parameters()],
    }


def run_cell(t: Any, kind: str) -> dict[str, Any]:
    t.manual_seed(0)
    cell = getattr(t.nn, kind)(3, 4)
    x = t.randn(2, 3)
    once = cell(x)
    return {"repr": repr(cell), "once": _plain(once), "twice": _plain(cell(x, once)), "single": _plain(cell(x[0]))}


if __name__ == "__main__":
    import torch

    found = {name: run(torch, name) for name in CASES} | {kind: run_cell(torch, kind) for kind in CELLS}
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    pathlib.Path(__file__).with_name("rnn.json").write_text("{\n" + text + "\n}\n")
