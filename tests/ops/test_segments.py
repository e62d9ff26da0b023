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
                points, bins, range=None if low_high is None else np.reshape(low_high, (2, 2)), weights=weights, density=density
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
    np.testing.assert_allclose(rl.conv_tbc(ours(x), ours(w), ours(b), 1).numpy(), torch.conv_tbc(x, w, b, 1).numpy(), rtol=1e-4, atol=1e-5)
    image = torch.randn(2, 4, 3, 3)
    np.testing.assert_array_equal(rl.native_channel_shuffle(ours(image), 2).numpy(), torch.native_channel_shuffle(image, 2).numpy())
    template = torch.empty(1, 2, 3, 4).to(memory_format=torch.channels_last)
    mine = rl.empty(1, 2, 3, 4).to(memory_format=rl.channels_last)
    for theirs_format, format_ in ((None, None), (torch.preserve_format, rl.preserve_format), (torch.channels_last, rl.channels_last)):
        expected = torch.resize_as_(torch.empty(0), template, memory_format=theirs_format)
        assert rl.resize_as_(rl.empty(0), mine, memory_format=format_).stride() == expected.stride()


@pytest.mark.parametrize("dim", [0, 1])
def test_unique_rows(dim: int) -> None:
    x = np.random.default_rng(3).integers(0, 3, (40, 2, 2))
    for rows in (x, x[:0] if dim == 0 else x[:, :1]):
        values, first, inverse, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True, axis=dim)
        found = rl.unique(ours(rows), return_inverse=True, return_counts=True, dim=dim)
        for mine, theirs in zip(found, (values, inverse.reshape(-1), counts), strict=True):
            assert np.array_equal(mine.numpy(), theirs)
        assert np.array_equal(np.take(rows, first, dim), found[0].numpy())


def test_rows_beside_each_other_are_joined() -> None:
    x = np.asarray([[1, 2], [1, 2], [0, 5], [1, 2], [1, 2]])
    values, inverse, counts = rl.unique_consecutive(ours(x), return_inverse=True, return_counts=True, dim=0)
    assert values.tolist() == [[1, 2], [0, 5], [1, 2]] and inverse.tolist() == [0, 0, 1, 2, 2] and counts.tolist() == [2, 1, 2]


@pytest.mark.parametrize(
    "values, shares",
    [([1.0, 1.0, 2.0, 1.0], [1 / 3, 1 / 3, 0, 1 / 3]), ([5.0, 4.0, 3.0, 2.0], [0, 0, 1, 0]), ([np.nan, 1.0, np.nan, 4.0], [0.5, 0, 0.5, 0])],
)
def test_elements_that_are_the_median_have_equal_shares_of_its_gradient(values: list[float], shares: list[float]) -> None:
    x = rl.tensor(values, dtype=rl.float64, requires_grad=True)
    x.median().backward()
    np.testing.assert_allclose(x.grad.numpy(), shares)
