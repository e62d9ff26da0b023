"""Loaders and samplers for the tests; the same lines run with rushlight and with PyTorch.

`python tests/data/loading.py` writes what PyTorch yields to `loading.json`.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any


def plain(value: Any) -> Any:
    """Tensors as lists, tuples as lists: what JSON can hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def run(t: Any, d: Any) -> dict[str, Any]:
    """Everything in the order in which random numbers are drawn; the last entry shows where the stream of numbers stands."""
    t.manual_seed(3)
    data = d.TensorDataset(t.arange(23), t.arange(23.0) * 2)
    seeded = t.Generator().manual_seed(5)
    found: dict[str, Any] = {}
    loaders: dict[str, Any] = {
        "shuffle": d.DataLoader(data, batch_size=4, shuffle=True),
        "drop_last": d.DataLoader(data, batch_size=4, drop_last=True),
        "no batches": d.DataLoader(data, batch_size=None),
        "replacement": d.DataLoader(
            data, batch_size=5, sampler=d.RandomSampler(data, replacement=True, num_samples=70)
        ),
        "generator": d.DataLoader(data, batch_size=3, shuffle=True, generator=seeded),
        "batch_sampler": d.DataLoader(data, batch_sampler=d.BatchSampler(d.SubsetRandomSampler([1, 5, 7]), 2, False)),
        "weights": d.DataLoader(data, sampler=d.WeightedRandomSampler([0.1, 0.5, 0.4], 9)),
        "weights once": d.DataLoader(data, sampler=d.WeightedRandomSampler([0.1, 0.5, 0.4], 3, replacement=False)),
        "many": d.DataLoader(data, sampler=d.RandomSampler(data, num_samples=50), batch_size=7),
    }
    for name, loader in loaders.items():
        found[name] = [len(loader), *(plain(list(loader)) for _ in range(2))]
    found["fractions"] = [plain(list(part.indices)) for part in d.random_split(data, [0.3, 0.7])]
    generator = t.Generator().manual_seed(1)
    found["lengths"] = [plain(list(part.indices)) for part in d.random_split(data, [20, 3], generator)]
    found["after"] = t.rand(2).tolist()
    return found


if __name__ == "__main__":
    import torch
    import torch.utils.data

    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in run(torch, torch.utils.data).items())
    pathlib.Path(__file__).with_name("loading.json").write_text("{\n" + text + "\n}\n")
