"""NumPy in compiled functions: classes, dtypes, shapes and memory as NumPy has them, elements close to its."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS


def elements(a, b):
    soft = np.exp(a - a.max(-1, keepdims=True))
    more = [
        np.sin(a) * 2 + b,
        a**2,
        a / b,
        b // 2,
        b % 2,
        -a,
        abs(a),
        a > b,
        (a > 2) & (a < 5),
        ~(a > 2),
        1 / a,
        b << 1,
        2.0**b,
    ]
    return (
        more,
        soft / soft.sum(-1, keepdims=True),
        np.maximum(a, 3),
        np.clip(a, 2, 4),
        np.round(a / 3, 1),
        np.log1p(a),
        np.pi * a,
    )


def reductions(a, b):
    first = (
        a.mean(),
        np.mean(a, axis=0),
        b.mean(),
        a.mean(axis=1, keepdims=True),
        a.std(),
        np.var(b),
        a.std(axis=0, ddof=1),
        b.sum(),
        a.sum(1),
    )
    more = (
        np.sum(b, dtype=np.float32),
        a.prod(),
        b.cumsum(),
        a.cumsum(axis=1),
        a.max(),
        a.argmax(),
        a.argmin(axis=1),
        (a > 2).all(),
        (b > 5).any(),
    )
    return first, more, np.linalg.norm(a), np.linalg.norm(b), a.astype(np.float16).mean(), a.astype(np.int8).sum()


def shapes(a, b):
    first = (
        a.reshape(3, 2),
        a.reshape(-1),
        a.T,
        a.transpose(1, 0),
        a.ravel(),
        np.expand_dims(a, 0),
        a[None].squeeze(0),
        a.swapaxes(0, 1),
        a.flatten(),
    )
    indexed = a[0], a[0, 1], a[:, 1:], a[..., -1], a[np.array([0, 1, 1])], b[[0, 2]], [row * 2 for row in a]
    joined = (
        np.concatenate([a, a]),
        np.stack([b, b * 2.0]),
        np.vstack([a, b]),
        np.split(a, 3, axis=1),
        np.where(a > 2, a, 0.0),
        np.sort(-a),
    )
    return (
        first,
        indexed,
        joined,
        len(a),
        a.shape,
        a.ndim,
        a.size,
        a.dtype,
        isinstance(a, np.ndarray),
        type(a.sum()) is np.float32,
    )


def products(a, b):
    return a @ b, a.dot(a.T), np.dot(b, b), np.outer(b, b), np.einsum("ij,j->i", a, b), np.matmul(a.T, a)


def making(a, b):
    made = (
        np.zeros(3),
        np.ones((2,), dtype=int),
        np.arange(3),
        np.linspace(0, 1, 3),
        np.zeros_like(a),
        np.full((2,), 3.0),
        np.array([1, 2.5]),
    )
    return (
        made,
        np.eye(2) * a[0, 0],
        np.asarray(a, dtype=np.float64),
        a.astype(np.int32),
        np.float32(2) * a,
        (b / 2).dtype == np.float64,
    )


def in_place(a, b):
    a += 1
    number = a[0, 1]  # NumPy's numbers are copies
    a[0] = 5
    a[1, :2] *= 2
    copied = a.copy()
    copied[:] = 0
    return a, copied, number


def tensors(a, b):
    x = torch.from_numpy(a) * 2
    y = x.numpy()
    y += 1
    return x, y, torch.from_numpy(a + 1), torch.as_tensor(b), torch.tensor(b) + 1


def told(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [told(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.dtype, value.shape
    return (type(value), value.dtype, value.shape) if isinstance(value, torch.Tensor) else repr(value)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in leaves(each)]
    return [np.asarray(value)] if isinstance(value, (np.ndarray, np.generic, torch.Tensor)) else []


def arrays() -> tuple[Any, Any]:
    return np.arange(6, dtype=np.float32).reshape(2, 3) + 1, np.arange(3) + 1


@pytest.mark.parametrize("function", [elements, reductions, shapes, products, making, in_place, tensors])
def test_one_graph_with_the_types_of_numpy(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function, fullgraph=True)
    for scale in (1, 3):
        (a, b), (c, d) = arrays(), arrays()
        wanted, found = function(a * scale, b), compiled(c * scale, d)
        assert told(found) == told(wanted)
        for one, two in zip(leaves(wanted), leaves(found), strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-5)


def test_arrays_that_are_given_are_changed_and_guarded() -> None:
    def function(a, scale):
        a *= scale
        return a

    compiled = torch.compile(function, fullgraph=True)
    for dtype, shape in ((np.float32, 3), (np.float64, 3), (np.float32, (2, 2))):
        given = np.ones(shape, dtype)
        assert compiled(given, 3) is given
        assert given.dtype == dtype
        assert np.array_equal(given, np.full(shape, 3))


@pytest.mark.parametrize("function", [
    lambda a: a.reshape(7), lambda a: np.negative(a > 1), lambda a: a + np.ones(5), lambda a: a.__iadd__(1j), lambda a: a[::-1] * 2,
    lambda a: np.median(a) + a.tolist()[0], lambda a: a[a > 1], lambda a: a if a.sum() > 1 else -a, lambda a: f"{a.sum()} {np.power(2, a.astype(int))}",
    lambda a: np.arange(4) // (a[0] > 1).astype(int),
])  # fmt: skip
def test_what_is_not_traced_is_what_numpy_does(function: Callable[..., Any]) -> None:
    def outcome(call: Callable[..., Any]) -> Any:
        try:
            with np.errstate(all="ignore"):
                return repr(call(np.arange(3.0)))
        except Exception as error:
            return type(error), str(error)

    COUNTERS["graph_break"].clear()
    assert outcome(torch.compile(function)) == outcome(function)
    assert COUNTERS["graph_break"]


def test_switched_off() -> None:
    with torch._dynamo.config.patch(trace_numpy=False), pytest.raises(torch._dynamo.exc.Unsupported, match="ufunc"):
        torch.compile(lambda a: np.sin(a), fullgraph=True)(np.ones(2))
