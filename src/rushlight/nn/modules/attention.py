"""`MultiheadAttention`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.linear import Linear
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class NonDynamicallyQuantizableLinear(Linear):
    """A linear layer with the name that PyTorch's printed form has."""


class MultiheadAttention(Module):
    """Attention with `num_heads` heads, each over embed_dim / num_heads features.

    Inputs are query (L, N, E), key (S, N, kdim) and value (S, N, vdim), batch first if `batch_first`, or without a batch.
    `key_padding_mask` (N, S) leaves keys out, `attn_mask` (L, S) or (N * heads, L, S) pairs; true (or -inf) means: left out.
    Returns the output and, if `need_weights`, the weights, averaged over the heads if `average_attn_weights`.

    Example: `output, weights = nn.MultiheadAttention(8, 2)(x, x, x)  # x: (5, 3, 8)`
    """

    __constants__ = ["batch_first"]

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def parameter(name: str, wanted: bool, *size: int) -> None:
            made = Parameter(rushlight.empty(size, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)

        same = self._qkv_same_embed_dim
        if same:
            parameter("in_proj_weight", True, 3 * embed_dim, embed_dim)
        for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            parameter(f"{name}_proj_weight", not same, embed_dim, size)
        if not same:
            self.register_parameter("in_proj_weight", None)
        parameter("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            parameter("bias_k", True, 1, 1, embed_dim)
            parameter("bias_v", True, 1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("_qkv_same_embed_dim", True)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """The output and the weights (None if not wanted)."""
        turned = self.batch_first and query.dim() == 3
        if turned:
            query, key, value = _turned(query, key, value)
        separate = not self._qkv_same_embed_dim
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=separate,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return output.transpose(1, 0) if turned else output, weights


def _turned(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """Batch second. Inputs that are one tensor stay one, so that they are projected by one product."""
    first = query.transpose(1, 0)
    second = first if key is query else key.transpose(1, 0)
    third = second if value is key else first if value is query else value.transpose(1, 0)
    return first, second, third
