"""What is checked wherever results are written to given tensors, and calls with numbers where tensors are expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as rl


def test_out_may_not_lie_across_arguments() -> None:
    x = rl.arange(6.0).reshape(2, 3)
    line, index = rl.arange(6.0), rl.zeros(2, 3, dtype=rl.int64)
    for call in (
        lambda: rl.gather(x, 0, index, out=x),
        lambda: rl.take(x, index, out=x),
        lambda: rl.masked_select(x, x > 0, out=x),
        lambda: rl.cat([x, x], out=x),
        lambda: rl.add(line[:4], 1, out=line[1:5]),
        lambda: rl.renorm(line[:4].reshape(2, 2), 2, 0, 1.0, out=line[1:5].reshape(2, 2)),
        lambda: rl.sum(x, 0, out=rl.zeros(1).expand(3)),
        lambda: rl.quantile(x, 0.5, 0, out=rl.zeros(1).expand(3)),
    ):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert rl.add(x, 1, out=x) is x


def test_a_known_call_looks_across_arguments_too() -> None:
    """The plan of a call was made for tensors over memories of their own."""
    apart = rl.arange(8.0)
    for call in (lambda a, b: rl.add(a, 1, out=b), lambda a, b: rl.mul(a, a, out=b), lambda a, b: rl.exp(a, out=b)):
        for _ in range(3):
            call(rl.arange(8.0)[:4], apart[1:5])
        line = rl.arange(8.0)
        with pytest.raises(RuntimeError, match="single memory location"):
            call(line[:4], line[1:5])
        assert line.tolist() == list(range(8)) and call(line[:4], line[4:])[0] == call(rl.arange(4.0), rl.empty(4))[0]


def test_dtype_of_out() -> None:
    x, wide = rl.ones(2, 2), rl.empty(2, 2, dtype=rl.float64)
    assert rl.add(x, x, out=wide).dtype is rl.float64
    for call in (
        lambda: rl.gather(x, 0, rl.zeros(2, 2, dtype=rl.int64), out=wide),
        lambda: rl.abs(x, out=wide),
        lambda: rl.sort(x, out=(wide, rl.empty(2, 2, dtype=rl.int64))),
        lambda: rl.view_copy(x, (2, 2), out=wide),
        lambda: rl.isin(x, x, out=wide),
    ):
        with pytest.raises(RuntimeError, match="dtype"):
            call()
    with pytest.raises(RuntimeError, match="float_power_"):
        x.float_power_(2)


def test_out_takes_no_part_in_gradients() -> None:
    x = rl.ones(2, 2, requires_grad=True)
    for call in (lambda: rl.abs(x, out=rl.empty(2, 2)), lambda: rl.nanquantile(x, 0.5, out=rl.empty(()))):
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            call()


def test_numbers_in_the_place_of_tensors() -> None:
    assert rl.add(1, 2).dtype is rl.int64
    assert rl.div(4, 2).item() == 2.0
    assert rl.mul(2.0, True).dtype is rl.float32
    with pytest.raises(TypeError, match="maximum"):
        rl.maximum(1, 2)
    x = rl.ones(2)
    for special in ("__radd__", "__rmul__", "__eq__"):
        with pytest.raises(TypeError, match="doesn't apply to a 'int' object"):
            getattr(rl.Tensor, special)(1, x)
    assert rl.Tensor.__rsub__(1, x) is NotImplemented


def test_half_nextafter_steps_through_all_numbers() -> None:
    x = np.arange(0, 0x7C00, 97, dtype=np.uint16).view(np.float16)
    for end in (np.float16(np.inf), np.float16(-1.0)):
        found = rl.nextafter(rl.from_numpy(x.copy()), rl.full((len(x),), float(end), dtype=rl.float16))
        np.testing.assert_array_equal(found.numpy(), np.nextafter(x, end))


def test_running_log_sums() -> None:
    x = np.array([-3000.0, -2999.0, -1000.0, -999.5, 0.0, 0.5, -np.inf, 2.0])
    found = rl.logcumsumexp(rl.from_numpy(x.copy()), 0)
    np.testing.assert_allclose(found.numpy(), np.logaddexp.accumulate(x), rtol=1e-12)
    long = np.random.default_rng(0).normal(size=1000) * 50
    y = rl.from_numpy(long.copy()).requires_grad_()
    total = rl.logcumsumexp(y, 0)
    np.testing.assert_allclose(total.detach().numpy(), np.logaddexp.accumulate(long), rtol=1e-12)
    total[-1].backward()
    np.testing.assert_allclose(y.grad.numpy(), np.exp(long - np.logaddexp.reduce(long)), rtol=1e-9, atol=1e-300)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "call",
    [
        "t.add(a.mT, a.mT, out=o)", "t.exp(a.mT, out=o)", "t.mm(a.mT, a, out=o)", "t.cat([a.mT, a.mT], out=o)", "t.sum(a.mT, (0,), True, out=o)", "t.cumsum(a.mT, 0, out=o)",
        "t.tril(a.mT, out=o)", "t.linalg.inv(a.mT @ a, out=o)", "t.linalg.solve(a.mT @ a, a.mT, out=o)", "t.softmax(a.mT, 0, out=o)", "t.add(image, 1, out=o)",
    ],
)  # fmt: skip
def test_out_without_elements_takes_the_strides_of_the_result(call: str) -> None:
    import torch

    def strides(t: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        a, o = t.eye(4, 3), t.empty(0)
        image = t.ones(2, 3, 4, 5).contiguous(memory_format=t.channels_last)
        made = eval(call, {"t": t, "a": a, "o": o, "image": image})  # noqa: S307
        assert made is o
        return tuple(o.shape), o.stride()

    assert strides(rl) == strides(torch)


@pytest.mark.parametrize("right", [False, True])
def test_nan_stands_behind_all_numbers(right: bool) -> None:
    nan = float("nan")
    edges, values = np.array([0.0, 1.0]), np.array([nan, 1.0, 2.0, -1.0])
    found = rl.searchsorted(rl.tensor(edges), rl.tensor(values), right=right)
    assert found.tolist() == np.searchsorted(edges, values, "right" if right else "left").tolist()
    assert rl.searchsorted(rl.tensor(edges), nan, right=right).item() == 2


def test_sums_and_products_are_computed_in_the_dtype_of_out() -> None:
    x = rl.full((3,), 2.6, dtype=rl.float64)
    for name, expected in (("sum", 6), ("nansum", 6), ("prod", 8)):
        for dtype in (rl.int64, rl.int32, rl.uint8):
            assert (
                getattr(rl, name)(x, 0, out=rl.zeros((), dtype=dtype)).item() == expected
            )  # as the elements are cast first
        assert getattr(rl, name)(x, 0, out=rl.zeros((), dtype=rl.bool)).item() is True
        with pytest.raises(RuntimeError, match="dtype"):
            getattr(rl, name)(x, 0, dtype=rl.int64, out=rl.zeros((), dtype=rl.float64))
    single = np.full(3, 2.6, dtype=np.float32)
    assert rl.sum(x, 0, out=rl.zeros((), dtype=rl.float32)).item() == float(single.sum(dtype=np.float32))
