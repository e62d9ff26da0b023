"""Resizing as native calls: how the work is cut, from the sizes and the layouts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cpu.resample_native import BACK, RESAMPLE, make_resample, make_resample_back
from rushlight._backends.cpu.stubs import make_kernel_callable, native_address
from rushlight._kernels.program import ExternStep

__all__ = ["resample_back_call", "resample_call"]

Call = tuple[Callable[..., Any], list[int], Sequence[int]]
_PIECE = 1 << 14  # elements that are worth a thread's while
_ROWS = 1 << 15  # elements of rows that a piece keeps
_KERNELS: dict[str, Callable[..., Any]] = {}


def _kernel(name: str, dtype: str, maker: Callable[[str], Any]) -> Callable[..., Any]:
    key = f"rl_{name}_{dtype}"
    if key not in _KERNELS:
        _KERNELS.setdefault(key, make_kernel_callable(native_address(maker(dtype)), key))
    return _KERNELS[key]


def _ints(pieces: int, work: int, step: ExternStep, words: list[int]) -> list[int]:
    return [pieces, int(work > _PIECE), 1, *step.sizes, 0, 0, 0, 0, *words]


def resample_call(step: ExternStep) -> Call:
    """The callable of a `resample`, its constants and the places of its operands."""
    x, y, dims = step.inputs[0], step.outputs[0], step.params["dims"]
    tables = {dim: step.inputs[2 * k + 1] for k, dim in enumerate(dims)}
    taps_w, taps_h = (tables[dim].shape[0] if dim in tables else 0 for dim in (3, 2))
    together = x.strides[1] == 1 and y.strides[1] == 1 and x.shape[1] > 1
    channels, inner = (1, x.shape[1]) if together else (x.shape[1], 1)
    units, (out_h, out_w) = x.shape[0] * channels, y.shape[2:]
    line = out_w * inner
    work = line * (taps_h + x.shape[2] * taps_w // max(out_h, 1) + 1)
    bands = max(1, min(out_h, max(out_h * work // (4 * _PIECE), -(-x.shape[2] * line // _ROWS))))
    band = -(-out_h // bands)
    places = [o.place for o in step.inputs]
    if dims == (2, 3):  # the width first
        raise NotImplementedError("primitive 'resample' has no routine for the height before the width")
    words = [
        units, channels, *x.shape[2:], out_h, out_w, taps_h, taps_w, *x.strides, *y.strides, inner, -(-out_h // band), band,
        4 if taps_w else 2,
    ]  # fmt: skip
    assert len(words) == len(RESAMPLE)
    pieces = units * -(-out_h // band)
    return _kernel("resample", x.dtype.name, make_resample), _ints(pieces, units * out_h * work, step, words), places


def resample_back_call(step: ExternStep) -> Call:
    """The same of a `resample_back`."""
    g, index, _ = step.inputs
    x, dim = step.outputs[0], step.params["dim"]
    others = [d for d in range(4) if d != dim]
    together = [d for d in others if g.strides[d] == x.strides[d] == 1 and g.shape[d] > 1]
    inner = 1
    if together:
        inner = g.shape[together[0]]
        others.remove(together[0])
    return _back(step, dim, inner, others, index.shape)


def _back(step: ExternStep, dim: int, inner: int, others: list[int], table: Sequence[int]) -> Call:
    g, x = step.inputs[0], step.outputs[0]
    sizes = [g.shape[d] for d in others]
    steps = [[o.strides[d] for d in others] for o in (g, x)]
    if len(others) == 3:  # a run of memory of two dims counts as one
        at = next((k for k in (0, 1) if all(s[k] == s[k + 1] * sizes[k + 1] for s in steps)), None)
        if at is None:
            raise NotImplementedError("primitive 'resample_back' has no routine for these layouts")
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        for s in steps:
            del s[at]
    work = (table[0] * table[1] + x.shape[dim]) * inner
    total = sizes[0] * sizes[1]
    chunk = max(1, _PIECE // max(work, 1))
    words = [*sizes, x.shape[dim], table[1], table[0], inner, *steps[0], g.strides[dim], *steps[1], x.strides[dim], chunk]
    assert len(words) == len(BACK)
    places = [o.place for o in step.inputs]
    return _kernel("resample_back", g.dtype.name, make_resample_back), _ints(-(-total // chunk), total * work, step, words), places
