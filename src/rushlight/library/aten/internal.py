"""Operators that PyTorch's own functions are made of: graphs and archives that it wrote hold them.

Each is a row over operators that the package has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight.library.aten.kernels import FUNCTIONS, kernel
from rushlight.nn import functional as F
from rushlight.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

__all__ = ["ROWS"]

_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def _windowed(grouped: bool = False) -> Callable[..., Any]:
    """A convolution whose kernel's size is an argument beside the weight."""

    def run(
        x: Any, weight: Any, size: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1
    ) -> Any:
        convolve = _CONVOLUTIONS[weight.dim() - 3]
        return convolve(x, weight, bias, stride, padding, dilation, x.shape[1] if grouped else 1)

    return run


def _transposed(
    x: Any, weight: Any, size: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, dilation: Any = 1
) -> Any:  # fmt: skip
    return _TRANSPOSED[weight.dim() - 3](x, weight, bias, stride, padding, output_padding, 1, dilation)


def _convolution_mode(x: Any, weight: Any, bias: Any, stride: Any, padding: str, dilation: Any, groups: int) -> Any:
    return _CONVOLUTIONS[weight.dim() - 3](x, weight, bias, stride, padding, dilation, groups)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    norms = rushlight.norm_except_dim(v, 2, dim)
    return v * (g / norms), norms


def _packed(x: Any, lengths: Any, batch_first: bool) -> Any:
    made = pack_padded_sequence(x, lengths, batch_first)
    return made.data, made.batch_sizes


def _unpacked(data: Any, batch_sizes: Any, batch_first: bool, padding_value: Any, total_length: int) -> Any:
    total = None if total_length < 0 else total_length
    return pad_packed_sequence(PackedSequence(data, batch_sizes), batch_first, padding_value, total)


def _pad_enum(x: Any, pad: Any, mode: int, value: float | None = None) -> Any:
    return F.pad(x, pad, ("reflect", "replicate", "circular", "constant")[mode], value)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    made = rushlight.ops.aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return (*made, x.new_empty(0, dtype=rushlight.uint8), 0)


