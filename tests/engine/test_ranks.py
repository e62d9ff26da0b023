"""Long rows in order, and the largest and least of them: any dtype, any count, rows that come sorted; which of several equals: beside PyTorch in
`tests/ops`."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int64"])
@pytest.mark.parametrize(("size", "count"), [(1, 1), (65, 2), (1000, 64), (1000, 65), (4097, 300), (50000, 1000)])
def test_first_of_rows(dtype, size, count):
    x = torch.from_numpy(RNG.normal(size=(2, size)) * 50).to(getattr(torch, dtype))
    for given in (x, x.sort(1)[0], x.sort(1, descending=True)[0]):
        a = (given.double() if given.is_floating_point() else given.long()).numpy()
        for largest in (True, False):
            order = np.argsort(-a if largest else a, axis=1, kind="stable")[:, :count]
            values, found = given.topk(count, largest=largest)
            assert values.equal(given.gather(1, found)) and all(len(set(row)) == count for row in found.tolist())
            np.testing.assert_array_equal(np.take_along_axis(a, found.numpy(), 1), np.take_along_axis(a, order, 1))


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64"])
@pytest.mark.parametrize("size", [2, 24, 25, 64, 127, 128, 129, 400])
def test_short_rows_in_order(dtype, size):
    """Each length is sorted in its own way; equals keep their order in all of them."""
    for spread in (2, 100):
        a = (RNG.standard_normal((40, size)) * spread).round().astype(dtype)
        values, places = torch.from_numpy(a).sort(1, stable=True)
        order = np.argsort(a, 1, kind="stable")
        np.testing.assert_array_equal(places.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, order, 1))


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64"])
@pytest.mark.parametrize("size", [1, 2, 64, 129, 3000, 70001])
def test_middle_of_rows(dtype, size):
    """The lower of two middles, and of equals the one that stands there where they keep their order; the first NaN, where there is one."""
    for spread in (2, 100, 2**40):
        a = (RNG.standard_normal((3, size)) * min(spread, 100 if dtype == "int8" else spread)).round().astype(dtype)
        if dtype[0] == "f" and size > 2:
            a[1, [size // 2, size - 1]] = np.nan
        values, places = torch.from_numpy(a).median(1)
        found = np.argsort(a, 1, kind="stable")[:, (size - 1) // 2]
        missing = np.isnan(a).any(1) if dtype[0] == "f" else np.zeros(3, bool)
        found = np.where(missing, np.isnan(a).argmax(1) if dtype[0] == "f" else 0, found)
        np.testing.assert_array_equal(places.numpy(), found)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, found[:, None], 1)[:, 0])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("bool", 0, 2), ("uint8", 0, 256), ("int16", -300, 300), ("int32", -(2**31), 2**31), ("int64", -1000, 1000), ("int64", -(2**62), 2**62),
        ("int64", 2**40, 2**40 + 9), ("int64", 7, 8), ("float16", -9, 9), ("float32", -(2**24), 2**24), ("float64", -(2**53), 2**53),
    ],
)  # fmt: skip
def test_a_long_row_in_order(dtype, low, high, rows):
    """Rows that all threads sort together: equals keep their order, whatever the range of the values."""
    a = RNG.integers(low, high, (rows, 70001)).astype(dtype)
    x = torch.from_numpy(a)
    values, places = x.sort(1, stable=True)
    order = np.argsort(a, 1, kind="stable")
    np.testing.assert_array_equal(places.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, order, 1))
    values, places = x.sort(1, stable=True, descending=True)
    backwards = a.shape[1] - 1 - np.argsort(a[:, ::-1], 1, kind="stable")[:, ::-1]
    np.testing.assert_array_equal(places.numpy(), backwards)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, backwards, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_long_row_keeps_the_bits_of_its_values(dtype):
    """Zeros of both signs are equal, and so are all NaNs; each comes out as it went in."""
    a = RNG.choice(np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan, 6e-8], dtype), 70001)
    values, places = torch.from_numpy(a).sort(stable=True)
    np.testing.assert_array_equal(places.numpy(), np.argsort(a, kind="stable"))
    assert values.numpy().tobytes() == a[places.numpy()].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("size", [100_003, 2_200_000])
def test_a_long_row_whose_values_lie_close_but_for_a_few(dtype, size):
    """Nearly all elements share the highest bits, so that one bucket holds them: more of them than one thread is given, too."""
    a = (RNG.standard_normal(size) * (1 << 14)).astype(dtype)
    a[[5, 77]] = -(2.0**62), 2.0**60
    values, places = torch.from_numpy(a).sort(stable=True)
    order = np.argsort(a, kind="stable")
    np.testing.assert_array_equal(places.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), a[order])


def test_nan_is_the_greatest():
    x = torch.randn(5000)
    x[::7] = float("nan")
    values, _ = x.topk(1000)
    assert int(values.isnan().sum()) == 715 and values[:715].isnan().all()
    assert not x.topk(1000, largest=False)[0].isnan().any()


def test_values_of_a_rank():
    x = torch.randn(7, 1000, requires_grad=True)
    for k in (1, 100, 250, 251, 1000):
        values, places = x.kthvalue(k, 1)
        np.testing.assert_array_equal(values.detach().numpy(), np.sort(x.detach().numpy(), 1)[:, k - 1])
        (slope,) = torch.autograd.grad(values.sum(), x)
        assert int(slope.sum()) == 7 and slope.gather(1, places[:, None]).eq(1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int32", "int64"])
@pytest.mark.parametrize(("size", "spread"), [(65536, 50.0), (70001, 1e6), (200003, 0.0), (300000, 3.0)])
def test_rank_of_a_long_row(dtype, size, spread):
    """Found by all threads, digit by digit: the first, the last, those between; equals, too."""
    x = torch.from_numpy(RNG.normal(size=(2, size)) * spread).to(getattr(torch, dtype))
    wide = (x.double() if x.is_floating_point() else x.long()).numpy()
    ordered = np.sort(wide, 1)
    assert float(x[0].median()) == ordered[0, (size - 1) // 2]
    for k in (1, 2, size // 3, size - 1, size):
        values, places = x.kthvalue(k, 1)
        np.testing.assert_array_equal((values.double() if x.is_floating_point() else values).numpy(), ordered[:, k - 1])
        np.testing.assert_array_equal(np.take_along_axis(wide, places.numpy()[:, None], 1)[:, 0], ordered[:, k - 1])


def test_rank_of_a_long_row_of_the_widest_range():
    a = RNG.integers(-(2**63), 2**63 - 1, 90000)
    a[:2] = -(2**63), 2**63 - 1
    for k in (1, 2, 45000, 90000):
        assert int(torch.from_numpy(a).kthvalue(k)[0]) == np.sort(a)[k - 1]
    b = RNG.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.0], np.float32), 90000)
    for k in (1, 20000, 40000, 60000, 90000):
        np.testing.assert_array_equal(torch.from_numpy(b).kthvalue(k)[0].numpy(), np.sort(b)[k - 1])
    assert (
        torch.from_numpy(b).median().isnan()
        and torch.from_numpy(np.nan_to_num(b)).median() == np.sort(np.nan_to_num(b))[44999]
    )
