"""Shapes, orders, indices and creation against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.array_api.arrays import ALL, COMPLEX, INTEGER, NUMERIC, REAL, agree, join, kind, numbers, ours, same

import rushlight.array_api as xp

pytest.importorskip("numpy", minversion="2.1")

SHAPES = [(), (0,), (5,), (2, 3), (3, 0, 2), (2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    x = numbers("float64", shape, False)
    order = tuple(np.random.default_rng(0).permutation(len(shape)).tolist())
    agree("permute_dims", x, order)
    agree("concat", [x, x], axis=None)
    agree("squeeze", x[None, ..., None], (0, -1))
    agree("broadcast_to", x, (2, *shape))
    agree("broadcast_arrays", x, x[None])
    for new in ((-1,), (x.size,), (1, x.size)):
        if x.size or -1 not in new:
            agree("reshape", x, new)
    for axis in range(-len(shape) - 1, len(shape) + 1):
        agree("expand_dims", x, axis=axis)
        agree("stack", [x, x], axis=axis)
    for times in ((2,), (1, 2), (2, 1, 2, 1), (0,)):
        agree("tile", x, times)
    for axis in (None, *range(-len(shape), len(shape))):
        agree("flip", x, axis=axis)
        for shift in (0, -3, 10**6):
            agree("roll", x, shift, axis=axis)
        for times in (0, 1, 3):
            agree("repeat", x, times, axis=axis)
    for axis in range(len(shape)):
        agree("unstack", x, axis=axis)
        agree("concat", [x, x], axis=axis)
        agree("moveaxis", x, axis, -1)
        agree("repeat", x, np.arange(shape[axis]), axis=axis)


def test_several_axes() -> None:
    x = numbers("int32", (2, 3, 4))
    agree("roll", x, (1, 2), axis=(0, 2))
    agree("roll", x, 1, axis=(0, 2))
    agree("flip", x, axis=(0, -1))
    agree("moveaxis", x, (0, 1), (2, 0))


def test_shape_errors() -> None:
    x = xp.ones((2, 3))
    for call, error in (
        (lambda: xp.squeeze(x, 0), ValueError),
        (lambda: xp.expand_dims(x, axis=4), IndexError),
        (lambda: xp.broadcast_to(x, (4, 4)), ValueError),
        (lambda: xp.reshape(x.mT, (6,), copy=False), ValueError),
        (lambda: xp.concat([x, xp.ones(2)]), ValueError),
        (lambda: xp.take(x, xp.asarray([0])), ValueError),
        (lambda: xp.asarray([1], copy=False), ValueError),
        (lambda: xp.asarray(x, dtype=xp.float64, copy=False), ValueError),
    ):
        with pytest.raises(error):
            call()


def test_copies() -> None:
    x = xp.ones((2, 3))
    assert xp.asarray(x) is x and xp.asarray(x, copy=True) is not x
    assert xp.reshape(x, (6,), copy=False).data_ptr() == x.data_ptr() != xp.reshape(x, (6,), copy=True).data_ptr()
    assert xp.astype(x, xp.float32, copy=False) is x and xp.astype(x, xp.float32) is not x
    assert xp.from_dlpack(x).data_ptr() == x.data_ptr() != xp.from_dlpack(x, copy=True).data_ptr()
    assert xp.positive(x).data_ptr() != x.data_ptr()


def test_dtypes_join() -> None:
    for a in ALL:
        for b in ALL:
            if join(a, b):
                agree("concat", [numbers(a, (2,)), numbers(b, (3,))])
                agree("stack", [numbers(a, (2,)), numbers(b, (2,))])


@pytest.mark.parametrize("dtype", ALL)
def test_take(dtype: str) -> None:
    x = numbers(dtype, (2, 3, 4))
    for axis, index in ((0, [1, 0, -1]), (-1, [3]), (1, [])):
        agree("take", x, np.array(index, np.int8), axis=axis)
    agree("take_along_axis", x, np.argsort(numbers("float64", (2, 3, 4), False), axis=1), axis=1)
    same(xp.take(ours(x), xp.asarray([[0, 1], [1, 1]]), axis=1), np.take(x, [[0, 1], [1, 1]], axis=1))


@pytest.mark.parametrize("dtype", ALL)
def test_indices_and_masks(dtype: str) -> None:
    x = numbers(dtype, (3, 4))
    mask, where = numbers("bool", (3, 4)), np.array([2, 0, -1])
    keys = [
        1,
        -1,
        slice(0, 0),
        slice(5, 1),
        (slice(None, None, 2), 1),
        (..., 0),
        (None, 1),
        (),
        ...,
        mask,
        where,
        (where, where),
        (0, where),
    ]
    for key in keys:
        read = tuple(ours(k) for k in key) if isinstance(key, tuple) else ours(key)
        same(ours(x)[read], x[key], key)
        changed, copy = ours(x.copy()), x.copy()
        changed[read] = x[0, 0].item()
        copy[key] = x[0, 0].item()
        same(changed, copy, key)
    scalar = np.asarray(x[0, 0])
    for chosen in (True, False):
        same(ours(scalar)[xp.asarray(chosen)], scalar[np.array(chosen)])


@pytest.mark.parametrize("dtype", ALL)
def test_creation(dtype: str) -> None:
    made, asked = numbers(dtype, (2, 3)), {"dtype": np.dtype(dtype)}
    fill = {"b": True, "i": 7, "f": 2.5, "c": 1 - 2j}[kind(dtype)]
    for shape in ((), 3, (2, 0)):
        agree("zeros", shape, **asked)
        agree("ones", shape, **asked)
        agree("full", shape, fill, **asked)
        assert xp.empty(shape, dtype=getattr(xp, dtype)).dtype is getattr(xp, dtype)
    agree("zeros_like", made)
    agree("full_like", made, fill)
    for k in (-3, -1, 0, 2):
        agree("eye", 3, 2, k=k, **asked)
        agree("tril", made, k=k)
        agree("triu", made, k=k)
    same(xp.asarray(made.tolist(), dtype=getattr(xp, dtype)), made)
    same(xp.from_dlpack(made), made)
    same(xp.asarray(np.from_dlpack(ours(made))), made)
    for indexing in ("xy", "ij"):
        agree("meshgrid", made[0], made[1, :2], made[0, :1], indexing=indexing)


@pytest.mark.parametrize("dtype", [*INTEGER, *REAL])
def test_ranges(dtype: str) -> None:
    asked = {"dtype": np.dtype(dtype)}
    for bounds in ((5,), (2, 7), (0, 10, 3), (7, 2), (7, 2, -2), (0,), (3, 3), (100, 110, 7)):
        agree("arange", *bounds, **asked)


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_linspace(dtype: str) -> None:
    for bounds in (
        (0, 1, 5),
        (0, 1, 1),
        (0, 1, 0),
        (5, -5, 2),
        (1e30, -1e30, 9),
        *([(1j, 2, 3)] if dtype in COMPLEX else []),
    ):
        for endpoint in (True, False):
            agree("linspace", *bounds, dtype=np.dtype(dtype), endpoint=endpoint)


def test_defaults_and_nested_arrays() -> None:
    kinds = {bool: xp.bool, int: xp.int64, float: xp.float32, complex: xp.complex64}
    for item in (True, 3, 2.5, 1j):
        for made in (xp.asarray(item), xp.asarray([[item]]), xp.full((2,), item)):
            assert made.dtype is kinds[type(item)]
    x = xp.asarray([[1, 2], [3, 4]])
    assert xp.asarray([x[0, 1], x[1, 0]]).tolist() == [2, 3] and xp.asarray((x[0], x[1])).shape == (2, 2)
    assert xp.asarray([[x[0, 0], 5]], dtype=xp.float64).dtype is xp.float64
    with pytest.raises(ValueError, match="expected items of one shape"):
        xp.asarray([x[0], x])
    assert xp.arange(2**63 - 3, 2**63 - 1).tolist() == [2**63 - 3, 2**63 - 2]
    assert xp.meshgrid() == ()


@pytest.mark.parametrize("source", NUMERIC)
def test_astype(source: str) -> None:
    x = numbers(source, (4,), False)
    x = x if source in COMPLEX else abs(x)
    for target in ALL:
        if source in COMPLEX and target not in (*COMPLEX, "bool"):
            with pytest.raises(TypeError, match="complex values have no place"):
                xp.astype(ours(x), getattr(xp, target))
        else:
            same(xp.astype(ours(x), getattr(xp, target)), x.astype(target))


@pytest.mark.parametrize("k", (2**62, 2**63, 2**64, -(2**63), -(2**63) - 1, -(2**70)))
def test_diagonals_beyond_63_bits(k: int) -> None:
    """They lie beside any matrix."""
    x = xp.ones((3, 4))
    assert not xp.any(xp.eye(3, 4, k=k)) and xp.eye(3, 4, k=k).shape == (3, 4)
    assert bool(xp.any(xp.triu(x, k=k))) is (k < 0) and bool(xp.any(xp.tril(x, k=k))) is (k > 0)
