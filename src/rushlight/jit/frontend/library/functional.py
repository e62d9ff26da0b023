"""Functions of `nn.functional`, in the typed subset: read by the compiler, never run as it stands."""

# mypy: ignore-errors
# The compiler of scripts checks these pages: their types are those of scripts.

from __future__ import annotations

import math

import rushlight as torch
from rushlight import Tensor
from rushlight.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from rushlight.jit.frontend.library import function_form, overload_of, with_indices

# ***** activations *****


@function_form
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.relu_(input)
    else:
        result = torch.relu(input)
    return result


@function_form
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.relu6_(input)
    else:
        result = torch.ops.aten.relu6(input)
    return result


@function_form
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.leaky_relu_(input, negative_slope)
    else:
        result = torch.ops.aten.leaky_relu(input, negative_slope)
    return result


@function_form
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.hardtanh_(input, min_val, max_val)
    else:
        result = torch.ops.aten.hardtanh(input, min_val, max_val)
    return result


@function_form
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.elu_(input, alpha)
    else:
        result = torch.ops.aten.elu(input, alpha)
    return result


@function_form
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.celu_(input, alpha)
    else:
        result = torch.ops.aten.celu(input, alpha)
    return result


@function_form
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.selu_(input)
    else:
        result = torch.ops.aten.selu(input)
    return result


@function_form
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.silu_(input)
    return torch.ops.aten.silu(input)


@function_form
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.mish_(input)
    return torch.ops.aten.mish(input)


@function_form
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardsigmoid_(input)
    return torch.ops.aten.hardsigmoid(input)


@function_form
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardswish_(input)
    return torch.ops.aten.hardswish(input)


@function_form
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    if inplace:
        result = torch.ops.aten.rrelu_(input, lower, upper, training)
    else:
        result = torch.ops.aten.rrelu(input, lower, upper, training)
    return result


@function_form
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    if inplace:
        result = torch.ops.aten.threshold_(input, threshold, value)
    else:
        result = torch.ops.aten.threshold(input, threshold, value)
    return result


@function_form
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        if input.dim() == 0 or input.dim() == 1 or input.dim() == 3:
            dim = 0
        else:
            dim = 1
    if dtype is None:
        result = input.softmax(dim)
    else:
        result = input.softmax(dim, dtype=dtype)
    return result


@function_form
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        if input.dim() == 0 or input.dim() == 1 or input.dim() == 3:
            dim = 0
        else:
            dim = 1
    if dtype is None:
        result = input.log_softmax(dim)
    else:
        result = input.log_softmax(dim, dtype=dtype)
    return result


@function_form
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    return softmax(-input, dim, 3, dtype)


@function_form
def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


@function_form
def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


@function_form
def logsigmoid(input: Tensor) -> Tensor:
    return torch.ops.aten.log_sigmoid(input)


@function_form
def glu(input: Tensor, dim: int = -1) -> Tensor:
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    return torch.ops.aten.glu(input, dim)


@function_form
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    denom = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return input / denom


# ***** dropout *****


def checked_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@function_form
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    checked_probability(p)
    if inplace:
        result = torch.ops.aten.dropout_(input, p, training)
    else:
        result = torch.ops.aten.dropout(input, p, training)
    return result


@function_form
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    checked_probability(p)
    if inplace:
        result = torch.ops.aten.alpha_dropout_(input, p, training)
    else:
        result = torch.ops.aten.alpha_dropout(input, p, training)
    return result


@function_form
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    checked_probability(p)
    if inplace:
        result = torch.ops.aten.feature_alpha_dropout_(input, p, training)
    else:
        result = torch.ops.aten.feature_alpha_dropout(input, p, training)
    return result


@function_form
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    checked_probability(p)
    if inplace:
        result = torch.ops.aten.feature_dropout_(input, p, training)
    else:
        result = torch.ops.aten.feature_dropout(input, p, training)
    return result


@function_form
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    checked_probability(p)
    batched = input.dim() == 3
    if not batched:
        input = input.unsqueeze(0)
    result = torch.ops.aten.feature_dropout(input, p, training)
    if not batched:
        result = result.squeeze(0)
    return result


