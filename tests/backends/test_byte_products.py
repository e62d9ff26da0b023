"""Products of bytes whose rows are windows, read in place: exact integers for any bytes, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.library import CPU_LIBRARY_AMX, CPU_LIBRARY_AVX2, CPU_LIBRARY_VNNI
from rushlight._backends.null import MACHINES, compile_graph
from rushlight._graph.core import trace
from rushlight._interface.operators import function_of
from rushlight._prims import build, prim
from rushlight._types.dtype import INT8, INT32, UINT8

conv, linear = function_of("quantized_conv"), function_of("quantized_linear")
in_place = pytest.mark.skipif(
    host().library not in (CPU_LIBRARY_AMX, CPU_LIBRARY_AVX2, CPU_LIBRARY_VNNI), reason="windows are not read in place"
)


def drawn(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray:
    """Bytes: below 128, a few above, any, or the largest."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256 if kind == "any" else 128, shape).astype(np.uint8)
    if kind == "few":
        flat = x.reshape(-1)
        flat[rng.integers(0, flat.size, 5)] = rng.integers(128, 256, 5)
    if kind in ("127", "255"):
        x[:] = int(kind)
    return x


def weights(shape: tuple[int, ...], kind: str, seed: int = 1) -> np.ndarray:
    """Signed bytes: as of a trained layer, any, or those with the largest sums."""
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return np.clip(rng.normal(size=shape) * 36, -128, 127).astype(np.int8)
    if kind == "any":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return np.full(shape, int(kind), dtype=np.int8)


