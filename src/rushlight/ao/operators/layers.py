"""Layers over packed weights."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.ao.operators import packed as _packed
from rushlight.ao.operators.packed import (
    ConvPackedParams,
    EmbeddingPackedParams,
    LinearHalfPackedParams,
    LinearPackedParams,
    requantize,
)

__all__: list[str] = []

# ***** linear *****


def linear_prepack(W: Any, B: Any = None) -> Any:
    """The weight [N, K] (qint8) and the bias of a linear layer, packed."""
    return LinearPackedParams(W, B)


def linear_prepack_fp16(W: Any, B: Any = None) -> Any:
    """The weight [N, K] of a linear layer, rounded to float16, and its bias."""
    return LinearHalfPackedParams(W, B)


def linear_unpack(W_prepack: Any) -> Any:
    """Weight and bias of a packed linear layer."""
    return W_prepack.unpack()


linear_unpack_fp16 = linear_unpack


def linear(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """A linear layer of a quantized input, quantized by the given scale."""
    return W_prepack.apply(X, Y_scale_i, Y_zero_point_i)


def linear_relu(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """relu of a linear layer, in one kernel."""
    return W_prepack.apply(X, Y_scale_i, Y_zero_point_i, relu=True)


def _float_linear(X: Any, W_prepack: Any) -> Any:
    q = _packed.given(X, "linear")._quantizer
    return W_prepack.apply_to_numbers(torch.dequantize(X), q.scale, q.zero_point)


def linear_leaky_relu(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int, negative_slope: float) -> Any:
    """leaky_relu of a linear layer."""
    return requantize(
        torch.nn.functional.leaky_relu(_float_linear(X, W_prepack), negative_slope), Y_scale_i, Y_zero_point_i, X.dtype
    )


def linear_tanh(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """tanh of a linear layer."""
    return requantize(torch.tanh(_float_linear(X, W_prepack)), Y_scale_i, Y_zero_point_i, X.dtype)


def linear_dynamic(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
    """A linear layer of floats, quantized on the way by the scale that fits them; floats."""
    return W_prepack.apply_dynamic(X, reduce_range)


def linear_relu_dynamic(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
    """relu of `linear_dynamic`, in one kernel."""
    return W_prepack.apply_dynamic(X, reduce_range, relu=True)


def linear_dynamic_fp16(X: Any, W_prepack: Any) -> Any:
    """A linear layer whose weight is kept in float16."""
    return W_prepack.apply_dynamic(X)


def linear_relu_dynamic_fp16(X: Any, W_prepack: Any) -> Any:
    """relu of `linear_dynamic_fp16`."""
    return W_prepack.apply_dynamic(X, relu=True)


def linear_with_input_q_dq_qweight_dq_output_fp32(X: Any, X_scale: float, X_zero_point: int, W_prepack: Any) -> Any:
    """A linear layer of floats, quantized by the given scale; floats."""
    return W_prepack.apply_to_numbers(X, X_scale, X_zero_point)


def linear_with_input_q_dq_qweight_dq_relu_output_fp32(
    X: Any, X_scale: float, X_zero_point: int, W_prepack: Any
) -> Any:
    """relu of the same."""
    return W_prepack.apply_to_numbers(X, X_scale, X_zero_point, relu=True)


# ***** convolutions *****


def conv2d_prepack(weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The weight (qint8) and the bias of a convolution, packed with its geometry."""
    return ConvPackedParams(weight, bias, stride, padding, dilation, groups)


def conv_transpose2d_prepack(
    weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
) -> Any:
    """The weight (qint8) and the bias of a transposed convolution, packed with its geometry."""
    return ConvPackedParams(weight, bias, stride, padding, dilation, groups, output_padding, True)


def conv2d(qx: Any, packed_weight: Any, *rest: Any, **named: Any) -> Any:
    """A convolution of a quantized input; the last two arguments are scale and zero point of the result."""
    return _convolved(qx, packed_weight, rest, named, False)


def conv2d_relu(qx: Any, packed_weight: Any, *rest: Any, **named: Any) -> Any:
    """relu of `conv2d`, in one kernel."""
    return _convolved(qx, packed_weight, rest, named, True)


def _convolved(qx: Any, packed_weight: Any, rest: Any, named: Any, relu: bool) -> Any:
    values = (*rest, *(named[k] for k in ("output_scale", "output_zero_point") if k in named))
    return packed_weight.apply(qx, values[-2], values[-1], relu)


def conv2d_dynamic(qx: Any, packed_weight: Any, reduce_range: bool = False) -> Any:
    """A convolution of floats, quantized on the way by the scale that fits them; floats."""
    return packed_weight.apply_dynamic(qx, reduce_range)


def conv2d_add(qx: Any, qaccum: Any, packed_weight: Any, output_scale: float, output_zero_point: int) -> Any:
    """A convolution plus `qaccum`, quantized by the given scale."""
    return _added(qx, qaccum, packed_weight, (output_scale, output_zero_point), False)


def conv2d_add_relu(qx: Any, qaccum: Any, packed_weight: Any, output_scale: float, output_zero_point: int) -> Any:
    """relu of `conv2d_add`."""
    return _added(qx, qaccum, packed_weight, (output_scale, output_zero_point), True)


def _added(qx: Any, qaccum: Any, packed_weight: Any, parameters: tuple[float, int], relu: bool) -> Any:
    q = _packed.given(qx, "conv2d_add")._quantizer
    y = packed_weight._run(qx._ints, (q.scale, q.zero_point), 1.0, 0, "float32", False) + torch.dequantize(qaccum)
    return requantize(torch.relu(y) if relu else y, *parameters, qx.dtype)


