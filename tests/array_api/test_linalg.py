"""The extensions linalg and fft against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.array_api.arrays import COMPLEX, FLOATING, NUMERIC, REAL, agree, numbers, ours, same

import rushlight.array_api as xp

pytest.importorskip("numpy", minversion="2.1")

LINALG, FFT = (xp.linalg, np.linalg), (xp.fft, np.fft)


def plain(dtype: str, shape: tuple[int, ...], seed: str = "") -> np.ndarray:
    return numbers(dtype, shape, False, seed)


def hermitian(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    a = plain(dtype, shape)
    return a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(shape[-1], dtype=dtype)


def loose(dtype: str) -> float:
    return 5e-4 if dtype in ("float32", "complex64") else 1e-9


@pytest.mark.parametrize("dtype", NUMERIC)
def test_products(dtype: str) -> None:
    close = {"tolerance": loose(dtype)}
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 0), (0, 4)), ((5, 1, 2, 3), (4, 3, 2))):
        agree("matmul", plain(dtype, a), plain(dtype, b, "right"), **close)
    for a, b in (((3,), (3,)), ((4, 1, 3), (2, 3)), ((2, 0), (2, 0))):
        agree("vecdot", plain(dtype, a), plain(dtype, b, "right"), **close)
    a, b = plain(dtype, (2, 3, 4)), plain(dtype, (4, 3, 5))
    for axes in (1, ([2, 1], [0, 1]), ((-1,), (0,))):
        agree("tensordot", a, b, axes=axes, **close)
    agree("tensordot", a[0], b[0], axes=0, **close)
    agree("cross", plain(dtype, (2, 3)), plain(dtype, (3,)), space=LINALG, **close)
    agree("cross", plain(dtype, (3, 2)), plain(dtype, (3, 2), "right"), axis=0, space=LINALG, **close)
    agree("outer", a[0, 0], b[0, 0], space=LINALG, **close)
    for offset in (-1, 0, 3, 10**4):
        agree("diagonal", a, offset=offset, space=LINALG)
        agree("trace", a, offset=offset, space=LINALG, **close)
    agree("matrix_transpose", a)


def test_wide_unsigned_products_wrap() -> None:
    x = xp.asarray([[2**63, 1], [3, 2**64 - 1]], dtype=xp.uint64)
    same(xp.matmul(x, x), x.numpy() @ x.numpy())


def test_products_that_do_not_fit() -> None:
    x = xp.ones((2, 3))
    for call in (
        lambda: xp.matmul(xp.asarray(1.0), x),
        lambda: xp.vecdot(x, xp.ones(1)),
        lambda: xp.vecdot(x, x, axis=0),
        lambda: xp.linalg.cross(x, xp.ones((2, 1))),
        lambda: xp.matrix_transpose(xp.ones(2)),
        lambda: xp.linalg.matrix_rank(xp.ones(2)),
        lambda: xp.linalg.qr(x, mode="r"),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (0, 0), (0, 3, 3)], ids=str)
def test_square_matrices(shape: tuple[int, ...], dtype: str) -> None:
    a, x, close = plain(dtype, shape), hermitian(dtype, shape), {"tolerance": loose(dtype), "space": LINALG}
    agree("det", a, **close)
    agree("inv", x, **close)
    agree("cholesky", x, **close)
    agree("cholesky", x, upper=True, **close)
    agree("eigvalsh", x, **close)
    same(tuple(xp.linalg.slogdet(ours(x))), tuple(np.linalg.slogdet(x)), tolerance=loose(dtype))
    for power in (-1, 0, 1, 3):
        agree("matrix_power", x / 4, power, tolerance=40 * loose(dtype), space=LINALG)
    for right in (shape[:-1] + (2,), shape[-1:], shape[-1:] * 2):
        agree("solve", x, plain(dtype, right, "right"), **close)
    values, vectors = xp.linalg.eigh(ours(x))
    assert values.dtype is xp.finfo(vectors.dtype).dtype
    same(vectors @ (values[..., None].to(vectors.dtype) * xp.conj(vectors.mT)), x, tolerance=loose(dtype))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(3, 2), (4, 2, 5), (0, 3)], ids=str)
def test_rectangular_matrices(shape: tuple[int, ...], dtype: str) -> None:
    x, close = plain(dtype, shape), {"tolerance": loose(dtype), "space": LINALG}
    agree("svdvals", x, **close)
    for full in (True, False):
        u, s, vh = xp.linalg.svd(ours(x), full_matrices=full)
        wanted = np.linalg.svd(x, full_matrices=full)
        assert (u.shape, s.shape, vh.shape) == tuple(w.shape for w in wanted)
        k = s.shape[-1]
        same((u[..., :k] * s[..., None, :].to(u.dtype)) @ vh[..., :k, :], x, tolerance=loose(dtype))
    for mode in ("reduced", "complete"):
        q, r = xp.linalg.qr(ours(x), mode=mode)
        assert (q.shape, r.shape) == tuple(w.shape for w in np.linalg.qr(x, mode=mode))
        same(q @ r, x, tolerance=loose(dtype))
    for rtol in (None, 0.4, np.full(shape[:-2], 0.4, np.empty(0, dtype).real.dtype)):
        agree("matrix_rank", x, rtol=rtol, space=LINALG)
        agree("pinv", x, rtol=rtol, **close)


@pytest.mark.parametrize("dtype", FLOATING)
def test_norms(dtype: str) -> None:
    close = {"tolerance": loose(dtype), "space": LINALG}
    for i, ord in enumerate(("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)):
        agree("matrix_norm", plain(dtype, (2, 3, 4)), ord=ord, keepdims=bool(i % 2), **close)
    for i, ord in enumerate((0, 1, 2, 3, -1, 0.5, np.inf, -np.inf)):
        for axis in (None, 1, (0, 2)):
            agree("vector_norm", plain(dtype, (2, 3, 4)), ord=ord, axis=axis, keepdims=bool(i % 2), **close)
        agree("vector_norm", plain(dtype, ()), ord=ord, **close)
    same(xp.linalg.vector_norm(ours(plain(dtype, (3,))), axis=()), abs(plain(dtype, (3,))))


ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", ONE)
def test_transforms(name: str, dtype: str) -> None:
    if name in ("rfft", "ihfft") and dtype in COMPLEX:
        return
    for n, axis, norm in ((None, -1, "backward"), (3, 0, "ortho"), (8, 1, "forward")):
        agree(name, plain(dtype, (4, 6)), n=n, axis=axis, norm=norm, space=FFT, tolerance=loose(dtype))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", MANY)
def test_transforms_of_several_dims(name: str, dtype: str) -> None:
    if name == "rfftn" and dtype in COMPLEX:
        return
    keywords: list[dict[str, Any]] = [
        {},
        {"axes": (0, 1), "s": (3, 4), "norm": "ortho"},
        {"axes": [-1], "norm": "forward"},
    ]
    for chosen in keywords:
        agree(name, plain(dtype, (2, 4, 6)), space=FFT, tolerance=loose(dtype), **chosen)


def test_frequencies() -> None:
    for n in (1, 2, 5, 8):
        for name in ("fftfreq", "rfftfreq"):
            want = getattr(np.fft, name)(n, d=0.5)
            for dtype in REAL:
                same(getattr(xp.fft, name)(n, d=0.5, dtype=getattr(xp, dtype)), want.astype(dtype))
            assert getattr(xp.fft, name)(n).dtype is xp.float32
    for axes in (None, 0, [0, 1]):
        agree("fftshift", np.arange(6.0).reshape(2, 3), axes=axes, space=FFT)
        agree("ifftshift", np.arange(6.0).reshape(2, 3), axes=axes, space=FFT)
