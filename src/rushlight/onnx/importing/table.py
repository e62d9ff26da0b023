"""The table of operators: (domain, name) -> implementations by the version of the operator set from which they count.

An implementation is a function.  Its positional parameters are the operator's inputs, in the operator's order; its
keyword parameters are the attributes, with ONNX's defaults.  Annotations and names say what else it takes:

- an input annotated `Numbers` is a Python number or a list of them: sizes, axes, bounds;
- an input annotated `Value` may be anything a graph knows: narrow tensors, strings, sequences, nothing;
- `outputs`: how many results the node names (a list of flags, False where one is omitted);
- `opset`: the version of the operator set that the model asks for;
- `scope`: the values that the bodies of If, Loop and Scan see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight.onnx.importing.errors import UnsupportedOperatorError

__all__ = ["HOST", "Numbers", "Row", "Value", "find", "host", "operator", "known"]

Numbers = Any
Value = Any
ML, PREVIEW, TRAINING = "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"
MICROSOFT = "com.microsoft"


class Row(NamedTuple):
    """One implementation."""

    name: str
    since: int
    function: Callable[..., Any]
    kinds: tuple[str, ...]  # of each input: "", "Numbers" or "Value"; the last repeats where `variadic`
    variadic: bool
    attributes: frozenset[str]
    extras: frozenset[str]  # of `outputs`, `opset`, `scope`
    open: bool  # takes any attribute
    moves: bool  # copies elements without looking at them, so narrow ones pass


_TABLE: dict[tuple[str, str], list[Row]] = {}
# Functions over Python numbers: what is known without a tensor stays so.  They may return NotImplemented.
HOST: dict[str, Callable[..., Any]] = {}
_EXTRAS = ("outputs", "opset", "scope")


def operator(*names: str, since: int = 1, domain: str = "", moves: bool = False) -> Callable[[Any], Any]:
    """Enter a function into the table under one or several names."""

    def enter(function: Any) -> Any:
        for name in names:
            row = _row(name, since, function, moves)
            rows = _TABLE.setdefault((domain, name), [])
            rows.append(row)
            rows.sort(key=lambda row: -row.since)
        return function

    return enter


def _row(name: str, since: int, function: Any, moves: bool) -> Row:
    code = function.__code__
    names, count, keywords = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    variadic, open_ = bool(code.co_flags & 4), bool(code.co_flags & 8)
    inputs = [*names[:count], *([names[count + keywords]] if variadic else [])]
    kinds = tuple(str(function.__annotations__.get(one, "")) for one in inputs)
    kinds = tuple(kind if kind in ("Numbers", "Value") else "" for kind in kinds)
    keyword = names[count : count + keywords]
    attributes = frozenset(one.rstrip("_") for one in keyword if one not in _EXTRAS)
    extras = frozenset(one for one in keyword if one in _EXTRAS)
    return Row(name, since, function, kinds, variadic, attributes, extras, open_, moves)


def host(*names: str) -> Callable[[Any], Any]:
    """Enter a function over `Host` values into the second table, by operators of the default domain."""

    def enter(function: Any) -> Any:
        for name in names:
            HOST[name] = function
        return function

    return enter


def find(domain: str, name: str, opset: int) -> Row | None:
    """The implementation for a version of the operator set; None where the operator is not in the table."""
    rows = _TABLE.get((domain, name))
    if rows is None:
        return None
    for row in rows:
        if row.since <= opset:
            return row
    raise UnsupportedOperatorError(f"{domain or 'ai.onnx'}::{name} has no implementation for operator set {opset}")


def known() -> dict[tuple[str, str], list[int]]:
    """Every operator of the table with the versions from which its implementations count."""
    return {key: sorted(row.since for row in rows) for key, rows in sorted(_TABLE.items())}
