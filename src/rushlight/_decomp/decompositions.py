"""The table of decompositions; operators that are not in it stay whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import rushlight
from rushlight.library.builtin import BuiltinPacket

__all__ = [
    "core_aten_decompositions",
    "decomposition_table",
    "get_decompositions",
    "register_decomposition",
    "remove_decompositions",
]

Rule = Callable[..., Any]
decomposition_table: dict[Any, Rule] = {}
aten: Any = rushlight.ops.aten


def _overloads(op: Any) -> list[Any]:
    """The overload itself, or those of a packet that write into nothing."""
    if isinstance(op, BuiltinPacket):
        found = [getattr(op, name) for name in op.overloads()]
        return [o for o in found if o.form is None or not o.form.writes_out]
    return [op]


def register_decomposition(
    aten_op: Any, registry: dict[Any, Rule] | None = None, *, type: str = "post_autograd", unsafe: bool = False
) -> Callable[[Rule], Rule]:
    """Decorator: the function decomposes these operators, in `registry` or the common table."""
    table = decomposition_table if registry is None else registry

    def register(function: Rule) -> Rule:
        for op in aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]:
            for overload in _overloads(op):
                table[overload] = function
        return function

    return register


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Rule]:
    """The rules of these operators, by overload; operators without one are left out."""
    found = {}
    for op in aten_ops:
        for overload in _overloads(op):
            if overload in decomposition_table:
                found[overload] = decomposition_table[overload]
    return found


def remove_decompositions(decompositions: dict[Any, Rule], aten_ops: Iterable[Any]) -> None:
    """Take the rules of these operators out of a table."""
    for op in aten_ops:
        for overload in _overloads(op):
            decompositions.pop(overload, None)


def core_aten_decompositions() -> dict[Any, Rule]:
    """A copy of the common table."""
    return dict(decomposition_table)


# ***** rules *****


@register_decomposition(aten.addmm.default)
def addmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    out = rushlight.mm(mat1, mat2)
    out = out if alpha == 1 else out * alpha
    return out + (self if beta == 1 else self * beta)


@register_decomposition(aten.silu.default)
def silu(self: Any) -> Any:
    return self * rushlight.sigmoid(self)


@register_decomposition(aten.silu_backward.default)
def silu_backward(grad_output: Any, self: Any) -> Any:
    s = rushlight.sigmoid(self)
    return grad_output * s * (1 + self * (1 - s))


@register_decomposition(aten.sigmoid_backward.default)
def sigmoid_backward(out_grad: Any, y: Any) -> Any:
    return out_grad * (y * (1 - y))


@register_decomposition(aten.tanh_backward.default)
def tanh_backward(out_grad: Any, y: Any) -> Any:
    return out_grad * (1 - y * y)


@register_decomposition(aten.threshold_backward.default)
def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return rushlight.where(self <= threshold, 0, grad_output)


@register_decomposition(aten.gelu.default)
def gelu(self: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (self + 0.044715 * (self * self * self))
        return 0.5 * self * (1 + rushlight.tanh(inner))
    return self * 0.5 * (1 + rushlight.erf(self * math.sqrt(0.5)))


@register_decomposition(aten.leaky_relu.default)
def leaky_relu(self: Any, negative_slope: float = 0.01) -> Any:
    return rushlight.where(self > 0, self, self * negative_slope)


@register_decomposition(aten.hardtanh.default)
def hardtanh(self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    return rushlight.clamp(self, min_val, max_val)


@register_decomposition(aten.softplus.default)
def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = self * beta
    return rushlight.where(scaled > threshold, self, rushlight.log1p(rushlight.exp(scaled)) / beta)


@register_decomposition(aten._softmax.default)
def softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    raised = rushlight.exp(x - rushlight.amax(x, dim, keepdim=True)) if x.numel() else rushlight.exp(x)
    return raised / rushlight.sum(raised, dim, keepdim=True)


@register_decomposition(aten._log_softmax.default)
def log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    shifted = x - rushlight.amax(x, dim, keepdim=True) if x.numel() else x
    return shifted - rushlight.log(rushlight.sum(rushlight.exp(shifted), dim, keepdim=True))


@register_decomposition(aten._softmax_backward_data.default)
def softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = grad_output * output
    return product - output * rushlight.sum(product, dim, keepdim=True)


@register_decomposition(aten._log_softmax_backward_data.default)
def log_softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return grad_output - rushlight.exp(output) * rushlight.sum(grad_output, dim, keepdim=True)


@register_decomposition(aten.mse_loss.default)
def mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    square = (self - target) ** 2
    return square.mean() if reduction == 1 else square.sum() if reduction == 2 else square


@register_decomposition(aten.native_layer_norm.default)
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    var, mean = rushlight.var_mean(input, dims, correction=0, keepdim=True)
    rstd = rushlight.rsqrt(var + eps)
    out = (input - mean) * rstd
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias), mean, rstd


@register_decomposition(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, output_mask: Any
) -> Any:
    k = input.dim() - len(normalized_shape)
    dims, lead = list(range(k, input.dim())), list(range(k))
    scaled = (input - mean) * rstd
    inner = grad_out if weight is None else grad_out * weight
    made = (
        rstd * (inner - inner.mean(dims, True) - scaled * (inner * scaled).mean(dims, True)) if output_mask[0] else None
    )
    w = (grad_out * scaled).sum(lead) if lead else grad_out * scaled
    b = grad_out.sum(lead) if lead else grad_out.clone()
    return made, w if output_mask[1] else None, b if output_mask[2] else None


@register_decomposition([aten.addcmul.default])
def addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    return self + (tensor1 * tensor2 if value == 1 else value * tensor1 * tensor2)


@register_decomposition([aten.addcdiv.default])
def addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    return self + value * (tensor1 / tensor2)


@register_decomposition(aten.rsub.Tensor)
def rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    return other - (self if alpha == 1 else self * alpha)


@register_decomposition(aten.select_backward.default)
def select_backward(grad_output: Any, input_sizes: Any, dim: int, index: int) -> Any:
    return rushlight.select_scatter(grad_output.new_zeros(list(input_sizes)), grad_output, dim, index)


@register_decomposition(aten.slice_backward.default)
def slice_backward(grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    return rushlight.slice_scatter(grad_output.new_zeros(list(input_sizes)), grad_output, dim, start, end, step)


@register_decomposition(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    if scale_grad_by_freq:
        return NotImplemented
    if padding_idx >= 0:
        grad_output = grad_output.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
    weight = grad_output.new_zeros([num_weights, grad_output.shape[-1]])
    return weight.index_put([indices], grad_output, accumulate=True)
