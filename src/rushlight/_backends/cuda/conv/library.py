"""Convolutions on a card by cuDNN, where it is installed, was measured to be faster than our kernels, and agrees with them.

A choice is made once for a convolution, a device and a library, and kept on disk.  Emulated devices never ask, and neither
does a program that asks for determinism.  `torch.backends.cudnn.benchmark` measures every algorithm that the library
proposes, otherwise it is the one that the library expects to be fastest; with `deterministic` only those that give the same
bits on every run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cuda.arguments import dense_operand, span
from rushlight._backends.cuda.conv.described import Described, described, is_packed, weights_format
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.gemm.product import Epilogue
from rushlight._backends.cuda.gemm.splits import sum_of_parts
from rushlight._backends.cuda.libraries.cudnn import (
    DEFAULT_MATH,
    EXACT_MATH,
    TENSOR_MATH,
    TYPES,
    WHEEL,
    Algorithm,
    CuDnn,
    cudnn,
)
from rushlight._backends.cuda.libraries.provider import (
    cuda_backend,
    current_device,
    is_usable,
    measured_once,
    provider_knob,
)
from rushlight._backends.cuda.linalg.copies import copy_launch
from rushlight._backends.cuda.program.steps import Call, LibraryFunction, Memory, Operand, Step
from rushlight._backends.cuda.trials import Trial
from rushlight._backends.precision import DETERMINISTIC, LIBRARIES
from rushlight._base.lazy import numpy as np
from rushlight._types.device import Device
from rushlight._types.layout import numel

__all__ = ["WHO", "LibraryConvolution", "chosen"]


WHO = provider_knob("RUSHLIGHT_CUDA_CONVOLUTIONS", "computes convolutions", WHEEL.title)

SMALL = 1 << 24  # multiplications, below which nothing is measured
_AGREES = {"float32": 1e-4, "float64": 1e-10, "float16": 1e-2, "bfloat16": 5e-2}
_TF32_AGREES = 2e-3


def asks_library(call: ExternCall) -> bool:
    """Whether the library may compute a call here; MissingExtraError where it must and is not installed."""
    who, x, w = WHO.get(), *call.inputs[:2]
    work = numel(call.outputs[0].shape) * numel(w.shape[2:])
    if who == "ours" or DETERMINISTIC[0] or not LIBRARIES.cudnn or x.dtype.name not in TYPES:
        return False
    if who == "auto" and work < SMALL:
        return False
    return is_usable(WHO, WHEEL)


class _Convolution:
    """One convolution by one algorithm: called with a stream and the addresses of two operands, the result, the workspace."""

    def __init__(self, library: CuDnn, meant: Described, descriptors: Sequence[Any], algorithm: Algorithm) -> None:
        self.library, self.kind, self.descriptors, self.algorithm = library, meant.kind, descriptors, algorithm
        scalars = ctypes.c_double if meant.images.dtype.name == "float64" else ctypes.c_float
        self.one, self.zero = scalars(1), scalars(0)

    @property
    def native(self) -> LibraryFunction | None:
        """The call as native code makes it, behind that of `_OnStream`; None where the library is no library of C."""
        name = self.library.name_of(self.kind)
        address, handle = self.library.address(name), self.library.handle(current_device()).value or 0
        of_first, of_second, convolution, of_result = (d.value or 0 for d in self.descriptors)
        one, zero = (ctypes.addressof(x) for x in (self.one, self.zero))
        words = [
            handle, one, of_first, 0, of_second, 0, convolution, self.algorithm.number, 0, self.algorithm.workspace, zero, of_result, 0,
        ]  # fmt: skip
        places = ((3,), (5,), (12,), (8,))
        return None if address is None else LibraryFunction(name, address, words, places, 15)

    def __call__(self, stream: int, first: int, second: int, result: int, workspace: int = 0) -> None:
        of_first, of_second, convolution, of_result = self.descriptors
        number, nbytes = self.algorithm
        self.library.run(
            self.kind, current_device(), stream, ctypes.byref(self.one), of_first, first, of_second, second, convolution, number, workspace, nbytes,
            ctypes.byref(self.zero), of_result, result,
        )  # fmt: skip


class _OnStream:
    """The stream of the library's handle, which native code sets by itself."""

    def __init__(self, library: CuDnn) -> None:
        self.library = library

    @property
    def native(self) -> LibraryFunction | None:
        """The call as native code makes it."""
        address = self.library.address("cudnnSetStream")
        handle = self.library.handle(current_device()).value or 0
        words = [handle, 0]
        return None if address is None else LibraryFunction("cudnnSetStream", address, words, (), 1, works=False)

    def __call__(self, stream: int) -> None:
        """Nothing: from Python each convolution sets its stream."""


