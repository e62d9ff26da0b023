"""Attention: the softmax of scaled products with keys, applied to values; and its derivative.

Both are one primitive each, because kernels compute them block by block and never store a matrix of scores (Dao et al.,
"FlashAttention", 2022).  Their definition in simpler primitives is below (`decompose`); there the scores exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import DTypeError
from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import HALF, lift
from rushlight._prims.record import Aval, ByDecomposition, Primitive, prim
from rushlight._prims.samples import Samples, any_dtype, integers
from rushlight._types.dtype import BOOL, FLOAT32, FLOAT64, INT64

__all__ = ["FEW_QUERIES"]

# So many queries fill a panel; fewer have few scores, and products that are bound by memory: they are computed by
# `decompose`.
FEW_QUERIES = 32

_FLOATS = frozenset((FLOAT32, FLOAT64, *HALF))

# ***** what both check *****


def _check(name: str, q: Any, k: Any, v: Any, mask: Sequence[Any]) -> None:
    if q.dtype not in _FLOATS:
        raise DTypeError(f"prim.{name} takes floats, got {q.dtype.name}", q.dtype)
    if not q.dtype is k.dtype is v.dtype:
        raise TypeError(
            f"prim.{name} takes operands of one dtype, got {q.dtype.name}, {k.dtype.name} and {v.dtype.name}"
        )
    lead = q.shape[:-2]
    if len(q.shape) < 2 or k.shape != (*lead, k.shape[-2], q.shape[-1]) or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            f"prim.{name} takes [*B, L, E], [*B, S, E] and [*B, S, F], got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        )
    for m in mask:
        if m.shape != (*q.shape[:-1], k.shape[-2]) or (m.dtype is not BOOL and m.dtype is not q.dtype.wide):
            raise ValueError(
                f"prim.{name} takes a mask [*B, L, S] of bool or {q.dtype.wide.name}, got {m.dtype.name}{list(m.shape)}"
            )


# ***** the meaning *****


def _wide(x: Any) -> Any:
    return build.convert(x, x.dtype.wide)


def _transposed(x: Any) -> Any:
    n = len(x.shape)
    return build.transpose(x, (*range(n - 2), n - 1, n - 2))


def _last(x: Any) -> tuple[int, ...]:
    return (len(x.shape) - 1,)


def _spread(x: Any, like: Any) -> Any:
    """Broadcast one number a row over the row."""
    return build.keep_dims(x, like.shape, _last(like))


def _scores(q: Any, k: Any, mask: Sequence[Any], causal: bool, scale: float) -> Any:
    """q k^T * scale, -inf where masked."""
    scores = build.dot(_wide(q), _transposed(_wide(k))) * scale
    if causal:
        n = len(scores.shape)
        row, column = (prim.iota(shape=scores.shape, dim=d, dtype=INT64) for d in (n - 2, n - 1))
        scores = build.select(row >= column, scores, -math.inf)
    for m in mask:
        scores = build.select(m, scores, -math.inf) if m.dtype is BOOL else scores + m
    return scores


def _decompose(q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    if k.shape[-2] == 0:
        return build.full((*q.shape[:-1], v.shape[-1]), 0, q.dtype), build.full(q.shape[:-1], math.inf, q.dtype.wide)
    scores = _scores(q, k, mask, causal, scale)
    top = prim.amax(scores, dims=_last(scores))
    dead = build.eq(top, -math.inf)
    base = build.select(dead, 0.0, top)
    raised = prim.exp(scores - _spread(base, scores))
    total = build.select(dead, 1.0, prim.sum(raised, dims=_last(raised)))
    # Divide at the end, where there are fewer numbers than weights.
    mixed = build.dot(raised, _wide(v))
    norm = build.select(dead, math.inf, prim.log(total) + base)
    return build.convert(mixed / _spread(total, mixed), q.dtype), norm


def _weights(q: Any, k: Any, norm: Any, mask: Sequence[Any], causal: bool, scale: float) -> Any:
    scores = _scores(q, k, mask, causal, scale)
    return prim.exp(scores - _spread(norm, scores))


def _to_scores(ct: Any, v: Any, weights: Any, delta: Any) -> Any:
    share = build.dot(_wide(ct), _transposed(_wide(v)))
    return weights * (share - _spread(delta, share))


def _grad_decompose(
    ct: Any, q: Any, k: Any, v: Any, norm: Any, delta: Any, *mask: Any, causal: bool, scale: float
) -> tuple[Any, Any, Any]:
    weights = _weights(q, k, norm, mask, causal, scale)
    slopes = _to_scores(ct, v, weights, delta) * scale
    gradients = (
        build.dot(slopes, _wide(k)),
        build.dot(_transposed(slopes), _wide(q)),
        build.dot(_transposed(weights), _wide(ct)),
    )
    return tuple(build.convert(x, q.dtype) for x in gradients)


# ***** attention *****


def _spec(q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float) -> list[Aval]:
    _check("attention", q, k, v, mask)
    return [((*q.shape[:-1], v.shape[-1]), q.dtype), (q.shape[:-1], q.dtype.wide)]


def _wider(x: Any) -> Any:
    return x if x.dtype == bool else x.astype("float64")


def _np_scores(q: Any, k: Any, mask: Sequence[Any], causal: bool, scale: float) -> Any:
    scores = _wider(q) @ np.swapaxes(_wider(k), -1, -2) * scale
    if causal:
        scores = np.where(np.arange(scores.shape[-2])[:, None] >= np.arange(scores.shape[-1]), scores, -np.inf)
    for m in mask:
        scores = np.where(m, scores, -np.inf) if m.dtype == bool else scores + m
    return scores


def _reference(q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    scores = _np_scores(q, k, mask, causal, scale)
    top = scores.max(-1, initial=-np.inf)
    dead = top == -np.inf
    raised = np.exp(scores - np.where(dead, 0, top)[..., None])
    total = np.where(dead, 1, raised.sum(-1))
    norm = np.where(dead, np.inf, np.log(total) + top)
    return (raised @ _wider(v) / total[..., None]).astype(q.dtype), norm.astype(np.result_type(q.dtype, np.float32))


def _vjp(ct: Any, out: Any, q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float) -> tuple[Any, ...]:
    result, norm = out
    cotangent = build.zeros_like(result) if ct[0] is None else ct[0]
    # A rounded result is accurate enough where weights are small, and the scores are few
    if q.dtype in HALF and q.shape[-2] < FEW_QUERIES:
        share = _weights(q, k, norm, mask, causal, scale) * build.dot(_wide(cotangent), _transposed(_wide(v)))
        delta = prim.sum(share, dims=_last(share))
    else:
        delta = prim.sum(_wide(cotangent) * _wide(result), dims=_last(result))
    if ct[1] is not None:  # the derivative of the logarithm of a row's sum is the row's weights
        delta = delta - ct[1]
    gradients = prim.attention_grad(cotangent, q, k, v, norm, delta, *mask, causal=causal, scale=scale)
    if not mask:
        return tuple(gradients)
    weights = None if mask[0].dtype is BOOL else _weights(q, k, norm, mask, causal, scale)
    return *gradients, None if weights is None else _to_scores(cotangent, v, weights, delta)


def _batch(name: str) -> Any:
    return lambda batched, *xs, **p: getattr(prim, name)(*lift(batched, xs), **p)


def _operands() -> Samples:
    for dtype in ("float64", "float32"):
        for lead, size in (((), (3, 4, 2, 3)), ((2,), (4, 3, 3, 2)), ((2, 2), (3, 3, 1, 1))):
            rows, keys, width, depth = size
            shapes = (*lead, rows, width), (*lead, keys, width), (*lead, keys, depth)
            xs = [any_dtype(shape, dtype, i) for i, shape in enumerate(shapes)]
            yield xs, {"causal": False, "scale": 0.5}
            yield xs, {"causal": True, "scale": 1.5}
            yield [*xs, any_dtype((*lead, rows, keys), dtype, 5)], {"causal": False, "scale": 0.5}
            kept = integers((*lead, rows, keys), 6, dtype="bool")
            kept[..., 0] = True  # avoids differences of infinities
            yield [*xs, kept], {"causal": False, "scale": 0.5}


Primitive(
    "attention", "softmax(q k^T * scale, masked) v of [*B, L, E], [*B, S, E] and [*B, S, F], and log(sum(exp(scores))) of each row.  A mask [*B, L, S] "
    "says what takes part (bool) or is added; `causal`: keys up to the query's index.  A row without keys gives 0, and inf.", family="heavy",
    spec=_spec, reference=_reference, lower=("extern", "attention"), multiple=True, samples=_operands, vjp=_vjp, jvp=ByDecomposition(),
    batch=_batch("attention"), decompose=_decompose,
)  # fmt: skip

# ***** its derivative *****


def _grad_spec(
    ct: Any, q: Any, k: Any, v: Any, norm: Any, delta: Any, *mask: Any, causal: bool, scale: float
) -> list[Aval]:
    _check("attention_grad", q, k, v, mask)
    if ct.shape != (*q.shape[:-1], v.shape[-1]) or ct.dtype is not q.dtype:
        raise ValueError(
            f"prim.attention_grad takes a cotangent [*B, L, F] of {q.dtype.name}, got {ct.dtype.name}{list(ct.shape)}"
        )
    for x in (norm, delta):
        if x.shape != q.shape[:-1] or x.dtype is not q.dtype.wide:
            raise ValueError(
                f"prim.attention_grad takes a number of {q.dtype.wide.name} for each row, got {x.dtype.name}{list(x.shape)}"
            )
    return [(x.shape, x.dtype) for x in (q, k, v)]


def _grad_reference(
    ct: Any, q: Any, k: Any, v: Any, norm: Any, delta: Any, *mask: Any, causal: bool, scale: float
) -> tuple[Any, Any, Any]:
    weights = np.exp(_np_scores(q, k, mask, causal, scale) - norm[..., None])
    slopes = weights * (_wider(ct) @ np.swapaxes(_wider(v), -1, -2) - delta[..., None]) * scale
    gradients = slopes @ _wider(k), np.swapaxes(slopes, -1, -2) @ _wider(q), np.swapaxes(weights, -1, -2) @ _wider(ct)
    return tuple(x.astype(q.dtype) for x in gradients)


def _grad_operands() -> Samples:
    for number, (xs, params) in enumerate(_operands()):
        q, k, v, *mask = xs
        ct = any_dtype((*q.shape[:-1], v.shape[-1]), q.dtype.name, 7)
        rows = [any_dtype(q.shape[:-1], q.dtype.name, seed, 1.0, 2.0) for seed in (8, 9)]
        if number % 3 == 0:
            yield [ct, q, k, v, *rows, *mask], params


Primitive(
    "attention_grad", "The cotangents of q, k and v of `attention`, from that of its result, the rows' log(sum(exp(scores))), and `delta`, the rows' "
    "sums of cotangent times result.", family="heavy", spec=_grad_spec, reference=_grad_reference, lower=("extern", "attention_grad"), multiple=True,
    samples=_grad_operands, vjp=ByDecomposition(), jvp=ByDecomposition(), batch=_batch("attention_grad"), decompose=_grad_decompose,
)  # fmt: skip
