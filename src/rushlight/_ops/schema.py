"""Signatures of operators, in the notation of PyTorch's schemas.

>>> from rushlight._ops.schema import parse_schema
>>> schema = parse_schema("softmax(Tensor input, int dim, dtype? dtype=None) -> Tensor")
>>> schema.name, [(a.name, a.type) for a in schema.arguments]
('softmax', [('input', 'Tensor'), ('dim', 'int'), ('dtype', 'dtype?')])

Types: Tensor, Scalar, int, float, bool, str, dtype, device, layout, memory_format, Generator, ints, any; `T?` may be
None; `T[]` is a sequence and `T[2]` one that a single item may replace (it is repeated); `T?[2]` is one with items that
may be None, and `ints` an int or a sequence of them, which differ.  `*` starts keyword-only arguments.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Argument", "Schema", "parse_schema"]

_BASES = frozenset(
    (
        "Tensor",
        "Scalar",
        "int",
        "float",
        "bool",
        "str",
        "dtype",
        "device",
        "layout",
        "memory_format",
        "Generator",
        "ints",
        "any",
    )
)
_REQUIRED: Any = object()


class Argument:
    """One declared argument.  `base` is the type without `?` and `[]`; `repeat` is N of `T[N]`, 0 for `T[]`, None
    otherwise; `holes` allows None items in the sequence (`T?[N]`).
    """

    __slots__ = ("base", "default", "holes", "keyword_only", "name", "optional", "repeat", "type")

    def __init__(self, name: str, type_: str, default: Any, keyword_only: bool) -> None:
        self.name, self.type, self.default, self.keyword_only = name, type_, default, keyword_only
        base = type_
        self.optional = base.endswith("?")
        if self.optional:
            base = base[:-1]
        self.repeat: int | None = None
        if base.endswith("]"):
            base, _, count = base[:-1].partition("[")
            self.repeat = int(count) if count else 0
        self.holes = self.repeat is not None and base.endswith("?")
        base = base.removesuffix("?") if self.holes else base
        if base not in _BASES:
            raise ValueError(f"unknown type {type_!r} of argument {name!r}")
        self.base = base

    @property
    def required(self) -> bool:
        """Whether the caller must pass it."""
        return self.default is _REQUIRED

    @property
    def is_sequence(self) -> bool:
        """Whether it takes a list."""
        return self.repeat is not None

    def __repr__(self) -> str:
        return f"{self.type} {self.name}" + ("" if self.required else f"={self.default!r}")


class Schema:
    """Name, arguments, and names of the results ("" where unnamed); `returns_list` for `-> Tensor[]`."""

    __slots__ = ("arguments", "name", "positional", "results", "returns_list", "text")

    def __init__(self, text: str, name: str, arguments: list[Argument], results: list[str], returns_list: bool) -> None:
        self.text, self.name, self.arguments, self.results, self.returns_list = (
            text,
            name,
            arguments,
            results,
            returns_list,
        )
        self.positional = sum(not a.keyword_only for a in arguments)

    def __repr__(self) -> str:
        return self.text


def _literal(text: str) -> Any:
    """A default: None, True, False, a number, a quoted string, or [numbers]."""
    words = {"None": None, "True": True, "False": False, "inf": float("inf"), "-inf": float("-inf")}
    if text in words:
        return words[text]
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] == "[":
        inner = text[1:-1].strip()
        return tuple(_literal(part.strip()) for part in inner.split(",")) if inner else ()
    try:
        return int(text)
    except ValueError:
        return float(text)


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def parse_schema(text: str) -> Schema:
    """Parse one signature; ValueError for invalid notation."""
    head, arrow, tail = text.partition("->")
    name, paren, rest = head.partition("(")
    rest = rest.strip()
    if not arrow or not paren or not rest.endswith(")"):
        raise ValueError(f"not a schema: {text!r}")
    arguments, keyword_only = [], False
    for part in _split(rest[:-1]):
        if part == "*":
            keyword_only = True
            continue
        type_, _, declared = part.partition(" ")
        argument, equals, default = declared.partition("=")
        arguments.append(
            Argument(argument.strip(), type_, _literal(default.strip()) if equals else _REQUIRED, keyword_only)
        )
    tail = tail.strip()
    results = [p.partition(" ")[2] for p in _split(tail[1:-1])] if tail.startswith("(") else [""]
    return Schema(text, name.strip(), arguments, results, tail == "Tensor[]")