@function_form
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    checked_probability(p)
    if inplace:
        result = torch.ops.aten.feature_dropout_(input, p, training)
    else:
        result = torch.ops.aten.feature_dropout(input, p, training)
    return result


# ***** normalisation *****


def verify_batch_size(size: list[int]) -> None:
    products = size[0]
    for i in range(len(size) - 2):
        products *= size[i + 2]
    if products == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


@function_form
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training:
        verify_batch_size(input.size())
    return torch.ops.aten.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


@function_form
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True
    )


@function_form
def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.layer_norm(input, normalized_shape, weight, bias, eps)


@function_form
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return torch.ops.aten.group_norm(input, num_groups, weight, bias, eps)


@function_form
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    squares = input.mul(input).unsqueeze(1)
    if input.dim() == 3:
        padded = torch.ops.aten.pad(squares, [0, 0, size // 2, (size - 1) // 2])
        div = torch.ops.aten.avg_pool2d(padded, [size, 1], [1, 1]).squeeze(1)
    else:
        sizes = input.size()
        squares = squares.view(sizes[0], 1, sizes[1], sizes[2], -1)
        padded = torch.ops.aten.pad(squares, [0, 0, 0, 0, size // 2, (size - 1) // 2])
        div = torch.ops.aten.avg_pool3d(padded, [size, 1, 1], [1, 1, 1]).squeeze(1)
        div = div.view(sizes)
    return input / div.mul(alpha).add(k).pow(beta)


# ***** pooling *****


@function_form
def max_pool1d(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


@with_indices("max_pool1d", 6)
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)


@function_form
def adaptive_max_pool1d(input: Tensor, output_size: BroadcastingList1[int]) -> Tensor:
    return torch.ops.aten.adaptive_max_pool1d(input, output_size)[0]


@with_indices("adaptive_max_pool1d", 2)
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: BroadcastingList1[int]) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool1d(input, output_size)


@function_form
def avg_pool1d(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad)


@function_form
def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    count = 1
    for size in kernel_size:
        count = count * size
    out = torch.ops.aten.avg_pool1d(input.pow(norm_type), kernel_size, stride, [0] * 1, ceil_mode)
    return (torch.sign(out) * torch.relu(torch.abs(out))).mul(count).pow(1.0 / norm_type)


@function_form
def max_pool2d(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


@with_indices("max_pool2d", 6)
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)


@function_form
def adaptive_max_pool2d(input: Tensor, output_size: BroadcastingList2[int]) -> Tensor:
    return torch.ops.aten.adaptive_max_pool2d(input, output_size)[0]


@with_indices("adaptive_max_pool2d", 2)
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: BroadcastingList2[int]) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool2d(input, output_size)


@function_form
def avg_pool2d(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.avg_pool2d(
        input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@function_form
def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    count = 1
    for size in kernel_size:
        count = count * size
    out = torch.ops.aten.avg_pool2d(input.pow(norm_type), kernel_size, stride, [0] * 2, ceil_mode)
    return (torch.sign(out) * torch.relu(torch.abs(out))).mul(count).pow(1.0 / norm_type)


@function_form
def max_pool3d(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode)


@with_indices("max_pool3d", 6)
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)


@function_form
def adaptive_max_pool3d(input: Tensor, output_size: BroadcastingList3[int]) -> Tensor:
    return torch.ops.aten.adaptive_max_pool3d(input, output_size)[0]


@with_indices("adaptive_max_pool3d", 2)
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: BroadcastingList3[int]) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool3d(input, output_size)


@function_form
def avg_pool3d(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return torch.ops.aten.avg_pool3d(
        input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@function_form
def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    count = 1
    for size in kernel_size:
        count = count * size
    out = torch.ops.aten.avg_pool3d(input.pow(norm_type), kernel_size, stride, [0] * 3, ceil_mode)
    return (torch.sign(out) * torch.relu(torch.abs(out))).mul(count).pow(1.0 / norm_type)


@function_form
def adaptive_avg_pool1d(input: Tensor, output_size: BroadcastingList1[int]) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool1d(input, output_size)


def full_size(input: Tensor, output_size: list[int | None]) -> list[int]:
    sizes = torch.jit.annotate(list[int], [])
    offset = input.dim() - len(output_size)
    for i in range(len(output_size)):
        wanted = output_size[i]
        if wanted is None:
            sizes.append(input.size(i + offset))
        else:
            sizes.append(wanted)
    return sizes


@function_form
def adaptive_avg_pool2d(input: Tensor, output_size: BroadcastingList2[int]) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool2d(input, output_size)


@overload_of("adaptive_avg_pool2d")
def adaptive_avg_pool2d_open(input: Tensor, output_size: list[int | None]) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool2d(input, full_size(input, output_size))


@function_form
def adaptive_avg_pool3d(input: Tensor, output_size: BroadcastingList3[int]) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool3d(input, output_size)


@overload_of("adaptive_avg_pool3d")
def adaptive_avg_pool3d_open(input: Tensor, output_size: list[int | None]) -> Tensor:
    return torch.ops.aten.adaptive_avg_pool3d(input, full_size(input, output_size))


# ***** layers *****


@function_form
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    at = -1
    if padding_idx is not None:
        at = padding_idx
        if at < 0:
            at = weight.size(0) + at
    if max_norm is not None:
        raise NotImplementedError("embedding with max_norm changes its weight: it is not compiled")
    return torch.ops.aten.embedding(weight, input, at, scale_grad_by_freq, sparse)


@function_form
def pad(input: Tensor, pad: list[int], mode: str = "constant", value: float | None = None) -> Tensor:
    return torch.ops.aten.pad(input, pad, mode, value)


@function_form
def interpolate(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    if align_corners is None:
        corners = False
    else:
        corners = align_corners
    factors = scale_factor
    if size is not None and factors is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if recompute_scale_factor is not None and recompute_scale_factor and factors is not None:
        counted = torch.jit.annotate(list[int], [])
        for i in range(len(factors)):
            counted.append(int(float(input.size(i + 2)) * factors[i]))
        size = counted
        factors = None
    if input.dim() == 3 and mode == "nearest":
        return torch.ops.aten.upsample_nearest1d(input, size, factors)
    if input.dim() == 4 and mode == "nearest":
        return torch.ops.aten.upsample_nearest2d(input, size, factors)
    if input.dim() == 5 and mode == "nearest":
        return torch.ops.aten.upsample_nearest3d(input, size, factors)
    if input.dim() == 3 and mode == "nearest-exact":
        return torch.ops.aten._upsample_nearest_exact1d(input, size, factors)
    if input.dim() == 4 and mode == "nearest-exact":
        return torch.ops.aten._upsample_nearest_exact2d(input, size, factors)
    if input.dim() == 5 and mode == "nearest-exact":
        return torch.ops.aten._upsample_nearest_exact3d(input, size, factors)
    if input.dim() == 3 and mode == "linear":
        return torch.ops.aten.upsample_linear1d(input, size, corners, factors)
    if input.dim() == 4 and mode == "bilinear":
        if antialias:
            return torch.ops.aten._upsample_bilinear2d_aa(input, size, corners, factors)
        return torch.ops.aten.upsample_bilinear2d(input, size, corners, factors)
    if input.dim() == 5 and mode == "trilinear":
        return torch.ops.aten.upsample_trilinear3d(input, size, corners, factors)
    if input.dim() == 4 and mode == "bicubic":
        if antialias:
            return torch.ops.aten._upsample_bicubic2d_aa(input, size, corners, factors)
        return torch.ops.aten.upsample_bicubic2d(input, size, corners, factors)
    raise NotImplementedError(f"Input of {input.dim()} dims cannot be interpolated with mode {mode}")


def repeated(count: int, value: int | None) -> list[int] | None:
    if value is None:
        return None
    made = torch.jit.annotate(list[int], [])
    for _ in range(count):
        made.append(value)
    return made


def repeated_factor(count: int, value: float | None) -> list[float] | None:
    if value is None:
        return None
    made = torch.jit.annotate(list[float], [])
    for _ in range(count):
        made.append(value)
    return made


@overload_of("interpolate")
def interpolate_by_factor(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    factors = repeated_factor(input.dim() - 2, scale_factor)
    return interpolate(input, size, factors, mode, align_corners, recompute_scale_factor, antialias)


@overload_of("interpolate")
def interpolate_to_size(
    input: Tensor,
    size: int | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    sizes = repeated(input.dim() - 2, size)
    return interpolate(input, sizes, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


@overload_of("interpolate")
def interpolate_by_one(
    input: Tensor,
    size: int | None = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    sizes = repeated(input.dim() - 2, size)
    factors = repeated_factor(input.dim() - 2, scale_factor)
    return interpolate(input, sizes, factors, mode, align_corners, recompute_scale_factor, antialias)


@function_form
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    if mode == "bilinear":
        kind = 0
    elif mode == "nearest":
        kind = 1
    else:
        kind = 2
    if padding_mode == "zeros":
        edge = 0
    elif padding_mode == "border":
        edge = 1
    else:
        edge = 2
    corners = False
    if align_corners is not None:
        corners = align_corners
    return torch.ops.aten.grid_sampler(input, grid, kind, edge, corners)


@function_form
def affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor:
    corners = False
    if align_corners is not None:
        corners = align_corners
    return torch.ops.aten.affine_grid_generator(theta, size, corners)


@function_form
def unfold(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    return torch.ops.aten.im2col(input, kernel_size, dilation, padding, stride)


@function_form
def fold(
    input: Tensor,
    output_size: BroadcastingList2[int],
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    return torch.ops.aten.col2im(input, output_size, kernel_size, dilation, padding, stride)


@function_form
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    noise = -torch.empty_like(logits, memory_format=torch.contiguous_format).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if hard:
        index = soft.max(dim, keepdim=True)[1]
        marked = torch.zeros_like(logits, memory_format=torch.contiguous_format).scatter_(dim, index, 1.0)
        result = marked - soft.detach() + soft
    else:
        result = soft
    return result


# ***** losses *****


def reduction_kind(reduction: str) -> int:
    if reduction == "none":
        kind = 0
    elif reduction == "mean":
        kind = 1
    elif reduction == "sum":
        kind = 2
    else:
        kind = -1
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return kind


@function_form
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    return torch.ops.aten.mse_loss(input, target, reduction_kind(reduction))


@function_form
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    return torch.ops.aten.l1_loss(input, target, reduction_kind(reduction))


@function_form
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    if beta == 0.0:
        return torch.ops.aten.l1_loss(input, target, reduction_kind(reduction))
    return torch.ops.aten.smooth_l1_loss(input, target, reduction_kind(reduction), beta)


@function_form
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    return torch.ops.aten.huber_loss(input, target, reduction_kind(reduction), delta)


@function_form
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    return torch.ops.aten.cross_entropy_loss(
        input, target, weight, reduction_kind(reduction), ignore_index, label_smoothing
    )


@function_form
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.nll_loss_nd(input, target, weight, reduction_kind(reduction), ignore_index)


@function_form
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    if reduction == "batchmean":
        kind = 2
    else:
        kind = reduction_kind(reduction)
    found = torch.ops.aten.kl_div(input, target, kind, log_target=log_target)
    if reduction == "batchmean" and input.dim() != 0:
        found = found / input.size(0)
    return found


@function_form
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return torch.ops.aten.binary_cross_entropy(input, target, weight, reduction_kind(reduction))


@function_form
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    return torch.ops.aten.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction_kind(reduction))


@function_form
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    return loss


@function_form
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if max_norm is not None:
        raise NotImplementedError("embedding_bag with max_norm changes its weight: it is not compiled")
    if input.dim() == 2:
        offsets = torch.arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        input = input.reshape([-1])
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape([-1])
    assert offsets is not None, "offsets has to be a 1D Tensor for an input of one dim"
    if mode == "sum":
        kind = 0
    elif mode == "mean":
        kind = 1
    else:
        kind = 2
    found = torch.ops.aten.embedding_bag(
        weight, input, offsets, scale_grad_by_freq, kind, sparse, per_sample_weights, include_last_offset, padding_idx
    )
    return found[0]


@function_form
def _assert(condition: bool, message: str) -> None:
    assert condition, message


@function_form
def unique(input: Tensor, sorted: bool = True) -> Tensor:
    return torch.ops.aten._unique2(input, sorted, False, False)[0]
