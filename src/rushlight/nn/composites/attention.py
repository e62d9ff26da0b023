"""Attention with several heads, as one function over weights.

Scripts compile these functions from their source: they keep to the typed subset.
"""

from __future__ import annotations

import math
import warnings

import rushlight
from rushlight import Tensor

__all__ = ["canonical_mask", "multi_head_attention_forward"]


def canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: rushlight.dtype | None,
    other_name: str,
    target_type: rushlight.dtype,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers to add: a bool mask becomes -inf where it is true. Warns if two masks are of different types."""
    if mask is None:
        return None
    if mask.dtype != rushlight.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.is_floating_point():
        return mask
    return rushlight.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _dtype_of(mask: Tensor | None) -> rushlight.dtype | None:
    return None if mask is None else mask.dtype


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, num_heads: int
) -> bool:
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
        wanted = (num_heads, query.size(0), key.size(0))
        if dims == 2 and mask.dim() == 3 and list(mask.shape) != list(wanted):
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {mask.shape}")
    return dims == 3


def _project(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by one stacked weight: one product where the inputs are the same tensor."""
    linear = rushlight.nn.functional.linear
    size = query.size(-1)
    if key is value and query is key:
        q, k, v = linear(query, weight, bias).chunk(3, -1)
        return q, k, v
    if key is value:
        w_q, w_kv = weight.split([size, size * 2])
        b_q, b_kv = _each(None if bias is None else bias.split([size, size * 2]), 2)
        k, v = linear(key, w_kv, b_kv).chunk(2, -1)
        return linear(query, w_q, b_q), k, v
    w_q, w_k, w_v = weight.chunk(3)
    return _project_apart(query, key, value, w_q, w_k, w_v, bias)


def _project_apart(
    query: Tensor, key: Tensor, value: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by a weight each."""
    b_q, b_k, b_v = _each(None if bias is None else bias.chunk(3), 3)
    linear = rushlight.nn.functional.linear
    return linear(query, w_q, b_q), linear(key, w_k, b_k), linear(value, w_v, b_v)


def _each(parts: list[Tensor] | None, count: int) -> list[Tensor | None]:
    """The parts, or so many times None."""
    found: list[Tensor | None] = []
    for i in range(count):
        found.append(None if parts is None else parts[i])
    return found


def _check_mask_shape(mask: Tensor, batch: int, target: int, source: int) -> Tensor:
    """The mask with three dims; `batch` counts heads."""
    if mask.dim() == 2:
        two = (target, source)
        if list(mask.shape) != list(two):
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {two}.")
        return mask.unsqueeze(0)
    three = (batch, target, source)
    if list(mask.shape) != list(three):
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {three}.")
    return mask


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
    target, batch, size = query.size(0), query.size(1), query.size(2)
    source = key.size(0)
    other_type = None if attn_mask is None else attn_mask.dtype
    padding = canonical_mask(key_padding_mask, "key_padding_mask", other_type, "attn_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method `generate_square_subsequent_mask` to create this "
            "mask."
        )
    # The hint alone says everything, unless weights are wanted or padding comes to it.
    hinted = is_causal and padding is None and not need_weights
    mask = None if hinted else canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, False)
    head = size // num_heads
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if use_separate_proj_weight:
        assert q_proj_weight is not None and k_proj_weight is not None and v_proj_weight is not None
        q, k, v = _project_apart(query, key, value, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias)
    else:
        assert in_proj_weight is not None
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    if mask is not None:
        mask = _check_mask_shape(mask, batch * num_heads, target, source)
    if bias_k is not None:
        assert bias_v is not None  # both or none
        k, v = rushlight.cat([k, bias_k.repeat(1, batch, 1)]), rushlight.cat([v, bias_v.repeat(1, batch, 1)])
        mask, padding = _widened(mask), _widened(padding)
    q = q.reshape(target, batch * num_heads, head).transpose(0, 1)
    k = k.reshape(k.size(0), batch * num_heads, head).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v.size(0), batch * num_heads, head).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        zeros = k.new_zeros([batch * num_heads, 1, head])
        k, v = rushlight.cat([k, zeros], 1), rushlight.cat([v, zeros], 1)
        mask, padding = _widened(mask), _widened(padding)
    mask = _merged(mask, padding, batch, num_heads, k.size(1))
    p = dropout_p if training else 0.0
    attention: Tensor | None = None
    if need_weights:
        out, weights = _with_weights(q, k, v, mask, p)
        weights = weights.reshape(batch, num_heads, target, k.size(1))
        weights = weights.mean(dim=1) if average_attn_weights else weights
        attention = weights if batched else weights.squeeze(0)
    else:
        out = _without_weights(q, k, v, mask, p, hinted, batch)
    out = rushlight.nn.functional.linear(
        out.transpose(0, 1).reshape(target * batch, size), out_proj_weight, out_proj_bias
    )
    out = out.reshape(target, batch, out.size(1))
    return out if batched else out.squeeze(1), attention


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_heads: int, separate: bool) -> None:
    size = query.size(-1)
    if size != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {size}")
    if size % num_heads != 0:
        raise AssertionError(f"embed_dim {size} not divisible by num_heads {num_heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _widened(mask: Tensor | None) -> Tensor | None:
    """A mask for one more key."""
    return None if mask is None else rushlight.nn.functional.pad(mask, (0, 1))


def _merged(mask: Tensor | None, padding: Tensor | None, batch: int, num_heads: int, source: int) -> Tensor | None:
    """Both masks in one, to be added to (batch * heads, L, S)."""
    if padding is None:
        return mask
    for dim, size in enumerate((batch, source)):
        if padding.size(dim) != size:
            raise AssertionError(f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {padding.size(dim)}")
    spread = padding.reshape(batch, 1, 1, source).expand(-1, num_heads, -1, -1).reshape(batch * num_heads, 1, source)
    return spread if mask is None else mask + spread


def _with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    scaled = q * math.sqrt(1.0 / q.size(-1))
    turned = k.transpose(-2, -1)
    scores = rushlight.bmm(scaled, turned) if mask is None else rushlight.baddbmm(mask, scaled, turned)
    attention = rushlight.softmax(scores, -1)
    if p > 0.0:
        attention = rushlight.nn.functional.dropout(attention, p)
    return rushlight.bmm(attention, v), attention


def _without_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, is_causal: bool, batch: int
) -> Tensor:
    heads = q.size(0) // batch if batch > 0 else 1
    if mask is not None:
        mask = mask.unsqueeze(0) if mask.size(0) == 1 else mask.reshape(batch, heads, mask.size(1), k.size(1))
    out = rushlight.nn.functional.scaled_dot_product_attention(
        _by_head(q, batch, heads), _by_head(k, batch, heads), _by_head(v, batch, heads), mask, p, is_causal
    )
    return out.reshape(batch * heads, out.size(2), out.size(3))


def _by_head(x: Tensor, batch: int, heads: int) -> Tensor:
    return x.reshape(batch, heads, x.size(1), x.size(2))
