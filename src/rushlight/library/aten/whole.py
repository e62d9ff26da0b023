"""Kernels of operators that PyTorch makes of others, for graphs that have them whole: recurrent layers, normalisations,
losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.library.aten import conventions, internal
from rushlight.library.aten.kernels import FUNCTIONS, KERNELS, absent, kernel, tags
from rushlight.nn import functional as F
from rushlight.nn.composites.recurrence import run_cell, run_layers

__all__ = ["FUNCTIONS", "KERNELS", "absent", "tags"]

# The modules that register more kernels when they are loaded.
FILLED_BY = (conventions, internal)

# ***** recurrent layers *****


def _weights(params: Sequence[Any], biases: bool, directions: int, layers: int, projected: bool) -> list[list[Any]]:
    """For each layer and direction [w_ih, w_hh, b_ih, b_hh, w_hr], None for what is absent."""
    size = 2 + 2 * biases + projected
    rows = []
    for k in range(layers * directions):
        row = list(params[k * size : (k + 1) * size])
        shrink = row.pop() if projected else None
        rows.append([*row[:2], *(row[2:4] if biases else (None, None)), shrink])
    return rows


def _layers(
    mode: str, x: Any, state: tuple[Any, ...], params: Any, has_biases: bool, num_layers: int, rest: tuple[Any, ...]
) -> tuple[Any, ...]:
    dropout, train, bidirectional, batch_first = rest
    x = x.transpose(0, 1) if batch_first else x
    length, batch = x.size(0), x.size(1)
    directions = 1 + bidirectional
    projected = mode == "LSTM" and state[0].size(2) != state[1].size(2)
    if x.is_meta:  # shapes alone: steps are not run, so that their number may vary
        out = x.new_empty((length, batch, state[0].size(2) * directions))
        return (out.transpose(0, 1) if batch_first else out, *[part.new_empty(part.shape) for part in state])
    weights = _weights(params, has_biases, directions, num_layers, projected)
    data, last = run_layers(
        mode, x.reshape(length * batch, x.size(2)), [batch] * length, state, weights, directions, dropout, train
    )
    out = data.reshape(length, batch, data.size(1))
    return (out.transpose(0, 1) if batch_first else out, *last)


@kernel("lstm.input")
def lstm(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:  # fmt: skip
    rest = dropout, train, bidirectional, batch_first
    return _layers("LSTM", input, tuple(hx), params, has_biases, num_layers, rest)


def _recurrent(mode: str) -> Any:
    def run(
        input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> tuple[Any, ...]:  # fmt: skip
        return _layers(mode, input, (hx,), params, has_biases, num_layers, (dropout, train, bidirectional, batch_first))

    return run


def _cell(mode: str) -> Any:
    def run(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        state = tuple(hx) if mode == "LSTM" else (hx,)
        made = run_cell(mode, input, state, [w_ih, w_hh, b_ih, b_hh])
        return made if mode == "LSTM" else made[0]

    return run


for _name, _mode in (("gru", "GRU"), ("rnn_tanh", "RNN_TANH"), ("rnn_relu", "RNN_RELU")):
    KERNELS[f"{_name}.input"] = _recurrent(_mode)
    FUNCTIONS[f"{_name}_cell"] = _cell(_mode)
FUNCTIONS["lstm_cell"] = _cell("LSTM")


# ***** normalisations *****


@kernel("layer_norm")
def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    return F.layer_norm(input, tuple(normalized_shape), weight, bias, eps)


@kernel("group_norm")
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    return F.group_norm(input, num_groups, weight, bias, eps)


@kernel("instance_norm")
def instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


# ***** losses, products, codes *****

_REDUCTIONS = ("none", "mean", "sum")


@kernel("nll_loss_nd", "nll_loss", "nll_loss2d")
def nll_loss_nd(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])


@kernel("einsum")
def einsum(equation: str, tensors: Any, *, path: Any = None) -> Any:
    return rushlight.einsum(equation, *tensors)


@kernel("one_hot")
def one_hot(self: Any, num_classes: int = -1) -> Any:
    return F.one_hot(self, num_classes)


@kernel("embedding_bag.padding_idx")
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The bags; where each index is and how long bags are is for a backward that is made otherwise here: empty."""
    count = offsets.shape[0] - include_last_offset
    if weight.device.type == "meta":  # no offsets to read
        out = weight.new_empty(count, weight.shape[1])
        return (out, *[indices.new_zeros(n) for n in (indices.shape[0], count, count)])
    out = F.embedding_bag(
        indices, weight, offsets, mode=("sum", "mean", "max")[mode], per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )  # fmt: skip
    rows = [indices.shape[0], count, count]
    return (out, *[indices.new_zeros(n) for n in rows])


# ***** normalisations below autograd *****


@kernel("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    out = F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return out, input.new_empty(0), input.new_empty(0)


@kernel("_native_batch_norm_legit_functional")
def batch_norm_functional(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """As `_native_batch_norm_legit`, with new running statistics as results."""
    mean, var = running_mean.clone(), running_var.clone()
    found = rushlight.native_batch_norm(input, weight, bias, mean, var, training, momentum, eps)
    return (*found, mean, var)


# ***** assertions, and other small ones *****


@kernel("_assert_scalar")
def assert_scalar(self: Any, assert_msg: str) -> None:
    if not self:
        raise RuntimeError(assert_msg)


@kernel("_assert_async")
def assert_async(self: Any) -> None:
    assert_async_with(self, "Expected Tensor with single nonzero value, but got zero")


@kernel("_assert_async.msg")
def assert_async_with(self: Any, assert_msg: str) -> None:
    if not self.is_meta and not bool(self):
        raise RuntimeError(assert_msg)


@kernel("_assert_tensor_metadata")
def assert_tensor_metadata(
    a: Any, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None, layout: Any = None
) -> None:
    for word, found, wanted in (
        ("sizes", list(a.shape), size), ("strides", list(a.stride()), stride), ("dtype", a.dtype, dtype), ("device", a.device, device),
        ("layout", a.layout, layout),
    ):  # fmt: skip
        if wanted is not None and found != (list(wanted) if isinstance(wanted, (list, tuple)) else wanted):
            raise RuntimeError(f"Tensor {word} mismatch! Expected: {wanted}, Got: {found}")


@kernel("to.dtype_layout")
def to_dtype_layout(
    self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False,
    copy: bool = False, memory_format: Any = None,
) -> Any:  # fmt: skip
    if layout is not None and layout is not self.layout:
        raise NotImplementedError(f"aten::to.dtype_layout: from {self.layout} to {layout}")
    place, kind = self.device if device is None else device, dtype or self.dtype
    return self.to(place, kind, non_blocking, copy, memory_format=memory_format)


@kernel("lift_fresh_copy")
def lift_fresh_copy(self: Any) -> Any:
    return self.clone()


def _resized(mode: str, corners: bool) -> Any:
    def with_corners(input: Any, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
        return F.interpolate(input, output_size, scale_factors, mode, align_corners)

    def plain(input: Any, output_size: Any, scale_factors: Any = None) -> Any:
        return F.interpolate(input, output_size, scale_factors, mode)

    return with_corners if corners else plain


for _name, _mode, _corners in (
    ("nearest1d", "nearest", False), ("nearest2d", "nearest", False), ("nearest3d", "nearest", False), ("linear1d", "linear", True),
    ("bilinear2d", "bilinear", True), ("trilinear3d", "trilinear", True), ("bicubic2d", "bicubic", True),
):  # fmt: skip
    KERNELS[f"upsample_{_name}.vec"] = _resized(_mode, _corners)
