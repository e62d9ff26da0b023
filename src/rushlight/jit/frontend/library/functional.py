"""Functions of `nn.functional` that are more than a call of an operator, in the typed subset: read by the compiler, never
run as they stand.
"""

# mypy: ignore-errors
# The compiler of scripts checks these pages: their types are those of scripts.

from __future__ import annotations

import math

import rushlight as torch
from rushlight import Tensor
from rushlight.jit.frontend.library import function_form
from rushlight.nn.composites.attention import multi_head_attention_forward

function_form("multi_head_attention_forward")(multi_head_attention_forward)

# ***** activations *****


def _softmax(operator):
    def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
        if dim is None:
            dim = 0 if input.dim() in (0, 1, 3) else 1
        return operator(input, dim, dtype)

    return softmax


softmax = function_form("softmax")(_softmax(torch.ops.aten.softmax))
function_form("log_softmax")(_softmax(torch.ops.aten.log_softmax))


@function_form("softmin")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    return softmax(-input, dim, 3, dtype)


@function_form("tanhshrink")
def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


@function_form("softsign")
def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


@function_form("gumbel_softmax")
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    noise = -torch.empty_like(logits, memory_format=torch.contiguous_format).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    marked = torch.zeros_like(logits, memory_format=torch.contiguous_format).scatter_(dim, index, 1.0)
    return marked - soft.detach() + soft


# ***** normalisation *****


@function_form("dropout1d")
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    batched = input.dim() == 3
    if not batched:
        input = input.unsqueeze(0)
    if inplace:
        result = torch.ops.aten.feature_dropout_(input, p, training)
    else:
        result = torch.ops.aten.feature_dropout(input, p, training)
    return result if batched else result.squeeze(0)


@function_form("batch_norm")
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if training:
        sizes = input.size()
        count = sizes[0]
        for i in range(len(sizes) - 2):
            count *= sizes[i + 2]
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {sizes}")
    return torch.ops.aten.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


@function_form("normalize")
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


