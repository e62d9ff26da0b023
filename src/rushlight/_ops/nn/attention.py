"""Attention, and the deterministic part of dropout."""

from __future__ import annotations

import math
from typing import Any

from rushlight._ops.bodies import C_NAME, narrow, wide
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, INT64
from rushlight._types.layout import broadcast_shapes, contiguous_strides, dense_strides, memory_order, numel, restride

__all__: list[str] = []


def check_attention(query: Any, key: Any, value: Any, mask: Any, is_causal: bool) -> None:
    """Raise RuntimeError for operands that are no queries, keys, values and mask of one attention."""
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got "
            f"query.dtype: {C_NAME[query.dtype.name]} key.dtype: {C_NAME[key.dtype.name]} and value.dtype: {C_NAME[value.dtype.name]} instead."
        )
    if min(len(v.shape) for v in (query, key, value)) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got "
            f"query.dim: {len(query.shape)} key.dim: {len(key.shape)} and value.dim: {len(value.shape)} instead."
        )
    if query.dtype.kind not in "fc":
        raise RuntimeError(f"expected scalar type Float but found {query.dtype.scalar}")
    for left, right in ((query.shape[-1], key.shape[-1]), (key.shape[-2], value.shape[-2])):
        if left != right:
            batch = numel(query.shape[:-2])
            raise RuntimeError(
                f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {left}] but got: [{batch}, {right}]."
            )
    if mask is not None:
        if is_causal:
            raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
        if mask.dtype is not BOOL and mask.dtype is not query.dtype and not mask.dtype.is_floating_point:
            raise RuntimeError(
                f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {C_NAME[mask.dtype.name]} and "
                f" query.dtype: {C_NAME[query.dtype.name]} instead."
            )


def _causal_mask(mask: Any, rows: int, columns: int) -> Any:
    """A mask, and no key after the query's own place."""
    row, column = (prim.iota(shape=(rows, columns), dim=d, dtype=INT64) for d in (0, 1))
    return build.select(row >= column, mask, False if mask.dtype is BOOL else -math.inf)


def _one_mask(query: Any, key: Any, mask: Any, is_causal: bool) -> tuple[Any, bool]:
    """A mask that says all, and whether the operator is causal beside it."""
    if mask is not None and is_causal and len(query.shape) == 4:
        return _causal_mask(mask, query.shape[-2], key.shape[-2]), False
    return mask, is_causal


def _for_all_rows(query: Any, key: Any, mask: Any) -> tuple[Any, ...]:
    """The mask as the primitive takes it, if there is one: for every row, added in the wider dtype."""
    if mask is None:
        return ()
    if mask.dtype is not BOOL:
        mask = build.convert(mask, query.dtype.wide)
    return (build.broadcast_to(mask, (*query.shape[:-1], key.shape[-2])),)


