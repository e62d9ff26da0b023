"""Resizing kernels: weighted sums along dims against their definition, for every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.compile import build
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._graph.core import trace
from rushlight._prims import PRIMITIVES, prim
from rushlight._types.dtype import BY_NAME, INT64

RNG = np.random.default_rng(9)


def strides_of(a: Any) -> list[int]:
    return [s // a.itemsize for s in a.strides]


def called(name: str, arrays: list[Any], out_shape: tuple[int, ...], layout: str = "rows", **params: Any) -> Any:
    """The kernel's result, written row-major or with the channels last."""
    dtype = BY_NAME[arrays[0].dtype.name]
    kinds = [(a.shape, INT64 if a.dtype == np.int64 else dtype) for a in arrays]
    graph = trace(lambda *xs: getattr(prim, name)(*xs, **params), kinds)
    made = np.empty(out_shape, arrays[0].dtype)
    if layout == "last":
        made = np.moveaxis(np.empty((out_shape[0], *out_shape[2:], out_shape[1]), arrays[0].dtype), -1, 1)
    run = build(compile_graph(graph, [strides_of(a) for a in arrays], [strides_of(made)], target=host()))
    storage = run(*(a.ctypes.data for a in arrays))
    flat = np.frombuffer(bytes(memoryview(storage)), arrays[0].dtype)
    return np.lib.stride_tricks.as_strided(flat, out_shape, made.strides).copy()


def tables(size: int, out: int, taps: int, dtype: str) -> list[Any]:
    return [RNG.integers(0, size, (taps, out)), RNG.standard_normal((taps, out)).astype(dtype)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dims", [(3, 2), (3,), (2,)])
def test_sums_along_dims(dims: tuple[int, ...], dtype: str) -> None:
    for shape, out, taps in (
        ((2, 3, 5, 7), (9, 4), 2),
        ((1, 20, 6, 1), (1, 33), 4),
        ((3, 1, 70, 65), (140, 130), 1),
        ((1, 2, 1, 3), (2, 5), 3),
    ):
        x = RNG.standard_normal(shape).astype(dtype)
        words = [t for d in dims for t in tables(shape[d], out[d - 2], taps, dtype)]
        wanted = PRIMITIVES["resample"].reference(x, *words, dims=dims)
        for given in (
            x,
            np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1),
            np.swapaxes(np.swapaxes(x, 2, 3).copy(), 2, 3),
        ):
            for layout in ("rows", "last"):
                got = called("resample", [given, *words], wanted.shape, layout, dims=dims)
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [2, 3])
def test_transposed_sums(dim: int, dtype: str) -> None:
    for shape, size, taps in (((2, 3, 5, 7), 4, 2), ((1, 20, 6, 1), 9, 4), ((3, 2, 70, 65), 30, 1)):
        ct = RNG.standard_normal(shape).astype(dtype)
        words = tables(size, shape[dim], taps, dtype)
        wanted = PRIMITIVES["resample_back"].reference(ct, *words, dim=dim, size=size)
        for given in (ct, np.moveaxis(np.ascontiguousarray(np.moveaxis(ct, 1, -1)), -1, 1)):
            got = called("resample_back", [given, *words], wanted.shape, dim=dim, size=size)
            np.testing.assert_allclose(got, wanted, rtol=0, atol={"float32": 2e-5, "float64": 1e-13}[dtype])


def test_bits_do_not_depend_on_threads() -> None:
    x = torch.randn(3, 5, 41, 53).requires_grad_()
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            x.grad = None
            y = torch.nn.functional.interpolate(x, scale_factor=2.3, mode="bicubic")
            y.backward(torch.cos(y.detach()))
            found.append(torch.cat([y.detach().flatten(), x.grad.flatten()]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], f) for f in found)


def test_only_the_elements_that_are_named_count() -> None:
    x = torch.ones(1, 1, 4, 4)
    x[0, 0, 3, 3] = float("nan")
    y = torch.nn.functional.interpolate(x, size=(8, 8), mode="bilinear", align_corners=False)
    assert not y[0, 0, :5, :5].isnan().any() and y[0, 0, 5:, 5:].isnan().all()
