"""Weighted gathers as native calls: the blocking of the work, from sizes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.image.taps_native import (
    POINTS,
    TAPS,
    TOGETHER,
    make_tap_weights,
    make_taps_back,
    make_weighted_taps,
)
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._host.stubs import make_kernel_callable, native_address

__all__ = ["taps_call"]

_PIECE = 1 << 14  # least elements worth a thread
_MAKERS = {"weighted_taps": make_weighted_taps, "taps_back": make_taps_back, "tap_weights": make_tap_weights}
_KERNELS: dict[str, Callable[..., Any]] = {}


def taps_call(step: ExternStep) -> list[Launch]:
    """The kernels of one of the three products: a kernel computes the weights of a few taps."""
    dtype, back = step.outputs[0].dtype.name, step.name == "taps_back"
    key = f"rl_{step.name}_{dtype}"
    if key not in _KERNELS:
        _KERNELS.setdefault(key, make_kernel_callable(native_address(_MAKERS[step.name](dtype)), key))
    weights = step.name == "tap_weights"
    items, points = step.inputs[2].shape
    taps = len(step.inputs) - 2 if weights else (len(step.inputs) - 1) // 2
    _, channels, size = (step.outputs[0] if back else step.inputs[1 if weights else 0]).shape
    if back:
        chunk = max(1, min(channels, _PIECE // (taps * points + size)))
        parts = -(-channels // chunk)
    else:
        chunk = POINTS * max(1, _PIECE // (taps * (channels + 1) * POINTS))
        parts = -(-points // chunk)
    together = TOGETHER if weights else taps
    launches = []
    for first in range(0, taps, together):
        count = min(together, taps - first)
        words = [items, channels, size, count, points, parts, chunk]
        assert len(words) == len(TAPS)
        sizes = step.sizes[first : first + count] if weights else step.sizes
        head = [items * parts, int(items * channels * points * taps > _PIECE), len(sizes), *sizes]
        operands = (0, 1, *range(2 + first, 2 + first + count)) if weights else range(len(step.inputs))
        launches.append(Launch(_KERNELS[key], [*head, *[0] * (8 - len(head)), *words], operands))
    return launches
