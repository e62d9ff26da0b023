"""Attention, and the deterministic part of dropout."""

from __future__ import annotations

import math
from typing import Any

from rushlight._ops.bodies import CPP_NAME, along, narrow, reduce_dims, spread, wide
from rushlight._ops.matmul import turned
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL
from rushlight._types.layout import broadcast_shapes, numel

__all__: list[str] = []


def _checked(query: Any, key: Any, value: Any, mask: Any, is_causal: bool) -> None:
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got "
            f"query.dtype: {CPP_NAME[query.dtype.name]} key.dtype: {CPP_NAME[key.dtype.name]} and value.dtype: {CPP_NAME[value.dtype.name]} instead."
        )
    if min(len(v.shape) for v in (query, key, value)) < 2:
        raise RuntimeError("Expected query, key, and value to all be  at least 2 dimensional, but got "
                           f"query.dim: {len(query.shape)} key.dim: {len(key.shape)} and value.dim: {len(value.shape)} instead.")  # fmt: skip
    if mask is not None:
        if is_causal:
            raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
        if mask.dtype is not BOOL and mask.dtype is not query.dtype and not mask.dtype.is_floating_point:
            raise RuntimeError(
                f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {CPP_NAME[mask.dtype.name]} and "
                f" query.dtype: {CPP_NAME[query.dtype.name]} instead."
            )


class _Heads:
    """Queries, keys and values as [batch, places, width], and the way back."""

    def __init__(self, query: Any, key: Any, value: Any, enable_gqa: bool) -> None:
        if enable_gqa:
            key, value = (_repeated(v, query.shape[-3]) for v in (key, value))
        lead = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        self.lead = lead
        self.query, self.key, self.value = (
            build.reshape(build.broadcast_to(v, (*lead, *v.shape[-2:])), (numel(lead), *v.shape[-2:]))
            for v in (query, key, value)
        )

    def unfold(self, flat: Any) -> Any:
        """[batch, ...] with the batch dims apart again."""
        return build.reshape(flat, (*self.lead, *flat.shape[1:]))


