"""`torch.jit.CompilationUnit`: functions from text."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import rushlight
from rushlight.jit.frontend.errors import CompileError, Source
from rushlight.jit.frontend.python import PythonNames, Unit, compile_syntax
from rushlight.jit.frontend.sugared import Callee, Sugared
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.schemas import Argument, Schema
from rushlight.jit.modules import ScriptFunction

__all__ = ["CompilationUnit"]


class _Text:
    """A function that is only text."""


class _Names(PythonNames):
    """Names in text: functions of the unit, and `torch`."""

    def __init__(self, unit: CompilationUnit, node: ast.FunctionDef) -> None:
        super().__init__(_Text(), Unit())
        self.compiled, self.node = unit, node
        import typing

        self.globals = {
            "torch": rushlight,
            "Tensor": rushlight.Tensor,
            **{n: getattr(typing, n) for n in ("List", "Dict", "Tuple", "Optional", "Any", "Union")},
        }

    def defaults(self) -> dict[str, Any]:
        args = self.node.args.args
        given = self.node.args.defaults
        return {a.arg: ast.literal_eval(d) for a, d in zip(args[len(args) - len(given) :], given, strict=True)}

    def value(self, name: str, at: Any, e: Any) -> Sugared | None:
        found = self.compiled.functions.get(name)
        return Callee(found) if found is not None else super().value(name, at, e)


class CompilationUnit:
    """Functions that are compiled from text, by name.

    >>> import rushlight as torch
    >>> unit = torch.jit.CompilationUnit("def double(x): return x * 2")
    >>> unit.double(torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self.functions: dict[str, Function] = {}
        if lang is not None:
            self.define(lang)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Compile the functions of a text; RuntimeError names the line of what cannot be."""
        text = textwrap.dedent(lang)
        source = Source(text)
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise CompileError(f"the text is not Python: {error}") from None
        made = []
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                raise CompileError("a compilation unit holds functions", source.at(node))

            def define(function: Function, node: ast.FunctionDef = node) -> None:
                compile_syntax(function, node, source, _Names(self, node), None)

            self.functions[node.name] = Function(f"__torch__.{node.name}", define)
            made.append(self.functions[node.name])
        for function in made:
            function.ensure_defined()

    def find_function(self, name: str) -> ScriptFunction | None:
        """A function by name; None for none."""
        found = self.functions.get(name)
        return None if found is None else ScriptFunction(found)

    def get_functions(self) -> list[ScriptFunction]:
        """All functions."""
        return [ScriptFunction(f) for f in self.functions.values()]

    def create_function(self, qualified_name: str, graph: Any, shouldMangle: bool = False) -> ScriptFunction:
        """A function of a graph, under a name; with `shouldMangle` another name where it is taken."""
        name = qualified_name.rpartition(".")[2]
        if name in self.functions:
            if not shouldMangle:
                raise RuntimeError(f"function '{name}' already defined")
            name = f"{name}_{len(self.functions)}"
        arguments = [Argument(v.debugName().partition(".")[0], v.type) for v in graph.inputs()]
        made = Function(
            f"__torch__.{name}", schema=Schema(name, "", arguments, [Argument("", next(graph.outputs()).type)])
        )
        made.graph = graph
        self.functions[name] = made
        return ScriptFunction(made)

    def set_optimized(self, value: bool) -> None:
        """Nothing changes: graphs run as they are."""

    def drop_all_functions(self) -> None:
        """Forget all functions."""
        self.functions.clear()

    def get_class(self, name: str) -> None:
        """None: a unit of text has no classes."""

    def get_interface(self, name: str) -> None:
        """None: a unit of text has no interfaces."""

    def __getattr__(self, name: str) -> ScriptFunction:
        found = self.__dict__.get("functions", {}).get(name)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return ScriptFunction(found)
