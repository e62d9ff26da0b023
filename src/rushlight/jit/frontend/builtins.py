"""Built-in functions of TorchScript: operators made of others, casts, special forms."""

from __future__ import annotations

from typing import Any

from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.frontend.sugared import Builtin, Simple, Special, Sugared, builtin_call
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location, Value
from rushlight.jit.ir.schemas import variants

__all__ = ["BUILTIN_NAMES", "Cast", "written"]

_CASTS = {
    "int": ("Int", T.INT),
    "float": ("Float", T.FLOAT),
    "bool": ("Bool", T.BOOL),
    "complex": ("Complex", T.COMPLEX),
    "str": ("str", T.STR),
}


class Cast(Sugared):
    """`int`, `float`, `bool`, `complex`, `str` as functions."""

    kind = "type"

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Convert a value; one that has the type stays itself."""
        op, kind = _CASTS[self.name]
        if len(args) == 1 and not kwargs:
            e.graph.skip_number()  # a zero, which only lists need
            if T.is_subtype(args[0].type, kind):
                return Simple(args[0])
            if isinstance(args[0].type, T.ClassType):
                return Simple(args[0]).attr(e, at, f"__{self.name}__").call(e, at, [], {})
        if self.name == "str" and not args:
            return Simple(e.graph.constant("", T.STR))
        return Simple(builtin_call(e, at, f"aten::{op}", args, kwargs))

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        """Methods of `str` as functions."""
        if self.name == "str" and variants(f"aten::{name}"):
            return Builtin(f"aten::{name}")
        return super().attr(e, at, name)


BUILTIN_NAMES: dict[str, Sugared] = {
    **{name: Cast(name) for name in _CASTS},
    **{name: Special(name) for name in (
        "print", "isinstance", "hasattr", "getattr", "range", "enumerate", "zip", "reversed", "tuple", "list", "dict", "super", "iter", "type", "slice",
    )},
    **{name: Builtin(f"aten::{name}") for name in (
        "len", "ord", "chr", "divmod", "hash", "hex", "oct", "bin", "sorted", "any", "all", "sum",
    )},
    **{name: Builtin(f"prim::{name}") for name in ("abs", "min", "max", "id")},
    "round": Builtin("aten::round"),
    "pow": Builtin("aten::pow"),
}  # fmt: skip


def written(e: Any, name: str, args: list[Value], kwargs: dict[str, Value], at: Location) -> Value | None:
    """Operators that TorchScript makes of others; None for any other."""
    rule = _RULES.get(name)
    return rule(e, args, kwargs, at) if rule is not None else None


def _tensors_only(name: str) -> Any:
    """`min`, `max`, `abs`, `sum` of Python, which are operators of that name for tensors and for lists."""

    def rule(e: Any, args: list[Value], kwargs: dict[str, Value], at: Location) -> Value | None:
        if args and len(args) <= 2 and all(a.type == T.TENSOR for a in args):
            return builtin_call(e, at, f"aten::{name}", args, kwargs)
        return None

    return rule


def _length(e: Any, args: list[Value], kwargs: dict[str, Value], at: Location) -> Value | None:
    if len(args) == 1 and isinstance(args[0].type, T.ClassType):
        made: Value = Simple(args[0]).attr(e, at, "__len__").call(e, at, [], {}).value(e, at)
        return made
    return None


def _floordiv(e: Any, args: list[Value], kwargs: dict[str, Value], at: Location) -> Value | None:
    if len(args) == 2 and T.TENSOR in (args[0].type, args[1].type):
        return builtin_call(e, at, "aten::floor_divide", args, kwargs)
    return None


def _number_left(name: str) -> Any:
    def rule(e: Any, args: list[Value], kwargs: dict[str, Value], at: Location) -> Value | None:
        numbers = (T.INT, T.FLOAT, T.BOOL, T.COMPLEX, T.NUMBER)
        if len(args) == 2 and not kwargs and args[0].type in numbers and args[1].type == T.TENSOR:
            return e._number_first(name, args[0], args[1], at)
        return None

    return rule


def _unwrap(e: Any, args: list[Value], kwargs: dict[str, Value], at: Location) -> Value | None:
    if len(args) == 1 and args[0].type.name != "Optional" and args[0].type != T.NONE:
        return args[0]
    return None


_RULES: dict[str, Any] = {
    "prim::min": _tensors_only("min"), "prim::max": _tensors_only("max"), "aten::floordiv": _floordiv,
    **{f"aten::{n}": _number_left(n) for n in ("add", "sub", "mul", "div", "eq", "ne", "lt", "gt", "le", "ge")},
    "aten::_unwrap_optional": _unwrap, "aten::len": _length,
}  # fmt: skip


def check_cast(kind: str, at: Location) -> None:
    """Refuse an unknown kind of cast."""
    if kind not in _CASTS:
        raise CompileError(f"unknown cast {kind}", at)
