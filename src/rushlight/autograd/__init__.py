"""Automatic differentiation: `backward`, `grad`, `Function`, grad modes, checks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rushlight._engine.autograd.anomaly import detect_anomaly, set_detect_anomaly
from rushlight._engine.autograd.api import backward, grad
from rushlight._engine.autograd.function import Function
from rushlight._engine.autograd.gradcheck import gradcheck, gradgradcheck
from rushlight._engine.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from rushlight._engine.tensor import Tensor as Variable

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck", "inference_mode", "no_grad",
    "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("anomaly_mode", "forward_ad", "function", "functional", "grad_mode", "graph", "profiler", "variable"):
        return import_module(f"rushlight.autograd.{name}")
    raise AttributeError(f"rushlight.autograd has no {name!r} yet")
