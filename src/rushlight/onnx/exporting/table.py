"""The table of translations: a function for each overload of an operator, named as its schema is (`aten::add.Tensor`).

A translation gets a `Call` (which writes nodes, and knows what the operator's results are) and the operator's positional arguments, with
the schema's defaults filled in; keyword-only ones that its own signature names.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight.onnx.errors import UnsupportedOperatorError
from rushlight.onnx.exporting.values import Value
from rushlight.onnx.exporting.writer import Writer

__all__ = ["TABLE", "Call", "Translation", "translates", "translations"]

Translation = Callable[..., Any]
TABLE: dict[str, Translation] = {}
_ROOMS = (
    "attention", "binary", "control", "convolution", "creation", "indexing", "linear", "losses", "norms", "ordering", "pooling",
    "random", "recurrent", "reductions", "resizing", "shapes", "sizes", "unary", "vision",
)  # fmt: skip


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Decorator: the function translates these overloads (`aten::relu` is the default one)."""

    def register(function: Translation) -> Translation:
        for name in names:
            if name in TABLE:
                raise ValueError(f"two translations of {name}")
            TABLE[name] = function
        return function

    return register


@cache
def translations() -> dict[str, Translation]:
    """The whole table; its rooms are loaded when it is first asked for."""
    for room in _ROOMS:
        importlib.import_module(f"rushlight.onnx.exporting.translations.{room}")
    importlib.import_module("rushlight.onnx.exporting.operators")
    return TABLE


@cache
def keywords(function: Translation) -> frozenset[str]:
    """The parameters of a translation that a call may name."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return frozenset(name for name, p in inspect.signature(function).parameters.items() if p.kind in kinds)


class Call:
    """One operator's call: the writer's methods, and the dtype and shape of each result (`dtype`, `shape` of the first)."""

    def __init__(self, writer: Writer, name: str, results: list[tuple[Any, Any]]) -> None:
        self.writer, self.name, self.results = writer, name, results
        self.opset = writer.opset
        self.dtype: Any = results[0][0] if results else None
        self.shape: Any = results[0][1] if results else None
        self.op, self.ops, self.cast, self.const, self.ints = (
            writer.op,
            writer.ops,
            writer.cast,
            writer.const,
            writer.ints,
        )
        self.reshape, self.transpose, self.unsqueeze, self.squeeze = (
            writer.reshape,
            writer.transpose,
            writer.unsqueeze,
            writer.squeeze,
        )
        self.reduce, self.slice, self.gather, self.concat = writer.reduce, writer.slice, writer.gather, writer.concat
        self.dim, self.dims, self.shape_vector = writer.dim, writer.dims, writer.shape
        self.scalar, self.vector, self.number, self.full = writer.scalar, writer.vector, writer.number, writer.full
        self.expand, self.array, self.product = writer.expand, writer.array, writer.product

    def out(self, kind: str, *inputs: Value | None, **attrs: Any) -> Value:
        """A call that gives the operator's (first) result."""
        return self.writer.op(kind, *inputs, dtype=self.dtype, shape=self.shape, **attrs)

    def refuse(self, what: str, instead: str = "") -> UnsupportedOperatorError:
        """The error of arguments that have no ONNX form."""
        also = f"; {instead}" if instead else ""
        return UnsupportedOperatorError(f"{self.name}: {what} has no ONNX form{also}")

    def need(self, opset: int, instead: str = "") -> None:
        """UnsupportedOperatorError below an opset."""
        self.writer.need(opset, self.name, instead)
