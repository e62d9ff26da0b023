"""`torch._prims_common`: sizes, strides and memory formats, as libraries beside PyTorch ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.overrides import handle_torch_function, has_torch_function

__all__ = ["_has_compatible_shallow_copy_type", "make_contiguous_strides_for", "suggest_memory_format"]


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The strides of a tensor of this shape whose elements follow each other (the last two dims exchanged otherwise).

    >>> make_contiguous_strides_for((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    strides.reverse()
    if not row_major and len(shape) > 1:
        strides[-2:] = [1, max(shape[-2], 1)]
    return tuple(strides)


def suggest_memory_format(x: Any) -> Any:
    """The memory format of an image: channels last where its strides say so."""
    last = {4: rushlight.channels_last, 5: rushlight.channels_last_3d}.get(x.dim())
    if last is not None and not x.is_contiguous() and x.is_contiguous(memory_format=last):
        return last
    return rushlight.contiguous_format


def _has_compatible_shallow_copy_type(input: Any, other: Any) -> bool:
    """Whether a tensor may take the memory of another in its place: both are plain, or of one class, and both have any."""
    if has_torch_function((input, other)):
        found = handle_torch_function(_has_compatible_shallow_copy_type, (input, other), input, other)
        return bool(found)
    if input.is_meta is not other.is_meta:
        return False
    return type(input) is type(other) or {type(input), type(other)} <= {rushlight.Tensor, rushlight.nn.Parameter}
