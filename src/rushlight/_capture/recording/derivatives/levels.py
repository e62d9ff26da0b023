"""Backward of backward: what the gradients of a program are recorded with where they are differentiated again.

An eager program adds the gradients of gradients up operator by operator, and those of the first backward after them.
So the first backward is recorded with its own history (`create_graph`), and backward runs through that: up to what it
was given, to the program's inputs, and to places inside of the program's history (`points`), where the gradients wait
until the program's own backward comes by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import or_
from threading import RLock
from typing import Any, NamedTuple

from rushlight._base.log import log
from rushlight._capture.recording.assemble import Given, Restart
from rushlight._capture.recording.derivatives.records import Derived, How, Target, Variant
from rushlight._capture.recording.derivatives.saved_memory import MOST_HISTORIES
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.log import Branch, Check, Collective, Draw, Loop, Move, Read
from rushlight._capture.recording.memory import InputBackward
from rushlight._capture.recording.regions import Layout, RegionError
from rushlight._engine.autograd.engine import run_backward
from rushlight._engine.autograd.node import AccumulateGrad, GradientEdge, OpNode, next_sequence, split_edge
from rushlight._engine.core.tensor import Tensor, edge_of
from rushlight._graph.core import Graph, Value, live_nodes
from rushlight._transforms.partition import Joint, partition
from rushlight._transforms.vjp import reached
from rushlight._types.layout import dense_strides, is_dense, memory_order
from rushlight._types.spec import Spec
from rushlight._types.symbols import hint

__all__ = ["GradientLevel", "Level", "Point", "ProgramLevel"]

Program = tuple[Graph, Sequence[tuple[str, int]]]

# Entries of a log that are not made of calls, and what to call them
_ENTRIES: dict[type, str] = {
    Branch: "control flow",
    Loop: "control flow",
    Draw: "random numbers",
    Collective: "communication",
    Read: "elements that the host reads",
    Check: "checks of elements",
    Move: "copies between devices",
}


class Point(NamedTuple):
    """A place in a recorded history at which gradients arrive, and the spec of these; None where there are none."""

    edge: GradientEdge
    spec: Any


class Level(ABC):
    """Recorded tensors with a history.

    `build` has the recording, `program` is the graph of the program and what it saves.  `tensors` are those that have a
    history, by number; `edges` where it ends; `given` the stand-ins for gradients that it began with, of this level and
    those `below`.
    """

    def __init__(
        self, build: Any, assembler: Any, program: Program, tensors: dict[int, Tensor], below: Level | None, lock: Any
    ) -> None:
        self.build, self.assembler, self.program = build, assembler, program
        self.tensors, self.below, self._lock = tensors, below, lock
        self.edges: Sequence[Point] = ()
        self.levels: list[Level] = [self] if below is None else [*below.levels, self]
        self.given: list[Tensor] = []
        self.points: list[Point] = []
        self._numbers: dict[tuple[int, int], int] = {}  # of the points, by node and its output
        self.last = next_sequence()  # nodes up to here
        self._nodes: frozenset[Any] = frozenset()
        self._walked = -1
        self._crossing: dict[int, dict[tuple[int, int], GradientEdge]] = {}

    # ***** places in the history *****

    def owns(self, node: Any) -> bool:
        """Whether a node was made for this level.  Not all are behind the tensors: a change in place of a part saves the
        old part, which is not behind the changed base.
        """
        first = 0 if self.below is None else self.below.last
        return first < node._seq <= self.last and not isinstance(node, (AccumulateGrad, InputBackward))

    def nodes(self) -> frozenset[Any]:
        """The level's nodes that are behind its tensors and points."""
        with self._lock:
            if self._walked != len(self.points):
                found = set(self._nodes)
                todo = [*[x._node for x in self.tensors.values()], *[p.edge.node for p in self.points]]
                while todo:
                    node = todo.pop()
                    if node is not None and node not in found and self.owns(node):
                        found.add(node)
                        todo += [split_edge(edge)[0] for edge in node._edges if edge is not None]
                self._nodes, self._walked = frozenset(found), len(self.points)
            return self._nodes

    def point(self, edge: GradientEdge, spec: Spec) -> int:
        """The number of a place inside of the history."""
        key = id(edge.node), edge.output_nr
        with self._lock:
            if key not in self._numbers:
                self.points.append(Point(edge, spec))
                self._numbers[key] = len(self.points) - 1
            return self._numbers[key]

    def output(self, j: int) -> int:
        """The number of the place at which the gradient of a tensor arrives."""
        x = self.tensors[j]
        return self.point(GradientEdge(*split_edge(edge_of(x))), x._spec)

    def latest_first(self, numbers: Iterable[int]) -> list[list[int]]:
        """Tensors in the order in which backward comes by, those of one node together."""
        nodes: dict[Any, list[int]] = {}
        for j in sorted(numbers):
            nodes.setdefault(split_edge(edge_of(self.tensors[j]))[0], []).append(j)
        return [nodes[node] for node in sorted(nodes, key=lambda node: -node._seq)]

    def inner(self) -> dict[int, tuple[int, ...]]:
        """Tensors that are part of the history of others: the numbers of those, by number."""
        ends = {j: split_edge(edge_of(x))[0] for j, x in self.tensors.items()}
        if len(ends) < 2:
            return {}
        own = set(ends.values())
        if not self._behind(own) & own:
            return {}
        histories = {j: self._behind([node]) for j, node in ends.items()}
        found = {k: tuple(j for j in ends if node in histories[j]) for k, node in ends.items()}
        return {k: others for k, others in found.items() if others}

    def _behind(self, found: Iterable[Any]) -> set[Any]:
        """The nodes of the history behind some nodes, without these."""
        todo, seen = list(found), set[Any]()
        while todo:
            for edge in todo.pop()._edges:
                node = None if edge is None else split_edge(edge)[0]
                if node is not None and node not in seen and self.owns(node):
                    seen.add(node)
                    todo.append(node)
        return seen

    def waits(self, p: int, cut: int | None) -> bool:
        """Whether a place is at a node that does not run before that of tensor `cut`: eager nodes run the latest first."""
        return cut is not None and self.points[p].edge.node._seq <= self._last(cut)

    def _last(self, cut: int) -> int:
        return int(split_edge(edge_of(self.tensors[cut]))[0]._seq)

    def crossing(self, cut: int | None) -> list[GradientEdge]:
        """The edges from nodes that run before that of tensor `cut` to those that do not."""
        if cut is None:
            return []
        last = self._last(cut)
        with self._lock:
            found = self._crossing.setdefault(cut, {})
            for node in self.nodes():
                for edge in node._edges if node._seq > last else ():
                    if edge is not None and self.owns((after := split_edge(edge))[0]) and after[0]._seq <= last:
                        found.setdefault((id(after[0]), after[1]), GradientEdge(*after))
            return list(found.values())

    def arrivals(self, cut: int | None) -> list[int | None]:
        """The numbers of the places to which `crossing` leads; None where no gradient was seen yet."""
        return [self._numbers.get((id(edge.node), edge.output_nr)) for edge in self.crossing(cut)]

    def note(self, cut: int | None, gradients: Sequence[Any]) -> None:
        """Take in the gradients that arrive at `crossing`."""
        for edge, g in zip(self.crossing(cut), gradients, strict=False):
            if g is not None:
                self.point(edge, (g[0] if type(g) is tuple else g)._spec)

    # ***** gradients as values of the graph *****

    def stand_in(self, spec: Spec, order: tuple[int, ...] | None, wants: bool) -> Tensor:
        """A recorded tensor for a gradient: row-major, or with its dims in another order."""
        strides: Any = spec.strides if is_dense(spec.shape, spec.strides) else None
        if order is not None:
            ones = [d for d in range(len(spec.shape)) if d not in order]
            strides = dense_strides(spec.shape, [*ones, *order])
        x: Tensor = self.build.recording.cotangent(Spec.of(spec.dtype, spec.device, spec.shape, strides))
        x._rg = wants
        layout = Layout(tuple(x._spec.shape), x._spec.strides)
        self.assembler.roots[x._ptr] = Given("cotangent", ("given", x._ptr), layout, x._spec.dtype)
        return x

    def value_of(self, x: Tensor) -> Value:
        """The graph's input for a stand-in."""
        root = self.assembler.roots[x._ptr]
        for value, given in self.assembler.given.items():
            if given is root:
                return value
        return Value(tuple(x._spec.shape), x._spec.dtype)

    def _assembled(self, start: int, tensors: Sequence[Tensor]) -> list[Value]:
        """Run what was recorded since `start`, and give tensors as values of the graph."""
        self.assembler.run(self.build.recording.log[start:])
        with self.assembler.builder:
            return [self.build.gradient_value(x, self.assembler) for x in tensors]

    def _check_calls_alone(self, start: int) -> None:
        """RecordingError where something else than calls was recorded since `start`."""
        other = {_ENTRIES[type(entry)] for entry in self.build.recording.log[start:] if type(entry) in _ENTRIES}
        if other:
            raise RecordingError(f"a backward of backward with {', '.join(sorted(other))}")

    def _from_saved(
        self, cotangents: Sequence[Tensor], values: Sequence[Value], unsaved: Collection[Any] = ()
    ) -> tuple[Graph, list[Any]]:
        """A graph of values over what the program has saved but `unsaved`, and the stand-ins; and what it takes of the
        saved.
        """
        (logical, sources), given = self.program, [self.value_of(x) for x in cotangents]
        count = len(self.build.outputs)
        full = {("output", count + i) if kind == "residual" else (kind, i): (kind, i) for kind, i in sources}
        nodes = live_nodes(self.assembler.builder.nodes, [*logical.outputs, *values])
        joint = Joint(list(logical.inputs), logical.outputs, nodes, given, list(values))
        _, graph, saved = partition(joint, only=[each for each, source in full.items() if source not in unsaved])
        return graph, [full[each] for each in saved]

    def _places(self, sources: Sequence[Any]) -> list[int]:
        """Places of saved values among those of the program."""
        places = {source: k for k, source in enumerate(self.program[1])}
        return [places[source] for source in sources]

    # ***** what is recorded *****

    def _roots(self, mask: Sequence[bool], how: How, wants: bool) -> tuple[list[Any], list[Tensor]]:
        """Where backward begins, and stand-ins for the gradients there."""
        numbers = [i for i in self.tensors if mask[i]]
        orders = how.orders or [None] * len(numbers)
        places: list[Any] = [
            (self.tensors[i], self.tensors[i]._spec, order) for i, order in zip(numbers, orders, strict=True)
        ]
        places += [(self.points[p].edge, self.points[p].spec, order) for p, order in how.seeds]
        places += [(self.edges[k].edge, self.edges[k].spec, order) for k, order in how.begun]
        given: list[Tensor] = []
        for k, (_, spec, order) in enumerate(places):
            first = how.same[k] if how.same else k
            given.append(given[first] if first < k else self.stand_in(spec, order, wants))
        return [root for root, *_ in places], given

    def variant(self, mask: tuple[bool, ...], how: How) -> Variant:
        """See `ProgramBackwardSpec`: the gradients at the edges, from some of the tensors and points."""
        start = len(self.build.recording.log)
        with self.build.recording.continued():
            roots, given = self._roots(mask, how, False)
            wanted = range(len(self.edges)) if how.edges is None else how.edges
            found = self._gradients_at([self.edges[k].edge for k in wanted], roots, given, how)
        arrived = dict(zip(wanted, found, strict=False))
        parts: list[tuple[Tensor, ...]] = []
        for each in [*[arrived.get(k) for k in range(len(self.edges))], *found[len(wanted) :]]:
            parts.append(each if type(each) is tuple else () if each is None else (each,))
        if self.below is not None:
            self._check_calls_alone(start)
        values = self._assembled(start, [g for each in parts for g in each])
        numbers = iter(range(len(values)))
        values += [made.value for made in self.assembler.last_calls()]
        graph, places = self._over_saved(mask, how, given, values)
        return graph, places, [tuple(next(numbers) for _ in each) for each in parts]

    @abstractmethod
    def _over_saved(
        self, mask: tuple[bool, ...], how: How, given: Sequence[Tensor], values: Sequence[Value]
    ) -> tuple[Graph, list[int]]:
        """The graph of a variant, and the places of what it reads of the saved."""

    def _gradients_at(
        self, edges: Sequence[GradientEdge], roots: list[Any], given: list[Tensor], how: How, history: bool = False
    ) -> list[Any]:
        """Recorded gradients at edges where this level ends, then at those that cross the cut."""
        crossing = self.crossing(how.cut)
        ends = {edge.node for edge in crossing}
        if self.below is not None:
            ends.update(point.edge.node for point in self.edges)
        asked = [*edges, *crossing]
        found = self.build.backward(roots, given, asked, how.apart, ends, history)
        self.note(how.cut, found[len(edges) :])
        if self.below is None:
            found = [self.build.plain(edge.node, g) for edge, g in zip(asked, found, strict=True)]
        return found

    def derive(self, mask: tuple[bool, ...], how: How) -> Derived | None:
        """How the gradients are computed where they get a history; None where that is not known."""
        try:
            return self._derived(mask, how)
        except (RecordingError, RegionError, NotImplementedError, Restart) as error:
            reason = "memory that is read in two forms" if isinstance(error, Restart) else error
            log("joint", f"gradients of gradients are computed as a whole, not operator by operator: {reason}")
            return None

    def _derived(self, mask: tuple[bool, ...], how: How) -> Derived:
        build, start = self.build, len(self.build.recording.log)
        with build.recording.continued():
            roots, cotangents = self._roots(mask, how, True)
            given = list({id(x): x for x in cotangents}.values())
            found = self._gradients_at([point.edge for point in self.edges], roots, cotangents, how, True)
            made = {id(g): g for g in found if g is not None}
            places = {key: k for k, key in enumerate(made)}
            results = list(made.values())
            tensors = {i: x for i, x in enumerate(results) if x._node is not None}
            above = GradientLevel(self, tensors, given)
            ends, reach, several = above.frontier(results)
            cotangents = [above.stand_in(x._spec, None, False) for x in tensors.values()]
            gradients, refusal = above._gradients(list(tensors.values()), cotangents, ends)
            build.check_writes(start)
        above.edges = [Point(edge, None if g is None else g._spec) for edge, g in zip(ends, gradients, strict=True)]
        targets = [above.target(point, refusal is not None) for point in above.edges]
        self._check_calls_alone(start)
        values = self._assembled(start, [*results, *[g for g in gradients if g is not None]])
        graph, sources = self._from_saved([*above.given, *cotangents], values)
        picks = self._places(sources)
        n, taken = len(results), len(picks) + len(above.given)
        inputs, outputs = list(graph.inputs), list(graph.outputs)
        joint = Joint(inputs[:taken], outputs[:n], list(graph.nodes), inputs[taken:], outputs[n:])
        numbers = {id(y): g for g, y in enumerate(given)}
        passed = {k: numbers[id(x)] for k, x in enumerate(results) if id(x) in numbers}
        held = build.saved_memory.by_nodes(above.nodes())
        unheld, overwritten = [], []  # what may be changed before backward: eager nodes do not save it
        if held is not None:
            unheld = [k for k, x in enumerate(results) if build.saved_memory.address(x) not in held]
            overwritten = [
                len(picks) + k for k, x in enumerate(above.given) if build.saved_memory.address(x) not in held
            ]
        forward, backward, saved = partition(joint, overwritten, unheld=unheld)
        number = iter(range(len(gradients)))
        return Derived(
            forward, backward, saved, [None if g is None else next(number) for g in gradients],
            [*picks, *range(len(self.program[1]), len(self.program[1]) + len(self.given))],
            [None if g is None else places[id(g)] for g in found], passed, [x._node is not None for x in results], targets,
            reach, several,
            {i: tuple(memory_order([hint(s) for s in x._spec.shape], [hint(s) for s in x._spec.strides]))
             for i, x in zip(above.tensors, cotangents, strict=True)},
            above, refusal,
        )  # fmt: skip

    def _gradients(
        self, roots: list[Any], cotangents: list[Tensor], ends: list[GradientEdge]
    ) -> tuple[list[Any], Exception | None]:
        """The gradients at the ends of the history; or the error that eager backward raises, too, once it runs."""
        if not roots or not ends:
            return [None] * len(ends), None
        try:
            return run_backward(roots, cotangents, True, False, ends, False, False, {e.node for e in ends}), None
        except (RecordingError, NotImplementedError):
            raise
        except Exception as error:  # of a function that can be differentiated once, or of the user's code
            return [None] * len(ends), error.with_traceback(None)

    def frontier(self, results: Sequence[Tensor]) -> tuple[list[GradientEdge], list[int], tuple[int, ...]]:
        """Where the history of this level ends: edges; for each of `results` a bit for each edge that it leads to; and
        the edges to which several lead.
        """
        nodes = self.nodes()
        ends: dict[tuple[int, int], int] = {}
        edges: list[GradientEdge] = []
        count: list[int] = []
        behind: dict[Any, list[int]] = {}

        def led(edge: Any) -> int:
            node, number = split_edge(edge)
            if node not in nodes:
                return ended(edge)
            bits = behind.get(node, [])
            return bits[number] if number < len(bits) else bits[0] if bits else 0

        def ended(edge: Any) -> int:
            node, number = split_edge(edge)
            key = id(node), number
            if key not in ends:
                ends[key] = len(edges)
                edges.append(GradientEdge(node, number))
                count.append(0)
            count[ends[key]] += 1
            return 1 << ends[key]

        for node in sorted(nodes, key=lambda node: node._seq):
            bits = [0 if edge is None else led(edge) for edge in node._edges]
            behind[node] = [reduce(or_, [bits[k] for k in each], 0) for each in _led_from(node)]
        reach = [0 if x._node is None else led(edge_of(x)) for x in results]
        return edges, reach, tuple([k for k, n in enumerate(count) if n > 1])

    def target(self, point: Point, refused: bool) -> Target:
        """Where an edge at which this level's history ends leads at run time: of a history that is `refused`, to the nodes
        alone.  RecordingError if that is not known.
        """
        edge, spec = point
        key = edge.node, edge.output_nr
        if spec is None and not refused:
            return Target("none", 0, 0)
        for k, x in enumerate(self.given):
            if split_edge(edge_of(x)) == key:
                return Target("given", 0, k)
        for k, own in enumerate(self.levels[0].edges):
            if (own.edge.node, own.edge.output_nr) == key:
                return Target("edge", 0, k)
        for number, level in enumerate(self.levels[:-1]):
            for j, x in level.tensors.items():
                if split_edge(edge_of(x)) == key:
                    return Target("output", number, j)
            if level.owns(edge.node) and refused:
                return Target("output", number, next(iter(level.tensors)))
            if level.owns(edge.node):
                return Target("point", number, level.point(edge, spec))
        raise RecordingError("a backward of backward leads to a tensor that the backward does not lead to")


