"""Masks: what they select, around the edges of words and pieces, for all densities and element sizes."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 65536, 65537, 150003])
def test_masks_of_one_dim(size, share):
    mask = RNG.random(size) < share
    given = torch.from_numpy(mask.copy())
    np.testing.assert_array_equal(given.nonzero().numpy()[:, 0], np.nonzero(mask)[0])
    for dtype in ("int8", "int16", "float32", "float64", "complex128"):
        a = (RNG.normal(size=size) * 50).astype(dtype)
        np.testing.assert_array_equal(torch.from_numpy(a.copy())[given].numpy(), a[mask])


@pytest.mark.parametrize("shape", [(300, 400), (30, 7, 40, 11), (300, 3, 1), (1, 1), (40000, 2)])
def test_masks_of_several_dims(shape):
    mask = RNG.random(shape) < 0.4
    a = RNG.normal(size=shape)
    given = torch.from_numpy(mask.copy())
    np.testing.assert_array_equal(given.nonzero().numpy(), np.argwhere(mask))
    np.testing.assert_array_equal(torch.from_numpy(a)[given].numpy(), a[mask])


def test_any_byte_that_is_not_zero_is_true():
    values = RNG.integers(0, 256, 1000).astype(np.uint8)
    np.testing.assert_array_equal(torch.from_numpy(values.copy()).nonzero().numpy()[:, 0], np.nonzero(values)[0])


@pytest.mark.parametrize(("size", "count"), [(1, 1), (3, 5), (4, 4), (10, 1000), (1000, 7), (50, 33)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64"])
def test_scatters_in_the_order_of_elements(size, count, dtype):
    x, v = ((RNG.normal(size=(6, n)) * 5).astype(dtype) for n in (size, count))
    places = RNG.integers(0, size, (6, count))
    added, written = x.copy(), x.copy()
    np.add.at(added, (np.arange(6)[:, None], places), v)
    for r in range(6):
        for c in range(count):
            written[r, places[r, c]] = v[r, c]
    given, index, source = (torch.from_numpy(a.copy()) for a in (x, places, v))
    np.testing.assert_allclose(given.scatter_add(1, index, source).numpy(), added, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(given.scatter(1, index, source).numpy(), written)
    index[3, count // 2] = size
    with pytest.raises(RuntimeError, match="out of bounds"):
        given.scatter_add(1, index, source)
