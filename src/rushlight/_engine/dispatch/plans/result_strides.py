"""Strides of fresh results: by the operands' order of dims in memory, or channels last beside such images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._types.layout import (
    broadcast_strides,
    contiguous_strides,
    dense_strides,
    image_strides,
    is_contiguous,
    restride,
)
from rushlight._types.spec import Spec

__all__ = ["gradient_strides", "image_like", "operand_strides"]


def image_like(shape: tuple[int, ...], specs: Sequence[Any]) -> tuple[int, ...] | None:
    """Channels-last strides if an operand of as many dims is channels last, else None (row-major)."""
    images = [s for s in specs if s.ndim == len(shape)] if len(shape) in (4, 5) else []
    candidates = [image_strides(shape, s.shape, s.strides) for s in images]
    strides = next((c for c in candidates if c is not None), None)
    return None if strides is None or is_contiguous(shape, strides) else strides


def _row_major(spec: Spec) -> bool:
    """Whether all strides are row-major, those of dims of one item too, which decide on the order of results."""
    return spec.contiguous and (1 not in spec.shape or spec.strides == contiguous_strides(spec.shape))


def operand_strides(shape: tuple[int, ...], specs: Sequence[Spec], numbers: bool = False) -> tuple[int, ...]:
    """Strides of a fresh element-wise result: the operands' own order of dims in memory (TensorIterator's rule).

    `numbers`: some operands are numbers, which the iterator sees as tensors without dims.
    """
    same = [s for s in specs if s.shape == shape]
    empty = 0 in shape
    if empty and len(same) == len(specs) and not numbers:  # without elements each counts as contiguous
        return contiguous_strides(shape)
    if (not numbers and len(same) == len(specs) and all(s.contiguous for s in specs)) or (
        not empty and all(_row_major(s) for s in specs)
    ):
        return contiguous_strides(shape)
    if (
        same
        and not empty
        and not same[0].contiguous
        and all(s.strides == same[0].strides for s in same)
        and len(same) == len(specs)
        and not numbers
    ):
        return restride(shape, same[0].strides)
    operands = [broadcast_strides(s.shape, s.strides, shape) for s in specs if s.ndim]
    ndim = len(shape)
    order = list(range(ndim))[::-1]  # innermost first, as the iterator sorts them

    def compare(a: int, b: int) -> int:
        for strides in operands:
            x, y = strides[a], strides[b]
            if x == 0 or y == 0:
                continue
            if x != y:
                return -1 if x < y else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            result = compare(order[j], order[at])
            if result > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif result < 0:
                break
    if empty and order != list(range(ndim))[::-1]:  # the iterator steps by sizes of 0 as well
        steps, step = [0] * ndim, 1
        for dim in order:
            steps[dim] = step
            step *= shape[dim]
        return tuple(steps)
    return dense_strides(shape, order[::-1])


def gradient_strides(shape: tuple[int, ...], specs: Sequence[Any]) -> Any:
    """Strides of a graph's result, mostly a gradient: those of operands of its shape; without such operands, those of
    an image among them.
    """
    same = [s for s in specs if s.shape == shape]
    return operand_strides(shape, same) if same else image_like(shape, specs)