@function_form("local_response_norm")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    squares = input.mul(input).unsqueeze(1)
    sides = [size // 2, (size - 1) // 2]
    if input.dim() == 3:
        mean = torch.ops.aten.avg_pool2d(torch.ops.aten.pad(squares, [0, 0] + sides), [size, 1], [1, 1]).squeeze(1)
    else:
        sizes = input.size()
        padded = torch.ops.aten.pad(squares.view(sizes[0], 1, sizes[1], sizes[2], -1), [0, 0, 0, 0] + sides)
        mean = torch.ops.aten.avg_pool3d(padded, [size, 1, 1], [1, 1, 1]).squeeze(1).view(sizes)
    return input / mean.mul(alpha).add(k).pow(beta)


# ***** pooling *****


def _lp_pool(operator, dims: int):
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: list[int],
        stride: list[int] | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        count = 1
        for size in kernel_size:
            count = count * size
        steps = torch.jit.annotate(list[int], []) if stride is None else stride
        out = operator(input.pow(norm_type), kernel_size, steps, [0 for _ in kernel_size], ceil_mode)
        return (torch.sign(out) * torch.relu(torch.abs(out))).mul(count).pow(1.0 / norm_type)

    ints = f"BroadcastingList{dims}[int]"
    function_form(f"lp_pool{dims}d", {"kernel_size": (ints,), "stride": (f"{ints} | None",)})(lp_pool)


_lp_pool(torch.ops.aten.avg_pool1d, 1)
_lp_pool(torch.ops.aten.avg_pool2d, 2)
_lp_pool(torch.ops.aten.avg_pool3d, 3)


def _adaptive(operator):
    def adaptive(input: Tensor, output_size: list[int | None]) -> Tensor:
        sizes = torch.jit.annotate(list[int], [])
        for i in range(len(output_size)):
            wanted = output_size[i]
            sizes.append(input.size(i + input.dim() - len(output_size)) if wanted is None else wanted)
        return operator(input, sizes)

    return adaptive


function_form("adaptive_avg_pool2d", behind=True)(_adaptive(torch.ops.aten.adaptive_avg_pool2d))
function_form("adaptive_avg_pool3d", behind=True)(_adaptive(torch.ops.aten.adaptive_avg_pool3d))

# ***** embeddings *****


@function_form("embedding")
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    if max_norm is not None:
        raise NotImplementedError("embedding with max_norm changes its weight: it is not compiled")
    at = -1
    if padding_idx is not None:
        at = padding_idx if padding_idx >= 0 else weight.size(0) + padding_idx
    return torch.ops.aten.embedding(weight, input, at, scale_grad_by_freq, sparse)


@function_form("embedding_bag")
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    if max_norm is not None:
        raise NotImplementedError("embedding_bag with max_norm changes its weight: it is not compiled")
    if input.dim() == 2:
        offsets = torch.arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        input = input.reshape([-1])
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape([-1])
    assert offsets is not None, "offsets has to be a 1D Tensor for an input of one dim"
    return torch.ops.aten.embedding_bag(
        weight, input, offsets, scale_grad_by_freq, ["sum", "mean", "max"].index(mode), sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )[0]  # fmt: skip


# ***** images *****


_COUNTS = {"size": ("list[int] | None", "int | None"), "scale_factor": ("list[float] | None", "float | None")}


@function_form("interpolate", _COUNTS)
def interpolate(
    input: Tensor, size: list[int] | None = None, scale_factor: list[float] | None = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    dims = input.dim() - 2
    sizes: list[int] | None = None
    if size is not None:
        sizes = size if isinstance(size, list) else [size] * dims
    factors: list[float] | None = None
    if scale_factor is not None:
        factors = scale_factor if isinstance(scale_factor, list) else [scale_factor] * dims
    return interpolated(input, sizes, factors, mode, align_corners is not None and align_corners,
                        recompute_scale_factor is not None and recompute_scale_factor, antialias)  # fmt: skip


def interpolated(
    input: Tensor, size: list[int] | None, factors: list[float] | None, mode: str, corners: bool, recompute: bool,
    antialias: bool,
) -> Tensor:  # fmt: skip
    if size is not None and factors is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if factors is not None and (recompute or mode == "area"):
        size = [int(float(input.size(i + 2)) * factors[i]) for i in range(len(factors))]
        factors = None
    dims = input.dim() - 2
    if mode == "area" and size is not None:
        if dims == 1:
            return torch.ops.aten.adaptive_avg_pool1d(input, size)
        if dims == 2:
            return torch.ops.aten.adaptive_avg_pool2d(input, size)
        return torch.ops.aten.adaptive_avg_pool3d(input, size)
    if dims == 1 and mode == "nearest":
        return torch.ops.aten.upsample_nearest1d(input, size, factors)
    if dims == 2 and mode == "nearest":
        return torch.ops.aten.upsample_nearest2d(input, size, factors)
    if dims == 3 and mode == "nearest":
        return torch.ops.aten.upsample_nearest3d(input, size, factors)
    if dims == 1 and mode == "nearest-exact":
        return torch.ops.aten._upsample_nearest_exact1d(input, size, factors)
    if dims == 2 and mode == "nearest-exact":
        return torch.ops.aten._upsample_nearest_exact2d(input, size, factors)
    if dims == 3 and mode == "nearest-exact":
        return torch.ops.aten._upsample_nearest_exact3d(input, size, factors)
    if dims == 1 and mode == "linear":
        return torch.ops.aten.upsample_linear1d(input, size, corners, factors)
    if dims == 2 and mode == "bilinear" and antialias:
        return torch.ops.aten._upsample_bilinear2d_aa(input, size, corners, factors)
    if dims == 2 and mode == "bilinear":
        return torch.ops.aten.upsample_bilinear2d(input, size, corners, factors)
    if dims == 3 and mode == "trilinear":
        return torch.ops.aten.upsample_trilinear3d(input, size, corners, factors)
    if dims == 2 and mode == "bicubic" and antialias:
        return torch.ops.aten._upsample_bicubic2d_aa(input, size, corners, factors)
    if dims == 2 and mode == "bicubic":
        return torch.ops.aten.upsample_bicubic2d(input, size, corners, factors)
    raise NotImplementedError(f"Input of {input.dim()} dims cannot be interpolated with mode {mode}")


@function_form("grid_sample")
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    kind = ["bilinear", "nearest", "bicubic"].index(mode)
    edge = ["zeros", "border", "reflection"].index(padding_mode)
    return torch.ops.aten.grid_sampler(input, grid, kind, edge, align_corners is not None and align_corners)


# ***** losses *****


def reduction_number(size_average: bool | None, reduce: bool | None, reduction: str) -> int:
    if size_average is not None or reduce is not None:
        if reduce is not None and not reduce:
            return 0
        return 2 if size_average is not None and not size_average else 1
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    raise ValueError(f"{reduction} is not a valid value for reduction")


@function_form("kl_div")
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    batch = reduction == "batchmean" and size_average is None and reduce is None
    kind = 2 if batch else reduction_number(size_average, reduce, reduction)
    found = torch.ops.aten.kl_div(input, target, kind, log_target=log_target)
    return found / input.size(0) if batch and input.dim() != 0 else found


@function_form("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    loss = -(target * torch.ops.aten.log_sigmoid(input) + (1 - target) * torch.ops.aten.log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(-1) / input.size(-1), reduction_number(size_average, reduce, reduction))


@function_form("gaussian_nll_loss")
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    if var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    if bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction_number(None, None, reduction))


def reduced(loss: Tensor, kind: int) -> Tensor:
    if kind == 1:
        return loss.mean()
    return loss.sum() if kind == 2 else loss
