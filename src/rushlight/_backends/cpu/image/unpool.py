"""Unpooling, the scatter of values to one position of each window, as a native call: the blocking of the work, from
sizes and layouts alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight._backends.cpu.image.unpool_native import UNPOOL, make_unpool
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address
from rushlight._native.compiled import native_ahead
from rushlight._types.dtype import DType

__all__ = ["unpool_ahead", "unpool_call"]

_PIECE = 1 << 14  # least elements worth a thread
_ROWS = 1 << 15  # elements of the sums that a piece keeps
_BLOCK = 32  # contiguous channels taken at a time
_FEW = 16  # most positions of a window that all channels of a block are compared with
_KERNELS: dict[str, Callable[..., Any]] = {}


@cache
def unpool_ahead(dtype: DType, position: DType) -> None:
    """Let workers compile what `unpool_call` will be asked for, for values and positions of these dtypes."""
    native_ahead([make_unpool(dtype.name, position.itemsize)])


def unpool_call(step: ExternStep) -> list[Launch]:
    """The kernel of an `unpool` along one or two dims."""
    (ct, position), y, p = step.inputs, step.outputs[0], step.params
    n = len(p["size"])
    two = lambda values, fill: (*(fill,) * (2 - n), *values)
    (out_h, out_w), (high, wide) = two(ct.shape[2:], 1), two(p["shape"], 1)
    size, stride, dilation, lo = (
        two(p[name], fill) for name, fill in (("size", 1), ("stride", 1), ("dilation", 1), ("lo", 0))
    )
    batch, channels = ct.shape[:2]
    together = channels > 1 and all(v.strides[1] == 1 for v in (ct, position, y)) and size[0] * size[1] <= _FEW
    block = min(channels, _BLOCK) if together else 1
    blocks = -(-channels // block)
    line = max((out_w - 1) * stride[1] + (size[1] - 1) * dilation[1] + 1, lo[1] + wide)
    units, each = batch * blocks, line * block
    band = max(1, min(high, _ROWS // each, -(-high // max(1, min(-(-8 // units), high * each // _PIECE)))))
    bands = -(-high // band)
    chunk = max(1, _PIECE // (band * each))
    words = [
        channels, out_h, out_w, high, wide, *size, *stride, *dilation, *lo, block, blocks, line, band, bands, chunk, units * bands,
        *(s for v in (ct, position, y) for s in (*v.strides[:2], *two(v.strides[2:], 0))),
    ]  # fmt: skip
    assert len(words) == len(UNPOOL)
    key = f"rl_unpool_{ct.dtype.name}_{position.dtype.name}"
    if key not in _KERNELS:
        _KERNELS.setdefault(
            key, make_kernel_callable(native_address(make_unpool(ct.dtype.name, position.dtype.itemsize)), key)
        )
    ints = [-(-units * bands // chunk), int(units * high * each > _PIECE), 1, *step.sizes, 0, 0, 0, 0, *words]
    return [Launch(_KERNELS[key], ints, range(len(step.inputs)))]
