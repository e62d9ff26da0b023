"""Writes `torch_file.bin`, a file of real PyTorch that the tests read without PyTorch.

python tests/serialization/make_torch_file.py
"""

from __future__ import annotations

import pathlib
from collections import Counter, OrderedDict
from typing import Any


def contents(t: Any) -> dict[str, Any]:
    """The same objects made with PyTorch or with rushlight."""
    base = t.arange(12, dtype=t.float32)
    net = t.nn.Sequential(OrderedDict(fc=t.nn.Linear(2, 3), norm=t.nn.BatchNorm1d(3)))
    with t.no_grad():
        for i, p in enumerate(net.parameters()):
            p.fill_(i + 0.5)
    optimizer = t.optim.AdamW(net.parameters(), lr=0.25)
    for p in net.parameters():
        p.grad = t.ones_like(p)
    optimizer.step()
    return {
        "dtypes": {
            name: t.tensor([0, 1, 1], dtype=t.int64).to(getattr(t, name))
            for name in (
                "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
            ).split()
        },
        "shared": [base, base[2:8:2], base.reshape(3, 4).T],
        "scalar": t.tensor(2.5),
        "empty": t.empty(0, 3),
        "meta": t.empty(2, 3, device="meta"),
        "needs grad": t.ones(2, requires_grad=True),
        "parameter": t.nn.Parameter(t.ones(2)),
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "plain": [
            1,
            2.5,
            "text",
            None,
            True,
            2**70,
            -3,
            {1, 2},
            (1, 2),
            2j,
            b"bytes",
            OrderedDict(b=1),
            Counter("aab"),
        ],
        "torch": [t.Size([2, 3]), t.float16, t.device("cpu"), t.device("cuda", 1)],
        "epoch": 7,
    }


if __name__ == "__main__":
    import torch

    torch.save(contents(torch), pathlib.Path(__file__).with_name("torch_file.bin"))
