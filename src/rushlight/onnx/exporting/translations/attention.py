"""Scaled dot-product attention: as products and a softmax, and as one operator from opset 23."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.translations.linear import product
from rushlight.onnx.exporting.values import Value

np: Any = LazyModule("numpy")


def attend(
    call: Call,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    causal: bool,
    scale: Any,
    shape: Any,
    grouped: bool = False,
) -> tuple[Value, Value]:
    """(result, the scores before the softmax)."""
    width = call.dim(q, -1)
    if scale is None:
        if isinstance(width, int):
            factor = call.const(math.sqrt(1 / math.sqrt(width)), q.dtype) if width else call.const(1, q.dtype)
        else:
            root = call.op("Sqrt", call.op("Sqrt", call.scalar(width, rushlight.float32)))
            factor = call.cast(call.op("Reciprocal", root), q.dtype)
        sign = False
    else:
        amount = scale if not isinstance(scale, Value) else None
        if amount is None:
            raise call.refuse("a symbolic scale")
        factor = call.const(math.sqrt(abs(amount)), q.dtype)
        sign = amount < 0
    if grouped:
        k, v = _repeated(call, q, k), _repeated(call, q, v)
    turned = call.transpose(k, [*range(k.ndim - 2), k.ndim - 1, k.ndim - 2])
    # Both factors are scaled, as PyTorch does: products of large numbers stay in range.
    left = call.op("Mul", q, factor, shape=q.shape)
    left = call.op("Neg", left, shape=q.shape) if sign else left
    scores = product(call, left, call.op("Mul", turned, factor, shape=turned.shape))
    if causal:
        mask = _causal(call, q, k)
    if mask is not None:
        scores = call.op("Add", scores, _bias(call, mask, scores.dtype))
    weights = call.op("Softmax", scores, axis=-1)
    if mask is not None and (mask.dtype == rushlight.bool and not causal):
        # A row without any key gives zeros.
        weights = call.op(
            "Where", call.op("IsNaN", weights), call.const(0, weights.dtype), weights, dtype=weights.dtype
        )
    return product(call, weights, v, shape=shape), scores


def _repeated(call: Call, q: Value, k: Value) -> Value:
    """Heads of keys and values, each as often as there are queries' heads for it."""
    heads, own = call.dim(q, -3), call.dim(k, -3)
    if not isinstance(heads, int) or not isinstance(own, int):
        raise call.refuse("a symbolic number of heads")
    if heads == own:
        return k
    places = call.ints([h * own // heads for h in range(heads)])
    return call.gather(k, places, k.ndim - 3)


def _causal(call: Call, q: Value, k: Value) -> Value:
    rows, columns = call.dim(q, -2), call.dim(k, -2)
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= 1 << 16:
        return call.array(np.tril(np.ones((rows, columns), np.bool_)), rushlight.bool)
    ones = call.full([rows, columns], 1, rushlight.int64, shape=("r", "c"))
    return call.cast(call.op("Trilu", ones, upper=0, shape=("r", "c")), rushlight.bool)


def _bias(call: Call, mask: Value, dtype: Any) -> Value:
    if mask.dtype != rushlight.bool:
        return call.cast(mask, dtype)
    return call.op("Where", mask, call.const(0.0, dtype), call.const(-math.inf, dtype), dtype=dtype, shape=mask.shape)


@translates("aten::scaled_dot_product_attention")
def scaled_dot_product_attention(call: Call, q: Value, k: Value, v: Value, mask: Value | None = None, dropout: float = 0.0, causal: bool = False,
                                 *, scale: Any = None, enable_gqa: bool = False) -> Value:  # fmt: skip
    if dropout:
        raise call.refuse("dropout_p above 0", "call model.eval() first")
    if (
        call.opset >= 23
        and q.ndim == 4
        and k.ndim == 4
        and not isinstance(scale, Value)
        and (mask is None or mask.ndim >= 2)
    ):
        return call.out(
            "Attention", q, k, v, mask, is_causal=int(causal) or None, scale=None if scale is None else float(scale)
        )
    return attend(call, q, k, v, mask, causal, scale, call.shape, enable_gqa)[0]


@translates("aten::_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(call: Call, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, *, attn_mask: Value | None = None,
                    scale: Any = None) -> list[Value]:  # fmt: skip
    return _with_sums(call, q, k, v, attn_mask, dropout, causal, scale)


@translates("aten::_scaled_dot_product_efficient_attention")
def efficient_attention(call: Call, q: Value, k: Value, v: Value, bias: Value | None, sums: bool, dropout: float = 0.0, causal: bool = False,
                        *, scale: Any = None) -> list[Value]:  # fmt: skip
    return _with_sums(call, q, k, v, bias, dropout, causal, scale)


@translates("aten::_scaled_dot_product_attention_math")
def attention_math(call: Call, q: Value, k: Value, v: Value, mask: Value | None = None, dropout: float = 0.0, causal: bool = False,
                   dropout_mask: Value | None = None, *, scale: Any = None, enable_gqa: bool = False) -> list[Value]:  # fmt: skip
    if dropout:
        raise call.refuse("dropout_p above 0", "call model.eval() first")
    made, scores = attend(call, q, k, v, mask, causal, scale, call.shape, enable_gqa)
    return [made, call.op("Softmax", scores, axis=-1)]


def _with_sums(
    call: Call, q: Value, k: Value, v: Value, mask: Value | None, dropout: float, causal: bool, scale: Any
) -> list[Value]:
    if dropout:
        raise call.refuse("dropout_p above 0", "call model.eval() first")
    made, scores = attend(call, q, k, v, mask, causal, scale, call.shape)
    scores.shape = scores.shape or tuple(f"s{i}" for i in range(q.ndim))
    sums = call.reduce("ReduceLogSumExp", scores, [-1])
    return [made, call.cast(sums, call.results[1][0]) if len(call.results) > 1 else sums]