def conv2d_unpack(packed_weights: Any) -> Any:
    """Weight and bias of a packed convolution."""
    return packed_weights.unpack()


def conv2d_unpack_sizes(packed_weights: Any) -> Any:
    """The sizes of the weight of a packed convolution."""
    return packed_weights.weight.size()


def conv2d_stride(packed_weights: Any) -> list[int]:
    """The strides of a packed convolution."""
    return list(packed_weights.stride)


def conv2d_padding(packed_weights: Any) -> list[int]:
    """The paddings of a packed convolution."""
    return list(packed_weights.padding)


def conv2d_dilation(packed_weights: Any) -> list[int]:
    """The dilations of a packed convolution."""
    return list(packed_weights.dilation)


def conv2d_groups(packed_weights: Any) -> int:
    """The groups of a packed convolution."""
    return int(packed_weights.groups)


def conv2d_output_padding(packed_weights: Any) -> list[int]:
    """The output paddings of a packed convolution."""
    return list(packed_weights.outer)


def conv2d_transpose(packed_weights: Any) -> int:
    """Whether a packed convolution is transposed."""
    return int(packed_weights.transposed)


_FAMILY = (
    "prepack",
    "relu",
    "dynamic",
    "add",
    "add_relu",
    "unpack",
    "stride",
    "padding",
    "dilation",
    "groups",
    "output_padding",
    "transpose",
)
for _n in (1, 3):  # one description for all numbers of dims: packed weights know theirs
    globals()[f"conv{_n}d"] = conv2d
    for _part in _FAMILY:
        globals()[f"conv{_n}d_{_part}"] = globals()[f"conv2d_{_part}"]
for _n in (1, 2, 3):
    globals()[f"conv_transpose{_n}d"] = conv2d
    globals()[f"conv_transpose{_n}d_prepack"] = conv_transpose2d_prepack
    for _part in _FAMILY[2:]:
        globals()[f"conv_transpose{_n}d_{_part}"] = globals()[f"conv2d_{_part}"]
conv_prepack, conv_unpack = conv2d_prepack, conv2d_unpack

# ***** embeddings *****


def embedding_bag_prepack(weight: Any) -> Any:
    """The weight of an embedding (quint8 or quint4x2), packed."""
    return EmbeddingPackedParams(weight)


def embedding_bag_unpack(W_prepack: Any) -> Any:
    """The weight of a packed embedding."""
    return W_prepack.unpack()


def embedding_byte(weight: Any, indices: Any, pruned_weights: bool = False) -> Any:
    """Rows of an embedding in float32."""
    return weight.rows(indices)


embedding_4bit = embedding_byte


def embedding_bag_byte(
    weight: Any, indices: Any, offsets: Any = None, scale_grad_by_freq: bool = False, mode: int = 0, pruned_weights: bool = False,
    per_sample_weights: Any = None, compressed_indices_mapping: Any = None, include_last_offset: bool = False,
) -> Any:  # fmt: skip
    """Sums of rows of an embedding, one for each bag, in float32."""
    if pruned_weights or compressed_indices_mapping is not None:
        raise NotImplementedError("embeddings with pruned rows are not here")
    if indices.dim() == 2:
        rows = weight.rows(indices)
        rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(-1)
        return rows.sum(1)
    rows, bags = weight.rows(indices), offsets.long()
    rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(-1)
    ends = bags[:-1] if include_last_offset else bags
    _check_offsets(ends, indices.shape[0])
    place = torch.bucketize(torch.arange(indices.shape[0]), ends, right=True) - 1
    made = torch.zeros(ends.shape[0], rows.shape[-1])
    return made.index_add_(0, place, rows)


def _check_offsets(ends: Any, count: int) -> None:
    """RuntimeError unless bags begin at 0, one behind the other, within so many indices."""
    places = ends.tolist()
    if places and (places[0] != 0 or places[-1] > count or places != sorted(places)):
        raise RuntimeError(
            f"embedding_bag: offsets must begin at 0, not decrease and not exceed the {count} indices, got {places}"
        )


embedding_bag_4bit = embedding_bag_byte

# ***** recurrent cells *****


def _gates(x: Any, hx: Any, ih: Any, hh: Any) -> tuple[Any, Any]:
    return ih.apply_dynamic(x, True), hh.apply_dynamic(hx, True)


def quantized_lstm_cell_dynamic(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of an LSTM whose products are `linear_dynamic`: (h, c)."""
    return lstm_step(sum(_gates(input, hx[0], w_ih, w_hh)), hx[1])


def lstm_step(gates: Any, c: Any) -> tuple[Any, Any]:
    """(h, c) of the sums for the four gates and the cell state before."""
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_step(ih: Any, hh: Any, h: Any) -> Any:
    """h of the sums from the input and from the hidden state before."""
    (ri, zi, ni), (rh, zh, nh) = ih.chunk(3, -1), hh.chunk(3, -1)
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    n = torch.tanh(ni + r * nh)
    return (h - n) * z + n


def quantized_gru_cell_dynamic(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a GRU whose products are `linear_dynamic`."""
    return gru_step(*_gates(input, hx, w_ih, w_hh), hx)


def quantized_rnn_tanh_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """One step of an RNN whose products are `linear_dynamic`."""
    return torch.tanh(sum(_gates(input, hx, w_ih, w_hh)))


def quantized_rnn_relu_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """One step of an RNN with relu whose products are `linear_dynamic`."""
    return torch.relu(sum(_gates(input, hx, w_ih, w_hh)))
