"""`torch.onnx.ops`: operators of ONNX in models: `symbolic` for any of them, `attention` and `rotary_embedding` that also run.

>>> import rushlight as torch
>>> class Model(torch.nn.Module):
...     def forward(self, x):
...         return torch.onnx.ops.symbolic("my.domain::Fancy", (x,), {"alpha": 0.5}, dtype=x.dtype, shape=x.shape, version=1)
>>> node = torch.onnx.export(Model(), (torch.ones(3),), verbose=False).model_proto.graph.node[0]
>>> node.domain, node.op_type
('my.domain', 'Fancy')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import LazyModule

__all__ = ["aten_decompositions", "attention", "rotary_embedding", "symbolic", "symbolic_multi_out"]

_operators: Any = LazyModule("rushlight.onnx.exporting.operators")


def aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """The operators of `torch.ops.onnx` as functions of aten operators."""
    return _operators.decompositions()


def symbolic(
    domain_op: str,
    /,
    inputs: Sequence[Tensor | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtype: Any,
    shape: Sequence[Any],
    version: int | None = None,
    metadata_props: Mapping[str, str] | None = None,
) -> Tensor:
    """A call of an ONNX operator (`domain::Name`) with one result of `dtype` and `shape`: exported as it is; zeros when run.

    Attributes are numbers, texts, and lists of them.  ValueError for others, and for a name without `::`.
    """
    return _operators.symbolic(domain_op, inputs, attrs or {}, [dtype], [shape], version, metadata_props or {})[0]


def symbolic_multi_out(
    domain_op: str,
    /,
    inputs: Sequence[Tensor | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtypes: Sequence[Any],
    shapes: Sequence[Sequence[Any]],
    version: int | None = None,
    metadata_props: Mapping[str, str] | None = None,
) -> Sequence[Tensor]:
    """`symbolic` with several results."""
    if len(dtypes) != len(shapes):
        raise ValueError(f"{len(dtypes)} dtypes and {len(shapes)} shapes: one of each for each result")
    return _operators.symbolic(domain_op, inputs, attrs or {}, dtypes, shapes, version, metadata_props or {}, True)


def rotary_embedding(
    X: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """ONNX's RotaryEmbedding: `X` is (batch, heads, length, size), or (batch, length, heads * size) with `num_heads`.

    The caches are (positions, size / 2) where `position_ids` (batch, length) are given, else (batch, length, size / 2).
    """
    return _operators.rotary(X, cos_cache, sin_cache, position_ids, interleaved, num_heads, rotary_embedding_dim)


def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ONNX's Attention: (result, keys, values, scores); keys and values have those of the past in front.

    Tensors are (batch, heads, length, size), or (batch, length, heads * size) with the numbers of heads.
    """
    how = (is_causal, kv_num_heads, q_num_heads, qk_matmul_output_mode, scale, softcap, softmax_precision)
    return _operators.attention(Q, K, V, attn_mask, past_key, past_value, how)
