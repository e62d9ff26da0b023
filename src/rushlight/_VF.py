"""`torch._VF`: the functions of `torch`, where layers and programs written after them look.

>>> import rushlight as torch
>>> torch._VF.relu(torch.tensor([-1.0, 2.0]))
tensor([0., 2.])
"""

from __future__ import annotations

from typing import Any

from rushlight._C import _VariableFunctions

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    return getattr(_VariableFunctions, name)