class LibraryConvolution:
    """A call as cuDNN computes it; `meant` is None where it cannot.

    Weights that lie as the library does not take them are copied; a bias or an epilogue is a kernel behind it.
    """

    def __init__(self, call: ExternCall, library: CuDnn, finish: Callable[[Operand], Step] | None = None) -> None:
        self.call, self.library, self.finish = call, library, finish
        self.before: list[Step] = []
        self.after: list[Step] = []
        self.meant = self._described()
        if self.meant is not None:
            self.descriptors = self._descriptors(self.meant)

    def _described(self) -> Described | None:
        out = self.call.outputs[0]
        if out.dtype is not self.call.inputs[0].dtype or (self.finish is not None and out.dtype is not out.dtype.wide):
            return None
        behind: list[Step] = []
        if self.finish is not None:
            dims = len(out.shape)
            out = self._room(out, (1, 0, *range(3, dims), 2))  # as an epilogue reads it
            behind = [self.finish(out)]
        for copied in (False, True):
            found = described(self._with_copied_weights(copied), out)
            if found is not None:
                self.after = behind
                return found
            self.before.clear()
        target = self._room(out, (1, 2, 0))  # the gradient by weights, in a layout of weights
        found = described(self.call, target)
        if found is not None and found.kind == "weights":
            self.after = [copy_launch(target, out), *behind]
            return found
        return None

    def _room(self, like: Operand, order: Sequence[int]) -> Operand:
        """Memory for an array whose first dims lie in another order."""
        order = (*order, *range(len(order), len(like.shape)))
        dense = dense_operand(Memory(0), like.dtype, [like.shape[d] for d in order])
        strides = [dense.strides[order.index(d)] for d in range(len(order))]
        memory = self.call.scratch(numel(like.shape) * like.dtype.itemsize, "laid out")
        return Operand(memory, like.dtype, like.shape, strides)

    def _with_copied_weights(self, copied: bool) -> ExternCall:
        call = self.call
        x, w, *more = call.inputs
        if not copied:
            return call
        exchanged = call.params["flip"] or any(s > 1 for s in call.params["spread"])
        to = self._room(w, (0, 2, 1) if exchanged else (0, 1, 2))
        self.before.append(copy_launch(w, to))
        return ExternCall(call.name, [x, to, *more], call.outputs, call.params)

    def _descriptors(self, meant: Described) -> list[Any]:
        """Of the two operands, the convolution, the result."""
        library, dtype = self.library, meant.images.dtype.name
        weights = library.filter(dtype, meant.weights.shape, bool(weights_format(meant.weights)))
        tensors = [library.tensor(dtype, x.shape, x.strides) for x in (meant.images, meant.results)]
        math = EXACT_MATH if dtype in ("float32", "float64") else TENSOR_MATH
        if dtype == "float32" and float32_precision("conv") == "tf32":
            math = DEFAULT_MATH
        sizes = meant.padding, meant.stride, meant.dilation
        convolution = library.convolution(dtype, *sizes, meant.flip, meant.groups, math)
        images, results = tensors
        if meant.kind == "forward":
            return [images, weights, convolution, results]
        return (
            [weights, results, convolution, images]
            if meant.kind == "images"
            else [images, results, convolution, weights]
        )

    def algorithms(self) -> list[Algorithm]:
        assert self.meant is not None
        given = self.descriptors
        options = {"deterministic": LIBRARIES.cudnn_deterministic}
        found = self.library.algorithms(self.meant.kind, current_device(), *given, **options)
        return found if LIBRARIES.cudnn_benchmark else found[:1]

    def steps(self, algorithm: Algorithm) -> list[Step]:
        """The call by one algorithm."""
        assert self.meant is not None
        arguments: list[Any] = list(self.meant.operands)
        if algorithm.workspace:
            arguments.append(self.call.scratch(algorithm.workspace, "workspace"))
        run = _Convolution(self.library, self.meant, self.descriptors, algorithm)
        calls = [Call("cuDNN stream", _OnStream(self.library), []), Call(f"cuDNN {self.meant.kind}", run, arguments)]
        return [*self.before, *calls, *self.after]


