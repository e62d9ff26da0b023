"""Attention over sequences of different lengths that lie one behind the other, as `torch.nn.attention.varlen`.

>>> import rushlight as torch
>>> from rushlight.nn.attention.varlen import varlen_attn
>>> x = torch.arange(5.0).reshape(5, 1, 1)
>>> ends = torch.tensor([0, 2, 5], dtype=torch.int32)
>>> varlen_attn(torch.zeros(5, 1, 1), x, x, ends, ends, 3, 3, window_size=(-1, 0)).flatten()
tensor([0.0000, 0.5000, 2.0000, 2.5000, 3.0000])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import function_of
from rushlight.library import Library

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """Further results of `varlen_attn` that are asked for: `lse`, the logarithm of the softmax's denominator."""

    lse: bool = False


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: Sequence[int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """softmax(query @ key^T * scale) @ value within each of N sequences; (T_q, H_q, D) in the dtype of `query`.

    - `query` (T_q, H_q, D); `key` and `value` (T_k, H_kv, D). Sequence i has the queries from `cu_seq_q[i]` to
      `cu_seq_q[i + 1]` and its keys by `cu_seq_k`, both (N + 1,); `max_q` and `max_k` are the largest counts.
    - `scale` defaults to 1/sqrt(D); `enable_gqa` lets each head of keys serve H_q / H_kv heads of queries.
    - `window_size` (left, right): so many keys before and after the query's place, -1 for any number; the last query
      stands at the last key. (-1, 0) is causal.
    - `seqused_k` (N,): only so many of a sequence's keys are there.
    - `block_table` (N, pages of a sequence): `key` and `value` are pools (pages, page size, H_kv, D), and a sequence's
      tokens lie in these pages; needs `seqused_k`. Both are for inference.
    - `return_aux=AuxRequest(lse=True)` returns (result, lse), with lse (H_q, T_q) in float32.

    On a GPU the kernels read where sequences begin, and pages by the table; on a CPU sequences are laid out to `max_q` and
    `max_k`, so memory grows with N * max_k. Nothing waits for the
    device. Sums have one order whatever `num_splits` is. A query without keys gives 0, and inf as its lse. ValueError
    for heads or windows that do not fit, RuntimeError for a gradient through inference-only arguments. On every device,
    where PyTorch needs a GPU.
    """
    window = _checked(query, key, window_size, enable_gqa, block_table, seqused_k)
    if (seqused_k is not None or block_table is not None) and rushlight.is_grad_enabled():
        for tensor in (query, key, value):
            if tensor.requires_grad:
                name = "block_table" if block_table is not None else "seqused_k"
                raise RuntimeError(f"{name} is an inference-only parameter.")
    if block_table is None and cu_seq_k is None:
        raise ValueError("cu_seq_k is needed without a block_table")
    if not query.numel() or not key.numel() or not value.numel() or cu_seq_q.size(0) < 2 or min(max_q, max_k) < 1:
        result, rows = _without_keys(query, key, value)
    else:
        factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
        sizes = {
            "max_q": max_q,
            "max_k": max_k,
            "scale": factor,
            "left": max(window[0], -1),
            "right": max(window[1], -1),
        }
        if block_table is None:
            attend = function_of("ragged_attention")
            result, rows = attend(query, key, value, cu_seq_q, cu_seq_k, seqused_k, **sizes)
        else:
            attend = function_of("paged_attention")
            result, rows = attend(query, key, value, cu_seq_q, seqused_k, block_table, **sizes)
    return result if return_aux is None or not return_aux.lse else (result, rows.float())


def _without_keys(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros, and inf as each row's logarithm; gradients are zeros."""
    result = query[..., :0].sum(-1, keepdim=True) + key[:0].sum() + value[:0].sum()
    shape = query.size(1), query.size(0)
    return result.expand(*query.shape[:2], value.size(-1)).clone(), query.new_full(shape, math.inf)


def varlen_attn_out(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    **options: Any,
) -> Any:
    """`varlen_attn` into `out` (T_q, H_q, D), which is returned; without gradients."""
    with rushlight.no_grad():
        made = varlen_attn(
            query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, return_aux=return_aux or AuxRequest(), **options
        )
        result, *lse = made if isinstance(made, tuple) else (made,)
        out.copy_(result)
    return (out, *lse) if lse else out


def _checked(
    query: Tensor,
    key: Tensor,
    window_size: Sequence[int],
    enable_gqa: bool,
    block_table: Tensor | None,
    seqused_k: Tensor | None,
) -> tuple[int, int]:
    """The window; ValueError for what does not fit together."""
    heads, kv_heads = query.size(1), key.size(1 if block_table is None else 2)
    if not enable_gqa and heads != kv_heads:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={kv_heads}. "
            "Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and heads % kv_heads:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={kv_heads}."
        )
    if len(window_size) != 2:
        raise ValueError(f"window_size must have length 2, got {len(window_size)}")
    if block_table is not None and seqused_k is None:
        raise ValueError("block_table needs seqused_k")
    return window_size[0], window_size[1]


# ***** the operator that lists of operators name *****

_LIBRARY = Library("torch_attn", "FRAGMENT")
_LIBRARY.define(
    "_varlen_attn(Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, Tensor? cu_seq_k, SymInt max_q, SymInt max_k, bool is_causal=False,"
    " float? scale=None, SymInt[]? window_size=None, bool enable_gqa=False, Tensor? seqused_k=None, Tensor? block_table=None, SymInt? num_splits=None)"
    " -> (Tensor, Tensor, Tensor)"
)


def _varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: Sequence[int] | None = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result of `varlen_attn`, its lse, and the state of random numbers, of which none are drawn."""
    window = list(window_size or (-1, -1))
    out, lse = varlen_attn(
        query,
        key,
        value,
        cu_seq_q,
        cu_seq_k,
        max_q,
        max_k,
        return_aux=AuxRequest(lse=True),
        scale=scale,
        window_size=(window[0], 0) if is_causal else window,
        enable_gqa=enable_gqa,
        seqused_k=seqused_k,
        block_table=block_table,
        num_splits=num_splits,
    )
    return out, lse, rushlight.zeros(2, dtype=rushlight.uint64, device=query.device)


_LIBRARY.impl("_varlen_attn", _varlen_attn, "CompositeImplicitAutograd")
