"""Fake results of operators that ask for more of unknown sizes than their results depend on: the operators check when they run."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.sizes import is_symbolic, is_unknown, require_between
from rushlight.library.aten.calls import bound

__all__ = ["described"]


def described(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of such an operator; None for other calls."""
    rule = _RULES.get(func._opname)
    return None if rule is None or mode.shape_env is None else rule(mode, func, bound(func, args, kwargs))


def _mean_of_windows(mode: Any, func: Any, given: Any) -> Any:
    """An adaptive pooling of varying sizes in an export: whether the windows are of one length tells nothing."""
    x, sizes = given["self"], given["output_size"]
    count = int(func._opname[-2])
    varies = mode.export and isinstance(x, Tensor) and any(is_symbolic(n) for n in x.shape)
    if not varies or len(sizes) != count or not all(type(n) is int and n > 0 for n in sizes):
        return None
    if x.dim() not in (count + 1, count + 2) or not x.is_floating_point():
        return None
    shape = [*x.shape[:-count], *sizes]
    if x.is_contiguous() or count == 3 and x.is_contiguous(memory_format=rushlight.channels_last_3d):
        return mode.sized(shape, None, x.dtype, x.device)
    if x.dim() != 4 or not x.is_contiguous(memory_format=rushlight.channels_last):
        return None
    channels, _, width = shape[1:]
    return mode.sized(shape, (math.prod(shape[1:]), 1, width * channels, channels), x.dtype, x.device)


def _slice_scatter(mode: Any, func: Any, given: Any) -> Any:
    """The result of a write into a slice whose length elements tell; the operator checks it when it runs."""
    x, dim, written = given["self"], given["dim"], given["src"].shape
    numbers = given["start"], given["end"], given["step"], x.shape[dim], written[dim]
    if not any(map(is_unknown, numbers)) or len(written) != x.dim():
        return None
    return rushlight.empty_like(x)


def _wrapped_dim(x: Tensor, dim: int) -> int:
    count = max(x.dim(), 1)
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    return dim % count


def _with_places(mode: Any, x: Tensor, shape: Any) -> tuple[Tensor, Tensor]:
    """Values, and where they are."""
    return mode.sized(shape, None, x.dtype, x.device), mode.sized(shape, None, rushlight.int64, x.device)


def _topk(mode: Any, func: Any, given: Any) -> Any:
    x, k = given["self"], given["k"]
    if not x.dim() or not is_unknown(k):
        return None
    dim = _wrapped_dim(x, given["dim"])
    require_between(k, 0, float("inf"))
    require_between(x.shape[dim] - k, 0, float("inf"))
    return _with_places(mode, x, [k if d == dim else n for d, n in enumerate(x.shape)])


def _kth_value(mode: Any, func: Any, given: Any) -> Any:
    x, k = given["self"], given["k"]
    dim = _wrapped_dim(x, given["dim"])
    if not x.dim() or not any(map(is_unknown, (k, x.shape[dim]))):
        return None
    shape = [1 if d == dim else n for d, n in enumerate(x.shape) if d != dim or given["keepdim"]]
    return _with_places(mode, x, shape)


def _median(mode: Any, func: Any, given: Any) -> Any:
    x = given["self"]
    if not any(map(is_unknown, x.shape)):
        return None
    if "dim" not in given:
        return mode.sized((), None, x.dtype, x.device)
    return _kth_value(mode, func, {**given, "k": x.shape[_wrapped_dim(x, given["dim"])]})


def _searched(mode: Any, func: Any, given: Any) -> Any:
    ordered, x = given["sorted_sequence"], given["self"]
    if not is_unknown(ordered.shape[-1]) or ordered.dim() != 1 or not isinstance(x, Tensor):
        return None
    dtype = rushlight.int32 if given["out_int32"] else rushlight.int64
    return mode.sized(x.shape, None, dtype, x.device)


def _nonzero_static(mode: Any, func: Any, given: Any) -> Any:
    return mode.sized((given["size"], given["self"].dim()), None, rushlight.int64, given["self"].device)


def _histogram(mode: Any, func: Any, given: Any) -> Any:
    x = given["self"]
    return mode.sized((given["bins"],), None, x.dtype, x.device)


def _multinomial(mode: Any, func: Any, given: Any) -> Any:
    x, count = given["self"], given["num_samples"]
    if not is_unknown(count):
        return None
    require_between(count, 0, float("inf"))
    if not given["replacement"]:
        require_between(x.shape[-1] - count, 0, float("inf"))
    return mode.sized((*x.shape[:-1], count), None, rushlight.int64, x.device)


def _resized(mode: Any, func: Any, given: Any) -> Any:
    """An image whose new size elements tell."""
    x, sizes = given.get("self", given.get("input")), given["output_size"]
    if sizes is None or not any(map(is_unknown, sizes)) or not x.is_contiguous() or x.dim() != len(sizes) + 2:
        return None
    return mode.sized((*x.shape[:2], *sizes), None, x.dtype, x.device)


def _made(mode: Any, given: Any, length: Any, dtype: Any) -> Any:
    device = given.get("device")
    return mode.sized((length,), None, dtype, rushlight.get_default_device() if device is None else device)


def _arange(mode: Any, func: Any, given: Any) -> Any:
    """Whole numbers from one that elements tell."""
    start, end, step = given.get("start", 0), given.get("end"), given.get("step", 1)
    if not is_unknown(start) or not isinstance(end, int) or type(step) is not int or step <= 0 or "out" in given:
        return None
    require_between(end - start, 0, float("inf"))
    return _made(mode, given, (end - start + step - 1) // step, given.get("dtype") or rushlight.int64)


def _linspace(mode: Any, func: Any, given: Any) -> Any:
    ends = given["start"], given["end"]
    if not any(map(is_unknown, ends)) or any(isinstance(end, Tensor) for end in ends) or "out" in given:
        return None
    return _made(mode, given, given["steps"], given.get("dtype") or rushlight.get_default_dtype())


_WAYS = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
_RULES: dict[str, Any] = {
    **{f"adaptive_avg_pool{n}d": _mean_of_windows for n in (1, 2, 3)},
    **{f"upsample_{way}": _resized for way in _WAYS}, **{f"_upsample_nearest_exact{n}d": _resized for n in (1, 2, 3)},
    "slice_scatter": _slice_scatter, "topk": _topk, "kthvalue": _kth_value, "median": _median, "nanmedian": _median,
    "searchsorted": _searched, "nonzero_static": _nonzero_static, "histc": _histogram, "multinomial": _multinomial,
    "arange": _arange, "linspace": _linspace, "logspace": _linspace,
}  # fmt: skip
