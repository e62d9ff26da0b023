"""Fourier transforms by NumPy's pocketfft, over our memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.runtime import runtime
from rushlight._base.lazy import numpy as np
from rushlight._base.lazy import require
from rushlight._kernels.program import ExternStep, Operand
from rushlight._types.layout import contiguous_strides, extent

__all__ = ["fourier_call"]


def _view_of(operand: Operand) -> Callable[[Any], Any]:
    """A function from the operand's memory (an address, or a storage that another step made) to a NumPy array over it."""
    size, over, array = operand.dtype.itemsize, runtime().from_owner, np.ndarray
    shape, dtype, strides = tuple(operand.shape), np.dtype(operand.dtype.name), tuple([s * size for s in operand.strides])
    span = max(extent(operand.shape, operand.strides), 1) * size

    def view(memory: Any) -> Any:
        return array(shape, dtype, over(memory, span, None) if type(memory) is int else memory, 0, strides)

    return view


def _loops(step: ExternStep) -> list[tuple[Any, int]] | None:
    """The (loop, dim) pairs of a transform, as NumPy's own functions choose them; None where they are not to be had."""
    try:
        found, params = require("numpy.fft._pocketfft_umath"), step.params
        if step.name == "fft":
            loop = found.ifft if params["inverse"] else found.fft
            return [(loop, d) for d in reversed(params["dims"])]
        if step.name == "rfft":
            odd = step.inputs[0].shape[params["dim"]] % 2
            return [(found.rfft_n_odd if odd else found.rfft_n_even, params["dim"])]
        return [(found.irfft, params["dim"])]
    except (ImportError, AttributeError):  # before NumPy 2
        return None


def fourier_call(step: ExternStep) -> list[Launch]:
    """What computes an `fft`, `rfft` or `irfft`."""
    x, out = step.inputs[0], step.outputs[0]
    alloc, nbytes, params = runtime().alloc, step.sizes[0], step.params
    made = Operand(0, out.dtype, out.shape, out.strides or contiguous_strides(out.shape))

    def transform(a: Any) -> Any:
        if step.name == "fft":
            return np.fft.ifftn(a, axes=params["dims"], norm="forward") if params["inverse"] else np.fft.fftn(a, axes=params["dims"])
        if step.name == "rfft":
            return np.fft.rfft(a, axis=params["dim"])
        return np.fft.irfft(a, params["size"], axis=params["dim"], norm="forward")

    source, target, loops = _view_of(x), _view_of(made), _loops(step)
    passes = [(loop, [(d,), (), (d,)]) for loop, d in loops or ()]

    def run(ints: int, memory: Any) -> Any:
        storage = alloc(nbytes)
        target(storage)[...] = transform(source(memory))
        return storage

    def run_loops(ints: int, memory: Any) -> Any:
        storage = alloc(nbytes)
        a, out = source(memory), target(storage)
        for loop, axes in passes:
            a = loop(a, 1, out, axes=axes)
        return storage

    return [Launch(run_loops if passes and nbytes else run, None, (0,))]
