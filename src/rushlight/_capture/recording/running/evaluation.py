"""The host's numbers of a call: elements of inputs are read, and what Python computed of them is computed again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.running.host_numbers import HostNumber, Leaf
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.core import Graph, Node, Value
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._types.device import CPU

__all__ = ["Evaluation"]

_CODES: dict[str, Any] = {"float32": "f", "float64": "d", "int64": "q", "int32": "i"}
Form = Callable[[Sequence[Any]], Any]  # a number from the values of leaves


class _Stage:
    """What is read together, and the numbers that follow.

    `words` are the executable's: (number of an input, bytes from its beginning), or a number.
    """

    __slots__ = ("exe", "getters", "numbers", "rows", "words")

    def __init__(self) -> None:
        self.exe: Any = None
        self.words: list[tuple[int, int] | int] = []
        self.rows: list[
            tuple[str, list[int]]
        ] = []  # of each output: the code of its elements, and which leaves they are
        self.getters: list[tuple[int, Callable[[], Any]]] = []
        self.numbers: list[tuple[int, int, tuple[int, ...]]] = []  # (number, form, leaves)


class Evaluation:
    """Computes host numbers.  Numbers of one form over equal leaves are computed once in a call.

    A leaf may depend on other numbers, which kernels were given: so there are stages.
    """

    def __init__(self, numbers: Sequence[HostNumber], assembler: Any) -> None:
        self._assembler = assembler
        self._numbers: list[HostNumber] = []
        self._places: dict[int, int] = {}
        self._leaves: list[Leaf] = []
        self._leaf_places: dict[int, int] = {}
        self._leaf_stages: dict[int, int] = {}
        self._forms: list[Form] = []
        self._known: dict[Any, int] = {}
        self._of: list[tuple[int, tuple[int, ...]]] = []
        self._number_stages: dict[int, int] = {}
        self._stages: list[_Stage] = []
        self._wanted = [self._add(number) for number in numbers]
        self._build()

    # ***** making *****

    def _add(self, number: HostNumber) -> int:
        """The place of a number; those that it depends on come before it."""
        if id(number) in self._places:
            return self._places[id(number)]
        leaves: list[Leaf] = []
        function, key = self._form(number, leaves)
        form = self._known.setdefault(key, len(self._forms))
        if form == len(self._forms):
            self._forms.append(function)
        stage = max([self._leaf(leaf) for leaf in leaves], default=0)
        place = self._places[id(number)] = len(self._numbers)
        self._numbers.append(number)
        self._number_stages[place] = stage
        self._of.append((form, tuple([self._leaf_places[id(leaf)] for leaf in leaves])))
        return place

    def _leaf(self, leaf: Leaf) -> int:
        """The stage of a leaf."""
        known = self._leaf_stages.get(id(leaf))
        if known is not None:
            return known
        stage = 0
        if leaf.getter is None:
            for value in _behind([leaf.value])[0]:
                given = self._assembler.given[value]
                if given.kind == "number":
                    stage = max(stage, 1 + self._number_stages[self._add(given.content)])
                elif given.kind != "input":
                    raise RecordingError("a number of the host depends on more than inputs")
        self._leaf_places[id(leaf)] = len(self._leaves)
        self._leaves.append(leaf)
        self._leaf_stages[id(leaf)] = stage
        return stage

    def _form(self, number: Any, leaves: list[Leaf]) -> tuple[Form, Any]:
        """A function of the values of `leaves` that computes a number, and what is equal for equal functions."""
        if not isinstance(number, HostNumber):
            return lambda values: number, (type(number), repr(number))
        if isinstance(number.function, Leaf):
            known = next((n for n, leaf in enumerate(leaves) if leaf is number.function), len(leaves))
            if known == len(leaves):
                leaves.append(number.function)
            return operator.itemgetter(known), known
        parts = [self._form(x, leaves) for x in number.operands]
        function, functions = number.function, [f for f, _ in parts]
        if len(functions) == 1:
            (only,) = functions
            return lambda values: function(only(values)), (function, parts[0][1])
        left, right = functions
        return lambda values: function(left(values), right(values)), (function, parts[0][1], parts[1][1])

    def _build(self) -> None:
        stages = [*self._leaf_stages.values(), *self._number_stages.values()]
        self._stages = [_Stage() for _ in range(max(stages, default=-1) + 1)]
        rows: list[dict[Any, list[int]]] = [{} for _ in self._stages]
        for n, leaf in enumerate(self._leaves):
            at = self._leaf_stages[id(leaf)]
            if leaf.getter is not None:
                self._stages[at].getters.append((n, leaf.getter))
            else:
                rows[at].setdefault(leaf.dtype, []).append(n)
        for stage, found in zip(self._stages, rows, strict=True):
            if found:
                self._compile(stage, found)
        for place, at in self._number_stages.items():
            self._stages[at].numbers.append((place, *self._of[place]))

    def _compile(self, stage: _Stage, rows: dict[Any, list[int]]) -> None:
        """The executable that reads the leaves of a stage: a row for each dtype."""
        given = self._assembler.given
        with self._assembler.builder:
            outputs = [_row([self._leaves[n].value for n in places]) for places in rows.values()]
        used, nodes = _behind(outputs)
        inputs = sorted(used, key=lambda v: given[v].kind == "number")
        for value in inputs:
            source = given[value]
            if source.kind == "number":
                stage.words.append(self._places[id(source.content)])
            else:
                step = (source.layout.offset - self._assembler.place(source.content)) * value.dtype.itemsize
                stage.words.append((source.content, step))
        layouts = [None if given[v].kind == "number" else given[v].layout.strides for v in inputs]
        stage.rows = [(_CODES[dtype.name], places) for dtype, places in rows.items()]
        stage.exe = backend_of(CPU).compile(Graph(inputs, nodes, outputs), layouts, [(1,)] * len(outputs), CPU)

    # ***** a call *****

    def __call__(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The numbers for these inputs."""
        values: list[Any] = [None] * len(self._leaves)
        numbers: list[Any] = [None] * len(self._numbers)
        for stage in self._stages:
            for n, getter in stage.getters:
                values[n] = getter()
            if stage.exe is not None:
                words = [numbers[w] if isinstance(w, int) else inputs[w[0]]._ptr + w[1] for w in stage.words]
                made = stage.exe(*words)
                for (code, places), storage in zip(stage.rows, made if type(made) is tuple else (made,), strict=True):
                    held: Any = memoryview(storage).cast("B")
                    for n, value in zip(places, held.cast(code), strict=False):
                        values[n] = value
            found: dict[Any, Any] = {}
            for place, form, leaves in stage.numbers:
                given = tuple([values[n] for n in leaves])
                key = form, given, tuple(map(type, given))  # 2 and 2.0 are equal, and so are 0.0 and -0.0
                number = None if 0 in given else found.get(key)
                if number is None:
                    number = found[key] = self._forms[form](given)
                numbers[place] = number
        return [numbers[place] for place in self._wanted]


def _behind(values: Sequence[Value]) -> tuple[list[Value], list[Node]]:
    """The inputs and the nodes from which values are computed, nodes in order."""
    inputs: dict[Value, None] = {}
    nodes: dict[Node, None] = {}
    todo: list[tuple[Value, bool]] = [(v, False) for v in reversed(values)]
    while todo:
        value, after = todo.pop()
        node = value.node
        if node is None:
            inputs[value] = None
        elif after:
            nodes[node] = None
        elif node not in nodes:
            todo.append((value, True))
            todo.extend((v, False) for v in reversed(node.inputs))
    return list(inputs), list(nodes)


def _row(values: Sequence[Value]) -> Any:
    """Elements of one dtype as one array."""
    parts = [build.reshape(v, (1,)) for v in values]
    return parts[0] if len(parts) == 1 else prim.cat(*parts, dim=0)
