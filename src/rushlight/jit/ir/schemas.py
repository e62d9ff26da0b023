"""Schemas of the operators that graphs call: those of `library/aten`, and those that only TorchScript has.

`operators.txt` holds the latter: operators over numbers, strings, lists and dicts, and the order in which the overloads
of a name are tried (`@name overload overload ...`), where it is not that of the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import rushlight
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import constant_text, float_text, string_text
from rushlight.jit.ir.types import Type
from rushlight.library.aten.schemas import forms_of

__all__ = ["NO_DEFAULT", "Argument", "Schema", "parse_schema", "variants"]

NO_DEFAULT: Any = type("NoDefault", (), {"__repr__": lambda self: "no default"})()
_BASIC = {
    "Tensor": T.TENSOR, "int": T.INT, "SymInt": T.INT, "ScalarType": T.INT, "Layout": T.INT, "MemoryFormat": T.INT, "float": T.FLOAT, "SymFloat": T.FLOAT,
    "bool": T.BOOL, "SymBool": T.BOOL, "str": T.STR, "complex": T.COMPLEX, "Scalar": T.NUMBER, "number": T.NUMBER, "Any": T.ANY, "Device": T.DEVICE,
    "Generator": T.GENERATOR, "NoneType": T.NONE, "Stream": T.STREAM, "Storage": T.STORAGE, "Dimname": T.STR, "AnyListType": Type("AnyListType"),
    "AnyTupleType": Type("AnyTupleType"), "AnyEnumType": Type("AnyEnumType"), "AnyClassType": Type("AnyClassType"), "Dict": Type("Dict"),
}  # fmt: skip


class Argument:
    """One argument or result: name, type, default, the size of a list for which one number may stand (`N`)."""

    __slots__ = ("N", "alias", "default", "kwarg_only", "name", "type", "word")

    def __init__(self, name: str, kind: Type, default: Any = NO_DEFAULT, kwarg_only: bool = False) -> None:
        self.name, self.type, self.default, self.kwarg_only = name, kind, default, kwarg_only
        self.N: int | None = None
        self.alias = ""
        self.word = ""  # how the table writes the type: what an int means

    @property
    def written(self) -> bool:
        """Whether the operator changes it."""
        return "!" in self.alias

    def has_default_value(self) -> bool:
        """Whether a call may leave it out."""
        return self.default is not NO_DEFAULT

    def __str__(self) -> str:
        shown = _shown_type(self)
        text = f"{shown} {self.name}" if self.name else shown
        return text if self.default is NO_DEFAULT else f"{text}={_shown_default(self)}"

    __repr__ = __str__


def _shown_type(argument: Argument) -> str:
    text = str(argument.type)
    if argument.N is not None and text.endswith("[]"):
        text = f"{text[:-2]}[{argument.N}]"
    if argument.alias:
        base, rest = (text[: -len(m.group())], m.group()) if (m := re.search(r"(\[\d*\]|\?)+$", text)) else (text, "")
        return f"{base}({argument.alias}){rest}"
    return text


def _shown_default(argument: Argument) -> str:
    value = argument.default
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, str):
        return string_text(value)
    return constant_text(value, argument.type)


class Schema:
    """The signature of an operator, a function or a method."""

    __slots__ = ("arguments", "form", "is_vararg", "is_varret", "name", "overload_name", "returns")

    def __init__(
        self, name: str, overload: str, arguments: Sequence[Argument], returns: Sequence[Argument], vararg: bool = False
    ) -> None:
        self.name, self.overload_name = name, overload
        self.arguments, self.returns = list(arguments), list(returns)
        self.is_vararg, self.is_varret = vararg, False
        self.form: Any = None

    def __call__(self) -> str:
        """Its text: programs written for PyTorch ask a node for its `schema()`."""
        return str(self)

    @property
    def is_mutable(self) -> bool:
        """Whether it changes an argument."""
        return any(a.written for a in self.arguments)

    def __str__(self) -> str:
        parts: list[str] = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in parts:
                parts.append("*")
            parts.append(str(argument))
        if self.is_vararg:
            parts.append("...")
        results = ", ".join(map(str, self.returns))
        shown = results if len(self.returns) == 1 and not self.returns[0].name else f"({results})"
        overload = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{overload}({', '.join(parts)}) -> {shown}"

    __repr__ = __str__


class _Reader:
    """Reads types and arguments off a text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def take(self, token: str) -> bool:
        self.skip()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def word(self) -> str:
        self.skip()
        matched = re.compile(r"[A-Za-z_][\w.]*").match(self.text, self.at)
        if matched is None:
            raise RuntimeError(f"expected a name in the schema {self.text!r} at {self.at}")
        self.at = matched.end()
        return matched.group()

    def type(self) -> tuple[Type, str, str, int | None]:
        """(type, alias marks, the table's word, size of a list)."""
        self.skip()
        alias, size = "", None
        if self.take("("):
            inner = []
            while not self.take(")"):
                inner.append(self.type()[0])
                self.take(",")
            kind, word = T.tuple_of(*inner), "Tuple"
        else:
            word = self.word()
            kind = self._named(word)
        while True:
            if self.text.startswith("(", self.at):
                end = self.text.index(")", self.at)
                alias, self.at = self.text[self.at + 1 : end], end + 1
            elif matched := re.compile(r"\[(\d*)\]").match(self.text, self.at):
                self.at = matched.end()
                kind, size = T.list_of(kind), int(matched[1]) if matched[1] else None
            elif self.text.startswith("?", self.at):
                self.at += 1
                kind = T.Type("Optional", (kind,)) if isinstance(kind, T.TypeVariable) else T.optional(kind)
            else:
                return kind, alias, word, size

    def _named(self, word: str) -> Type:
        if word in ("Future", "RRef", "Dict", "Await", "List", "Optional", "Union") and self.take("("):
            inner = []
            while not self.take(")"):
                inner.append(self.type()[0])
                self.take(",")
            return T.union(inner) if word == "Union" else Type(word, inner)
        if word in _BASIC:
            return _BASIC[word]
        if word in T.PACKED:
            return T.PACKED[word]
        if word[0].islower():
            return T.TypeVariable(word)
        return T.Declared(word)

    def default(self) -> Any:
        self.skip()
        if self.text.startswith("[", self.at):
            end = self.text.index("]", self.at)
            inner = self.text[self.at + 1 : end]
            self.at = end + 1
            return [_number(part.strip()) for part in inner.split(",") if part.strip()]
        if self.text[self.at] in "\"'":
            end = self.text.index(self.text[self.at], self.at + 1)
            found = self.text[self.at + 1 : end]
            self.at = end + 1
            return found.encode().decode("unicode_escape")
        matched = re.compile(r"[^,)]+").match(self.text, self.at)
        assert matched is not None
        self.at = matched.end()
        return _number(matched.group().strip())


