"""The largest and least of long rows: any dtype, any count, rows that come sorted; which of several equals: beside PyTorch in `tests/ops`."""

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
