"""Compiled functions: a name, a schema, a graph; compiled when first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.jit.ir.graph import Graph
from rushlight.jit.ir.schemas import Schema
from rushlight.jit.runtime.compiler import compiled

__all__ = ["Function"]


class Function:
    """A function of a graph.  `define` compiles it: it gives the schema and the graph."""

    def __init__(
        self, name: str, define: Callable[[Function], None] | None = None, schema: Schema | None = None
    ) -> None:
        self.qualified_name = name
        self._define, self._schema = define, schema
        self._graph: Graph | None = None
        self._run: Any = None
        self.python: Any = None
        self.owner: Any = None
        self.compiling = False

    @property
    def name(self) -> str:
        """The name without the places before it."""
        return self.qualified_name.rpartition(".")[2]

    def ensure_defined(self) -> None:
        """Compile it, if that has not happened."""
        if self._graph is None and self._define is not None:
            if self.compiling:
                raise RecursionError(f"function '{self.name}' is called recursively. Recursive calls are not supported")
            self.compiling = True
            try:
                self._define(self)
            finally:
                self.compiling = False
            self._define = None

    @property
    def schema(self) -> Schema:
        """Arguments and results."""
        if self._schema is None:
            self.ensure_defined()
        assert self._schema is not None
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        self._schema = schema

    @property
    def graph(self) -> Graph:
        """The graph."""
        self.ensure_defined()
        assert self._graph is not None
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self._graph, self._run = graph, None

    @property
    def inlinable_graph(self) -> Graph | None:
        """The graph that stands for a call."""
        return self.graph

    @property
    def run(self) -> Callable[..., Any]:
        """The function that runs it: takes the values of all arguments by place."""
        if self._run is None:
            self._run = compiled(self)
        return self._run

    def __repr__(self) -> str:
        return f"<function {self.qualified_name}>"