def _divided(x: Any, groups: int) -> Any:
    """[..., heads, M, N] with the heads that share one of `groups` others as a dim of their own."""
    *lead, heads, rows, columns = x.shape
    return build.reshape(
        x, (*lead, groups, heads // groups, rows, columns) if heads != 1 else (*lead, 1, 1, rows, columns)
    )


def _shared(query: Any, key: Any, value: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Operands in which each head of keys and values is aligned with the heads of queries that share it."""
    heads, groups = query.shape[-3], key.shape[-3]
    if any(not v.shape[-3] or heads % v.shape[-3] for v in (key, value)):
        raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
    if value.shape[-3] != groups:
        return query, _repeated(key, heads), _repeated(value, heads), mask
    if groups in (1, heads):
        return query, key, value, mask
    key, value = (build.expand_dims(v, (len(v.shape) - 2,)) for v in (key, value))
    if mask is not None:
        mask = build.reshape(mask, (*(1,) * (3 - len(mask.shape)), *mask.shape))
        if mask.shape[-3] != 1:
            mask = build.broadcast_to(mask, (*mask.shape[:-3], heads, *mask.shape[-2:]))
        mask = _divided(mask, groups)
    return _divided(query, groups), key, value, mask


def _repeated(x: Any, heads: int) -> Any:
    """Each head repeated for the queries that share it."""
    if x.shape[-3] == heads:
        return x
    *lead, groups, positions, width = x.shape
    n = len(lead)
    shape = (*lead, groups, heads // groups, positions, width)
    dims = (*range(n + 1), n + 2, n + 3)
    return build.reshape(prim.broadcast(x, shape=shape, dims=dims), (*lead, heads, positions, width))


def _scale_of(query: Any, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None and query.shape[-1] else 1.0 if scale is None else scale


def _like_query(shape: Any, specs: Any) -> Any:
    """The result has the queries' memory layout if they have heads, the values are as wide, and the numbers of a
    position are contiguous."""
    query, key, value = specs[:3]
    beside = all(x.strides[-1] == 1 for x in (query, key, value))
    if beside and len(shape) == 4 and query.shape == shape and value.shape[-1] == shape[-1]:
        return dense_strides(shape, memory_order(shape, query.strides))
    return contiguous_strides(shape)


@operator("sdpa_core(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, bool is_causal=False, float? scale=None, "
          "bool enable_gqa=False) -> Tensor", spaces=(), method=False, node="ScaledDotProductFlashAttentionForCpuBackward0", like=_like_query)  # fmt: skip
def sdpa_core(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Any:
    """softmax(query key^T * scale + mask) value over the last two dims.

    A bool mask selects the pairs that take part, a float one is added.  The scores are never stored as a whole.
    Of four dims, a mask and `is_causal` are both heeded, as by PyTorch's fused kernel on the CPU.
    """
    attn_mask, is_causal = _one_mask(query, key, attn_mask, is_causal)
    check_attention(query, key, value, attn_mask, is_causal)
    cut = 3 if enable_gqa else 2
    lead = (*broadcast_shapes(*(v.shape[:-cut] for v in (query, key, value))), *query.shape[-cut:-2])
    factor = _scale_of(query, scale)
    if enable_gqa:
        query, key, value, attn_mask = _shared(query, key, value, attn_mask)
    whole = broadcast_shapes(*(v.shape[:-2] for v in (query, key, value)))
    query, key, value = (build.broadcast_to(v, (*whole, *v.shape[-2:])) for v in (query, key, value))
    mask = _for_all_rows(query, key, attn_mask)
    out, _ = prim.attention(query, key, value, *mask, causal=is_causal, scale=factor)
    return build.reshape(out, (*lead, *out.shape[-2:]))


@operator("sdpa_with_norm(Tensor query, Tensor key, Tensor value, bool is_causal=False, float? scale=None, Tensor? attn_mask=None) "
          "-> (Tensor, Tensor)", spaces=(), method=False, like=_like_query)  # fmt: skip
def sdpa_with_norm(query: Any, key: Any, value: Any, is_causal: bool, scale: float | None, attn_mask: Any) -> Any:
    """Attention, and the logarithm of each row's sum of exp(scores), by which attention to several parts of the keys is
    joined.  The operands have the same dims but for the last two; `attn_mask` broadcasts to the scores.
    """
    attn_mask, is_causal = _one_mask(query, key, attn_mask, is_causal)
    check_attention(query, key, value, attn_mask, is_causal)
    mask = _for_all_rows(query, key, attn_mask)
    return prim.attention(query, key, value, *mask, causal=is_causal, scale=_scale_of(query, scale))


@operator("sdpa_grad(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor norm, Tensor delta, bool is_causal=False, float? scale=None, "
          "Tensor? attn_mask=None) -> (Tensor, Tensor, Tensor)", spaces=(), method=False)  # fmt: skip
def sdpa_grad(
    grad: Any, query: Any, key: Any, value: Any, norm: Any, delta: Any, is_causal: bool, scale: float | None, attn_mask: Any
) -> Any:  # fmt: skip
    """The gradients of queries, keys and values of one part of the keys: `norm` is that of all keys, `delta` the sums over
    rows of gradient times result.
    """
    attn_mask, is_causal = _one_mask(query, key, attn_mask, is_causal)
    check_attention(query, key, value, attn_mask, is_causal)
    mask = _for_all_rows(query, key, attn_mask)
    factor = _scale_of(query, scale)
    return prim.attention_grad(grad, query, key, value, norm, delta, *mask, causal=is_causal, scale=factor)


# ***** sequences of different lengths *****


@operator("ragged_attention(Tensor query, Tensor key, Tensor value, Tensor starts_q, Tensor starts_k, Tensor? used_k, int max_q, int max_k, float scale, "
          "int left=-1, int right=-1) -> (Tensor, Tensor)", spaces=(), method=False)  # fmt: skip
def ragged_attention(
    query: Any, key: Any, value: Any, starts_q: Any, starts_k: Any, used_k: Any, max_q: int, max_k: int, scale: float, left: int, right: int
) -> Any:  # fmt: skip
    """Attention within sequences that lie one behind the other, [T, H, E] and keys [S, G, E], and log(sum(exp(scores))) of
    each row [H, T].  `left` and `right` keys about a query's place take part, where the last query stands at the last key.
    """
    numbers = (starts_q, starts_k) if used_k is None else (starts_q, starts_k, used_k)
    return prim.ragged_attention(
        query, key, value, *numbers, max_q=max_q, max_k=max_k, scale=scale, left=left, right=right
    )


@operator("paged_attention(Tensor query, Tensor key, Tensor value, Tensor starts_q, Tensor used_k, Tensor table, int max_q, int max_k, float scale, "
          "int left=-1, int right=-1) -> (Tensor, Tensor)", spaces=(), method=False)  # fmt: skip
def paged_attention(
    query: Any, key: Any, value: Any, starts_q: Any, used_k: Any, table: Any, max_q: int, max_k: int, scale: float, left: int, right: int
) -> Any:  # fmt: skip
    """The same to keys and values in pages of pools [P, page, G, E]: sequence n has the first `used_k[n]` tokens of the pages
    in `table[n]`.
    """
    return prim.paged_attention(
        query, key, value, starts_q, used_k, table, max_q=max_q, max_k=max_k, scale=scale, left=left, right=right
    )


# ***** dropout *****


@operator("dropout_core(Tensor input, Tensor mask, float scale) -> Tensor", spaces=(), method=False, inplace=True,
          like=lambda shape, specs: restride(shape, specs[0].strides), node="MulBackward0")  # fmt: skip
def dropout_core(x: Any, mask: Any, scale: float) -> Any:
    """input * mask * scale; the mask (bool, or 0 and 1) carries no gradient."""
    kept = wide(x) * build.convert(mask, wide(x).dtype)
    return narrow(kept * scale, x.dtype)


@dropout_core.gradient
def _(ct: Any, out: Any, x: Any, mask: Any, scale: float) -> Any:
    return narrow(wide(ct) * build.convert(mask, wide(x).dtype) * scale, x.dtype), None
