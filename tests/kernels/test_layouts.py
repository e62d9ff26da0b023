"""Loads that run backwards, places of largest elements, stores past the caches, over odd sizes and alignments; more elements than 32 bits count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu import kernels

RNG = np.random.default_rng(7)
DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64")


@pytest.mark.parametrize("dtype", [*DTYPES, "bool", "complex64"])
@pytest.mark.parametrize("shape", [(1,), (63,), (1000,), (4, 33), (2, 3, 40)])
def test_flips(dtype, shape):
    a = (RNG.normal(size=shape) * 9).astype(dtype)
    x = torch.from_numpy(a.copy())
    for d in range(len(shape)):
        np.testing.assert_array_equal(x.flip(d).numpy(), np.flip(a, d))
    if dtype != "bool":
        np.testing.assert_array_equal((x.flip(-1) + x).numpy(), np.flip(a, -1) + a)


def extremes(dtype, shape, kind):
    """Few values and many ties; nothing but the least; NaN here and there; both zeros."""
    if dtype.startswith("float"):
        a = RNG.integers(-3, 4, shape).astype(dtype)
        if kind == "least":
            a[...] = -np.inf
        if kind == "nan":
            a.flat[RNG.integers(0, a.size, 3)] = np.nan
        if kind == "zeros":
            a[...] = 0.0
            a.flat[0] = -0.0
        return a
    a = RNG.integers(0 if dtype[0] == "u" else -3, 4, shape).astype(dtype)
    if kind == "least":
        a[...] = np.iinfo(dtype).min
    return a


@pytest.mark.parametrize("kind", ["ties", "least", "nan", "zeros"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (100,), (200000,), (5, 3), (17, 130), (130, 17), (5, 30000), (2, 3, 40)])
def test_places_of_extremes(dtype, shape, kind):
    a = extremes(dtype, shape, kind)
    pairs = [(a, torch.from_numpy(a.copy()))]
    if len(shape) > 1:
        pairs.append((np.swapaxes(a, 0, 1), pairs[0][1].transpose(0, 1)))
    for a, x in pairs:
        assert int(x.argmax()) == int(np.argmax(a)) and int(x.argmin()) == int(np.argmin(a))
        for d in range(len(shape)):
            for found, places, best in (
                (x.max(d), np.argmax(a, d), np.max(a, d)),
                (x.min(d), np.argmin(a, d), np.min(a, d)),
            ):
                np.testing.assert_array_equal(found[1].numpy(), places)
                np.testing.assert_array_equal(found[0].numpy(), best)


@pytest.fixture
def small_cache(monkeypatch):
    monkeypatch.setattr(kernels, "_TARGET", [kernels.host()._replace(l3_bytes=1 << 12)])


@pytest.mark.parametrize("offset", [0, 1, 15, 16])
@pytest.mark.parametrize("size", [2053, 5000, 70001])
def test_stores_past_the_caches_into_given_memory(small_cache, size, offset):
    out, a, b = torch.zeros(size + 32), torch.randn(size), torch.randn(size)
    torch.add(a, b, out=out[offset : offset + size])
    np.testing.assert_array_equal(out[offset : offset + size].numpy(), a.numpy() + b.numpy())
    assert not out[:offset].any() and not out[offset + size :].any()


@pytest.mark.parametrize("shape", [(100, 64), (33, 80), (200, 16), (1000, 48), (70, 70)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_stores_past_the_caches_of_rows_and_tiles(small_cache, shape, dtype):
    a = RNG.normal(size=shape).astype(dtype)
    places = RNG.integers(0, shape[0], 150)
    w = torch.from_numpy(a.copy())
    np.testing.assert_array_equal(w[torch.from_numpy(places)].numpy(), a[places])
    np.testing.assert_array_equal(w.t().contiguous().numpy(), a.T)
    np.testing.assert_array_equal(torch.cat((w, w), 1).numpy(), np.concatenate((a, a), 1))
    np.testing.assert_array_equal((w + w[:, :1]).numpy(), a + a[:, :1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(9,), (16, 40), (17, 33), (7, 100), (20, 3, 31), (9, 1)])
def test_scans_along_and_across_rows(dtype, shape):
    a = (RNG.normal(size=shape) * 4).astype(dtype)
    floats = dtype.startswith("float")
    for b, x in ((a, torch.from_numpy(a.copy())), (a.T, torch.from_numpy(a.copy()).permute(*range(a.ndim)[::-1]))):
        for d in range(b.ndim):
            sums = np.cumsum(b.astype(np.float64), axis=d).astype(dtype) if floats else np.cumsum(b, axis=d)
            np.testing.assert_array_equal(x.cumsum(d).numpy(), sums)
            backward = np.flip(np.cumsum(np.flip(b, d).astype(np.float64 if floats else np.int64), axis=d), d)
            np.testing.assert_allclose(x.flip(d).cumsum(d).flip(d).numpy(), backward, rtol=1e-6, atol=1e-6)
            if dtype != "bool":
                best, places = x.cummax(d)
                np.testing.assert_array_equal(best.numpy(), np.maximum.accumulate(b, axis=d))
                np.testing.assert_array_equal(np.take_along_axis(b, places.numpy(), d), best.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int32", "int64"])
@pytest.mark.parametrize("size", [2048, 5000, 50257, 65536])
def test_scans_of_long_rows(dtype, size):
    """A few rows that are gone through in parts: extremes with the last of equals, NaN from its first place on."""
    a = (RNG.normal(size=(3, size)) * 20).round().astype(dtype)
    floats = dtype.startswith("float")
    if floats:
        a[1, size // 3 :: size // 3] = np.nan
        a[2, :5] = 0.0, -0.0, 0.0, -np.inf, np.inf
    for b in (a, np.sort(a, 1), np.sort(a, 1)[:, ::-1].copy()):
        for c, x, d in (
            (b, torch.from_numpy(b), 1),
            (b.T, torch.from_numpy(b).T, 0),
            (b[0], torch.from_numpy(b[0]), 0),
        ):
            if not np.isinf(c).any():
                sums = np.cumsum(c.astype(np.float64) if floats else c, axis=d, dtype=None if floats else np.int64)
                np.testing.assert_allclose(x.cumsum(d).numpy(), sums.astype(dtype if floats else np.int64), rtol=1e-6)
            for best, places, whole, than in (
                (*x.cummax(d), np.maximum, np.greater_equal),
                (*x.cummin(d), np.minimum, np.less_equal),
            ):
                expected = whole.accumulate(c, axis=d)
                np.testing.assert_array_equal(best.numpy(), expected)
                before = np.concatenate((np.take(expected, [0], d), np.delete(expected, -1, d)), d)
                number = np.arange(size).reshape([-1 if k == d else 1 for k in range(c.ndim)])
                taken = than(c, before) | np.isnan(c)
                np.testing.assert_array_equal(places.numpy(), np.maximum.accumulate(np.where(taken, number, 0), axis=d))


def test_gradients_of_scans_run_in_reverse():
    x, g = torch.randn(19, 45).double().requires_grad_(), torch.randn(19, 45).double()
    x.cumsum(1).backward(g)
    np.testing.assert_allclose(x.grad.numpy(), np.flip(np.cumsum(np.flip(g.numpy(), 1), 1), 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "dim"),
    [(((100, 64), (100, 33), (100, 7)), 1), (((5000, 64), (5000, 33)), 1), (((3, 70000), (3, 70000)), 1), (((70000,), (5,), (40000,)), 0),
     (((40, 3, 50), (40, 2, 50)), 1), (((400, 300), (100, 300)), 0), (((70000, 1), (70000, 1)), 1)],
)  # fmt: skip
def test_concatenations_side_by_side(shapes, dim):
    parts = [torch.randn(*s) for s in shapes]
    whole = np.concatenate([p.numpy() for p in parts], dim)
    np.testing.assert_array_equal(torch.cat(parts, dim).numpy(), whole)
    np.testing.assert_array_equal((torch.cat(parts, dim) * 2 + 1).numpy(), whole * 2 + 1)


@pytest.mark.parametrize("dtype", ["complex32", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(3, 5), (64, 64), (65, 130), (7, 8, 9)])
def test_complex_numbers_change_their_order(dtype, shape):
    """They move as words of their size: parts stay together, and signs of conjugates are followed."""
    parts = (
        np.random.RandomState(0)
        .randn(*shape, 2)
        .astype({"complex32": "float16", "complex64": "float32", "complex128": "float64"}[dtype])
    )
    x = torch.view_as_complex(torch.from_numpy(parts))
    turned = parts.swapaxes(0, -2)
    assert np.array_equal(torch.view_as_real(x.transpose(0, -1).contiguous()).numpy(), turned)
    assert np.array_equal(torch.view_as_real(torch.empty_like(x).copy_(x.flip(0))).numpy(), parts[::-1])
    opposite = torch.view_as_real(x.conj().transpose(0, -1).contiguous().resolve_conj()).numpy()
    assert np.array_equal(opposite, turned * np.array([1, -1], parts.dtype))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("size", [1, 8, 33, 1000])
def test_complex_sums_as_they_lie_in_memory(dtype, size):
    a, b = ((RNG.normal(size=size) + 1j * RNG.normal(size=size)).astype(dtype) for _ in range(2))
    x, y = torch.from_numpy(a.copy()), torch.from_numpy(b.copy())
    np.testing.assert_array_equal((x + y).numpy(), a + b)
    np.testing.assert_array_equal((-(x - y) - y).numpy(), -(a - b) - b)
    np.testing.assert_array_equal((x.conj() + y).numpy(), a.conj() + b)
    np.testing.assert_allclose(((x - y) * (x + y)).numpy(), (a - b) * (a + b), rtol=1e-5)
    np.testing.assert_array_equal(torch.cat((x, y)).numpy(), np.concatenate((a, b)))


@pytest.mark.parametrize("width", [4, 5, 8, 9])
def test_a_few_columns_of_rows_that_lie_apart(width):
    a, b = torch.randn(300, width + 1), torch.randn(300, width)
    np.testing.assert_array_equal((a[:, :-1] + b).numpy(), a.numpy()[:, :-1] + b.numpy())


@pytest.fixture
def small_second_cache(monkeypatch):
    monkeypatch.setattr(kernels, "_TARGET", [kernels.host()._replace(l2_bytes=1 << 13)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
@pytest.mark.parametrize("shape", [(130, 1000), (200, 1024), (1000, 515), (129, 999)])
def test_columns_that_the_caches_do_not_hold(small_second_cache, shape, dtype):
    a = RNG.integers(-5, 6, shape).astype(dtype)
    x = torch.from_numpy(a.copy())
    np.testing.assert_array_equal(
        x.sum(0).numpy(),
        a.sum(0, dtype=None if dtype[0] == "i" else np.float64).astype(dtype if dtype[0] == "f" else "int64"),
    )
    np.testing.assert_array_equal(x.amax(0).numpy(), a.max(0))
    np.testing.assert_array_equal(x.amin(0).numpy(), a.min(0))
    np.testing.assert_array_equal((x != 0).any(0).numpy(), (a != 0).any(0))
    np.testing.assert_array_equal(((x > 1) | (x < -1)).sum(0).numpy(), (abs(a) > 1).sum(0))
    if dtype.startswith("float") and dtype != "float16":
        y = torch.from_numpy(RNG.normal(size=shape).astype(dtype))
        np.testing.assert_allclose(
            (x * y + 1).mean(0).numpy(), (a.astype("f8") * y.numpy() + 1).mean(0), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(y.var(0).numpy(), y.numpy().var(0, ddof=1), rtol=1e-5)


MANY = 3 << 30  # more elements than 32 bits count; all of them lie in one place
_HUGE: dict[str, tuple[Callable[[], Any], Any]] = {
    "sum": (lambda: one("uint8", MANY).sum(), MANY),
    "sum of columns": (lambda: one("uint8", 1 << 30, 3).sum(0), [1 << 30] * 3),
    "sum of rows": (lambda: one("float32", 3, 1 << 30).sum(1), [float(1 << 30)] * 3),
    "mean": (lambda: one("float32", 1 << 31).mean(), 1.0),
    "var": (lambda: one("float32", 1 << 31).var(), 0.0),
    "any": (lambda: (~one("bool", 1)).expand(MANY).any(), False),
    "all": (lambda: one("bool", MANY).all(), True),
    "amax": (lambda: one("uint8", 2, MANY).amax(1), [1, 1]),
    "aminmax": (lambda: torch.stack(torch.aminmax(one("uint8", MANY))), [1, 1]),
    "argmax": (lambda: one("uint8", 1 << 31).argmax(), 0),
    "count_nonzero": (lambda: one("uint8", MANY).count_nonzero(), MANY),
    "dot": (lambda: torch.dot(one("float32", 1 << 31), one("float32", 1 << 31)), float(1 << 31)),
    "mse_loss": (lambda: torch.nn.functional.mse_loss(one("float32", 1 << 31), one("float32", 1 << 31)), 0.0),
    "last element": (lambda: one("uint8", MANY)[MANY - 1], 1),
    "last elements": (lambda: one("uint8", MANY)[-2:], [1, 1]),
    "large steps": (lambda: one("uint8", MANY)[:: 1 << 30], [1, 1, 1]),
    "index": (lambda: one("uint8", MANY)[torch.tensor([0, 1 << 31, MANY - 1])], [1, 1, 1]),
    "gather": (lambda: one("uint8", MANY).gather(0, torch.tensor([MANY - 1])), [1]),
    "take": (lambda: one("uint8", 1 << 16, 1 << 16).take(torch.tensor([(1 << 32) - 1])), [1]),
    "searchsorted": (lambda: torch.searchsorted(one("uint8", MANY), torch.tensor([0, 1, 2], dtype=torch.uint8)), [0, 0, MANY]),
    "searchsorted, right": (lambda: torch.searchsorted(one("uint8", MANY), torch.tensor([1], dtype=torch.uint8), right=True), [MANY]),
    "numel": (lambda: torch.tensor(one("uint8", 1 << 40).numel()), 1 << 40),
    "gradient": (lambda: gradient_of_sum(1 << 31), float(1 << 31)),
}  # fmt: skip


def one(dtype: str, *shape: int) -> Any:
    return torch.ones((), dtype=getattr(torch, dtype)).expand(*shape)


def gradient_of_sum(count: int) -> Any:
    x = torch.ones((), requires_grad=True)
    return torch.autograd.grad(x.expand(count).sum(), x)[0]


@pytest.mark.parametrize("name", _HUGE)
def test_more_elements_than_32_bits_count(name: str) -> None:
    call, wanted = _HUGE[name]
    assert call().tolist() == wanted


def test_an_index_beyond_32_bits_is_checked() -> None:
    with pytest.raises(IndexError, match=f"index {MANY} is out of bounds for dimension 0 with size {MANY}"):
        one("uint8", MANY)[torch.tensor([MANY])]


def test_large_sequences_are_searched_far_down_a_program() -> None:
    """A step of the search for every bit of the size, each made of several primitives: the code is written within Python's limit of frames."""

    def called(depth: int) -> Any:
        return (
            called(depth - 1)
            if depth
            else torch.searchsorted(one("int16", (1 << 24) + 1), torch.tensor([2], dtype=torch.int16))
        )

    assert called(200).tolist() == [(1 << 24) + 1]