def _repeated(x: Any, heads: int) -> Any:
    """Each head as often as queries share it."""
    if x.shape[-3] == heads:
        return x
    if not x.shape[-3] or heads % x.shape[-3]:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
    *lead, held, places, width = x.shape
    n = len(lead)
    shape = (*lead, held, heads // held, places, width)
    dims = (*range(n + 1), n + 2, n + 3)
    return build.reshape(prim.broadcast(x, shape=shape, dims=dims), (*lead, heads, places, width))


def _scores(h: _Heads, mask: Any, is_causal: bool, scale: float) -> Any:
    """query key^T * scale with what is masked at -inf, in float32 for half types."""
    scores: Any = wide(prim.dot(h.query, turned(h.key))) if h.query.dtype is not BOOL else None
    scores = scores * scale
    if is_causal:
        row, column = (along(scores.shape, d) for d in (1, 2))
        scores = build.select(row >= column, scores, -math.inf)
    if mask is not None:
        whole = (*h.lead, *scores.shape[1:])
        full = build.reshape(build.broadcast_to(mask, whole), scores.shape)
        scores = (
            build.select(full, scores, -math.inf) if mask.dtype is BOOL else scores + build.convert(full, scores.dtype)
        )
    return scores


def _scale_of(query: Any, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None and query.shape[-1] else 1.0 if scale is None else scale


def _log_total(scores: Any) -> Any:
    """log(sum(exp(scores))) of each row; a row of -inf alone gives inf, so that all its weights become 0."""
    if scores.shape[-1] == 0:
        return build.full(scores.shape[:-1], math.inf, scores.dtype)
    top = reduce_dims("amax", scores, (2,))
    dead = build.eq(top, -math.inf)
    top = build.select(dead, 0.0, top)
    total = reduce_dims("sum", prim.exp(scores - spread(top, scores.shape, (2,))), (2,))
    return build.select(dead, math.inf, prim.log(total) + top)


def _weights(scores: Any) -> tuple[Any, Any, Any]:
    """(exp(score - greatest), its sum, log of the sum of exp(score)) of each row; a row of -inf alone has weights 0."""
    if scores.shape[-1] == 0:
        return scores, build.full(scores.shape[:-1], 1.0, scores.dtype), _log_total(scores)
    top = reduce_dims("amax", scores, (2,))
    dead = build.eq(top, -math.inf)
    top = build.select(dead, 0.0, top)
    raised = prim.exp(scores - spread(top, scores.shape, (2,)))
    total = reduce_dims("sum", raised, (2,))
    return raised, build.select(dead, 1.0, total), build.select(dead, math.inf, prim.log(total) + top)


@operator("sdpa_core(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, bool is_causal=False, float? scale=None, "
          "bool enable_gqa=False) -> Tensor", spaces=(), method=False, node="ScaledDotProductFlashAttentionForCpuBackward0")  # fmt: skip
def sdpa_core(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Any:
    """softmax(query key^T * scale + mask) value over the last two dims.

    A bool mask says what takes part, a float one is added.  The forward keeps the logarithm of each row's sum and nothing as
    large as the scores.
    """
    _checked(query, key, value, attn_mask, is_causal)
    h = _Heads(query, key, value, enable_gqa)
    raised, total, norm = _weights(_scores(h, attn_mask, is_causal, _scale_of(query, scale)))
    mixed = wide(prim.dot(narrow(raised, value.dtype), h.value))
    # Divided at the end, where there are fewer numbers than weights.
    return h.unfold(narrow(mixed / spread(total, mixed.shape, (2,)), value.dtype)), norm


@sdpa_core.gradient
def _(
    ct: Any,
    outs: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    h = _Heads(query, key, value, enable_gqa)
    factor = _scale_of(query, scale)
    out, norm = outs
    scores = _scores(h, attn_mask, is_causal, factor)
    chances = prim.exp(scores - spread(norm, scores.shape, (2,)))
    grad = build.reshape(ct, (numel(h.lead), *ct.shape[-2:]))
    flat_out = build.reshape(out, grad.shape)
    to_value = prim.dot(turned(narrow(chances, grad.dtype)), grad)
    share = wide(prim.dot(grad, turned(h.value)))
    along = spread(reduce_dims("sum", wide(grad) * wide(flat_out), (2,)), share.shape, (2,))
    to_scores = chances * (share - along)
    slopes = narrow(to_scores * factor, query.dtype)
    to_query = prim.dot(slopes, h.key)
    to_key = prim.dot(turned(slopes), h.query)
    grads = [
        _collected(h.unfold(g), x, enable_gqa and i > 0)
        for i, (g, x) in enumerate(((to_query, query), (to_key, key), (to_value, value)))
    ]
    to_mask = None
    if attn_mask is not None and attn_mask.dtype.is_floating_point:
        to_mask = narrow(build.sum_to(h.unfold(to_scores), attn_mask.shape), attn_mask.dtype)
    return *grads, to_mask


def _collected(grad: Any, x: Any, shared: bool) -> Any:
    """The gradient summed over what the operand was repeated along."""
    if shared and x.shape[-3] != grad.shape[-3]:
        *lead, heads, places, width = grad.shape
        held = x.shape[-3]
        split = build.reshape(grad, (*lead, held, heads // held, places, width))
        grad = build.total(split, (len(lead) + 1,))
    return build.sum_to(grad, x.shape)


# ***** dropout *****


@operator("dropout_core(Tensor input, Tensor mask, float scale) -> Tensor", spaces=(), method=False, inplace=True, like="operands",
          node="MulBackward0")  # fmt: skip
def dropout_core(x: Any, mask: Any, scale: float) -> Any:
    """input * mask * scale; the mask (bool, or 0 and 1) carries no gradient."""
    kept = wide(x) * build.convert(mask, wide(x).dtype)
    return narrow(kept * scale, x.dtype)


@dropout_core.gradient
def _(ct: Any, out: Any, x: Any, mask: Any, scale: float) -> Any:
    return narrow(wide(ct) * build.convert(mask, wide(x).dtype) * scale, x.dtype), None
