"""Functions that are given as text: their syntax, and the names that they may use."""

from __future__ import annotations

import ast
import sys
import textwrap
import typing
from typing import Any

import rushlight
from rushlight.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from rushlight.jit.frontend.errors import CompileError, Source
from rushlight.jit.ir.types import NUMBER

__all__ = ["TextFunction", "names_of_caller", "text_functions"]

_WORDS = {
    "torch": rushlight, "Tensor": rushlight.Tensor, **{n: getattr(typing, n) for n in ("List", "Dict", "Tuple", "Optional", "Any", "Union")},
    "number": NUMBER, "BroadcastingList1": BroadcastingList1, "BroadcastingList2": BroadcastingList2, "BroadcastingList3": BroadcastingList3,
}  # fmt: skip


def names_of_caller(frames_up: int) -> dict[str, Any]:
    """The names that a text may use which is given to the calling function: those of the function above it."""
    frame = sys._getframe(frames_up + 1)
    return {**_WORDS, **frame.f_globals, **frame.f_locals}


class TextFunction:
    """A function that is given as text: its syntax, its source, and the names that it may use."""

    __slots__ = ("names", "node", "source")

    def __init__(self, node: ast.FunctionDef, source: Source, names: dict[str, Any]) -> None:
        self.node, self.source, self.names = node, source, names

    def defaults(self) -> dict[str, Any]:
        """The defaults of the arguments."""
        args, values = self.node.args, {}
        for arg, value in zip(args.args[len(args.args) - len(args.defaults) :], args.defaults, strict=True):
            values[arg.arg] = ast.literal_eval(value)
        for arg, each in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            if each is not None:
                values[arg.arg] = ast.literal_eval(each)
        return values


def text_functions(text: str, names: dict[str, Any]) -> list[TextFunction]:
    """The functions of a text; RuntimeError for a text that holds anything else."""
    text = textwrap.dedent(text)
    source = Source(text)
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise CompileError(f"the text is not Python: {error}") from None
    for node in body:
        if not isinstance(node, ast.FunctionDef):
            raise CompileError("only functions can be defined by a text", source.at(node))
    return [TextFunction(node, source, names) for node in body if isinstance(node, ast.FunctionDef)]
