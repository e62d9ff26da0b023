"""The host's numbers of a call: elements of inputs are read, and what Python computed of them is computed again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.running.host_numbers import HostNumber, Leaf
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.kept.kept_programs import executable_of
from rushlight._engine.dispatch.kept.plan_packing import packed_program
from rushlight._graph.core import Graph, Node, Value
from rushlight._graph.packing import RecordError, UnpackableError, unpacked_dtype, unpacked_ints
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._types.device import CPU
from rushlight._types.layout import extent
from rushlight._types.spec import Spec

__all__ = ["Evaluation", "form_of", "lies_within"]

_LONGEST = 400  # characters of a number
_CODES: dict[str, Any] = {"float32": "f", "float64": "d", "int64": "q", "int32": "i"}
Form = Callable[[Sequence[Any]], Any]  # a number from the values of leaves


class _Stage:
    """Values read together, and the numbers that follow from them.

    `words` are the executable's: (number of an input, bytes from its beginning), or a number.
    """

    __slots__ = ("exe", "getters", "numbers", "rows", "specs", "words")

    def __init__(self) -> None:
        self.exe: Any = None
        self.specs: list[Spec | None] = []  # of the executable's inputs, None for numbers
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
        self._known: dict[Any, int] = {}  # forms by what they compute: see `form_of`
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
        expression = self._expression(number, leaves)
        form = self._known.setdefault(expression, len(self._forms))
        if form == len(self._forms):
            self._forms.append(form_of(expression))
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

    def _expression(self, number: Any, leaves: list[Leaf]) -> Any:
        """How a number is computed of the values of `leaves`: see `form_of`."""
        if not isinstance(number, HostNumber):
            return type(number).__name__, repr(number)
        if isinstance(number.function, Leaf):
            known = next((n for n, leaf in enumerate(leaves) if leaf is number.function), len(leaves))
            if known == len(leaves):
                leaves.append(number.function)
            return known
        name = _AS_FLOAT if number.function is float else number.function.__name__
        return (name, *[self._expression(x, leaves) for x in number.operands])

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
        stage.specs = [
            None if given[v].kind == "number" else Spec.of(v.dtype, CPU, v.shape, given[v].layout.strides)
            for v in inputs
        ]
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

    # ***** plain data *****

    def packed(self) -> dict[str, Any]:
        """All of it as plain data; UnpackableError for numbers that each call passes on."""
        if any(stage.getters for stage in self._stages):
            raise UnpackableError("numbers that each call passes on")
        stages = []
        for stage in self._stages:
            program = None if stage.exe is None else packed_program(stage.exe, CPU)
            if program is None and stage.exe is not None:
                raise UnpackableError("a program that cannot be kept")
            words = [word if isinstance(word, int) else list(word) for word in stage.words]
            specs = [None if s is None else [s.dtype.name, list(s.shape), list(s.strides)] for s in stage.specs]
            rows = [[code, places] for code, places in stage.rows]
            numbers = [[place, form, list(leaves)] for place, form, leaves in stage.numbers]
            stages.append({"words": words, "specs": specs, "rows": rows, "numbers": numbers, "program": program})
        return {
            "forms": [_listed(expression) for expression in self._known], "leaves": len(self._leaves), "numbers": len(self._numbers),
            "wanted": self._wanted, "stages": stages,
        }  # fmt: skip

    @classmethod
    def unpacked(cls, data: Any, inputs: Sequence[Spec], wanted: int) -> Evaluation:
        """Inverse of `packed`, for a program with these inputs that asks for so many numbers; RecordError for whatever
        is none.
        """
        made = cls.__new__(cls)
        leaves, numbers = _count(data["leaves"]), _count(data["numbers"])
        made._leaves, made._numbers = [None] * leaves, [None] * numbers  # type: ignore[list-item]
        expressions = [_read(each) for each in _rows(data["forms"])]
        made._known = {each: k for k, each in enumerate(expressions)}
        made._forms = [form_of(each) for each in expressions]
        made._wanted = list(_below(data["wanted"], numbers))
        if len(made._wanted) != wanted or len(made._known) != len(expressions):
            raise RecordError("numbers of another program")
        there: tuple[set[int], set[int]] = set(), set()  # leaves and numbers that are computed so far
        made._stages = [made._stage(row, inputs, there) for row in _rows(data["stages"])]
        if not there[1].issuperset(made._wanted):
            raise RecordError("a number that no stage computes")
        return made

    def _stage(self, row: Any, inputs: Sequence[Spec], there: tuple[set[int], set[int]]) -> _Stage:
        """One stage: it reads what lies within inputs, and uses what is there before."""
        stage, (leaves, numbers) = _Stage(), there
        for word, spec in zip(_rows(row["words"]), _rows(row["specs"]), strict=True):
            if spec is None:
                if word not in numbers or type(word) is not int:
                    raise RecordError("a number that is not there yet")
                stage.words.append(word)
                stage.specs.append(None)
                continue
            dtype, shape, strides = unpacked_dtype(spec[0]), unpacked_ints(spec[1], 0), unpacked_ints(spec[2], 0)
            number, step = _below(word, 1 << 62)
            if number >= len(inputs) or len(shape) != len(strides):
                raise RecordError("an input that is not there")
            stage.specs.append(Spec.of(dtype, CPU, shape, strides))
            if not lies_within(stage.specs[-1], step, inputs[number]):  # type: ignore[arg-type]
                raise RecordError("elements that are not there")
            stage.words.append((number, step))
        outputs = []
        for code, places in _rows(row["rows"]):
            dtype = next((name for name, known in _CODES.items() if known == code), None)
            stage.rows.append((code, list(_below(places, len(self._leaves)))))
            outputs.append(Spec.of(unpacked_dtype(dtype), CPU, (len(places),), (1,)))
            leaves.update(places)
        if outputs:
            stage.exe = _executable(row["program"], stage.specs, outputs)
            if stage.exe is None:
                raise NotImplementedError("a kernel is no longer kept")
        for place, form, of in _rows(row["numbers"]):
            _below([place], len(self._numbers))
            _below([form], len(self._forms))
            if not leaves.issuperset(of) or _most(list(self._known)[form]) >= len(of):
                raise RecordError("a number of what is not there yet")
            stage.numbers.append((place, form, _below(of, len(self._leaves))))
            numbers.add(place)
        return stage


_OPERATIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
                     operator.neg, operator.pos, operator.abs)
}  # fmt: skip
_AS_FLOAT = "as_float"  # a number that is computed, as against the text of one
_OPERATIONS[_AS_FLOAT] = float
_ONE = frozenset(("neg", "pos", "abs", _AS_FLOAT))
_NUMBERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": "True".__eq__}


def form_of(expression: Any) -> Form:
    """The function of an expression: the number of a leaf, (type, text) of a number, or (operation, expressions).

    >>> form_of(("sub", ("int", "1"), 0))([0.25])
    0.75
    >>> form_of(("as_float", 0))([2])
    2.0
    """
    if type(expression) is int:
        return operator.itemgetter(expression)
    name, *parts = expression
    if name in _NUMBERS:
        number = _NUMBERS[name](parts[0])
        return lambda values: number
    function, functions = _OPERATIONS[name], [form_of(part) for part in parts]
    if name in _ONE:
        (only,) = functions
        return lambda values: function(only(values))
    left, right = functions
    return lambda values: function(left(values), right(values))


def lies_within(spec: Spec, step: int, whole: Spec) -> bool:
    """Whether what begins so many bytes behind the first element of a tensor lies within that."""
    nbytes = 0 if 0 in spec.shape else extent(spec.shape, spec.strides) * spec.dtype.itemsize
    held = 0 if 0 in whole.shape else extent(whole.shape, whole.strides) * whole.dtype.itemsize
    return min(spec.strides, default=0) >= 0 and 0 <= step and step + nbytes <= held


def _executable(program: Any, in_specs: Sequence[Spec | None], outputs: Sequence[Spec]) -> Any:
    """The executable of a stage; None where a kernel is no longer kept."""
    if type(program) is not dict:
        return executable_of(program, in_specs, outputs, CPU)
    return backend_of(CPU).unpacked_linked(program, in_specs, [s.nbytes for s in outputs], _nothing_to_look_at)


def _nothing_to_look_at() -> Any:
    raise RecordingError("what reads numbers of a kept program has no graph")


def _listed(expression: Any) -> Any:
    return [_listed(part) for part in expression] if type(expression) is tuple else expression


def _read(data: Any, depth: int = 64) -> Any:
    """The expression that is in a record."""
    if type(data) is int and 0 <= data < 1 << 31:
        return data
    if type(data) is not list or len(data) < 2 or type(data[0]) is not str or not depth:
        raise RecordError("no number")
    name, *parts = data
    if name in _NUMBERS:
        if len(parts) != 1 or type(parts[0]) is not str or len(parts[0]) > _LONGEST:
            raise RecordError("no number")
        return name, parts[0]
    if name not in _OPERATIONS or len(parts) != 2 - (name in _ONE):
        raise RecordError("no operation on numbers")
    return (name, *[_read(part, depth - 1) for part in parts])


def _most(expression: Any) -> int:
    """The greatest number of a leaf."""
    if type(expression) is int:
        return expression
    return -1 if expression[0] in _NUMBERS else max(map(_most, expression[1:]))


def _rows(data: Any) -> list[Any]:
    if type(data) is not list:
        raise RecordError("no list")
    return data


def _count(data: Any) -> int:
    return _below([data], 1 << 20)[0]


def _below(data: Any, end: int) -> tuple[int, ...]:
    """Numbers from 0 to before `end`."""
    found = unpacked_ints(data, 0)
    if found and max(found) >= end:
        raise RecordError("a number beyond what there is")
    return found


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
