"""Histograms of points, reductions of pieces, hashes, sequences: beside NumPy, and beside PyTorch where it is installed."""

from __future__ import annotations

from functools import reduce as fold
from typing import Any

import numpy as np
import pytest

import rushlight as rl


def ours(x: Any) -> Any:
    return rl.from_numpy((x if isinstance(x, np.ndarray) else x.numpy()).copy())


def test_histogramdd() -> None:
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(40, 2)), rng.random(40)
    for bins, low_high in ((3, None), ([2, 4], [-1.0, 1.0, 0.0, 2.0])):
        for density in (False, True):
            expected, edges = np.histogramdd(
                points,
                bins,
                range=None if low_high is None else np.reshape(low_high, (2, 2)),
                weights=weights,
                density=density,
            )
            found = rl.histogramdd(ours(points), bins, range=low_high, weight=ours(weights), density=density)
            np.testing.assert_allclose(found.hist.numpy(), expected)
            for mine, theirs in zip(found.bin_edges, edges, strict=True):
                np.testing.assert_allclose(mine.numpy(), theirs)
    with pytest.raises(RuntimeError, match="size of bins"):
        rl.histogramdd(rl.ones(3, 2), [3])
    with pytest.raises(NotImplementedError, match="histogramdd"):
        rl.histogramdd(rl.ones(3, 2, dtype=rl.int64), 3)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce(kind: str) -> None:
    data = np.random.default_rng(0).normal(size=(6, 2))
    join = {"max": np.max, "min": np.min}.get(kind) or getattr(np, kind)
    expected = np.stack([join(data[:2], axis=0), join(data[2:3], axis=0), join(data[3:], axis=0)])
    for pieces in ({"lengths": rl.tensor([2, 1, 3])}, {"offsets": rl.tensor([0, 2, 3, 6])}):
        x = ours(data).requires_grad_()
        found = rl.segment_reduce(x, kind, **pieces)
        np.testing.assert_allclose(found.detach().numpy(), expected)
        found.sum().backward()
        assert x.grad.shape == x.shape
    empty = rl.segment_reduce(ours(data), kind, lengths=rl.tensor([0, 6]), initial=2.0)
    np.testing.assert_array_equal(empty[0].numpy(), [2.0, 2.0])
    with pytest.raises(RuntimeError, match="sum to data.size"):
        rl.segment_reduce(ours(data), kind, lengths=rl.tensor([1, 2]))


def _others(x: Any, lengths: list[int], start: float) -> Any:
    """The product of all other elements of an element's segment, times a number."""
    found, begin = np.empty_like(x), 0
    for n in lengths:
        for at in range(begin, begin + n):
            kept = [k for k in range(begin, begin + n) if k != at]
            found[at] = start * np.prod(x[kept], axis=0)
        begin += n
    return found


@pytest.mark.parametrize("start", [None, -2.0])
def test_derivatives_of_segment_products_are_the_products_of_the_others(start: float | None) -> None:
    data = np.random.default_rng(0).normal(size=(9, 2))
    data[1, 0] = data[4, 1] = data[5, 1] = data[6, 0] = np.nan  # alone, twice in one segment, beside a zero
    data[2, 0] = data[7, 0] = data[8, 1] = 0.0
    lengths = [2, 1, 3, 0, 3]
    x = ours(data).requires_grad_()
    found = rl.segment_reduce(x, "prod", lengths=rl.tensor(lengths), initial=start)
    found.sum().backward()
    ends = np.cumsum(lengths)
    begun = 1.0 if start is None else start
    expected = [begun * np.prod(data[e - n : e], axis=0) for e, n in zip(ends, lengths, strict=True)]
    np.testing.assert_allclose(found.detach().numpy(), expected)
    np.testing.assert_allclose(x.grad.numpy(), _others(data, lengths, begun))


