"""Comparisons whose outcome, down to the text, is PyTorch's: each a function of the module (`torch` or `rushlight`)."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import Any

import numpy as np

NAN, INF = math.nan, math.inf

NUMBERS: list[tuple[Any, Any, dict[str, Any]]] = [
    (1.0, 2.0, {}), (1, 2, {}), (1, 1.0, {}), (1, 1.0, {"check_dtype": False}), (1j, 2j, {}), (1.0, 1.0 + 1e-9, {}), (1e-3, 0.0, {}),
    (0.0, 1e-3, {}), (NAN, NAN, {}), (NAN, NAN, {"equal_nan": True}), (INF, -INF, {}), (INF, INF, {}), (1, 2, {"rtol": 1.0}),
    (1, 2, {"atol": 1.0}), (1, 2, {"rtol": 0, "atol": 1.0}), (1.0, 2.0, {"rtol": 0, "atol": 0}), (1.0, 2.0, {"rtol": 0.1, "atol": 0.2}),
    (True, False, {}), (None, None, {}), (None, 1, {}), (True, None, {}), ("a", "a", {}), ([None], [1], {}), ([1, "a"], [1, "a"], {}),
    (np.bool_(True), False, {}), (np.float32(1), 1.0, {}), (np.int64(1), 2, {}), (np.float32(1), np.float32(2), {}), (10**30, 10**30, {}),
    (np.array([1.0]), np.array([2.0]), {}), (np.int32(1), np.array(2, dtype=np.int32), {}), (np.array(["a"]), np.array(["a"]), {}),
    ([1.0, 2.0], [1.0, 2.0, 3.0], {}), ([1.0, [2.0, 3.0]], (1.0, [2.0, 4.0]), {}), ({"a": 1, "b": 2}, {"a": 1, "c": 2}, {}),
    ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, {}), ({"a": 1}, [1], {}), ([], [], {"rtol": 1}), ([1.0], [2.0], {"rtol": 1}),
    ({"a": [1]}, collections.OrderedDict(a=[2]), {}), ([{"a": 1}], [{"b": 1}], {}), ([1, [2, 3]], [1, [2]], {}), ([1], [1.0], {}),
    (range(3), [0, 1, 2], {}), ([True], [False], {}), (1.0, 2.0, {"msg": "said"}), ([1.0], [2.0], {"msg": lambda text: f"<{text}>"}),
    ([1.0], [2.0, 3], {"msg": "ignored"}), (1.0, 2.0, {"msg": 3}),
]  # fmt: skip


def _tensors(t: Any) -> list[Callable[[], Any]]:
    close, T = t.testing.assert_close, t.tensor
    f16, f64, f8 = t.float16, t.float64, t.float8_e4m3fn
    return [
        lambda: close(T([1.0, 2]), T([1.0, 2, 3])), lambda: close(T([1.0]), T([1])), lambda: close(T([1.0, 4, 5]), T([1.0, 2, 3])),
        lambda: close(T([1.0, 2]), T([1, 3]), check_dtype=False), lambda: close(T([1, 4, 0]), T([1, 0, 0])),
        lambda: close(T([1, 4, 5]), T([1, 2, 3]), rtol=0.0, atol=1.0), lambda: close(T([True, False]), T([False, False])),
        lambda: close(T([1.0, NAN]), T([1.0, NAN])), lambda: close(T([1.0, NAN]), T([1.0, NAN]), equal_nan=True),
        lambda: close(T([INF, 1.0]), T([-INF, 2.0])), lambda: close(T([NAN, 1.0]), T([1.0, 2.0])), lambda: close(T(1.0), T(2.0)),
        lambda: close(T([[1.0, 2], [3, 4]]), T([[1.0, 2], [3, 5]])), lambda: close(T(True), T(False)), lambda: close(T([1j, 2]), T([1j, 3])),
        lambda: close(T([1.0, 2], dtype=f16), T([1.0, 2.01], dtype=f16)), lambda: close(T([1.0], dtype=f64), T([1.001], dtype=f64)),
        lambda: close(T([1.0, 2], dtype=t.bfloat16), T([1.0, 2.1], dtype=t.bfloat16)),
        lambda: close(T([1.0, 2], dtype=f16), T([1.0, 2.1], dtype=f64), check_dtype=False),
        lambda: close(T([200, 1], dtype=t.uint8), T([1, 200], dtype=t.uint8)), lambda: close(T([2**53 + 1]), T([2**53])),
        lambda: close(T([0, 255], dtype=t.uint8), T([255, 0], dtype=t.uint8)), lambda: close(T([1, 2], dtype=t.int8), T([1, -126], dtype=t.int8)),
        lambda: close(t.zeros(0), t.zeros(0)), lambda: close(t.zeros(0), t.zeros(0, 2)), lambda: close(t.zeros(3, 4), t.ones(3, 4)),
        lambda: close(t.zeros(2, 3).t(), t.zeros(3, 2)), lambda: close(t.zeros(2, 3).t(), t.zeros(3, 2), check_stride=True),
        lambda: close(T([[1, 2], [3, 4]]).t(), T([[1.0, 2], [3, 4]]), check_stride=True),
        lambda: close(t.zeros(2, device="meta"), t.zeros(2, device="meta")), lambda: close(t.zeros(2, device="meta"), t.zeros(2)),
        lambda: close(t.zeros(2, device="meta"), t.zeros(2), check_device=False),
        lambda: close(t.nn.Parameter(T([1.0])), T([1.0])), lambda: close([T([1.0, 2])], [T([1.0, 3])]), lambda: close([T([1])], [T([1.0])]),
        lambda: close(T([1.0], requires_grad=True), T([2.0])), lambda: close(T([1.0]), T([2.0, 3]), msg=lambda m: f"H\n\n{m}\n\nF"),
        lambda: close(T([0.0]).to(f8), T([-0.0]).to(f8)), lambda: close(T([NAN]).to(f8), T([NAN]).to(f8)), lambda: close(T(1.0).to(f8), T(2.0).to(f8)),
        lambda: close(T([1.0]).to(f8), T([1.125]).to(f8), rtol=1, atol=1), lambda: close(T([1.0, 2]).to(f8), T([1.0, 3]).to(f8)),
        lambda: close(T([[1e10, 1.0]]), T([[1e10 + 2048, 1.0]]), rtol=1e-8, atol=0.0),
    ]  # fmt: skip


def _layouts(t: Any) -> list[Callable[[], Any]]:
    close, T = t.testing.assert_close, t.tensor

    def coo(places: Any, values: Any, size: int = 3) -> Any:
        return t.sparse_coo_tensor(T([places]), T(values), (size,))

    def csr(rows: Any, columns: Any, values: Any) -> Any:
        return t.sparse_csr_tensor(T(rows), T(columns), T(values), (2, 2))

    def quantized(values: Any, dtype: Any) -> Any:
        return t.quantize_per_tensor(T(values), 0.1, 0, dtype)

    a, b = T([[1.0, 0], [0, 2]]), T([[1.0, 0], [0, 3]])
    return [
        lambda: close(coo([0, 1], [1.0, 2]), coo([0, 1], [1.0, 2])), lambda: close(coo([0, 1], [1.0, 2]), coo([0, 1], [1.0, 3])),
        lambda: close(coo([0, 1], [1.0, 2]), coo([0, 2], [1.0, 2])), lambda: close(coo([0, 1], [1.0, 2]), coo([0], [1.0])),
        lambda: close(coo([0, 1], [1.0, 2]), T([1.0, 2, 0])), lambda: close(coo([0, 1], [1.0, 2]), T([1.0, 2, 1]), check_layout=False),
        lambda: close(coo([0, 1], [1, 2]), coo([0, 1], [1.0, 3]), check_dtype=False), lambda: close(coo([0], [1], 3), coo([0], [1], 4)),
        lambda: close(csr([0, 1, 2], [0, 1], [1.0, 2]), csr([0, 1, 2], [0, 1], [1.0, 3])),
        lambda: close(csr([0, 1, 2], [0, 1], [1.0, 2]), csr([0, 1, 2], [0, 0], [1.0, 2])),
        lambda: close(csr([0, 1, 2], [0, 1], [1.0, 2]), csr([0, 2, 2], [0, 1], [1.0, 2])),
        lambda: close(csr([0, 1, 2], [0, 1], [1.0, 2]), csr([0, 1, 1], [0], [1.0])), lambda: close(a.to_sparse_csr(), a.to_sparse_csc()),
        lambda: close(a.to_sparse_csc(), b.to_sparse_csc()), lambda: close(a.to_sparse_bsr((1, 1)), b.to_sparse_bsr((1, 1))),
        lambda: close(a.to_sparse_bsc((1, 1)), b.to_sparse_bsc((1, 1))), lambda: close(a.to_sparse_csr(), b, check_layout=False),
        lambda: close(quantized([1.0, 2], t.quint8), quantized([1.0, 3], t.quint8)), lambda: close(quantized([1.0], t.quint8), T([1.0])),
        lambda: close(quantized([1.0], t.quint8), quantized([1.0], t.qint8)), lambda: close(T([1.0]), quantized([1.0], t.quint8)),
        lambda: close(quantized([1.0, 2], t.qint8), t.quantize_per_channel(T([1.0, 2]), T([0.1, 0.1]), T([0, 0]), 0, t.qint8)),
    ]  # fmt: skip


def comparisons(t: Any) -> list[Callable[[], Any]]:
    """The cases for one module."""
    plain = [lambda a=a, e=e, how=how: t.testing.assert_close(a, e, **how) for a, e, how in NUMBERS]
    return [*plain, *_tensors(t), *_layouts(t)]


def outcome(call: Callable[[], Any]) -> str:
    """What a call gives: its result, or the class and text of its error."""
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
