"""`torch.jit.CompilationUnit`: functions from text."""

from __future__ import annotations

from typing import Any

from rushlight.jit.frontend.python import UNIT, PythonNames, compile_syntax
from rushlight.jit.frontend.sugared import Callee, Sugared
from rushlight.jit.frontend.text import TextFunction, names_of_caller, text_functions
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.schemas import Argument, Schema
from rushlight.jit.modules import ScriptFunction

__all__ = ["CompilationUnit"]


class _Text:
    """A function that is only text."""


class _Names(PythonNames):
    """Names in text: functions of the unit, then those of the function that gave the text."""

    def __init__(self, unit: CompilationUnit, text: TextFunction) -> None:
        super().__init__(_Text(), UNIT)
        self.compiled, self.text, self.globals = unit, text, text.names

    def defaults(self) -> dict[str, Any]:
        return self.text.defaults()

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
            self.define(lang, _frames_up=_frames_up + 1)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Compile the functions of a text, which may use the names of the calling function; RuntimeError names the line
        of what cannot be compiled.
        """
        names = names_of_caller(_frames_up + 1)
        made = []
        for text in text_functions(lang, names):

            def compile_now(function: Function, text: TextFunction = text) -> None:
                compile_syntax(function, text.node, text.source, _Names(self, text), None)

            name = text.node.name
            self.functions[name] = Function(f"__torch__.{name}", compile_now)
            made.append(self.functions[name])
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
