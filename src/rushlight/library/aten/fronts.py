"""Functions of `nn.functional` that take their arguments otherwise than the aten operators that they call: for each the
operator's name, and its arguments in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule

__all__ = ["CASTS", "FRONTS", "resized"]

compiler: Any = LazyModule("rushlight.compiler")

Front = Callable[..., tuple[Any, ...]]
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> tuple[str, tuple[Any, ...]]:
    return "dropout_" if inplace else "dropout", (input, p, training)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[str, tuple[Any, ...]]:
    return "cross_entropy_loss", (input, target, weight, _REDUCTIONS[reduction], ignore_index, label_smoothing)


def cudnn() -> bool:
    """The flag of normalisations for a library of another device: off in exported programs."""
    return not compiler.is_exporting()


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> tuple[str, tuple[Any, ...]]:
    return "elu_" if inplace else "elu", (input, alpha)


def _pool(dims: int) -> Front:
    def front(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[str, tuple[Any, ...]]:  # fmt: skip
        name = f"max_pool{dims}d" + ("_with_indices" if return_indices else "")
        return name, (input, kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)

    return front


def _adaptive_max_pool(dims: int) -> Any:
    def front(input: Any, output_size: Any, return_indices: bool = False) -> tuple[Any, ...]:
        size = [output_size] * dims if isinstance(output_size, int) else list(output_size)
        name = f"adaptive_max_pool{dims}d"
        return name, (input, size), {}, lambda made: made if return_indices else made[0]

    return front


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: Any = None
) -> tuple[str, tuple[Any, ...]]:
    return "layer_norm", (
        input,
        list(normalized_shape),
        weight,
        bias,
        eps,
        cudnn() if cudnn_enable is None else cudnn_enable,
    )


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: Any = None
) -> tuple[str, tuple[Any, ...]]:
    return "group_norm", (input, num_groups, weight, bias, eps, cudnn() if cudnn_enabled is None else cudnn_enabled)


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean",
) -> tuple[str, tuple[Any, ...]]:  # fmt: skip
    return "nll_loss_nd", (input, target, weight, _REDUCTIONS[reduction], ignore_index)


def split(input: Any, split_size: Any, dim: int = 0) -> tuple[str, tuple[Any, ...]]:
    return "split_with_sizes" if isinstance(split_size, (list, tuple)) else "split", (input, split_size, dim)


def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: Any = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    if not compiler.is_exporting() or max_norm is not None or input.is_floating_point():
        return "", ()
    if input.dim() == 2:
        count = input.numel()
        kind = {"dtype": rushlight.int64, "device": input.device, "pin_memory": False}
        offsets = rushlight.ops.aten.arange.start_step(0, count, input.shape[1], **kind)
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    number = ("sum", "mean", "max").index(mode)
    given = (weight, input, offsets, scale_grad_by_freq, number, sparse, per_sample_weights, include_last_offset)
    return "embedding_bag", (*given, padding_idx), {}, lambda made: made[0]


def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> tuple[Any, ...]:
    def asked(found: Any) -> Any:
        kept = [found[0], *found[1:2][:return_inverse], *found[2:3][:return_counts]]
        return tuple(kept) if len(kept) > 1 else kept[0]

    return "unique_consecutive", (input, return_inverse, return_counts, dim), {}, asked


def interpolate(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return resized(*args, **kwargs) if compiler.is_exporting() else ("", ())


def resized(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    dims = input.dim() - 2
    names = {("nearest", 1): "nearest1d", ("nearest", 2): "nearest2d", ("nearest", 3): "nearest3d", ("linear", 1): "linear1d", ("bilinear", 2): "bilinear2d", ("trilinear", 3): "trilinear3d", ("bicubic", 2): "bicubic2d"}  # fmt: skip
    if antialias or recompute_scale_factor or (mode, dims) not in names:
        return "", ()
    sizes = None if size is None else list(size) if isinstance(size, (tuple, list)) else [size] * dims
    many = isinstance(scale_factor, (tuple, list))
    factors = None if scale_factor is None else [float(f) for f in (scale_factor if many else [scale_factor] * dims)]
    corners = () if mode == "nearest" else (bool(align_corners),)
    return f"upsample_{names[mode, dims]}", (input, sizes, *corners, factors)


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> tuple[Any, ...]:
    if out is not None or p == "nuc" or isinstance(dim, (tuple, list)) and len(dim) > 2:
        return "", ()
    dims = [dim] if isinstance(dim, int) else dim
    named = {} if dtype is None else {"dtype": dtype}
    return "linalg_vector_norm", (input, 2 if p in ("fro", None) else p, dims, keepdim), named


def einsum(equation: str, *operands: Any) -> tuple[str, tuple[Any, ...]]:
    if not isinstance(equation, str):
        return "", ()
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return "einsum", (equation, list(given))


def _unpinned(name: str) -> Any:
    def front(self: Any, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        if len(args) > 1:  # new_zeros(2, 3)
            args = (list(args),)
        elif args and isinstance(args[0], int):
            args = ([args[0]],)
        named = {k: v for k, v in kwargs.items() if v is not None and k != "requires_grad"}
        if "size" in named:
            args = (named.pop("size"),)
        return name, (self, *args), {"pin_memory": False, **named}

    return front


def _like(name: str) -> Any:
    def front(input: Any, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        named = {k: v for k, v in kwargs.items() if v is not None and k != "requires_grad"}
        return name, (input, *args), {"pin_memory": False, **named}

    return front


def batch_norm(input: Any, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    if len(args) == 8:  # the native function itself
        return "batch_norm", (input, *args)
    return "batch_norm", (input, *_statistics(("training", False), args, kwargs))


def instance_norm(input: Any, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    if len(args) == 8:
        return "instance_norm", (input, *args)
    return "instance_norm", (input, *_statistics(("use_input_stats", True), args, kwargs))


def _statistics(flag: tuple[str, bool], args: Any, kwargs: Any) -> tuple[Any, ...]:
    names = ("running_mean", "running_var", "weight", "bias", flag[0], "momentum", "eps")
    given = (
        dict.fromkeys(names)
        | {flag[0]: flag[1], "momentum": 0.1, "eps": 1e-5}
        | dict(zip(names, args, strict=False))
        | kwargs
    )
    order = ("weight", "bias", "running_mean", "running_var", flag[0], "momentum", "eps")
    return (*[given[n] for n in order], cudnn())


def embedding(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> tuple[str, tuple[Any, ...]]:
    if input.is_floating_point():  # of `torch.embedding`: the weight comes first
        return "embedding", (input, weight, -1 if padding_idx is None else padding_idx)
    if max_norm is not None:  # the weight is changed first
        return "", ()
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    return "embedding", (weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse)


# ***** casts *****

_PYTHON_TYPES = {float: "float64", int: "int64", bool: "bool", complex: "complex128"}


def to(self: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """The form for a dtype, for a device with a dtype, or for what else is asked with the tensor's own dtype."""
    if not isinstance(self, rushlight.Tensor):
        return "", ()
    rest, given = list(args), dict(kwargs)
    if rest and isinstance(rest[0], rushlight.Tensor):
        given["other"] = rest.pop(0)
    elif rest and not (isinstance(rest[0], rushlight.dtype) or rest[0] in _PYTHON_TYPES):
        given["device"] = rest.pop(0)
    if rest and rest[0] is not None and not (isinstance(rest[0], bool) and "other" in given):
        given["dtype"] = rest.pop(0)
    given.update(zip(("non_blocking", "copy", "memory_format"), rest, strict=False))
    other = given.pop("other", None)
    dtype, device = (
        (given.pop("dtype", None), given.pop("device", None)) if other is None else (other.dtype, other.device)
    )
    dtype = getattr(rushlight, _PYTHON_TYPES[dtype]) if dtype in _PYTHON_TYPES else dtype
    return to_form(self, dtype, device, {k: v for k, v in given.items() if v is not None and v is not False})


