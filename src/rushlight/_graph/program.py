"""Whole programs: a graph with effects, and the builder that recorders of programs share.

Whatever records a program has five verbs (`Recorder`): *input*, *constant*, *call*, *effect* and *output*.
`GraphBuilder` has them for the bodies of operators.  `ProgramBuilder` adds memory that several tensors share, random
streams and results that are views; it makes a `Program`.

    >>> from rushlight._graph.core import trace
    >>> from rushlight._graph.printer import to_source
    >>> from rushlight._graph.program import ProgramBuilder
    >>> from rushlight._types.dtype import FLOAT32
    >>> double = trace(lambda x: x + x, [((3,), FLOAT32)])
    >>> builder = ProgramBuilder()
    >>> x = builder.argument((3,), FLOAT32)            # a cell: what several tensors may show
    >>> (twice,) = builder.call(double, [builder.read(x)])
    >>> builder.write(x, twice)
    >>> builder.output(x)
    >>> program = builder.program()
    >>> print(to_source(program.graph))
    def graph(x0: "memory float32[3]"):
        v0 = prim.read(x0)  # float32[3]
        v1 = prim.add(v0, v0)  # float32[3]
        v2 = prim.write(x0, v1, views=())  # memory float32[3]
        return (v2,)
    >>> program.results                                # what it returns is the argument itself
    [Result('input', 0, ())]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rushlight._graph.core import Graph, Node, Reference, Value
from rushlight._graph.rewrite import RewritingBuilder, Rule
from rushlight._prims.draws import STREAM
from rushlight._prims.effects import EFFECTS
from rushlight._prims.memory import Views, shown
from rushlight._types.dtype import INT64, DType

__all__ = ["Cell", "Input", "Program", "ProgramBuilder", "Recorder", "Result"]


class Recorder(Protocol):
    """What writes a program down, over values of some kind: those of graphs, or tensors.

    The recorders are `GraphBuilder` (bodies of operators), `ProgramBuilder` (whole programs: traced callables and fx
    graphs) and the plan sequences of `_engine.dispatch.native_lookup` (what runs for a call of a composite function).
    """

    def input(self, *described: Any) -> Any:
        """A value that the program is given."""

    def constant(self, content: Any, *described: Any) -> Any:
        """A value that the program holds."""

    def call(self, what: Any, operands: Sequence[Any], *more: Any) -> Any:
        """The results of a computation without effects."""

    def effect(self, what: Any, operands: Sequence[Any], params: Any) -> Any:
        """What an effect gives, after all effects before it."""

    def output(self, value: Any) -> Any:
        """Say that the program returns a value."""


class Input:
    """Where an input of a program comes from.

    `source` is "argument", "constant", "stream" or "group".  `content` is the number of the argument, the constant
    itself, the generator of the stream, or the number of the group.
    """

    __slots__ = ("content", "source")

    def __init__(self, source: str, content: Any) -> None:
        self.source, self.content = source, content

    def __repr__(self) -> str:
        described = self.content if isinstance(self.content, int) else type(self.content).__name__
        return f"Input({self.source!r}, {described})"


class Result:
    """Where a result of a program is found: what `views` show of an "input" (its memory, as it is afterwards) or of an
    "output" of the graph.

    Results of one output, and those of inputs, share memory as the tensors of the program do.
    """

    __slots__ = ("number", "source", "views")

    def __init__(self, source: str, number: int, views: Views) -> None:
        self.source, self.number, self.views = source, number, views

    def __repr__(self) -> str:
        return f"Result({self.source!r}, {self.number}, {self.views!r})"


class Program:
    """A graph with effects: where its inputs come from, and where the results are.

    After the outputs that hold results the graph gives what its effects have made of its inputs.
    """

    __slots__ = ("graph", "inputs", "results")

    def __init__(self, graph: Graph, inputs: Sequence[Input], results: Sequence[Result]) -> None:
        self.graph, self.inputs, self.results = graph, list(inputs), list(results)

    def __repr__(self) -> str:
        return f"Program({self.graph!r}, {len(self.results)} results)"


class Cell:
    """What tensors of a program show, one or several that are views of each other: an array, or memory once it is
    written.

    `value` is the array that it holds now, None where it has to be read; `number` that of the input of the program that
    it is, else None.
    """

    __slots__ = ("dtype", "number", "reference", "shape", "value")

    def __init__(self, value: Value, number: int | None = None) -> None:
        self.value: Value | None = value
        self.number = number
        self.shape, self.dtype = value.shape, value.dtype
        self.reference: Value | None = None


class ProgramBuilder(RewritingBuilder):
    """Writes a program down.  See the module's text."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        super().__init__(rules)
        self._sources: dict[Value, Input] = {}
        self._results: list[tuple[Cell, Views]] = []
        self._references: dict[tuple[str, Any], Reference] = {}
        self._constants: dict[int, Cell] = {}
        self._count = 0

    # ***** what the program is given *****

    def argument(self, shape: Sequence[int], dtype: DType) -> Cell:
        """The next argument of the program."""
        self._count += 1
        return self._cell(shape, dtype, Input("argument", self._count - 1))

    def constant(self, content: Any, shape: Sequence[int], dtype: DType) -> Any:
        """The cell of something that the program holds, and may change; one for each object."""
        if id(content) not in self._constants:
            self._constants[id(content)] = self._cell(shape, dtype, Input("constant", content))
        return self._constants[id(content)]

    def _cell(self, shape: Sequence[int], dtype: DType, source: Input) -> Cell:
        value = self.input(shape, dtype)
        self._sources[value] = source
        return Cell(value, len(self.inputs) - 1)

    def _order(self, source: str, key: Any) -> Reference:
        """The reference to a stream, or to the calls of a group, as it is given to the program."""
        if (source, key) not in self._references:
            shape, dtype = STREAM if source == "stream" else ((), INT64)
            made = self._references[source, key] = self.reference(source, shape, dtype)
            self._sources[made] = Input(source, key)
        return self._references[source, key]

    # ***** what it does *****

    def read(self, cell: Cell, views: Views = ()) -> Value:
        """The array that a cell, or a view of it, shows now."""
        with self:
            if cell.value is None:
                assert cell.reference is not None
                cell.value = EFFECTS["read"](self.latest(cell.reference))
            found: Value = shown(cell.value, views)
            return found

    def write(self, cell: Cell, value: Value, views: Views = ()) -> None:
        """Put an array where `views` of a cell show; all tensors that show the place see it."""
        with self:
            if cell.reference is None:
                assert cell.value is not None
                cell.reference = (
                    EFFECTS["allocate"](cell.value) if cell.number is None else self._as_memory(cell.number)
                )
            cell.reference = EFFECTS["write"](self.latest(cell.reference), value, views=views)
        cell.value = None

    def _as_memory(self, number: int) -> Reference:
        """Make an input, which was read up to now, memory: what was read of it is what it held at first."""
        value = self.inputs[number]
        memory = Reference("memory", value.shape, value.dtype)
        self.inputs[number], self._sources[memory] = memory, self._sources.pop(value)
        node = Node(EFFECTS["read"], (memory,), {}, [(value.shape, value.dtype)])
        node.outputs, value.node = (value,), node
        self.nodes.insert(0, node)
        return memory

    def draw(self, stream: Any, name: str, *operands: Value, **params: Any) -> Value:
        """Numbers from a stream: `name` is a primitive that draws, `stream` whatever stands for the stream at run time."""
        with self:
            _, numbers = EFFECTS[name](self.latest(self._order("stream", stream)), *operands, **params)
        drawn: Value = numbers
        return drawn

    def communicate(self, group: int, name: str, *operands: Value, **params: Any) -> Value:
        """The result of a call among the processes of a group: `name` is a primitive that communicates."""
        with self:
            _, made = EFFECTS[name](self.latest(self._order("group", group)), *operands, group=group, **params)
        value: Value = made
        return value

    # ***** what it returns *****

    def output(self, cell: Cell, views: Views = ()) -> None:  # type: ignore[override]
        """Return what `views` of a cell show."""
        self._results.append((cell, views))

    def program(self) -> Program:
        """What was written down."""
        outputs: list[Value] = []
        places: dict[int, Result] = {}
        results = []
        for cell, views in self._results:
            place = places.get(id(cell))
            if place is None:
                if cell.number is not None:
                    place = Result("input", cell.number, ())
                else:
                    outputs.append(self.read(cell))
                    place = Result("output", len(outputs) - 1, ())
                places[id(cell)] = place
            results.append(Result(place.source, place.number, views))
        changed = [self.latest(v) for v in self.inputs if v in self._replaced]
        graph = self.finish([*outputs, *changed])
        return Program(graph, [self._sources[v] for v in self.inputs], results)