_WORDS: dict[str, Any] = {
    "None": None, "True": True, "False": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "Mean": 1, "Sum": 2, "contiguous_format": 0,
    "preserve_format": 1, "strided": 0, "long": 4, "float": 6,
}  # fmt: skip


def _number(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_schema(text: str) -> Schema:
    """A schema from its text, such as `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`."""
    head, _, _ = text.partition("(")
    name, _, overload = head.partition(".")
    reader = _Reader(text)
    reader.at = len(head) + 1
    arguments, kwarg_only, vararg = [], False, False
    while not reader.take(")"):
        if reader.take("..."):
            vararg = True
        elif reader.take("*"):
            kwarg_only = True
        else:
            arguments.append(_argument(reader, kwarg_only))
        reader.take(",")
    if not reader.take("->"):
        raise RuntimeError(f"expected '->' in the schema {text!r}")
    made = Schema(name, overload, arguments, _results(reader), vararg)
    made.is_varret = text.endswith("...")
    return made


def _argument(reader: _Reader, kwarg_only: bool) -> Argument:
    kind, alias, word, size = reader.type()
    argument = Argument(reader.word(), kind, kwarg_only=kwarg_only)
    argument.alias, argument.word, argument.N = alias, word, size
    if reader.take("="):
        default = reader.default()
        listed = kind.inner[0] if kind.name == "Optional" else kind
        if listed.name == "List" and isinstance(default, (int, float)) and not isinstance(default, bool):
            default = [default] * (size or 1)
        if listed == T.FLOAT and isinstance(default, int):
            default = float(default)
        argument.default = default
    return argument


def _results(reader: _Reader) -> list[Argument]:
    results: list[Argument] = []
    many = reader.take("(")
    if reader.take("..."):
        return results
    while not (many and reader.take(")")):
        kind, alias, word, _ = reader.type()
        reader.skip()
        named = reader.at < len(reader.text) and reader.text[reader.at].isalpha() and many
        result = Argument(reader.word() if named else "", kind)
        result.alias, result.word = alias, word
        results.append(result)
        if not many:
            break
        reader.take(",")
    return results


@cache
def _own() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    rows: dict[str, list[str]] = {}
    order: dict[str, list[str]] = {}
    text = files("rushlight.jit.ir").joinpath("operators.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("@"):
            name, *overloads = line[1:].split()
            order[name] = ["" if o == "-" else o for o in overloads]
        else:
            full = line if line.startswith(("prim::", "quantized::")) else f"aten::{line}"
            rows.setdefault(re.split(r"[.(]", full, maxsplit=1)[0], []).append(full)
    return rows, order


@cache
def variants(name: str) -> list[Schema]:
    """The overloads of `aten::name`, `prim::name` or `quantized::name`, in the order in which calls try them."""
    rows, orders = _own()
    found: list[Schema] = []
    space, _, short = name.partition("::")
    if space == "aten":
        for form in forms_of(short).values():
            schema = parse_schema(f"aten::{form.text}")
            schema.form = form
            found.append(schema)
    elif space not in ("prim", "quantized"):
        return _user(space, short)
    found += [parse_schema(row) for row in rows.get(name, ())]
    order = orders.get(short)
    if order is not None and space == "aten":
        found.sort(key=lambda s: order.index(s.overload_name) if s.overload_name in order else len(order))
    elif space == "aten":
        # Forms that write into `out` come after those that do not.
        found.sort(key=lambda s: any(a.kwarg_only and a.written for a in s.arguments))
    return found


def _user(space: str, name: str) -> list[Schema]:
    """Operators that a program defined with `torch.library`."""
    packet = getattr(getattr(rushlight.ops, space), name, None)
    if packet is None:
        return []
    made = []
    for overload in packet.overloads():
        op = getattr(packet, overload)
        schema = parse_schema(str(op._schema))
        schema.form = op
        made.append(schema)
    return made