def test_hash_is_exclusive_or_of_bits() -> None:
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    bits = x.astype(np.float64).view(np.uint64)
    found = rl.hash_tensor(ours(x))
    assert found.dtype is rl.uint64
    assert int(found.item()) == fold(lambda a, b: a ^ b, map(int, bits.reshape(-1)))
    rows = rl.hash_tensor(ours(x), 1, keepdim=True)
    np.testing.assert_array_equal(rows.numpy(), np.bitwise_xor.reduce(bits, axis=1, keepdims=True))
    assert int(rl.hash_tensor(rl.tensor([-1], dtype=rl.int8)).item()) == 2**64 - 1
    with pytest.raises(RuntimeError, match="mode"):
        rl.hash_tensor(ours(x), mode=1)


@pytest.mark.oracle
def test_sequences_and_shapes_as_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x, w, b = torch.randn(5, 2, 3), torch.randn(2, 3, 4), torch.randn(4)
    np.testing.assert_allclose(
        rl.conv_tbc(ours(x), ours(w), ours(b), 1).numpy(), torch.conv_tbc(x, w, b, 1).numpy(), rtol=1e-4, atol=1e-5
    )
    image = torch.randn(2, 4, 3, 3)
    np.testing.assert_array_equal(
        rl.native_channel_shuffle(ours(image), 2).numpy(), torch.native_channel_shuffle(image, 2).numpy()
    )
    template = torch.empty(1, 2, 3, 4).to(memory_format=torch.channels_last)
    mine = rl.empty(1, 2, 3, 4).to(memory_format=rl.channels_last)
    for theirs_format, format_ in (
        (None, None),
        (torch.preserve_format, rl.preserve_format),
        (torch.channels_last, rl.channels_last),
    ):
        expected = torch.resize_as_(torch.empty(0), template, memory_format=theirs_format)
        assert rl.resize_as_(rl.empty(0), mine, memory_format=format_).stride() == expected.stride()


@pytest.mark.parametrize("dim", [0, 1])
def test_unique_rows(dim: int) -> None:
    x = np.random.default_rng(3).integers(0, 3, (40, 2, 2))
    for rows in (x, x[:0] if dim == 0 else x[:, :1]):
        values, first, inverse, counts = np.unique(
            rows, return_index=True, return_inverse=True, return_counts=True, axis=dim
        )
        found = rl.unique(ours(rows), return_inverse=True, return_counts=True, dim=dim)
        for mine, theirs in zip(found, (values, inverse.reshape(-1), counts), strict=True):
            assert np.array_equal(mine.numpy(), theirs)
        assert np.array_equal(np.take(rows, first, dim), found[0].numpy())


@pytest.mark.parametrize("join", [rl.unique, rl.unique_consecutive])
def test_rows_without_elements_are_refused(join: Any) -> None:
    for shape, dim, message in (
        ((3, 0), 0, "aren't selected"),
        ((2, 0, 4), -1, "aren't selected"),
        ((0, 0), 1, "more than one"),
    ):
        with pytest.raises(RuntimeError, match=message):
            join(rl.zeros(shape), dim=dim)
    assert join(rl.zeros(0, 3), dim=0).shape == (0, 3)


def test_rows_beside_each_other_are_joined() -> None:
    x = np.asarray([[1, 2], [1, 2], [0, 5], [1, 2], [1, 2]])
    values, inverse, counts = rl.unique_consecutive(ours(x), return_inverse=True, return_counts=True, dim=0)
    assert (
        values.tolist() == [[1, 2], [0, 5], [1, 2]]
        and inverse.tolist() == [0, 0, 1, 2, 2]
        and counts.tolist() == [2, 1, 2]
    )


@pytest.mark.parametrize(
    "values, shares",
    [
        ([1.0, 1.0, 2.0, 1.0], [1 / 3, 1 / 3, 0, 1 / 3]),
        ([5.0, 4.0, 3.0, 2.0], [0, 0, 1, 0]),
        ([np.nan, 1.0, np.nan, 4.0], [0.5, 0, 0.5, 0]),
    ],
)
def test_elements_that_are_the_median_have_equal_shares_of_its_gradient(
    values: list[float], shares: list[float]
) -> None:
    x = rl.tensor(values, dtype=rl.float64, requires_grad=True)
    x.median().backward()
    np.testing.assert_allclose(x.grad.numpy(), shares)


