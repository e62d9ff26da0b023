"""Functions of quantized tensors whose result has a scale of its own."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._interface.operators import function_of
from rushlight.ao.operators.packed import _made, given, holder_of, requantize, require_zero_point
from rushlight.nn import functional

__all__: list[str] = []

_pair = function_of("quantized_pair")


def _both(how: str, a: Any, b: Any, scale: float, zero_point: int, relu: bool = False) -> Any:
    x, y = given(a, how)._quantizer, given(b, how)._quantizer
    if a.dtype is not b.dtype:
        raise RuntimeError(f"quantized::{how}: both tensors must have one dtype, got {a.dtype} and {b.dtype}")
    ints = _pair(
        a._ints, b._ints, x.scale, x.zero_point, y.scale, y.zero_point, float(scale), int(zero_point), how=how,
        result=holder_of(a.dtype), relu=relu,
    )  # fmt: skip
    return _made(ints, scale, zero_point, a.dtype)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float))


def add(qa: Any, qb: Any, scale: Any = None, zero_point: Any = None) -> Any:
    """qa + qb, quantized by `scale` and `zero_point`; with a number, by the scale that its result needs."""
    if _is_number(qa) or _is_number(qb):
        return add_scalar(*((qb, qa) if _is_number(qa) else (qa, qb)))
    return _both("add", qa, qb, scale, zero_point)


def add_relu(qa: Any, qb: Any, scale: Any = None, zero_point: Any = None) -> Any:
    """relu(qa + qb), quantized by `scale` and `zero_point`."""
    if _is_number(qa) or _is_number(qb):
        return torch.relu(add(qa, qb))
    return _both("add", qa, qb, scale, zero_point, relu=True)


def mul(qa: Any, qb: Any, scale: Any = None, zero_point: Any = None) -> Any:
    """qa * qb, quantized by `scale` and `zero_point`; with a number, by the scale times that number."""
    if _is_number(qa) or _is_number(qb):
        return mul_scalar(*((qb, qa) if _is_number(qa) else (qa, qb)))
    return _both("mul", qa, qb, scale, zero_point)


def mul_relu(qa: Any, qb: Any, scale: Any = None, zero_point: Any = None) -> Any:
    """relu(qa * qb), quantized by `scale` and `zero_point`."""
    if _is_number(qa) or _is_number(qb):
        return torch.relu(mul(qa, qb))
    return _both("mul", qa, qb, scale, zero_point, relu=True)


def add_scalar(qa: Any, b: Any) -> Any:
    """qa + b: the zero point moves, and where it would leave the integers, the scale grows too."""
    q = given(qa, "add_scalar")._quantizer
    b = float(b.item() if isinstance(b, torch.Tensor) else b)
    low, high = (0, 255) if qa.dtype is torch.quint8 else (-128, 127)
    steps = round(b / q.scale)
    zero = q.zero_point - steps
    if low <= zero <= high:
        return _made(qa._ints, q.scale, zero, qa.dtype)
    if zero < low:
        scale, zero = q.scale * (high - zero) / (high - low), low
    else:
        scale, zero = q.scale * (zero - low) / (high - low), high
    return requantize(torch.dequantize(qa) + steps * q.scale, scale, zero, qa.dtype)


def add_scalar_relu(qa: Any, b: Any) -> Any:
    """relu(qa + b)."""
    return torch.relu(add_scalar(qa, b))


def mul_scalar(qa: Any, b: Any) -> Any:
    """qa * b: the integers stay, the scale is multiplied; a negative factor mirrors them."""
    q = given(qa, "mul_scalar")._quantizer
    b = float(b.item() if isinstance(b, torch.Tensor) else b)
    if b > 0:
        return _made(qa._ints, q.scale * b, q.zero_point, qa.dtype)
    low, high = (0, 255) if qa.dtype is torch.quint8 else (-128, 127)
    if b == 0:
        return _made(torch.zeros_like(qa._ints), 1.0, 0, qa.dtype)
    mirrored = (low + high - qa._ints.to(torch.int32)).to(qa._ints.dtype)
    return _made(mirrored, q.scale * -b, low + high - q.zero_point, qa.dtype)


def mul_scalar_relu(qa: Any, b: Any) -> Any:
    """relu(qa * b)."""
    return torch.relu(mul_scalar(qa, b))


def _through(x: Any, what: str, function: Any, scale: float, zero_point: int) -> Any:
    return requantize(function(torch.dequantize(given(x, what))), scale, zero_point, x.dtype)


def cat(qx: Any, dim: int, scale: Any = None, zero_point: Any = None) -> Any:
    """Tensors joined along `dim`, quantized by `scale` and `zero_point` (default: the first one's)."""
    first = given(qx[0], "cat")
    scale = first.q_scale() if scale is None else float(scale)
    zero_point = first.q_zero_point() if zero_point is None else int(zero_point)
    require_zero_point(zero_point, first.dtype)
    for t in qx:
        if given(t, "cat").dtype is not first.dtype:
            raise RuntimeError(f"All dtypes must be the same: got {first.dtype} and {t.dtype}.")
    same = [
        t
        if t.q_scale() == scale and t.q_zero_point() == zero_point
        else requantize(torch.dequantize(t), scale, zero_point, t.dtype)
        for t in qx
    ]
    return _made(torch.cat([t._ints for t in same], dim), scale, zero_point, first.dtype)


def cat_relu(qx: Any, dim: int, scale: Any = None, zero_point: Any = None) -> Any:
    """relu of `cat`."""
    return torch.relu(cat(qx, dim, scale, zero_point))


def matmul(qa: Any, qb: Any, scale: float, zero_point: int) -> Any:
    """The product of matrices (and batches of them), quantized by `scale` and `zero_point`."""
    require_zero_point(zero_point, given(qa, "matmul").dtype)
    y = torch.matmul(torch.dequantize(given(qa, "matmul")), torch.dequantize(given(qb, "matmul")))
    return requantize(y, scale, zero_point, qa.dtype)


def relu6(qx: Any, inplace: bool = False) -> Any:
    """Clamped to [0, 6], quantized as the input is."""
    q = given(qx, "relu6")._quantizer
    high = min(255 if qx.dtype is torch.quint8 else 127, round(6.0 / q.scale) + q.zero_point)
    ints = torch.clamp(qx._ints, q.zero_point, high)
    if inplace:
        qx._ints.copy_(ints)
        return qx
    return _made(ints, q.scale, q.zero_point, qx.dtype)


def clamp(qx: Any, min: Any = None, max: Any = None) -> Any:
    """Clamped to [min, max], quantized as the input is."""
    return torch.clamp(given(qx, "clamp"), min, max)


def threshold(qx: Any, threshold: float, value: float) -> Any:
    """`value` where the input is at most `threshold`, quantized as the input is."""
    return _through(
        qx, "threshold", lambda x: functional.threshold(x, threshold, value), qx.q_scale(), qx.q_zero_point()
    )


def sigmoid(qx: Any, output_scale: float, output_zero_point: int) -> Any:
    """The logistic function, quantized by the given scale."""
    return _through(qx, "sigmoid", torch.sigmoid, output_scale, output_zero_point)


def hardswish(input: Any, output_scale: float, output_zero_point: int) -> Any:
    """x relu6(x + 3) / 6, quantized by the given scale."""
    return _through(input, "hardswish", functional.hardswish, output_scale, output_zero_point)


def leaky_relu(qx: Any, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int) -> Any:
    """x or negative_slope x, quantized by the given scale."""
    return _through(
        qx, "leaky_relu", lambda x: functional.leaky_relu(x, negative_slope), output_scale, output_zero_point
    )


def elu(
    self: Any, output_scale: float, output_zero_point: int, alpha: float = 1.0, scale: float = 1, input_scale: float = 1
) -> Any:
    """x or alpha (e^x - 1), quantized by the given scale."""
    return _through(
        self, "elu", lambda x: scale * functional.elu(input_scale * x, alpha), output_scale, output_zero_point
    )


def celu(self: Any, output_scale: float, output_zero_point: int, alpha: float = 1.0) -> Any:
    """x or alpha (e^(x / alpha) - 1), quantized by the given scale."""
    return _through(self, "celu", lambda x: functional.celu(x, alpha), output_scale, output_zero_point)


def prelu(qx: Any, weight: Any, output_scale: float, output_zero_point: int) -> Any:
    """x or weight x, quantized by the given scale."""
    slope = torch.dequantize(weight) if weight.is_quantized else weight
    return _through(qx, "prelu", lambda x: functional.prelu(x, slope), output_scale, output_zero_point)


def softmax(qx: Any, dim: int, output_scale: float, output_zero_point: int) -> Any:
    """The softmax along `dim`, quantized by the given scale."""
    require_zero_point(output_zero_point, given(qx, "softmax").dtype)
    return _through(qx, "softmax", lambda x: torch.softmax(x, dim), output_scale, output_zero_point)


def dropout(
    self: Any, output_scale: float = 0.0, output_zero_point: int = 0, p: float = 0.5, training: bool = False
) -> Any:
    """The input: integers are not dropped."""
    return self


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> Any:
    """Normalised over the last dims, quantized by the given scale."""
    return _through(
        input,
        "layer_norm",
        lambda x: functional.layer_norm(x, normalized_shape, weight, bias, eps),
        output_scale,
        output_zero_point,
    )


def group_norm(
    qx: Any, num_groups: int, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> Any:
    """Normalised over groups of channels, quantized by the given scale."""
    return _through(
        qx,
        "group_norm",
        lambda x: functional.group_norm(x, num_groups, weight, bias, eps),
        output_scale,
        output_zero_point,
    )


def instance_norm(qx: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int) -> Any:
    """Normalised over each channel of each image, quantized by the given scale."""
    return _through(
        qx,
        "instance_norm",
        lambda x: functional.instance_norm(x, weight=weight, bias=bias, eps=eps),
        output_scale,
        output_zero_point,
    )


def batch_norm(
    qx: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float, output_scale: float, output_zero_point: int
) -> Any:
    """Normalised by running statistics, quantized by the given scale."""
    return _normalised(qx, (weight, bias, mean, var, eps), output_scale, output_zero_point)


def batch_norm_relu(
    qx: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float, output_scale: float, output_zero_point: int
) -> Any:
    """relu of `batch_norm`."""
    return _normalised(qx, (weight, bias, mean, var, eps), output_scale, output_zero_point, torch.relu)


def _normalised(qx: Any, by: tuple[Any, ...], scale: float, zero_point: int, then: Any = lambda x: x) -> Any:
    """A batch norm and what follows it; images are channels last, whatever the input."""
    weight, bias, mean, var, eps = by
    made = _through(
        qx,
        "batch_norm",
        lambda x: then(functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)),
        scale,
        zero_point,
    )
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return made.contiguous(memory_format=formats[made.dim()]) if made.dim() in formats else made


def max_pool1d(qx: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    """The largest of each window, quantized as the input is."""
    return functional.max_pool1d(qx, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(qx: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    """The largest of each window, quantized as the input is."""
    return functional.max_pool2d(qx, kernel_size, stride, padding, dilation, ceil_mode)


batch_norm1d = batch_norm2d = batch_norm3d = batch_norm
batch_norm1d_relu = batch_norm2d_relu = batch_norm3d_relu = batch_norm_relu