def windows(x: np.ndarray, w: np.ndarray, zero: int, stride: int, padding: int, dilation: int) -> np.ndarray:
    """The convolution in int64."""
    n, c, high, wide = x.shape
    p, k = padding, w.shape[2:]
    image = np.full((n, c, high + 2 * p, wide + 2 * p), zero, np.int64)
    image[:, :, p : p + high, p : p + wide] = x
    sizes = [(s - dilation * (t - 1) - 1) // stride + 1 for s, t in zip(image.shape[2:], k, strict=True)]
    y = np.zeros((n, w.shape[0], *sizes), np.int64)
    for i in range(k[0]):
        for j in range(k[1]):
            rows = slice(i * dilation, i * dilation + (sizes[0] - 1) * stride + 1, stride)
            columns = slice(j * dilation, j * dilation + (sizes[1] - 1) * stride + 1, stride)
            y += np.einsum("nchw,oc->nohw", image[:, :, rows, columns], w[:, :, i, j].astype(np.int64))
    return y


def convolved(x: np.ndarray, w: np.ndarray, zero: int, stride: int, padding: int, dilation: int) -> Any:
    last = [torch.from_numpy(v).contiguous(memory_format=torch.channels_last) for v in (x, w)]
    outs = w.shape[0]
    given = torch.zeros(outs, dtype=torch.int32), torch.ones(outs), None, None, zero, 0
    each = [(v, v) for v in (stride, padding, dilation)]
    return conv(*last, *given, *each, 1, result="float32").numpy()


# images, output channels, kernel, stride, padding, dilation
CONVOLUTIONS = [
    ((1, 64, 13, 11), 64, 3, 1, 1, 1), ((2, 3, 20, 21), 40, 7, 2, 3, 1), ((1, 256, 6, 7), 48, 3, 1, 1, 1), ((1, 64, 14, 14), 17, 1, 2, 0, 1),
    ((3, 20, 9, 9), 33, 3, 1, 2, 2), ((1, 7, 10, 10), 5, 3, 1, 1, 1), ((1, 512, 5, 6), 300, 3, 1, 1, 1), ((2, 8, 45, 61), 70, 3, 1, 1, 1),
    ((1, 64, 13, 14), 40, 3, 1, 1, 1), ((2, 64, 9, 16), 64, 3, 1, 0, 1), ((1, 128, 33, 30), 33, 3, 2, 0, 1), ((1, 64, 20, 18), 30, 3, 1, 1, 2),
    ((1, 64, 4, 530), 33, 3, 1, 1, 1), ((3, 192, 6, 14), 64, 1, 1, 0, 1), ((1, 5, 33, 19), 65, 5, 3, 2, 1), ((1, 3, 48, 32), 96, 16, 16, 0, 1), ((1, 1, 40, 40), 32, 3, 2, 1, 3),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["low", "few", "any"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_are_exact(case: Any, kind: str) -> None:
    shape, outs, k, *geometry = case
    for of in ("normal", "any"):
        x, w = drawn(shape, kind), weights((outs, shape[1], k, k), of)
        np.testing.assert_array_equal(convolved(x, w, 5, *geometry), windows(x, w, 5, *geometry).astype(np.float32))


# images, output channels, kernel, stride, padding, dilation, groups
MORE_CONVOLUTIONS = [
    ((2, 16, 5, 6, 7), 40, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1), ((1, 64, 4, 9, 14), 33, (2, 3, 3), (1, 2, 1), (0, 1, 1), (1, 1, 1), 1),
    ((2, 64, 50), 33, (5,), (2,), (2,), (1,), 1), ((2, 128, 14, 14), 128, (3, 3), (1, 1), (1, 1), (1, 1), 2),
    ((2, 6, 30, 30), 60, (5, 5), (1, 2), (1, 3), (2, 1), 3), ((1, 8, 30), 70, (7,), (3,), (0,), (2,), 1),
]  # fmt: skip


@pytest.mark.parametrize("case", MORE_CONVOLUTIONS, ids=str)
def test_lines_volumes_and_groups_are_exact(case: Any) -> None:
    shape, outs, k, stride, padding, dilation, groups = case
    x, w, n = drawn(shape, "any"), weights((outs, shape[1] // groups, *k), "any"), len(k)
    image = np.pad(x.astype(np.int64), [(0, 0), (0, 0), *((p, p) for p in padding)], constant_values=9)
    sizes = [(image.shape[2 + d] - dilation[d] * (k[d] - 1) - 1) // stride[d] + 1 for d in range(n)]
    expected = np.zeros((shape[0], groups, outs // groups, *sizes), np.int64)
    for tap in np.ndindex(*k):
        begins = [t * gap for t, gap in zip(tap, dilation, strict=True)]
        cut = [slice(b, b + (m - 1) * s + 1, s) for b, m, s in zip(begins, sizes, stride, strict=True)]
        part = image[(slice(None), slice(None), *cut)].reshape(shape[0], groups, -1, *sizes)
        taps = w[(slice(None), slice(None), *tap)].reshape(groups, outs // groups, -1)
        expected += np.einsum("ngc...,goc->ngo...", part, taps.astype(np.int64))
    given = torch.zeros(outs, dtype=torch.int32), torch.ones(outs), None, None, 9, 0
    found = conv(
        torch.from_numpy(x), torch.from_numpy(w), *given, stride, padding, dilation, groups, result="float32"
    ).numpy()
    np.testing.assert_array_equal(found, expected.reshape(found.shape).astype(np.float32))


@pytest.mark.parametrize(("channels", "k"), [(4, 7), (20, 3), (36, 5), (60, 1), (4, 15)])
def test_runs_that_end_within_a_word_are_exact(channels: int, k: int) -> None:
    x, w = drawn((2, channels, 20, 20), "any"), weights((128, channels, k, k), "any")
    np.testing.assert_array_equal(convolved(x, w, 5, 1, k // 2, 1), windows(x, w, 5, 1, k // 2, 1).astype(np.float32))


@pytest.mark.parametrize("of", ["127", "-128", "64", "-65", "normal", "any"])
@pytest.mark.parametrize("kind", ["127", "255", "low", "few", "any"])
def test_no_sum_saturates(kind: str, of: str) -> None:
    for rows, depth, outs in ((1, 520, 100), (70, 768, 33), (37, 33, 16), (64, 3000, 16)):
        x, w = drawn((rows, depth), kind), weights((outs, depth), of)
        given = torch.zeros(outs, dtype=torch.int32), torch.ones(outs), None, None, 0
        found = linear(torch.from_numpy(x), torch.from_numpy(w), *given, result="float32").numpy()
        np.testing.assert_array_equal(found, (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.float32))


def test_threads_do_not_matter() -> None:
    x, w = drawn((500, 300), "few"), weights((140, 300), "normal")
    given = torch.zeros(140, dtype=torch.int32), torch.ones(140), None, None, 0
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(linear(torch.from_numpy(x), torch.from_numpy(w), *given, result="float32").numpy())
    torch.set_num_threads(before)
    for each in found:
        np.testing.assert_array_equal(each, (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.float32))


@in_place
def test_windows_are_not_written_out() -> None:
    x, w = drawn((1, 16, 12, 12), "low"), weights((32, 16, 3, 3), "normal")
    explained = str(torch.explain(lambda: convolved(x, w, 0, 1, 1, 1))())
    assert "call window_dot" in explained and " window(" not in explained


@pytest.mark.parametrize("machine", MACHINES)
def test_other_machines_multiply_matrices_of_windows(machine: str) -> None:
    """Windows are read in place where there is AVX2 and no instruction for four products of bytes."""

    def product(x: Any, w: Any) -> Any:
        rows = prim.window(x, dims=(1, 2), size=(3, 16), stride=(1, 4), dilation=(1, 1))
        return build.dot(build.reshape(rows, (56, 48)), build.transpose(w, (1, 0)), INT32)

    graph = trace(product, [((1, 10, 40), UINT8), ((16, 48), INT8)])
    steps = [getattr(step, "name", "kernel") for step in compile_graph(graph, machine=machine).program.steps]
    assert steps == (["window_dot"] if machine == "x86-64-v3" else ["kernel", "dot"])
