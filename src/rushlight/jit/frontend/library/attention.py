"""Attention and transformers, in the typed subset: read by the compiler, never run as it stands."""

# mypy: ignore-errors
# The compiler of scripts checks these pages: their types are those of scripts.

from __future__ import annotations

import math

import rushlight as torch
from rushlight import Tensor
from rushlight.jit.frontend.library import function_form, method

# ***** attention *****


def as_bias(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask as what is added to scores: true means minus infinity."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask


def one_more_key(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    return torch.ops.aten.pad(mask, [0, 1])


def attention_mask(mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, source: int) -> Tensor | None:
    if padding is None:
        return mask
    spread = padding.reshape(batch, 1, 1, source).expand(-1, heads, -1, -1).reshape(batch * heads, 1, source)
    if mask is None:
        return spread
    return mask + spread


# long function: one computation, step by step as the layer does it
@function_form
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
    batched = query.dim() == 3
    padding = as_bias(key_padding_mask, query)
    if not batched:
        query = query.unsqueeze(1)
        key = key.unsqueeze(1)
        value = value.unsqueeze(1)
        if padding is not None:
            padding = padding.unsqueeze(0)
    target = query.size(0)
    batch = query.size(1)
    size = query.size(2)
    if size != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {size}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    hinted = is_causal and padding is None and not need_weights
    mask = as_bias(attn_mask, query)
    if hinted:
        mask = None
    if mask is not None:
        if mask.dim() == 2:
            mask = mask.unsqueeze(0)
    head = size // num_heads
    if use_separate_proj_weight:
        assert q_proj_weight is not None and k_proj_weight is not None and v_proj_weight is not None
        if in_proj_bias is None:
            q = torch.ops.aten.linear(query, q_proj_weight)
            k = torch.ops.aten.linear(key, k_proj_weight)
            v = torch.ops.aten.linear(value, v_proj_weight)
        else:
            parts = in_proj_bias.chunk(3)
            q = torch.ops.aten.linear(query, q_proj_weight, parts[0])
            k = torch.ops.aten.linear(key, k_proj_weight, parts[1])
            v = torch.ops.aten.linear(value, v_proj_weight, parts[2])
    else:
        assert in_proj_weight is not None
        q, k, v = projected(query, key, value, in_proj_weight, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.repeat(1, batch, 1)])
        v = torch.cat([v, bias_v.repeat(1, batch, 1)])
        mask = one_more_key(mask)
        padding = one_more_key(padding)
    q = q.reshape(target, batch * num_heads, head).transpose(0, 1)
    if static_k is None:
        k = k.reshape(k.size(0), batch * num_heads, head).transpose(0, 1)
    else:
        k = static_k
    if static_v is None:
        v = v.reshape(v.size(0), batch * num_heads, head).transpose(0, 1)
    else:
        v = static_v
    if add_zero_attn:
        zeros = torch.zeros([batch * num_heads, 1, head], dtype=k.dtype, device=k.device)
        k = torch.cat([k, zeros], 1)
        v = torch.cat([v, zeros], 1)
        mask = one_more_key(mask)
        padding = one_more_key(padding)
    source = k.size(1)
    mask = attention_mask(mask, padding, batch, num_heads, source)
    if not training:
        dropout_p = 0.0
    attention: Tensor | None = None
    if need_weights:
        scaled = q * math.sqrt(1.0 / q.size(-1))
        turned = k.transpose(-2, -1)
        if mask is None:
            scores = torch.bmm(scaled, turned)
        else:
            scores = torch.baddbmm(mask, scaled, turned)
        weights = torch.softmax(scores, -1)
        if dropout_p > 0.0:
            weights = torch.ops.aten.dropout(weights, dropout_p, True)
        out = torch.bmm(weights, v)
        shaped = weights.reshape(batch, num_heads, target, source)
        if average_attn_weights:
            shaped = shaped.mean(dim=[1])
        if not batched:
            shaped = shaped.squeeze(0)
        attention = shaped
    else:
        if mask is not None:
            if mask.size(0) == 1:
                mask = mask.unsqueeze(0)
            else:
                mask = mask.reshape(batch, num_heads, mask.size(1), source)
        out = torch.ops.aten.scaled_dot_product_attention(
            q.reshape(batch, num_heads, target, head),
            k.reshape(batch, num_heads, source, head),
            v.reshape(batch, num_heads, source, head),
            mask,
            dropout_p,
            hinted,
        )
        out = out.reshape(batch * num_heads, target, head)
    out = torch.ops.aten.linear(out.transpose(0, 1).reshape(target * batch, size), out_proj_weight, out_proj_bias)
    out = out.reshape(target, batch, out.size(1))
    if not batched:
        out = out.squeeze(1)
    return out, attention


def projected(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values from one weight: by one product where they are one tensor, by two where keys and values are."""
    size = query.size(-1)
    if key is value:
        if query is key:
            both = torch.ops.aten.linear(query, weight, bias)
            parts = both.chunk(3, -1)
            return parts[0], parts[1], parts[2]
        if bias is None:
            q = torch.ops.aten.linear(query, weight[:size])
            pair = torch.ops.aten.linear(key, weight[size:]).chunk(2, -1)
        else:
            q = torch.ops.aten.linear(query, weight[:size], bias[:size])
            pair = torch.ops.aten.linear(key, weight[size:], bias[size:]).chunk(2, -1)
        return q, pair[0], pair[1]
    rows = weight.chunk(3)
    if bias is None:
        return (
            torch.ops.aten.linear(query, rows[0]),
            torch.ops.aten.linear(key, rows[1]),
            torch.ops.aten.linear(value, rows[2]),
        )
    parts = bias.chunk(3)
    return (
        torch.ops.aten.linear(query, rows[0], parts[0]),
        torch.ops.aten.linear(key, rows[1], parts[1]),
        torch.ops.aten.linear(value, rows[2], parts[2]),
    )


@method("MultiheadAttention.forward")
def attention_forward(
    self,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    turned = self.batch_first and query.dim() == 3
    if turned:
        if key is value:
            if query is key:
                query = query.transpose(1, 0)
                key = query
                value = query
            else:
                query = query.transpose(1, 0)
                key = key.transpose(1, 0)
                value = key
        else:
            query = query.transpose(1, 0)
            key = key.transpose(1, 0)
            value = value.transpose(1, 0)
    out, weights = multi_head_attention_forward(
        query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
        self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
        key_padding_mask, need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight,
        self.k_proj_weight, self.v_proj_weight, None, None, average_attn_weights, is_causal,
    )  # fmt: skip
    if turned:
        out = out.transpose(1, 0)
    return out, weights


@method("_Layer._feed_forward")
def layer_feed_forward(self, x: Tensor) -> Tensor:
    return self.linear2(self.dropout(self.activation(self.linear1(x))))


@method("_Layer._sa_block")
def layer_self_attention(
    self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
) -> Tensor:
    found = self.self_attn(x, x, x, key_padding_mask, False, attn_mask, True, is_causal)
    return self.dropout1(found[0])


@method("TransformerEncoderLayer.forward")
def encoder_layer_forward(
    self,
    src: Tensor,
    src_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    padding = as_bias(src_key_padding_mask, src)
    mask = as_bias(src_mask, src)
    x = src
    if self.norm_first:
        x = x + self._sa_block(self.norm1(x), mask, padding, is_causal)
        return x + self._ff_block(self.norm2(x))
    x = self.norm1(x + self._sa_block(x, mask, padding, is_causal))
    return self.norm2(x + self._ff_block(x))


@method("TransformerDecoderLayer._mha_block")
def decoder_layer_attention(
    self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
) -> Tensor:
    found = self.multihead_attn(x, mem, mem, key_padding_mask, False, attn_mask, True, is_causal)
    return self.dropout2(found[0])


@method("TransformerDecoderLayer.forward")
def decoder_layer_forward(
    self,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:
    x = tgt
    if self.norm_first:
        x = x + self._sa_block(self.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = x + self._mha_block(self.norm2(x), memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return x + self._ff_block(self.norm3(x))
    x = self.norm1(x + self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
    x = self.norm2(x + self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
    return self.norm3(x + self._ff_block(x))


def looks_causal(mask: Tensor | None, is_causal: bool | None, length: int) -> bool:
    if is_causal is not None:
        return is_causal
    if mask is None:
        return False
    if mask.size(-1) != length or mask.size(-2) != length:
        return False
    causal = torch.triu(torch.full([length, length], float("-inf"), dtype=mask.dtype, device=mask.device), 1)
    return bool((mask == causal).all())


@method("TransformerEncoder.forward")
def encoder_forward(
    self,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    padding = as_bias(src_key_padding_mask, src)
    bias = as_bias(mask, src)
    length = src.size(0)
    for layer in self.layers:
        if layer.self_attn.batch_first and src.dim() == 3:
            length = src.size(1)
    causal = looks_causal(bias, is_causal, length)
    output = src
    for layer in self.layers:
        output = layer(output, bias, padding, causal)
    if self.norm is not None:
        output = self.norm(output)
    return output


@method("TransformerDecoder.forward")
def decoder_forward(
    self,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool | None = None,
    memory_is_causal: bool = False,
) -> Tensor:
    length = tgt.size(0)
    for layer in self.layers:
        if layer.self_attn.batch_first and tgt.dim() == 3:
            length = tgt.size(1)
    causal = looks_causal(tgt_mask, tgt_is_causal, length)
    output = tgt
    for layer in self.layers:
        output = layer(
            output, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, causal,
            memory_is_causal,
        )  # fmt: skip
    if self.norm is not None:
        output = self.norm(output)
    return output


@method("Transformer.forward")
def transformer_forward(
    self,
    src: Tensor,
    tgt: Tensor,
    src_mask: Tensor | None = None,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    src_is_causal: bool | None = None,
    tgt_is_causal: bool | None = None,
    memory_is_causal: bool = False,
) -> Tensor:
    memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
    return self.decoder(
        tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
        memory_is_causal,
    )  # fmt: skip
