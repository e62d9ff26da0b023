"""Automatic differentiation: `backward`, `grad`, `Function`, grad modes, checks."""

from __future__ import annotations

from typing import Any

from rushlight._engine.autograd.anomaly import detect_anomaly, set_detect_anomaly
from rushlight._engine.autograd.api import backward, grad
from rushlight._engine.autograd.function import Function
from rushlight._engine.dispatch.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from rushlight._interface.base import import_whole, no_name, shorten, trace_marks
from rushlight._interface.dispatch import unobserve
from rushlight._interface.tensors import STATE
from rushlight.autograd.grad_mode import (
    _force_original_view_tracking,
    enforce_grad_layout_policy,
    set_multithreading_enabled,
)
from rushlight.autograd.gradcheck import gradcheck, gradgradcheck
from rushlight.autograd.variable import Variable

__all__ = [
    "Function", "Variable", "_force_original_view_tracking", "backward", "detect_anomaly", "enable_grad", "enforce_grad_layout_policy", "grad", "gradcheck", "gradgradcheck",
    "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip

_PAGES = (
    "anomaly_mode",
    "forward_ad",
    "function",
    "functional",
    "grad_mode",
    "graph",
    "profiler",
    "profiler_legacy",
    "profiler_util",
    "variable",
)


def is_multithreading_enabled() -> bool:
    """The setting of `set_multithreading_enabled`."""
    return STATE.threaded_backward


def is_view_replay_enabled() -> bool:
    """The setting of `_force_original_view_tracking`."""
    return STATE.view_replay


def _profiler_enabled() -> bool:
    """Whether a profiler is recording in this thread."""
    return bool(STATE.observers)


@trace_marks.changes_later_calls
def _disable_profiler() -> None:
    """Let no profiler of this thread record any longer, as programs do that find one left over."""
    for observer in list(STATE.observers):
        unobserve(observer)


def __getattr__(name: str) -> Any:
    try:
        if name in _PAGES:
            try:
                return import_whole(f"rushlight.autograd.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"rushlight.autograd.{name}":
                    raise
        if name == "DeviceType":
            return import_whole("rushlight._C._autograd").DeviceType
        raise no_name(__name__, name)
    except BaseException as error:
        shorten(error)
        raise
