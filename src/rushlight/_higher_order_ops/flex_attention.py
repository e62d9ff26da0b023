"""`flex_attention` as an operator of graphs: what `torch.nn.attention.flex_attention` is called with inside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import Tensor
from rushlight.nn.attention import flex_attention as attention

__all__ = ["flex_attention"]


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """(result, logarithm of the denominator, largest score) of `torch.nn.attention.flex_attention.flex_attention`.

    - `block_mask`: what `BlockMask.as_tuple()` gives
    - `score_mod_other_buffers`, `mask_mod_other_buffers`: further arguments of the two functions

    >>> import rushlight as torch
    >>> from rushlight.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 2, 2).as_tuple()
    >>> x = torch.tensor([0.0, 1.0]).reshape(1, 1, 2, 1)
    >>> out, lse, largest = flex_attention(torch.zeros_like(x), x, x, lambda s, b, h, q, k: s, mask, 1.0, {})
    >>> out.flatten()
    tensor([0.0000, 0.5000])
    """
    q_len, kv_len, *tensors, q_block, kv_block, mask_mod = block_mask
    count, indices, full_count, full_indices, q_count, *_, write_order, write_order_full, kv_order, spt = tensors
    mask: Any = attention.BlockMask.from_kv_blocks(
        count,
        indices,
        full_count,
        full_indices,
        (q_block, kv_block),
        lambda b, h, q, k: mask_mod(b, h, q, k, *mask_mod_other_buffers),
        (q_len, kv_len),
        q_count is not None,
        dq_write_order=write_order,
        dq_write_order_full=write_order_full,
        dq_kv_order=kv_order if spt is None else spt,
    )
    options: Any = kernel_options or None
    out, aux = attention.flex_attention(
        query,
        key,
        value,
        score_mod=lambda score, b, h, q, k: score_mod(score, b, h, q, k, *score_mod_other_buffers),
        block_mask=mask,
        scale=scale,
        enable_gqa=query.size(1) != key.size(1),
        kernel_options=options,
        return_aux=attention.AuxRequest(lse=True, max_scores=True),
    )
    return out, aux.lse, aux.max_scores
