"""Resizing as native calls: the blocking of the work, from sizes and layouts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.image.resample_native import BACK, RESAMPLE, make_resample, make_resample_back
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address

__all__ = ["resample_back_call", "resample_call"]

_PIECE = 1 << 14  # least elements worth a thread
_ROWS = 1 << 15  # elements of rows that a piece keeps
_KERNELS: dict[str, Callable[..., Any]] = {}


def _kernel(name: str, dtype: str, maker: Callable[[str], Any]) -> Callable[..., Any]:
    key = f"rl_{name}_{dtype}"
    if key not in _KERNELS:
        _KERNELS.setdefault(key, make_kernel_callable(native_address(maker(dtype)), key))
    return _KERNELS[key]


def _ints(pieces: int, work: int, step: ExternStep, words: list[int]) -> list[int]:
    return [pieces, int(work > _PIECE), 1, *step.sizes, 0, 0, 0, 0, *words]


def resample_call(step: ExternStep) -> list[Launch]:
    """The kernel of a `resample`."""
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
    if dims == (2, 3):  # the width first
        raise NotImplementedError("primitive 'resample' has no routine for the height before the width")
    words = [
        units, channels, *x.shape[2:], out_h, out_w, taps_h, taps_w, *x.strides, *y.strides, inner, -(-out_h // band), band,
        4 if taps_w else 2,
    ]  # fmt: skip
    assert len(words) == len(RESAMPLE)
    pieces = units * -(-out_h // band)
    return [
        Launch(
            _kernel("resample", x.dtype.name, make_resample),
            _ints(pieces, units * out_h * work, step, words),
            range(len(step.inputs)),
        )
    ]


def resample_back_call(step: ExternStep) -> list[Launch]:
    """The same of a `resample_back`: loops over the other dims, except a contiguous one."""
    g, index, _ = step.inputs
    x, dim = step.outputs[0], step.params["dim"]
    others = [d for d in range(4) if d != dim]
    together = next((d for d in others if g.strides[d] == x.strides[d] == 1 and g.shape[d] > 1), None)
    outside, inner = [d for d in others if d != together], 1 if together is None else g.shape[together]
    for d in reversed(outside):  # what follows in memory belongs to the run
        if together is not None and g.strides[d] == x.strides[d] == inner:
            outside.remove(d)
            inner *= g.shape[d]
    sizes, g_steps, x_steps = (
        [values[d] for d in outside] + [fill] * 3 for values, fill in ((g.shape, 1), (g.strides, 0), (x.strides, 0))
    )
    taps, out = index.shape
    work = (taps * out + x.shape[dim]) * inner
    total = sizes[0] * sizes[1] * sizes[2]
    chunk = max(1, _PIECE // max(work, 1))
    words = [
        *sizes[:3],
        x.shape[dim],
        out,
        taps,
        inner,
        *g_steps[:3],
        g.strides[dim],
        *x_steps[:3],
        x.strides[dim],
        chunk,
    ]
    assert len(words) == len(BACK)
    pieces = -(-total // chunk)
    return [
        Launch(
            _kernel("resample_back", g.dtype.name, make_resample_back),
            _ints(pieces, total * work, step, words),
            range(len(step.inputs)),
        )
    ]
