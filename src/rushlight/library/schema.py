"""Schemas of operators as PyTorch writes them: `my::op(Tensor(a!) x, int[] dims=[], *, float? scale=None) -> (Tensor,
Tensor[])`.

An operator of a user's is declared by such a text; calls are checked against it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import rushlight

__all__ = ["AliasInfo", "Argument", "FunctionSchema", "named_in_place", "parse"]

NO_DEFAULT: Any = type("NoDefault", (), {"__repr__": lambda self: "no default"})()
_BASES = ("Tensor", "Scalar", "SymInt", "SymFloat", "SymBool", "int", "float", "bool", "str", "ScalarType", "Device", "Layout", "MemoryFormat",
          "Generator", "Storage", "Stream", "Any", "Dimname")  # fmt: skip
_TYPE = re.compile(r"(?P<base>[A-Za-z_.]\w*)(?:\((?P<alias>[^)]*)\))?(?P<rest>(?:\[\d*\]|\?)*)")
_TUPLE = re.compile(r"\((?P<inner>.*)\)")
_QUALIFIED = re.compile(r"(?:(?P<ns>\w+)::)?(?P<name>\w+)(?:\.(?P<overload>\w+))?")


class AliasInfo:
    """The marks of a schema such as `a!` or `a -> *`: names of memory before and after the call."""

    def __init__(self, marks: str) -> None:
        before, _, after = marks.partition("->")
        self.is_write = "!" in before
        self.before_set = {word.strip() for word in before.replace("!", "").split("|")}
        self.after_set = {word.strip() for word in after.replace("!", "").split("|")} if after else set(self.before_set)


class Argument:
    """One argument or result: its name, its type without alias marks, its default, and the memory that it may share."""

    __slots__ = (
        "alias", "base", "default", "in_tuple", "kwarg_only", "list_depth", "name", "optional", "type", "written",
    )  # fmt: skip

    def __init__(self, text: str, kwarg_only: bool = False, result: bool = False) -> None:
        head, equals, default = text.partition("=")
        nested = _TUPLE.fullmatch(text.strip()) if result else None  # `((Tensor))`: a tuple of one result
        matched = _TYPE.match(nested["inner"].strip() if nested else head.strip())
        if matched is None or matched["base"] not in _BASES:
            raise RuntimeError(f"unknown type specifier in {text.strip()!r}")
        self.base, self.alias, self.kwarg_only = matched["base"], matched["alias"] or "", kwarg_only
        self.written = "!" in self.alias
        self.type = self.base + matched["rest"]
        self.list_depth, self.optional = matched["rest"].count("["), self.type.endswith("?")
        self.name = "" if nested else head.strip()[matched.end() :].strip()
        self.in_tuple = nested is not None
        if not result and not self.name.isidentifier():
            raise RuntimeError(f"expected an argument's type and name, found {text.strip()!r}")
        self.default = _value(default.strip()) if equals else NO_DEFAULT

    @property
    def is_tensor_like(self) -> bool:
        """Whether it is a tensor, perhaps None, or a list of tensors."""
        return self.base == "Tensor"

    @property
    def has_default(self) -> bool:
        """Whether a call may leave it out."""
        return self.default is not NO_DEFAULT

    @property
    def default_value(self) -> Any:
        """Its value where a call leaves it out, for `int[2] padding=0` a list of two; None without a default."""
        if not self.has_default:
            return None
        length = re.search(r"\[(\d+)\]$", self.type)
        return [self.default] * int(length[1]) if length and not isinstance(self.default, list) else self.default

    @property
    def alias_info(self) -> AliasInfo | None:
        """The memory that it may share and whether it is written; None for values of their own."""
        return AliasInfo(self.alias) if self.alias else None

    def __str__(self) -> str:
        shown = f"{self.base}({self.alias}){self.type[len(self.base) :]}" if self.alias else self.type
        shown = f"(({shown}))" if self.in_tuple else f"{shown} {self.name}" if self.name else shown
        return f"{shown}={_text(self.default)}" if self.has_default else shown

    __repr__ = __str__


def _value(text: str) -> Any:
    words = {
        "None": None,
        "True": True,
        "False": False,
        "inf": float("inf"),
        "-inf": float("-inf"),
        "nan": float("nan"),
    }
    if text in words:
        return words[text]
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    if text.startswith("["):
        return [_value(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return getattr(rushlight, text, text)  # a dtype, a layout, or a word such as `Mean`


def _text(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):  # as PyTorch's schemas show them: whole ones with a point, others to the last digit
        return f"{int(value)}." if abs(value) < 2**63 and value == int(value) else f"{value:.17g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return repr(value).removeprefix("torch.") if not isinstance(value, (int, float, type(None))) else str(value)


def named_in_place(name: str) -> bool:
    """Whether a name, of an operator that PyTorch has no schema of, says that it changes its first argument."""
    return name.endswith("_") and not name.endswith("__")


def _is_changed_and_given(first: Argument, returns: Sequence[Argument]) -> bool:
    """Whether an operator changes its first argument and gives that, or nothing where that is a list."""
    if first.kwarg_only or not first.written:
        return False
    return all(result.alias == first.alias for result in returns) if returns else first.list_depth > 0


class FunctionSchema:
    """A parsed schema: the operator's name (`ns::op`), `overload_name`, `arguments` and `returns`."""

    __slots__ = ("arguments", "in_place", "is_mutable", "name", "overload_name", "returns")

    def __init__(self, name: str, overload: str, arguments: list[Argument], returns: list[Argument]) -> None:
        self.name, self.overload_name, self.arguments, self.returns = name, overload, arguments, returns
        self.is_mutable = any(a.written for a in arguments)
        self.in_place = bool(arguments) and _is_changed_and_given(arguments[0], returns)

    @property
    def positional(self) -> list[Argument]:
        """The arguments that a call may give by place."""
        return [a for a in self.arguments if not a.kwarg_only]

    def __str__(self) -> str:
        parts: list[str] = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in parts:
                parts.append("*")
            parts.append(str(argument))
        results = ", ".join(map(str, self.returns))
        shown = results if len(self.returns) == 1 else f"({results})"
        overload = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{overload}({', '.join(parts)}) -> {shown}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _split(text: str) -> list[str]:
    """Parts between the commas that are in no bracket and no quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _closing(text: str, at: int) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    raise RuntimeError(f"expected ) but found the end of the schema {text!r}")


def parse(text: str, namespace: str = "") -> FunctionSchema:
    """Parse a schema; RuntimeError where it is none.  `namespace` is that of a name which has none."""
    opening = text.find("(")
    matched = _QUALIFIED.fullmatch(text[:opening].strip()) if opening > 0 else None
    if matched is None:
        raise RuntimeError(f"expected a schema such as 'op(Tensor x) -> Tensor', found {text!r}")
    closing = _closing(text, opening)
    arrow, results = text[closing + 1 :].strip()[:2], text[closing + 1 :].strip()[2:].strip()
    if arrow != "->" or not results:
        raise RuntimeError(f"expected '-> type' behind the arguments of {text!r}")
    arguments, kwarg_only = [], False
    for part in _split(text[opening + 1 : closing]):
        if part.strip() == "*":
            kwarg_only = True
        else:
            arguments.append(Argument(part, kwarg_only))
    inner = results[1:-1] if results.startswith("(") and _closing(results, 0) == len(results) - 1 else results
    name = f"{matched['ns'] or namespace}::{matched['name']}" if matched["ns"] or namespace else matched["name"]
    return FunctionSchema(
        name, matched["overload"] or "", arguments, [Argument(part, result=True) for part in _split(inner)]
    )
