"""Calls with quantized tensors in a trace: each function is one operator, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rushlight
from rushlight.jit.ir import types as T
from rushlight.jit.ir.schemas import Argument, Schema, variants
from rushlight.jit.ir.types import Type
from rushlight.jit.serialization.packed import packed_type
from rushlight.library.aten.calls import aten_name, in_place
from rushlight.library.aten.fronts import FRONTS, resized

__all__ = ["as_operator", "meets_quantized"]

_PAGE = "torch._ops.quantized"
_MAKERS = frozenset(("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"))
_READ = frozenset(("q_scale", "q_zero_point", "q_per_channel_axis", "qscheme", "is_quantized", "__get__", "__set__"))


def meets_quantized(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function is one of packed weights, makes a quantized tensor, or is given one."""
    name = getattr(function, "__name__", "")
    if getattr(function, "__module__", None) == _PAGE or name in _MAKERS:
        return True
    return name not in _READ and any(map(_has_quantized, (*args, *kwargs.values())))


def _has_quantized(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_quantized, value))
    return isinstance(value, rushlight.Tensor) and value.is_quantized


def as_operator(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Schema, list[Any], Any]:
    """The operator of a call, all its arguments, and what makes the function's result of its results (None: nothing).

    RuntimeError for a function that is none.
    """
    if getattr(function, "__module__", None) == _PAGE:
        named, finish = f"quantized::{function.__name__}", None
    else:
        finish = None
        name, args, kwargs = in_place(aten_name(function), function, args, dict(kwargs))
        front = resized if name == "interpolate" else FRONTS.get(name)
        if front is not None:
            name, args, *rest = front(*args, **kwargs)
            kwargs = rest[0] if rest else {}
            finish = rest[1] if len(rest) > 1 else None
        named = f"aten::{name}"
    for exact in (True, False):
        for schema in variants(named):
            values = _bound(schema, args, kwargs, exact)
            if values is not None:
                return schema, values, finish
    raise RuntimeError(f"torch.jit.trace cannot record {named.partition('::')[2]} of a quantized tensor")


def _bound(schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any], exact: bool) -> list[Any] | None:
    """A value for each argument of a schema; None where the call does not fit.  Not `exact`: tensors may be numbers."""
    left, values = dict(kwargs), []
    places = [a for a in schema.arguments if not a.kwarg_only]
    args = _as_listed(places, args)
    if len(args) > len(places):
        return None
    for at, argument in enumerate(schema.arguments):
        if not argument.kwarg_only and at < len(args):
            value = args[at]
        elif argument.name in left or argument.name == "self" and "input" in left:
            value = left.pop(argument.name) if argument.name in left else left.pop("input")
        elif argument.has_default_value():
            value = argument.default
        else:
            return None
        if not exact and argument.type in (T.INT, T.FLOAT) and isinstance(value, rushlight.Tensor):
            value = value.item() if value.numel() == 1 else value  # a scale that a module holds
        if argument.written and argument.kwarg_only or not _fits(value, argument.type):
            return None
        values.append([value] * (argument.N or 1) if _is_list(argument.type) and isinstance(value, int) else value)
    return None if any(v is not None for v in left.values()) else values


def _as_listed(places: Sequence[Argument], args: Sequence[Any]) -> Sequence[Any]:
    """Sizes that were given one by one as one list."""
    many = len(args) > len(places) and places and _is_list(places[-1].type)
    first = len(places) - 1
    return (*args[:first], list(args[first:])) if many and all(isinstance(a, int) for a in args[first:]) else args


def _is_list(kind: Type) -> bool:
    kind = kind.inner[0] if kind.name == "Optional" else kind
    return kind.name == "List"


def _fits(value: Any, kind: Type) -> bool:
    """Whether a value can be an argument of a type."""
    if kind.name == "Optional":
        return value is None or _fits(value, kind.inner[0])
    if kind.name == "List":
        inner = kind.inner[0]
        if isinstance(value, (list, tuple)):
            return all(_fits(v, inner) for v in value)
        return inner == T.INT and isinstance(value, int) and not isinstance(value, bool)
    if kind in T.PACKED.values():
        return packed_type(value) == kind
    if isinstance(value, rushlight.Tensor) or kind == T.TENSOR:
        return isinstance(value, rushlight.Tensor) and kind == T.TENSOR
    if isinstance(value, bool):
        return kind == T.BOOL
    if isinstance(value, float):
        return kind in (T.FLOAT, T.NUMBER)
    if isinstance(value, int):
        return kind in (T.INT, T.FLOAT, T.NUMBER)
    if isinstance(value, str):
        return kind == T.STR
    return isinstance(value, (rushlight.dtype, rushlight.memory_format, rushlight.layout)) and kind == T.INT
