"""Weighted gathers as native calls: the blocking of the work, from sizes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.image.weighted_gather_native import (
    GATHER,
    POINTS,
    TOGETHER,
    make_gather_weights,
    make_weighted_gather,
    make_weighted_scatter,
)
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address

__all__ = ["weighted_gather_call"]

_PIECE = 1 << 14  # least elements worth a thread
_MAKERS = {
    "weighted_gather": make_weighted_gather,
    "weighted_scatter": make_weighted_scatter,
    "gather_weights": make_gather_weights,
}
_KERNELS: dict[str, Callable[..., Any]] = {}


def weighted_gather_call(step: ExternStep) -> list[Launch]:
    """The kernels of one of the three products: a kernel computes the weights of a few taps."""
    dtype, back = step.outputs[0].dtype.name, step.name == "weighted_scatter"
    key = f"rl_{step.name}_{dtype}"
    if key not in _KERNELS:
        _KERNELS.setdefault(key, make_kernel_callable(native_address(_MAKERS[step.name](dtype)), key))
    weights = step.name == "gather_weights"
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
        assert len(words) == len(GATHER)
        sizes = step.sizes[first : first + count] if weights else step.sizes
        head = [items * parts, int(items * channels * points * taps > _PIECE), len(sizes), *sizes]
        operands = (0, 1, *range(2 + first, 2 + first + count)) if weights else range(len(step.inputs))
        launches.append(Launch(_KERNELS[key], [*head, *[0] * (8 - len(head)), *words], operands))
    return launches
