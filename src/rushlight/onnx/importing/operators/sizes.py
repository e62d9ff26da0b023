"""Sizes, and what is computed from them in Python numbers: Shape, Size, and operators over `Host` values.

Shape arithmetic stays outside of tensors, so that a graph whose shapes follow from its inputs' is followed whole by
`torch.compile`.
"""

from __future__ import annotations

import math
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.table import Value, host, operator
from rushlight.onnx.importing.values import DTYPES, Host

__all__ = ["bounds"]


@operator("Shape")
def shape(x: Value, *, start: int = 0, end: int | None = None) -> Host:
    return Host(list(x.shape)[slice(start, end)])


@operator("Size")
def size(x: Value) -> Host:
    return Host([math.prod(x.shape)], scalar=True)


def bounds(start: int, stop: int, step: int, length: int) -> slice:
    """The slice for ONNX's bounds, which are clamped; a negative step runs to the first element at -length-1."""
    if step > 0:
        start, stop = _clamped(start, length, 0, length), _clamped(stop, length, 0, length)
        return slice(start, stop, step)
    start, stop = _clamped(start, length, 0, length - 1), _clamped(stop, length, -1, length - 1)
    return slice(start, None if stop < 0 else stop, step)


def _clamped(index: int, length: int, low: int, high: int) -> int:
    index = index + length if index < 0 else index
    return min(max(index, low), high)


def _integers(*values: Any) -> bool:
    return all(value is None or value.dtype == torch.int64 for value in values)


@host("Identity")
def _identity(x: Host) -> Host:
    return x


@host("Concat")
def _concat(*xs: Host, axis: int = 0) -> Any:
    if not _integers(*xs) or any(x.scalar for x in xs):
        return NotImplemented
    return Host([item for x in xs for item in x.items])


@host("Gather")
def _gather(x: Host, indices: Host, *, axis: int = 0) -> Any:
    if not _integers(x) or indices.dtype not in (torch.int64, torch.int32) or x.scalar:
        return NotImplemented
    return Host([x.items[index] for index in indices.items], indices.scalar)


@host("Slice")
def _slice(
    x: Host, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None, **attributes: Any
) -> Any:
    if not _integers(x) or starts is None or len(starts.items) != 1 or x.scalar:
        return NotImplemented
    step = 1 if steps is None else steps.items[0]
    return Host(x.items[bounds(starts.items[0], ends.items[0], step, len(x.items))])


@host("Squeeze")
def _squeeze(x: Host, axes: Any = None, **attributes: Any) -> Any:
    if not _integers(x) or len(x.items) != 1:
        return NotImplemented
    return Host(x.items, scalar=True)


@host("Unsqueeze")
def _unsqueeze(x: Host, axes: Any = None, **attributes: Any) -> Any:
    return Host(x.items) if _integers(x) and x.scalar else NotImplemented


@host("Cast")
def _cast(x: Host, *, to: Any, **attributes: Any) -> Any:
    return x if DTYPES.get(to) == x.dtype and _integers(x) else NotImplemented


@host("ReduceProd")
def _product(x: Host, axes: Any = None, *, keepdims: int = 1, **attributes: Any) -> Any:
    if not _integers(x) or x.scalar or attributes.get("noop_with_empty_axes"):
        return NotImplemented
    return Host([math.prod(x.items)], scalar=not keepdims)


def _towards_zero(x: int, y: int) -> int:
    return -(-x // y) if (x < 0) != (y < 0) else x // y


_ARITHMETIC = {
    "Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mul": lambda x, y: x * y, "Div": _towards_zero, "Mod": lambda x, y: x % y,
    "Max": max, "Min": min,
}  # fmt: skip


def _enter(name: str, function: Any) -> None:
    def apply(*xs: Host, **attributes: Any) -> Any:
        if len(xs) != 2 or not _integers(*xs) or any(attributes.get(one) for one in ("broadcast", "fmod")):
            return NotImplemented
        x, y = xs
        count = max(len(x.items), len(y.items))
        if not all(len(one.items) in (1, count) for one in xs) or (name in ("Div", "Mod") and 0 in y.items):
            return NotImplemented
        pairs = zip(x.items * (count // len(x.items) or 1), y.items * (count // len(y.items) or 1), strict=True)
        return Host([function(a, b) for a, b in pairs], x.scalar and y.scalar)

    host(name)(apply)


for _name, _function in _ARITHMETIC.items():
    _enter(_name, _function)
