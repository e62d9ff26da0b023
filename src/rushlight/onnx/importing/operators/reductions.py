"""Reductions over axes, ArgMax and ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.shapes import as_list
from rushlight.onnx.importing.table import Numbers, operator

__all__: list[str] = []


def _sum(x: Any, axes: list[int], keep: bool) -> Any:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def _mean(x: Any, axes: list[int], keep: bool) -> Any:
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    return torch.div(torch.sum(x, axes, keepdim=keep), count, rounding_mode="trunc").to(x.dtype)


def _product(x: Any, axes: list[int], keep: bool) -> Any:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def _extreme(function: Any, largest: bool) -> Callable[[Any, list[int], bool], Any]:
    def reduce(x: Any, axes: list[int], keep: bool) -> Any:
        if x.numel() or all(x.shape[axis] for axis in axes):
            return function(x, axes, keepdim=keep)
        sizes = [1 if i in axes else size for i, size in enumerate(x.shape)]
        if x.dtype == torch.bool:
            bound: Any = not largest
        elif x.is_floating_point():
            bound = -math.inf if largest else math.inf
        else:
            bound = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
        full = torch.full(sizes, bound, dtype=x.dtype)
        return full if keep else full.reshape([size for i, size in enumerate(x.shape) if i not in axes])

    return reduce


def _norm2(x: Any, axes: list[int], keep: bool) -> Any:
    wide = x if x.is_floating_point() else x.to(torch.float64)
    return torch.sqrt(torch.sum(wide * wide, axes, keepdim=keep)).to(x.dtype)


def _log_sum(x: Any, axes: list[int], keep: bool) -> Any:
    wide = x if x.is_floating_point() else x.to(torch.float64)
    return torch.log(torch.sum(wide, axes, keepdim=keep)).to(x.dtype)


def _log_sum_exp(x: Any, axes: list[int], keep: bool) -> Any:
    wide = x if x.is_floating_point() else x.to(torch.float64)
    return torch.logsumexp(wide, axes, keepdim=keep).to(x.dtype)


_KINDS: dict[str, Callable[[Any, list[int], bool], Any]] = {
    "Sum": _sum, "Mean": _mean, "Prod": _product, "Max": _extreme(torch.amax, True), "Min": _extreme(torch.amin, False), "L2": _norm2,
    "L1": lambda x, axes, keep: _sum(torch.abs(x), axes, keep), "SumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "LogSum": _log_sum, "LogSumExp": _log_sum_exp,
}  # fmt: skip


def _enter(name: str, function: Any) -> None:
    def by_attribute(x: Any, *, axes: list[int] | None = None, keepdims: int = 1) -> Any:
        every = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
        return function(x, every, bool(keepdims)) if every else x

    def by_input(x: Any, axes: Numbers = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        given = [] if axes is None else as_list(axes)
        if not given:
            # Nothing to reduce: the operators that change elements first still do.
            given = [] if noop_with_empty_axes else list(range(x.ndim))
        if not given:
            return function(x.unsqueeze(0), [0], False)
        return function(x, [axis % x.ndim for axis in given], bool(keepdims))

    operator(f"Reduce{name}")(by_attribute)
    operator(f"Reduce{name}", since=13 if name == "Sum" else 18)(by_input)


for _name, _function in _KINDS.items():
    _enter(_name, _function)


def _arg(function: Any, x: Any, axis: int, keepdims: int, last: int) -> Any:
    if last:
        found = function(torch.flip(x, [axis]), dim=axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - found
    return function(x, dim=axis, keepdim=bool(keepdims))


@operator("ArgMax")
def arg_max(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return _arg(torch.argmax, x, axis, keepdims, select_last_index)


@operator("ArgMin")
def arg_min(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return _arg(torch.argmin, x, axis, keepdims, select_last_index)