@pytest.mark.parametrize("size", [0, 1, 2, 300, 5000, 140001])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
)
def test_runs_of_equal_neighbours(dtype, size):
    """Values, numbers and lengths of runs; NaN equals nothing, and zeros of both signs are equal."""
    rng = np.random.default_rng(size)
    a = rng.integers(0, 3, size).astype("float64")
    if size > 5 and dtype.startswith(("float", "bfloat")):
        a[size // 2 : size // 2 + 2] = np.nan
        a[:2] = 0.0, -0.0
    x = rl.from_numpy(a).to(getattr(rl, dtype))
    a = x.double().numpy()
    begins = np.r_[np.ones(min(size, 1), bool), a[1:] != a[:-1]]
    starts = np.nonzero(begins)[0]
    values, numbers, lengths = rl.unique_consecutive(x, return_inverse=True, return_counts=True)
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(values.double().numpy(), a[starts])
    np.testing.assert_array_equal(numbers.numpy(), np.cumsum(begins) - 1)
    np.testing.assert_array_equal(lengths.numpy(), np.diff(np.r_[starts, size])[: len(starts)])
    if not np.isnan(a).any():
        ordered, places, counts = np.unique(a, return_inverse=True, return_counts=True)
        values, numbers, lengths = x.unique(return_inverse=True, return_counts=True)
        np.testing.assert_array_equal(values.double().numpy(), ordered)
        np.testing.assert_array_equal(numbers.numpy(), places.reshape(-1))
        np.testing.assert_array_equal(lengths.numpy(), counts)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_runs_of_equal_slices(dim):
    a = np.random.default_rng(3).integers(0, 2, (40, 2, 3))
    rows = np.moveaxis(a, dim, 0)
    begins = np.r_[True, (rows[1:] != rows[:-1]).reshape(len(rows) - 1, -1).any(1)]
    values, numbers, lengths = rl.unique_consecutive(rl.from_numpy(a), return_inverse=True, return_counts=True, dim=dim)
    np.testing.assert_array_equal(values.numpy(), np.moveaxis(rows[begins], 0, dim))
    np.testing.assert_array_equal(numbers.numpy(), np.cumsum(begins) - 1)
    np.testing.assert_array_equal(lengths.numpy(), np.diff(np.r_[np.nonzero(begins)[0], len(rows)]))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "float64"])
@pytest.mark.parametrize(("size", "tests"), [(1000, 5), (1000, 65), (1000, 1000), (10, 1000), (0, 100), (100, 0)])
def test_elements_among_others(dtype, size, tests):
    """Few test elements are compared with all, many are searched; NaN is never among them."""
    rng = np.random.default_rng(tests)
    a, b = (rng.integers(0, 200, n).astype(dtype) for n in (size, tests))
    if dtype[0] == "f" and size > 1 and tests > 1:
        a[:2], b[:2] = (np.nan, -0.0), (np.nan, 0.0)
    for invert in (False, True):
        found = rl.isin(rl.from_numpy(a), rl.from_numpy(b), invert=invert)
        np.testing.assert_array_equal(found.numpy(), np.isin(a, b, invert=invert))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 100, 1023])
def test_places_among_ordered_ones(size):
    """Every length of boundaries, with equals and NaN behind all numbers."""
    rng = np.random.default_rng(size)
    edges = np.sort(rng.integers(0, max(size, 2), size).astype("float64"))
    x = np.r_[edges, edges + 0.5, -1.0, np.inf, np.nan]
    for right in (False, True):
        found = rl.searchsorted(rl.from_numpy(edges), rl.from_numpy(x), right=right)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(edges, x, "right" if right else "left"))


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 1, 4), (2, 3, 4, 5), (1, 1), (300, 70)])
def test_flattened_elements_moved_round(shape):
    a = np.arange(np.prod(shape)).reshape(shape)
    for shift in (0, 1, -1, 3, shape[-1], 2 * shape[-1] + 1, -17, a.size + 2):
        np.testing.assert_array_equal(rl.from_numpy(a).roll(shift).numpy(), np.roll(a, shift))
        np.testing.assert_array_equal(
            rl.from_numpy(a).T.roll(shift).numpy() if a.ndim == 2 else a.T, np.roll(a.T, shift) if a.ndim == 2 else a.T
        )