def _attention_math(
    q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, dropout_mask: Any = None, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention, and its weights."""
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        mask = rushlight.ones(q.shape[-2], k.shape[-2], dtype=rushlight.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -float("inf")) if mask.dtype is rushlight.bool else scores + mask
    alone = (scores == -float("inf")).all(-1, keepdim=True)
    weights = scores.masked_fill(alone, 0.0).softmax(-1).masked_fill(alone, 0.0)  # no key, no weight
    if dropout_mask is not None:
        weights = weights.masked_fill(~dropout_mask, 0) / (1 - dropout_p)
    elif dropout_p:
        weights = F.dropout(weights, dropout_p)
    return weights @ v, weights


def _multi_head(
    query: Any, key: Any, value: Any, embed_dim: int, heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any, proj_bias: Any, mask: Any = None,
    need_weights: bool = True, average: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Attention of several heads over batches: `mask_type` 0 is a mask of positions, 1 one of keys, 2 one of both."""
    masks: dict[str, Any] = {}
    if mask is not None:
        if mask_type == 1:
            masks["key_padding_mask"] = mask
        else:
            masks["attn_mask"] = mask.reshape(-1, *mask.shape[-2:]) if mask.dim() > 3 else mask
    batch_second = [t.transpose(0, 1) for t in (query, key, value)]
    made, weights = F.multi_head_attention_forward(
        *batch_second, embed_dim, heads, qkv_weight, qkv_bias, None, None, False, 0.0, proj_weight, proj_bias, training=False,
        need_weights=need_weights, average_attn_weights=average, **masks,
    )  # fmt: skip
    return made.transpose(0, 1), weights


def _encoder_layer(
    x: Any, embed_dim: int, heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any, proj_bias: Any, use_gelu: bool, norm_first: bool,
    eps: float, norm1: Any, norm1_bias: Any, norm2: Any, norm2_bias: Any, first: Any, first_bias: Any, second: Any, second_bias: Any,
    mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """A layer of a transformer's encoder in evaluation mode."""

    def attended(y: Any) -> Any:
        return _multi_head(
            y, y, y, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def fed(y: Any) -> Any:
        return F.linear((F.gelu if use_gelu else F.relu)(F.linear(y, first, first_bias)), second, second_bias)

    def normed(y: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(y, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = x + attended(normed(x, norm1, norm1_bias))
        return x + fed(normed(x, norm2, norm2_bias))
    x = normed(x + attended(x), norm1, norm1_bias)
    return normed(x + fed(x), norm2, norm2_bias)


def _flattened(tensors: Sequence[Any]) -> Any:
    return rushlight.cat([t.reshape(-1) for t in tensors])


def _unflattened(flat: Any, tensors: Sequence[Any]) -> list[Any]:
    parts = flat.split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


# What computes each operator, from its arguments in the order of its schema.
ROWS: dict[str, Callable[..., Any]] = {
    "_convolution_mode": _convolution_mode, "thnn_conv2d": _windowed(), "_slow_conv2d_forward": _windowed(), "slow_conv3d": _windowed(),
    "slow_conv3d_forward": _windowed(), "slow_conv_dilated2d": _windowed(), "slow_conv_dilated3d": _windowed(), "_conv_depthwise2d": _windowed(True),
    "conv_depthwise3d": _windowed(True), "slow_conv_transpose2d": _transposed, "slow_conv_transpose3d": _transposed,
    "_weight_norm_interface": _weight_norm, "_pack_padded_sequence": _packed, "_pad_packed_sequence": _unpacked,
    "_pad_circular": lambda x, pad: F.pad(x, pad, "circular"), "_pad_enum": _pad_enum, "_batch_norm_impl_index": _batch_norm,
    "_scaled_dot_product_attention_math": _attention_math, "_native_multi_head_attention": _multi_head, "_transformer_encoder_layer_fwd": _encoder_layer,
    "_stack": lambda tensors, dim=0: rushlight.stack(tensors, dim), "_dim_arange": lambda like, dim: rushlight.arange(like.size(dim), device=like.device),
    "_add_relu": lambda x, other, alpha=1: rushlight.add(x, other, alpha=alpha).relu(),
    "_add_relu_": lambda x, other, alpha=1: x.add_(other, alpha=alpha).relu_(), "_masked_scale": lambda x, mask, scale: x * mask * scale,
    "_cholesky_solve_helper": lambda x, a, upper: rushlight.cholesky_solve(x, a, upper), "_unsafe_index": lambda x, indices: rushlight.ops.aten.index.Tensor(x, indices),
    "_index_put_impl": lambda x, i, v, accumulate=False, unsafe=False: x.index_put(tuple(i), v, accumulate),
    "_index_put_impl_": lambda x, i, v, accumulate=False, unsafe=False: x.index_put_(tuple(i), v, accumulate),
    "_is_all_true": lambda x: x.all(), "_is_any_true": lambda x: x.any(), "_logcumsumexp": rushlight.logcumsumexp, "_linalg_eigvals": rushlight.linalg.eigvals,
    "_coalesce": lambda x: x.coalesce(), "_conj_copy": lambda x: x.conj().clone(), "_neg_view_copy": lambda x: x.neg(),
    "_reshape_copy": lambda x, size: x.reshape(size).clone(), "_reshape_alias_copy": lambda x, size, stride: x.as_strided(size, stride).clone(),
    "_values_copy": lambda x: x._values().clone(), "_indices_copy": lambda x: x._indices().clone(), "_to_cpu": lambda tensors: [t.cpu() for t in tensors],
    "flatten_dense_tensors": _flattened, "unflatten_dense_tensors": _unflattened, "pad_sequence": lambda *args: rushlight.nn.utils.rnn.pad_sequence(*args),
    "log_sigmoid": lambda x: F.logsigmoid(x), "gelu_": lambda x, *, approximate="none": x.copy_(F.gelu(x, approximate=approximate)),
    "nonzero_numpy": lambda x: list(rushlight.nonzero(x, as_tuple=True)), "is_leaf": lambda x: x.is_leaf, "retains_grad": lambda x: x.retains_grad,
    "output_nr": lambda x: x.output_nr, "_version": lambda x: x._version, "data": lambda x: x.data, "mT": lambda x: x.mT, "mH": lambda x: x.mH,
    "numpy_T": lambda x: x.T, "matrix_H": lambda x: x.H, "is_vulkan_available": lambda: False, "_use_cudnn_ctc_loss": lambda *args: False,
    "_use_miopen_ctc_loss": lambda *args: False, "_use_cudnn_rnn_flatten_weight": lambda: False,
}  # fmt: skip
FUNCTIONS.update(ROWS)


@kernel("_aminmax")
def aminmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return tuple(rushlight.aminmax(x) if dim is None else rushlight.aminmax(x, dim=dim, keepdim=keepdim))


@kernel("_native_batch_norm_legit")
def batch_norm(input: Any, weight: Any, bias: Any, *rest: Any, **named: Any) -> Any:
    """Either form: with running statistics, or without (`no_stats`), where `training` follows `bias`."""
    without = "training" in named and "running_mean" not in named if not rest else isinstance(rest[0], bool)
    form = batch_norm_without if without else rushlight.ops.aten.native_batch_norm.default
    return form(input, weight, bias, *rest, **named)


@kernel("_native_batch_norm_legit.no_stats")
def batch_norm_without(input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return rushlight.ops.aten.native_batch_norm.default(input, weight, bias, None, None, training, momentum, eps)
