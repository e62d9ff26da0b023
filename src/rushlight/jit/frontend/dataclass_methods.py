"""The methods that `dataclasses` generates, as texts that scripts can compile: Python keeps no source of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

__all__ = ["is_generated", "written_methods"]

_ORDERS = {"__lt__": "<", "__le__": "<", "__gt__": ">", "__ge__": ">"}


def is_generated(function: Any) -> bool:
    """Whether a function of a dataclass was generated, so that it has no source."""
    return isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"


def written_methods(held: Any) -> dict[str, str]:
    """Name -> text of the generated methods of a dataclass that scripts may call.

    NotImplementedError for fields that are made by a `default_factory`.
    """
    own = {name for name, function in vars(held).items() if is_generated(getattr(function, "__wrapped__", function))}
    compared = [field for field in dataclasses.fields(held) if field.compare]
    found = {}
    if "__init__" in own:
        found["__init__"] = _constructor(held)
    if "__repr__" in own:
        shown = ", ".join(f"{f.name}={{self.{f.name}}}" for f in dataclasses.fields(held) if f.repr)
        found["__repr__"] = f"def __repr__(self) -> str:\n    return f'{held.__qualname__}({shown})'\n"
    if "__eq__" in own:
        found["__eq__"] = _comparison(held, "__eq__", compared, "", True)
    for name, sign in _ORDERS.items():
        if name in own:
            found[name] = _comparison(held, name, compared, sign, name in ("__le__", "__ge__"))
    return found


def _constructor(held: Any) -> str:
    """Fields of the constructor have the words of its own annotations, whose meaning its function tells."""
    made: list[str] = []
    keywords: list[str] = []
    handed: list[tuple[str, bool]] = []
    for field in held.__dataclass_fields__.values():
        if field._field_type is dataclasses._FIELD_CLASSVAR or not field.init:  # type: ignore[attr-defined]
            continue
        if field.default_factory is not dataclasses.MISSING:
            raise NotImplementedError(
                f"Default factory initializers are not supported in TorchScript dataclasses: {held.__name__}.{field.name} has one"
            )
        word = field.type if isinstance(field.type, str) else f"_type_{field.name}"
        given = f"{field.name}: {word}" + ("" if field.default is dataclasses.MISSING else " = ...")
        (keywords if field.kw_only else made).append(given)
        handed.append((field.name, field._field_type is dataclasses._FIELD_INITVAR))  # type: ignore[attr-defined]
    body = [f"self.{name} = {name}" for name, initial in handed if not initial]
    if hasattr(held, "__post_init__"):
        body.append(f"self.__post_init__({', '.join(name for name, initial in handed if initial)})")
    listed = ", ".join(["self", *made, *(["*", *keywords] if keywords else [])])
    return f"def __init__({listed}) -> None:\n" + "".join(f"    {line}\n" for line in body or ["pass"])


def _comparison(held: Any, name: str, fields: list[Any], sign: str, alike: bool) -> str:
    """Fields are compared in their order; the first pair that differs decides.  None is only equal to None."""
    lines = []
    for field in fields:
        mine, other = f"a_{field.name}", f"b_{field.name}"
        decided = "return False" if not sign else f"return {mine} {sign} {other}"
        lines += [f"{mine} = self.{field.name}", f"{other} = other.{field.name}"]
        if _may_be_none(field.type):
            lines += [
                f"if {mine} is not None and {other} is not None:",
                f"    if {mine} != {other}:",
                f"        {decided}",
            ]
            lines += [f"elif {mine} is not None or {other} is not None:", "    return False"]
        else:
            lines += [f"if {mine} != {other}:", f"    {decided}"]
    lines.append(f"return {alike}")
    return f"def {name}(self, other: {held.__name__}) -> bool:\n" + "".join(f"    {line}\n" for line in lines)


def _may_be_none(kind: Any) -> bool:
    if isinstance(kind, str):
        return "Optional" in kind or "None" in kind
    return type(None) in typing.get_args(kind)