# ***** choosing *****


def chosen(
    call: ExternCall,
    ours: Sequence[Step],
    alone: Callable[[ExternCall], Sequence[Step]],
    epilogue: Epilogue | None = None,
) -> list[Step]:
    """Our steps, or the library's.  `epilogue` takes the result, positions of all images by channels; `alone` gives our steps
    of the same convolution without it, which are measured in its place.
    """
    if not asks_library(call):
        return list(ours)
    finish = None if epilogue is None else lambda out: _finished(out, epilogue)
    theirs = LibraryConvolution(call, cudnn(), finish)
    found = theirs.algorithms() if theirs.meant is not None else []
    if not found:
        return list(ours)
    if WHO.get() == "library" and len(found) == 1:
        return theirs.steps(found[0])
    best = _fastest(call, found, alone)
    return list(ours) if best is None else theirs.steps(best)


def _finished(out: Operand, epilogue: Epilogue) -> Step:
    """An epilogue of a result [N, G, O, *size] that lies as [G, N, *size, O]."""
    rows = numel((out.shape[0], *out.shape[3:]))
    return sum_of_parts(out.memory, out.dtype, 1, (out.shape[1], rows, out.shape[2]), epilogue)


def _fastest(
    call: ExternCall, found: Sequence[Algorithm], alone: Callable[[ExternCall], Sequence[Step]]
) -> Algorithm | None:
    """The algorithm to take; None: our kernels.  From disk where that is known."""
    backend, plain = cuda_backend(), _plain(call)
    shapes = [f"{x.dtype.name}{x.shape}{x.strides}" for x in (*plain.inputs, *plain.outputs)]
    params = repr(sorted((k, str(v)) for k, v in plain.params.items()))
    words = [WHEEL.path() or "", float32_precision("conv"), WHO.get(), repr(list(found)), params, *shapes]
    measure = lambda device: str(_measured(backend, device, plain, found, alone(plain))).encode()
    kept = measured_once(backend, "cuda conv", words, measure)
    return None if kept is None else next((a for a in found if a.number == int(kept)), None)


def _plain(call: ExternCall) -> ExternCall:
    """The convolution without a bias, on memory of its own."""
    inputs = [Operand(Memory(0), x.dtype, x.shape, x.strides) for x in call.inputs[:2]]
    out = call.outputs[0]
    room = out if is_packed(out) else dense_operand(Memory(0), out.dtype, out.shape)
    return ExternCall(call.name, inputs, [Operand(Memory(0), room.dtype, room.shape, room.strides)], call.params)


def _measured(
    backend: Any, device: Device, call: ExternCall, found: Sequence[Algorithm], ours: Sequence[Step]
) -> int:  # fmt: skip
    """The number of the fastest algorithm whose result agrees with ours; -1 where ours is faster."""
    random = np.random.default_rng(0)
    given = [(x, random.uniform(-1, 1, span(x))) for x in call.inputs]
    trial = Trial(backend, device, given, call.outputs)
    (right,), best = trial.timed(ours)
    tf32 = call.inputs[0].dtype.name == "float32" and float32_precision("conv") == "tf32"
    share = _TF32_AGREES if tf32 else _AGREES[call.inputs[0].dtype.name]
    bound, taken = share * max(float(np.abs(right).max()), 1e-30), -1
    if WHO.get() == "library":
        best = float("inf")
    theirs = LibraryConvolution(call, cudnn())
    for algorithm in found if theirs.meant is not None else ():
        (other,), seconds = trial.timed(theirs.steps(algorithm))
        if seconds < best and bool(np.abs(other - right).max() <= bound):
            best, taken = seconds, algorithm.number
    return taken
