"""Attention with several heads, as one function over weights."""

from __future__ import annotations

import math
import warnings
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["canonical_mask", "multi_head_attention_forward"]


def canonical_mask(
    mask: Any, mask_name: str, other_type: Any, other_name: str, target_type: Any, check_other: bool = True
) -> Any:
    """A mask as numbers to add: a bool mask becomes -inf where it is true. Warns if two masks are of different types."""
    if mask is None:
        return None
    if mask.dtype is not rushlight.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.is_floating_point():
        return mask
    return rushlight.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _check_shapes(query: Any, key: Any, value: Any, padding: Any, mask: Any, num_heads: int) -> bool:
    """Whether there is a batch dimension; raises `AssertionError` for shapes that do not go together."""
    dims = query.dim()
    if dims not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor")
    kind = "batched (3-D)" if dims == 3 else "unbatched (2-D)"
    if key.dim() != dims or value.dim() != dims:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {dims}-D "
            f"but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != dims - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {dims - 1}-D "
            f"but found {padding.dim()}-D tensor instead"
        )
    if mask is not None:
        if mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead"
            )
        wanted = (num_heads, query.shape[0], key.shape[0])
        if dims == 2 and mask.dim() == 3 and tuple(mask.shape) != wanted:
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {mask.shape}")
    return bool(dims == 3)


def _project(query: Any, key: Any, value: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values by one stacked weight: one product where the inputs are the same tensor."""
    linear = rushlight.nn.functional.linear
    size = query.size(-1)
    if key is value and query is key:
        q, k, v = linear(query, weight, bias).chunk(3, -1)
        return q, k, v
    if key is value:
        w_q, w_kv = weight.split([size, size * 2])
        b_q, b_kv = (None, None) if bias is None else bias.split([size, size * 2])
        k, v = linear(key, w_kv, b_kv).chunk(2, -1)
        return linear(query, w_q, b_q), k, v
    w_q, w_k, w_v = weight.chunk(3)
    b_q, b_k, b_v = (None, None, None) if bias is None else bias.chunk(3)
    return linear(query, w_q, b_q), linear(key, w_k, b_k), linear(value, w_v, b_v)


def _project_apart(inputs: tuple[Any, ...], weights: tuple[Any, ...], bias: Any) -> list[Any]:
    """Queries, keys and values by a weight each."""
    biases = (None, None, None) if bias is None else bias.chunk(3)
    linear = rushlight.nn.functional.linear
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _check_mask_shape(mask: Any, two: tuple[int, ...], three: tuple[int, ...]) -> Any:
    wanted = two if mask.dim() == 2 else three
    if tuple(mask.shape) != wanted:
        raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {wanted}.")
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of `query` (L, N, E) to `key` and `value` (S, N, E) with several heads; see `nn.MultiheadAttention`.

    Returns the output (L, N, E) and, if `need_weights`, the weights (N, L, S), averaged over the heads or (N, heads, L,
    S).
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    target, batch, size = query.shape
    source = key.shape[0]
    other_type = None if attn_mask is None else attn_mask.dtype
    padding = canonical_mask(key_padding_mask, "key_padding_mask", other_type, "attn_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method `generate_square_subsequent_mask` to create this "
            "mask."
        )
    # The hint alone says everything, unless weights are wanted or padding comes to it.
    hinted = is_causal and padding is None and not need_weights
    mask = None if hinted else canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
    head = size // num_heads
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if use_separate_proj_weight:
        own = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = _project_apart((query, key, value), own, in_proj_bias)
    else:
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    if mask is not None:
        mask = _check_mask_shape(mask, (target, source), (batch * num_heads, target, source))
    if bias_k is not None:
        k = rushlight.cat([k, bias_k.repeat(1, batch, 1)])
        v = rushlight.cat([v, bias_v.repeat(1, batch, 1)])  # type: ignore[union-attr]  # both or none
        mask, padding = _widened(mask), _widened(padding)
    q = q.reshape(target, batch * num_heads, head).transpose(0, 1)
    k = k.reshape(k.size(0), batch * num_heads, head).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v.size(0), batch * num_heads, head).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        zeros = k.new_zeros((batch * num_heads, 1, head))
        k, v = rushlight.cat([k, zeros], 1), rushlight.cat([v, zeros], 1)
        mask, padding = _widened(mask), _widened(padding)
    mask = _merged(mask, padding, batch, num_heads, k.size(1))
    p = dropout_p if training else 0.0
    if need_weights:
        out, attention = _with_weights(q, k, v, mask, p)
    else:
        out, attention = _without_weights(q, k, v, mask, p, hinted, batch), None
    out = rushlight.nn.functional.linear(
        out.transpose(0, 1).reshape(target * batch, size), out_proj_weight, out_proj_bias
    )
    out = out.reshape(target, batch, out.size(1))
    if attention is not None:
        attention = attention.reshape(batch, num_heads, target, k.size(1))
        attention = attention.mean(dim=1) if average_attn_weights else attention
        attention = attention if batched else attention.squeeze(0)
    return out if batched else out.squeeze(1), attention


def _check_sizes(query: Any, key: Any, value: Any, embed_dim: int, num_heads: int, separate: bool) -> None:
    size = query.size(-1)
    if size != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {size}")
    if size % num_heads:
        raise AssertionError(f"embed_dim {size} not divisible by num_heads {num_heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _widened(mask: Any) -> Any:
    """A mask for one more key."""
    return None if mask is None else rushlight.nn.functional.pad(mask, (0, 1))


def _merged(mask: Any, padding: Any, batch: int, num_heads: int, source: int) -> Any:
    """Both masks in one, to be added to (batch * heads, L, S)."""
    if padding is None:
        return mask
    for dim, size in enumerate((batch, source)):
        if padding.shape[dim] != size:
            raise AssertionError(f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {padding.shape[dim]}")
    spread = padding.reshape(batch, 1, 1, source).expand(-1, num_heads, -1, -1).reshape(batch * num_heads, 1, source)
    return spread if mask is None else mask + spread


def _with_weights(q: Any, k: Any, v: Any, mask: Any, p: float) -> tuple[Any, Any]:
    scaled = q * math.sqrt(1.0 / q.size(-1))
    turned = k.transpose(-2, -1)
    scores = rushlight.bmm(scaled, turned) if mask is None else rushlight.baddbmm(mask, scaled, turned)
    attention = rushlight.softmax(scores, -1)
    if p > 0.0:
        attention = rushlight.nn.functional.dropout(attention, p)
    return rushlight.bmm(attention, v), attention


def _without_weights(q: Any, k: Any, v: Any, mask: Any, p: float, is_causal: bool, batch: int) -> Any:
    heads = q.size(0) // batch if batch else 1

    def split(x: Any) -> Any:
        return x.reshape(batch, heads, x.size(1), x.size(2))

    if mask is not None:
        mask = mask.unsqueeze(0) if mask.size(0) == 1 else mask.reshape(batch, heads, mask.size(1), k.size(1))
    attend = rushlight.nn.functional.scaled_dot_product_attention
    out = attend(split(q), split(k), split(v), mask, p, is_causal)
    return out.reshape(batch * heads, out.size(2), out.size(3))
