"""Schemas of the aten operators: which overload takes a call, and its arguments in the form in which PyTorch shows
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import rushlight
from rushlight.library.schema import Argument, FunctionSchema, parse

__all__ = ["Form", "bind", "find_form", "forms_of", "is_default"]


class Places:
    """The arguments of a schema by place and by name, and what stands for those that a call leaves out."""

    __slots__ = ("count", "defaults", "list_at", "names", "positional")

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.positional = tuple([a.name for a in arguments if not a.kwarg_only])
        self.names = frozenset([a.name for a in arguments])
        self.count = len(self.positional)
        lists = [
            i for i, a in enumerate(arguments) if not a.kwarg_only and a.list_depth and a.base in ("int", "SymInt")
        ]
        self.list_at = lists[0] if lists else None
        self.defaults = {a.name: _expanded(a) for a in arguments if a.has_default}


def _expanded(argument: Argument) -> Any:
    """The default value; one number for a list of a known length as that list."""
    default = argument.default
    count = argument.type[argument.type.find("[") + 1 : argument.type.find("]")] if argument.list_depth else ""
    return [default] * int(count) if count and isinstance(default, int) else default


class Form:
    """One overload: its schema, and whether PyTorch makes it of other operators above autograd."""

    __slots__ = ("composite", "name", "overload", "places", "schema", "target", "text")

    def __init__(self, text: str) -> None:
        self.composite = text.startswith("!")
        self.text = text.lstrip("!")
        head = self.text[: self.text.index("(")]
        self.name, _, overload = head.partition(".")
        self.overload = overload or "default"
        self.schema: Any = None
        self.places: Places | None = None
        self.target: Any = None  # the overload as an object of `torch.ops.aten`, once it was asked for

    def parsed(self) -> FunctionSchema:
        """The schema, parsed when first asked for."""
        if self.schema is None:
            self.schema = parse(f"aten::{self.text}")
        return self.schema

    def arguments(self) -> Places:
        """The places that calls are bound with, made once."""
        if self.places is None:
            self.places = Places(self.parsed().arguments)
        return self.places

    @property
    def is_view(self) -> bool:
        """Whether the result shares memory with the first argument, which is not changed."""
        head = self.text.split(",", 1)[0]
        return "Tensor(a" in head and "!)" not in head and "(a" in self.text.rsplit("->", 1)[1]

    @property
    def in_place(self) -> bool:
        """Whether it changes its first argument and gives that (a list need not be given)."""
        return "!)" in self.text.split(",", 1)[0] and self.parsed().in_place

    @property
    def writes_out(self) -> bool:
        """Whether it writes into a tensor that is named `out`, or several of them."""
        return any(a.written and a.kwarg_only for a in self.parsed().arguments)


@cache
def _table() -> dict[str, dict[str, Form]]:
    made: dict[str, dict[str, Form]] = {}
    text = files("rushlight.library.aten").joinpath("schemas.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        form = Form(line)
        made.setdefault(form.name, {})[form.overload] = form
    return made


def names_of_operators() -> list[str]:
    """The operators of the table, without their overloads."""
    return list(_table())


def forms_of(name: str) -> dict[str, Form]:
    """The overloads of an operator by name; empty for none."""
    return _table().get(name, {})


def find_form(name: str, overload: str) -> Form | None:
    """One overload; None for none."""
    return forms_of(name).get(overload)


# Operators whose second operand may be a number where the schema says a tensor: they have no form for numbers in
# Python.
_NUMBERS = frozenset(
    "add sub mul div subtract multiply divide true_divide floor_divide add_ sub_ mul_ div_ subtract_ multiply_ divide_ true_divide_ floor_divide_"
    " logical_and logical_or logical_xor atan2 arctan2 maximum minimum fmax fmin hypot logaddexp logaddexp2".split()
)
# Overloads that Python never reaches.
_UNREACHED = frozenset((
    "add.Scalar", "add_.Scalar", "sub.Scalar", "sub_.Scalar", "mul.Scalar", "mul_.Scalar", "div.Scalar", "div_.Scalar", "div.Scalar_mode", "div_.Scalar_mode",
    "multiply.Scalar", "divide.Scalar", "subtract.Scalar", "true_divide.Scalar", "any.dimname", "to.prim_Device", "bitwise_and.Scalar_Tensor",
))  # fmt: skip
_LATER = ("default", "Tensor", "self", "int", "dim")
# Names of arguments in Python, and their schemas' names.
_RENAMED = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x1": "self", "x2": "other", "a": "self"}


@cache
def _order(name: str, into: bool) -> list[Form]:
    """The overloads of an operator that Python reaches, with an `out` or without, in the order in which they are tried."""
    found = sorted(
        forms_of(name).values(), key=lambda f: (_LATER.index(f.overload) if f.overload in _LATER else 9, f.overload)
    )
    return [f for f in found if f"{name}.{f.overload}" not in _UNREACHED and f.writes_out is into]


def choose(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Form, list[Any]] | None:
    """The overload that takes these arguments, and a value for each argument of its schema; None where none does."""
    into = kwargs.get("out") is not None
    if kwargs:
        kwargs = {k: v for k, v in kwargs.items() if not (k == "out" and v is None) and k != "requires_grad"}
    later = None
    for form in _order(name, into):
        values = bind(form, args, kwargs)
        if values is None:
            continue
        # A tensor without dims is taken for a number only where no form takes a tensor.
        if not any(map(_is_number_in_tensor, form.parsed().arguments, values)):
            return form, values
        later = later or (form, values)
    if later is None:
        return None
    form, values = later
    arguments = form.parsed().arguments
    return form, [v.item() if _is_number_in_tensor(a, v) else v for a, v in zip(arguments, values, strict=True)]


def _is_number_in_tensor(argument: Argument, value: Any) -> bool:
    """Whether a number was given as a tensor without dims."""
    return argument.base in ("Scalar", "float") and isinstance(value, rushlight.Tensor)


def bind(form: Form, args: Sequence[Any], kwargs: dict[str, Any], strict: bool = False) -> list[Any] | None:
    """A value for each argument of the schema; None where the arguments do not fit.  Strictly, names are those of the
    schema.
    """
    arguments, places = form.parsed().arguments, form.arguments()
    if len(args) > places.count:
        at = places.list_at
        if at is None or any(not isinstance(v, int) for v in args[at:]):
            return None
        args = (*args[:at], list(args[at:]))
    given = dict(zip(places.positional, args, strict=False))
    names = places.names
    for key, value in kwargs.items():
        if key not in names and not strict:
            key = next(
                (
                    n
                    for n in (
                        _RENAMED.get(key, ""),
                        arguments[0].name if key in ("input", "self") and arguments else "",
                    )
                    if n in names
                ),
                key,
            )
        if key not in names or key in given:
            if key == "out" and isinstance(value, (tuple, list)):
                written = [a.name for a in arguments if a.kwarg_only and a.written]
                given.update(zip(written, value, strict=False))
                continue
            if value is None and key in ("out", "dtype", "names", "generator"):
                continue
            return None
        given[key] = value
    found, defaults = [], places.defaults
    for argument in arguments:
        if argument.name not in given:
            if argument.name not in defaults:
                return None
            default = defaults[argument.name]
            found.append(list(default) if type(default) is list else default)
            continue
        fits, value = _fitted(argument, given[argument.name], form.name)
        if not fits:
            return None
        found.append(value)
    return found


def _is_int(value: Any) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        or hasattr(type(value), "__index__")
        and not isinstance(value, (bool, rushlight.Tensor))
    )


def _item(argument: Argument, value: Any, name: str) -> tuple[bool, Any]:
    base = argument.base
    if base == "Tensor":
        if isinstance(value, rushlight.Tensor):
            return True, value
        return name in _NUMBERS and argument.name == "other" and isinstance(value, (int, float, complex)), value
    if base in ("int", "SymInt"):
        if isinstance(value, rushlight.Tensor) and not value.ndim and not value.is_floating_point():
            return True, int(value)
        return _is_int(value), value
    if base in ("float", "SymFloat", "Scalar"):
        if isinstance(value, rushlight.Tensor):
            return value.ndim == 0 and not value.requires_grad, value
        if hasattr(value, "item") and not isinstance(value, (int, float, complex)):
            value = value.item()
        return isinstance(value, (int, float) if base == "float" else (int, float, complex)) or hasattr(
            value, "__float__"
        ), value
    if base == "bool":
        return isinstance(value, bool), value
    if base == "str":
        return isinstance(value, str), value
    if base == "ScalarType":
        if value in (float, int, bool, complex):
            value = {
                float: rushlight.get_default_dtype(),
                int: rushlight.int64,
                bool: rushlight.bool,
                complex: rushlight.complex64,
            }[value]
        return isinstance(value, rushlight.dtype), value
    if base == "Device":
        if isinstance(value, str):
            value = rushlight.device(value)
        return isinstance(value, rushlight.device), value
    return not isinstance(value, (int, float, str, rushlight.Tensor)), value


def _fitted(argument: Argument, value: Any, name: str) -> tuple[bool, Any]:
    """(whether it fits, the value in the schema's form)."""
    if value is None:
        return argument.optional or "?" in argument.type, None
    if not argument.list_depth:
        return _item(argument, value, name)
    if not isinstance(value, (list, tuple)):
        count = argument.type[argument.type.index("[") + 1 : argument.type.index("]")]
        fits, value = _item(argument, value, name)
        if (
            not fits
            or argument.base == "Tensor"
            or not count
            and argument.name not in ("size", "dims", "repeats", "shape")
        ):
            return False, value
        count = count or "1"
        return True, [value] * (int(count) if name not in ("sum", "mean") else 1)
    made = []
    for each in value:
        if each is None and "?[" in argument.type:
            made.append(None)
            continue
        fits, each = _item(argument, each, name)
        if not fits:
            return False, value
        made.append(each)
    return True, made


def is_default(argument: Argument, value: Any) -> bool:
    """Whether a value is the argument's default."""
    if not argument.has_default:
        return False
    default = argument.default
    if value is default:
        return True
    if isinstance(value, rushlight.Tensor) or default is None or value is None:
        return False
    if argument.list_depth and isinstance(default, int):  # `int[2] stride=1`
        default = [default] * len(value)
    if isinstance(value, bool) is not isinstance(default, bool):
        return False
    if argument.base == "Scalar" and isinstance(value, float) is not isinstance(default, float):
        return False
    return bool(value == default)