class ProgramLevel(Level):
    """The outputs of a program."""

    def __init__(
        self, build: Any, assembler: Any, program: Program, tensors: dict[int, Tensor], edges: Sequence[Point]
    ) -> None:
        super().__init__(build, assembler, program, tensors, None, RLock())  # backward calls of several threads ask
        self.edges = edges

    def _over_saved(
        self, mask: tuple[bool, ...], how: How, given: Sequence[Tensor], values: Sequence[Value]
    ) -> tuple[Graph, list[int]]:
        memory, (logical, sources) = self.build.saved_memory, self.program
        held = memory.of(
            [j for j in self.tensors if mask[j]],
            None if how.edges is None else {self.edges[k].edge.node for k in how.edges},
            [self.points[p].edge.node for p, _ in how.seeds],
        )
        inputs = [i for i in memory.inputs(logical.inputs, self.assembler.given, held) if ("input", i) in sources]
        try:
            graph, saved = self._from_saved(given, values, self._may_change(held, inputs))
        except NotImplementedError:
            if not how.seeds:
                raise
            graph, saved = self._from_saved(given, values)  # an inner result that an eager node holds is computed again
        ends = logical.inputs, logical.outputs
        graph, saved = memory.with_changes_noticed(graph, saved, ends, held, inputs, sources)
        return graph, self._places(saved)

    def _may_change(self, held: set[int] | None, inputs: Collection[int]) -> set[Any]:
        """Saved inputs other than `inputs`: what eager nodes do not hold may change before backward."""
        if held is None or len(self.tensors) > MOST_HISTORIES:
            return set()
        given = [self.assembler.given.get(v) for v in self.program[0].inputs]
        return {
            ("input", i)
            for i, each in enumerate(given)
            if each is not None and each.kind == "input" and i not in inputs
        }


class GradientLevel(Level):
    """Gradients of the tensors of a level, from `given` ones."""

    def __init__(self, below: Level, tensors: dict[int, Tensor], given: Sequence[Tensor]) -> None:
        super().__init__(below.build, below.assembler, below.program, tensors, below, below._lock)
        self.given = [*below.given, *given]

    def _over_saved(
        self, mask: tuple[bool, ...], how: How, given: Sequence[Tensor], values: Sequence[Value]
    ) -> tuple[Graph, list[int]]:
        graph, saved = self._from_saved([*self.given, *given], values)
        base = len(self.program[1])
        return graph, [*self._places(saved), *range(base, base + len(self.given))]


def _led_from(node: Any) -> list[list[int]]:
    """For each result of a node the numbers of the edges that it depends on."""
    every = list(range(len(node._edges)))
    if not isinstance(node, OpNode) or len(node.info.wrt) != len(every):
        return [every]
    graph, wrt = node.info.forward, node.info.wrt
    flags = [reached(graph, [place]) for place in wrt]
    return [[k for k in every if flags[k][number]] for number in range(len(graph.outputs))]
