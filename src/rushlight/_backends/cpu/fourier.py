"""Fourier transforms by NumPy's pocketfft, over our memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cpu.runtime import runtime
from rushlight._base.lazy import numpy as np
from rushlight._kernels.program import ExternStep, Operand
from rushlight._types.layout import contiguous_strides, extent

__all__ = ["fourier_call"]


def _array(memory: Any, operand: Operand) -> Any:
    """The operand's memory (an address, or a storage that another step made) as a NumPy array."""
    address = memory if isinstance(memory, int) else memory.ptr
    size = operand.dtype.itemsize
    data = (ctypes.c_char * (max(extent(operand.shape, operand.strides), 1) * size)).from_address(address)
    flat = np.frombuffer(data, dtype=operand.dtype.name)
    return np.lib.stride_tricks.as_strided(flat, operand.shape, [s * size for s in operand.strides])


def fourier_call(step: ExternStep) -> tuple[Callable[..., Any], None, Sequence[int]]:
    """The callable of an `fft`, `rfft` or `irfft`."""
    x, out = step.inputs[0], step.outputs[0]
    alloc, nbytes, params = runtime().alloc, step.sizes[0], step.params
    made = Operand(0, out.dtype, out.shape, out.strides or contiguous_strides(out.shape))

    def transform(a: Any) -> Any:
        if step.name == "fft":
            return np.fft.ifftn(a, axes=params["dims"], norm="forward") if params["inverse"] else np.fft.fftn(a, axes=params["dims"])
        if step.name == "rfft":
            return np.fft.rfft(a, axis=params["dim"])
        return np.fft.irfft(a, params["size"], axis=params["dim"], norm="forward")

    def run(ints: int, memory: Any) -> Any:
        storage = alloc(nbytes)
        _array(storage, made)[...] = transform(_array(memory, x))
        return storage

    return run, None, [x.place]
