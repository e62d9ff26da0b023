"""A library with cuDNN's functions, which computes convolutions from their descriptors by NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.cuda.libraries.pretended_cusolver import CFunction

from rushlight._backends.cuda.libraries.cudnn import TYPES, Performance

__all__ = ["PretendedCuDnn"]

DTYPES = {number: np.dtype(name) for name, number in TYPES.items() if name != "bfloat16"}
PROPOSED = [
    (3, 1, 64, 0),
    (1, 0, 1 << 40, 1),
    (7, 0, 256, 0),
    (5, 0, 0, 1),
]  # algorithm, status, workspace, deterministic


class PretendedCuDnn:
    """`find(address, bytes)` is the memory there, as an array of bytes; handles of descriptors are numbers."""

    def __init__(self, find: Callable[[int, int], Any]) -> None:
        self.find = find
        self.objects: dict[int, dict[str, Any]] = {}
        self.ran: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        if name.startswith("cudnnCreate"):
            return CFunction(self.create)
        if name.endswith("Algorithm_v7"):
            return CFunction(self.propose)
        for kind, run in (("BackwardData", self.images), ("BackwardFilter", self.weights), ("Forward", self.forward)):
            if name == f"cudnnConvolution{kind}":
                return CFunction(lambda *given, run=run, kind=kind: self.run(kind, run, *given))
        return CFunction({
            "cudnnGetVersion": lambda: 92800, "cudnnSetStream": lambda *_: 0, "cudnnSetTensorNdDescriptor": self.tensor,
            "cudnnSetFilterNdDescriptor": self.filter, "cudnnSetConvolutionNdDescriptor": self.convolution,
            "cudnnSetConvolutionGroupCount": lambda at, n: self.set(at, groups=n),
            "cudnnSetConvolutionMathType": lambda at, n: self.set(at, math=n),
        }[name])  # fmt: skip

    # ***** descriptors *****

    def create(self, to: Any) -> None:
        to._obj.value = len(self.objects) + 0x100
        self.objects[to._obj.value] = {}

    def set(self, at: Any, **values: Any) -> None:
        self.objects[at.value].update(values)

    def tensor(self, at: Any, dtype: int, count: int, shape: Any, strides: Any) -> None:
        assert count >= 4 and len(shape) == len(strides) == count
        self.set(at, dtype=DTYPES[dtype], shape=tuple(shape), strides=tuple(strides))

    def filter(self, at: Any, dtype: int, form: int, count: int, shape: Any) -> None:
        assert count >= 4
        order = (0, *range(2, count), 1) if form else tuple(range(count))
        strides, step = [0] * count, 1
        for d in reversed(order):
            strides[d], step = step, step * shape[d]
        self.set(at, dtype=DTYPES[dtype], shape=tuple(shape), strides=tuple(strides))

    def convolution(self, at: Any, count: int, padding: Any, stride: Any, dilation: Any, mode: int, sums: int) -> None:
        self.set(at, padding=tuple(padding), stride=tuple(stride), dilation=tuple(dilation), flip=mode == 0, sums=sums)

    def propose(self, handle: Any, *given: Any) -> None:
        most, count, table = given[4:]
        rows = (Performance * most).from_address(_address(table))
        for row, (number, status, workspace, deterministic) in zip(rows, PROPOSED, strict=False):
            row.algorithm, row.status, row.workspace, row.deterministic = number, status, workspace, deterministic
        count._obj.value = len(PROPOSED)

    # ***** numbers *****

    def array(self, descriptor: Any, at: int) -> Any:
        d = self.objects[descriptor.value]
        size = d["dtype"].itemsize
        span = 1 + sum((n - 1) * s for n, s in zip(d["shape"], d["strides"], strict=True))
        data = self.find(at, span * size).view(d["dtype"])
        return np.lib.stride_tricks.as_strided(data, d["shape"], [size * s for s in d["strides"]])

    def run(self, kind: str, compute: Any, handle: Any, one: Any, *given: Any) -> None:
        first, at_first, second, at_second, convolution, number, workspace, nbytes, zero, result, at_result = given
        wanted = {n: w for n, _, w, _ in PROPOSED}[number]
        assert (one._obj.value, zero._obj.value) == (1, 0) and nbytes == wanted and bool(workspace) == bool(wanted)
        self.ran.append((kind, number))
        arrays = [self.array(d, at) for d, at in ((first, at_first), (second, at_second), (result, at_result))]
        arrays[2][...] = 0
        compute(*arrays, self.objects[convolution.value])

    def taps(self, images: Any, weights: Any, results: Any, c: dict[str, Any]) -> Any:
        """For each group and tap: the images under it (a view of padded ones), the weight's place, the results' channels."""
        n, groups = len(c["padding"]), c["groups"]
        depth, outs = images.shape[1] // groups, weights.shape[0] // groups
        assert weights.shape[1] == depth and results.shape[1] == outs * groups
        for tap in np.ndindex(*weights.shape[2:]):
            at = tuple(k - 1 - t for k, t in zip(weights.shape[2:], tap, strict=True)) if c["flip"] else tap
            sizes = zip(at, c["dilation"], c["stride"], results.shape[2:], strict=True)
            spots = tuple(slice(t * gap, t * gap + (count - 1) * step + 1, step) for t, gap, step, count in sizes)
            for g in range(groups):
                rows, channels = slice(g * outs, (g + 1) * outs), slice(g * depth, (g + 1) * depth)
                yield (slice(None), channels, *spots[:n]), (rows, slice(None), *tap), (slice(None), rows)

    @staticmethod
    def padded(images: Any, c: dict[str, Any]) -> Any:
        return np.pad(images.astype("float64"), [(0, 0), (0, 0), *((p, p) for p in c["padding"])])

    def forward(self, images: Any, weights: Any, results: Any, c: dict[str, Any]) -> None:
        padded, sums = self.padded(images, c), np.zeros(results.shape)
        for spots, tap, outs in self.taps(images, weights, results, c):
            sums[outs] += np.einsum("nc...,oc->no...", padded[spots], weights[tap].astype("float64"))
        results[...] = sums

    def images(self, weights: Any, results: Any, images: Any, c: dict[str, Any]) -> None:
        padded = self.padded(images, c)
        for spots, tap, outs in self.taps(images, weights, results, c):
            padded[spots] += np.einsum("no...,oc->nc...", results[outs].astype("float64"), weights[tap])
        inside = tuple(slice(p, p + n) for p, n in zip(c["padding"], images.shape[2:], strict=True))
        images[...] = padded[(slice(None), slice(None), *inside)]

    def weights(self, images: Any, results: Any, weights: Any, c: dict[str, Any]) -> None:
        padded = self.padded(images, c)
        for spots, tap, outs in self.taps(images, weights, results, c):
            here, there = (x.reshape(*x.shape[:2], -1) for x in (padded[spots], results[outs].astype("float64")))
            weights[tap] += np.einsum("ncp,nop->oc", here, there)


def _address(pointer: Any) -> int:
    return ctypes.addressof(pointer._obj)