def to_form(self: Any, dtype: Any, device: Any, options: dict[str, Any]) -> tuple[Any, ...]:
    """The overload of `to` for what is given: with a dtype the others follow by place, else all is named."""
    device = rushlight.device(device) if isinstance(device, (str, int)) else device
    if dtype is None:
        named = {"dtype": self.dtype, "layout": self.layout, "device": self.device if device is None else device}
        return "to", (self,), named | options
    return "to", (self, dtype) if device is None else (self, device, dtype), options


def _cast(word: str) -> Front:
    def front(self: Any, memory_format: Any = None) -> tuple[Any, ...]:
        return to_form(
            self, getattr(rushlight, word), None, {} if memory_format is None else {"memory_format": memory_format}
        )

    return front


def cpu(self: Any, memory_format: Any = None) -> tuple[Any, ...]:
    return to_form(self, None, "cpu", {} if memory_format is None else {"memory_format": memory_format})


CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip

FRONTS: dict[str, Front] = {
    "dropout": dropout, "cross_entropy": cross_entropy, "batch_norm": batch_norm, "instance_norm": instance_norm, "embedding": embedding,
    "embedding_bag": embedding_bag, "elu": elu, "layer_norm": layer_norm, "group_norm": group_norm, "nll_loss": nll_loss, "split": split, "einsum": einsum, "norm": norm, "interpolate": interpolate,
    "unique_consecutive": unique_consecutive,
    **{f"max_pool{n}d": _pool(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_max_pool(n) for n in (1, 2, 3)},
    "to": to, "cpu": cpu, **{name: _cast(word) for name, word in CASTS.items()},
    **{name: _unpinned(name) for name in ("new_zeros", "new_ones", "new_full", "new_empty")},
    **{name: _like(name) for name in ("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like")},
}  # fmt: skip
