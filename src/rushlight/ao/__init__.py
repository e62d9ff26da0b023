"""`torch.ao`: of the tools that make quantized models, what models in floats hold."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["quantization"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"rushlight.ao has no {name!r} yet")
