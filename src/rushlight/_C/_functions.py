"""Classes of backward nodes by name, as `torch._C._functions`."""

from __future__ import annotations

from typing import Any

from rushlight._engine.autograd.node import AccumulateGrad, node_class

__all__ = ["AccumulateGrad", "node_class"]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or "Backward" not in name:
        raise AttributeError(f"rushlight has no '_C._functions.{name}'")
    value = globals()[name] = node_class(name)
    return value
