"""From a whole program to kernels in waves: its calls are fused into clusters, compiled, and given their memory.

    linked = linked_program(graph, in_layouts, out_layouts, target=host(), aliases={0: 2})

Equal clusters are compiled once.  Results that belong in the memory of an input are written there by the kernel that
makes them, where nobody reads the old contents later; else they are copied at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cpu.conv.conv_descriptor import W
from rushlight._backends.cpu.conv.direct import adds_in_one_order
from rushlight._backends.cpu.externs import extern_call, may_pin, tuned
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.program.steps import ExternStep, KernelStep, Program
from rushlight._base.collector import uncollected
from rushlight._codegen.order import orders_of
from rushlight._codegen.traffic import traffic, work_of
from rushlight._graph.core import Graph, GraphBuilder, Value, evaluate
from rushlight._schedule.clusters import Cluster, clusters_of
from rushlight._schedule.recompute import recomputed
from rushlight._schedule.updates import base_of
from rushlight._transforms.passes import REORDERING, improved, switches
from rushlight._transforms.units import Operand, Unit, Units, cut
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._schedule.policy import Target

__all__ = ["Compiled", "LinkedCluster", "LinkedProgram", "linked_program"]

_COMPILED: dict[Any, Compiled | None] = {}
MOST_COMPILED = 1 << 14
ROW_BYTES = 1 << 14  # of an array, up to which a row is still in the first cache when a kernel reads it again


class Compiled:
    """A graph's program, and what it costs."""

    __slots__ = ("_orders", "_work", "kernels", "moved", "part", "program")

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kernels, self.moved = 0, 0
        self._orders: tuple[Any, ...] | None = None
        self._work: float | None = None
        for step in program.steps:
            if isinstance(step, KernelStep):
                self.kernels += 1
                self.moved += traffic(step.kernel, ROW_BYTES)[0]
                continue
            assert isinstance(step, ExternStep)
            if step.name != "allocate":
                self.kernels += 1
                self.moved += sum(numel(o.shape) * o.dtype.itemsize for o in (*step.inputs, *step.outputs))
        self.part: Any = None  # its launches, once they are known

    @property
    def work(self) -> float:
        """The work of its kernels."""
        if self._work is None:
            kernels = [step for step in self.program.steps if isinstance(step, KernelStep)]
            self._work = sum(work_of(step.kernel, step.target.policy) for step in kernels)
        return self._work

    @property
    def orders(self) -> tuple[Any, ...]:
        """In which orders it adds, found out where somebody asks: that chooses, and loads, the kernels of convolutions."""
        if self._orders is None:
            orders: list[Any] = []
            for step in self.program.steps:
                if isinstance(step, KernelStep):
                    orders += orders_of(step.kernel.sections)
                elif isinstance(step, ExternStep) and step.name != "allocate":
                    orders.append(_order_of(step))
                    for part in step.parts:
                        orders += orders_of(part.step.kernel.sections)
            self._orders = tuple(orders)
        return self._orders

    def pinned(self, sides: Sequence[tuple[int, int]]) -> Compiled:
        """The same, with products of which an operand may stay packed: numbers of steps, and which it is."""
        program = self.program
        steps = list(program.steps)
        for k, side in sides:
            step = steps[k]
            assert isinstance(step, ExternStep)
            steps[k] = step.pinned(side)
        return Compiled(Program(program.graph, steps, program.results, program.n_inputs, program.n_args, program.notes))


def _order_of(step: ExternStep) -> tuple[Any, ...]:
    """Properties that decide a routine's kernels; for a convolution, the choice itself."""
    if step.name == "conv_windows" and adds_in_one_order(step):
        return "call", step.name, tuple((o.dtype.name, o.shape) for o in step.inputs), repr(step.params)
    operands = [(o.dtype.name, o.shape, o.strides) for o in (*step.inputs, *step.outputs)]
    if step.name == "dot":  # sums are those of the wide dtype; where they are rounded is no matter of order
        out = step.outputs[0]
        operands[-1] = out.dtype.wide.name, out.shape, out.strides
    prologues = tuple(p is not None for p in step.prologues) if any(step.prologues) else ()
    chosen = _chosen(step) if step.name == "conv_windows" else ()
    return "call", step.name, tuple(operands), repr(step.params), prologues, chosen


# Words of a convolution that decide in which order the steps of a sum are added.
_STEPS = ("part_c", "part_d", "part_h", "part_w", "chunk", "chunks", "form", "taps_first")


def _chosen(step: ExternStep) -> tuple[Any, ...]:
    """The kernels of a convolution, and how each divides its sums."""
    found = []
    for launch in extern_call(step):
        words = list(launch.ints or ())[8:]
        parts = range(0, len(words) - len(W) + 1, len(W))
        found.append((id(launch.call), tuple(words[at + getattr(W, name)] for at in parts for name in _STEPS)))
    return tuple(found)


class LinkedCluster(NamedTuple):
    """A cluster with its program: `unit` is what is computed, `aliases` says which results are written into which
    operands.
    """

    unit: Unit
    compiled: Compiled
    aliases: dict[int, int]
    parts: list[int]


class LinkedProgram(NamedTuple):
    """Clusters in the order they run, over the inputs of a graph; `outputs` are their results, None for what lies in an
    input.
    """

    graph: Graph
    layouts: tuple[Any, ...]
    clusters: list[LinkedCluster]
    outputs: list[Value | None]
    calls: int
    notes: list[str]
    on: dict[str, bool]


def linked_program(
    graph: Graph,
    layouts: Sequence[Any],
    out_strides: Sequence[Sequence[int]],
    *,
    target: Target,
    aliases: Mapping[int, int] | None = None,
    options: Mapping[str, Any] | None = None,
    symbolic: bool = False,
) -> LinkedProgram:
    """The program of a graph with borders; `options` are switches of passes (`_transforms.passes`).  With `symbolic` sizes
    nothing is kept for other programs.
    """
    on, known = switches(options), {} if symbolic else _COMPILED
    order = not (options or {}).get(REORDERING)
    with uncollected():
        return _linked(graph, layouts, out_strides, target, dict(aliases or {}), on, known, order)


def _linked(
    graph: Graph,
    layouts: Sequence[Any],
    out_strides: Sequence[Sequence[int]],
    target: Target,
    aliases: dict[int, int],
    on: dict[str, bool],
    known: dict[Any, Compiled | None],
    order: bool,
) -> LinkedProgram:
    target = target._replace(policy=target.policy._replace(places=True))
    notes: list[str] = []
    graph = improved(graph, on, notes)
    units = cut(graph, layouts, [tuple(s) for s in out_strides], on["common_calls"])
    calls = len(units.units)
    outputs = _apart(units.units, units.outputs)
    units.outputs = outputs
    late: set[int] = set()
    if on["recompute"]:
        units.units, late = recomputed(units, target.policy)
        if late:
            notes.append(f"recompute: {len(late)} calls")

    def costs(unit: Unit) -> Compiled | None:
        return compiled_unit(unit, target, known=known)

    written = _written(units, aliases) if on["in_place"] else {id(outputs[i]): None for i in aliases}
    clusters = clusters_of(units, costs, target.policy, notes, on["fusion"], on["constants"], written, late)
    into = _Aliases(graph, clusters, outputs, aliases, target, known, written if on["in_place"] else None)
    linked = into.run()
    if on["packed_weights"]:
        linked = _with_packed_weights(linked, graph, aliases, notes, order)
    if on["autotune"]:
        notes.append(_autotuned(linked))
    places: list[Value | None] = [None if i in into.aliases else v for i, v in enumerate(outputs)]
    return LinkedProgram(graph, tuple(layouts), linked, places, calls, notes, on)


def _autotuned(clusters: Sequence[LinkedCluster]) -> str:
    """Search for the pieces of all large products; a note on what was found."""
    measured = other = 0
    for compiled in dict.fromkeys(c.compiled for c in clusters):
        found = [tuned(step) for step in compiled.program.steps if isinstance(step, ExternStep)]
        measured += sum(each is not None for each in found)
        if any(found):
            other += sum(map(bool, found))
            compiled.part = None  # its launches are made with them
    return f"autotune: {measured} large products, {other} of them in other pieces than usual"


def _with_packed_weights(
    clusters: Sequence[LinkedCluster], graph: Graph, aliases: Mapping[int, int], notes: list[str], order: bool
) -> list[LinkedCluster]:
    """The clusters whose products read inputs that nobody writes to, with these operands as such that may stay packed
    (`order`: and sums are added up as they would be otherwise).
    """
    written = {id(graph.inputs[k]) for k in aliases.values()}
    inputs = {id(v) for v in graph.inputs}
    made: dict[Any, Compiled] = {}
    found, count = [], 0
    for cluster in clusters:
        tensors = [o for o in cluster.unit.operands if isinstance(o, Operand)]
        given = frozenset(k for k, o in enumerate(tensors) if id(o.base) in inputs)
        places = frozenset(k for k in given if id(tensors[k].base) not in written)
        steps = cluster.compiled.program.steps
        pinned = [
            (k, side) for k, s in enumerate(steps) if isinstance(s, ExternStep) and (side := _pinned_side(s, places, given, order)) >= 0
        ]  # fmt: skip
        if pinned:
            key = id(cluster.compiled), *pinned
            if key not in made:
                made[key] = cluster.compiled.pinned(pinned)
            cluster = cluster._replace(compiled=made[key])
            count += len(pinned)
        found.append(cluster)
    notes.append(f"packed_weights: {count} products")
    return found


def _pinned_side(step: ExternStep, places: Collection[int], given: Collection[int], order: bool) -> int:
    """Which operand of a product may stay packed: the second one in `places`; the first, where the second is none of the
    `given`, whose weight it then is; -1 for none.
    """
    if len(step.inputs) < 2:
        return -1
    first, second = (x.number for x in step.inputs[:2])
    if second in places and may_pin(step, 1, order):
        return 1
    return 0 if first in places and second not in given and may_pin(step, 0, order) else -1


def compiled_unit(
    unit: Unit,
    target: Target,
    aliases: dict[int, int] | None = None,
    overlaps: dict[int, list[int]] | None = None,
    known: dict[Any, Compiled | None] = _COMPILED,
) -> Compiled | None:
    """A unit's program, made once for all that are alike (`known`); None where it has no schedule."""
    key = (
        unit.key, target.vector_bytes, target.fma, target.policy is None,
        tuple(sorted((aliases or {}).items())), tuple((k, tuple(v)) for k, v in sorted((overlaps or {}).items())),
    )  # fmt: skip
    if key not in known:
        if len(known) >= MOST_COMPILED:
            known.clear()
        if unit.lanes is not None:
            target = target._replace(policy=target.policy._replace(lanes=unit.lanes))
        program = compile_graph(
            unit.graph, unit.layouts, unit.strides, target=target, aliases=aliases, overlaps=overlaps
        )
        known[key] = Compiled(program)
    return known[key]


def _apart(units: list[Unit], outputs: Sequence[Value]) -> list[Value]:
    """The outputs, each a value of its own: one that occurs again is copied."""
    lies = {id(v): s for unit in units for v, s in zip(unit.results, unit.strides, strict=True)}
    seen: set[int] = set()
    apart = []
    for value in outputs:
        if id(value) in seen:
            unit = copy_of(value, lies[id(value)], lies[id(value)])
            units.append(unit)
            value = unit.results[0]
        seen.add(id(value))
        apart.append(value)
    return apart


def _written(units: Units, aliases: Mapping[int, int]) -> dict[int, Value | None]:
    """The results that belong in the memory of inputs, by id, with the value of which each changes a part (None: it is
    written whole); also the results between them and the input.
    """
    maker = {id(v): (unit, j) for unit in units.units for j, v in enumerate(unit.results)}
    found: dict[int, Value | None] = {}
    for i in aliases:
        chain: list[tuple[Value, Value]] = []
        value: Value | None = units.outputs[i]
        while value is not None and id(value) in maker:
            unit, j = maker[id(value)]
            k = base_of(unit.graph, unit.layouts, unit.strides[j], j)
            operand = None if k is None else unit.operands[k]
            if not isinstance(operand, Operand) or operand.views or operand.base.dtype is not value.dtype:
                break
            chain.append((value, operand.base))
            value = operand.base
        found[id(units.outputs[i])] = None
        found |= {id(changed): base for changed, base in chain}
    return found


def copy_of(value: Value, lies: Sequence[int], strides: Sequence[int]) -> Unit:
    """The call that copies a value in memory."""
    x = Value(value.shape, value.dtype)
    return Unit(
        Graph([x], [], [x]),
        [Operand(value, (), value.shape, tuple(lies), 0)],
        [Value(value.shape, value.dtype)],
        [tuple(strides)],
    )


class _Aliases:
    """Finds for each result that belongs into an input's memory who may write it there, and puts the clusters in order."""

    def __init__(
        self,
        graph: Graph,
        clusters: list[Cluster],
        outputs: list[Value],
        aliases: dict[int, int],
        target: Target,
        known: dict[Any, Compiled | None],
        changes: Mapping[int, Value | None] | None,
    ) -> None:
        self.in_place, self.known, self.changes = changes is not None, known, changes or {}
        self.graph, self.clusters, self.outputs, self.aliases, self.target = graph, clusters, outputs, aliases, target
        self.by_number = {c.number: c for c in clusters}
        self.maker = {id(v): c.number for c in clusters for v in c.unit.results}
        self.readers: dict[int, list[int]] = {}
        for c in clusters:
            for base in {id(o.base) for o in c.unit.operands if o.base is not None}:
                self.readers.setdefault(base, []).append(c.number)
        self.written: dict[int, dict[int, Value]] = {}  # cluster -> result -> the input that it is written into
        self.next = max(self.by_number, default=-1) + 1

    def run(self) -> list[LinkedCluster]:
        copies = []
        for i, k in self.aliases.items():
            value, memory = self.outputs[i], self.graph.inputs[k]
            number = self.maker[id(value)]
            if not numel(value.shape):
                continue
            if self.in_place and self.may_write(number, memory):
                self.wait(number, memory)
                self.written.setdefault(number, {})[id(value)] = self.before(value, memory)
            else:
                copies.append((value, memory))
        for value, memory in copies:
            self.copy(value, memory)
        return [self.linked(c) for c in self.sorted()]

    def before(self, value: Value, memory: Value) -> Value:
        """The value over which a result in an input's memory is written: the input, or the result of which it
        changes a part, which then lies there too.
        """
        base = self.changes.get(id(value))
        if base is None or base is memory or id(base) not in self.maker or any(base is v for v in self.outputs):
            return memory
        number, maker = self.maker[id(value)], self.maker[id(base)]
        if number == maker or not (self.may_write(maker, memory) and self.may_write(number, base)):
            return memory
        self.wait(maker, memory)
        self.wait(number, base)
        self.written.setdefault(maker, {})[id(base)] = self.before(base, memory)
        return base

    def may_write(self, number: int, memory: Value) -> bool:
        """Whether a cluster may overwrite an input: all who read that can run before it."""
        readers = [self.by_number[k] for k in self.readers.get(id(memory), ()) if k != number]
        return not any(c.before >> number & 1 for c in readers)

    def wait(self, number: int, memory: Value) -> None:
        """Let a cluster, and all that wait for it, wait for those who read an input."""
        more = 0
        for k in self.readers.get(id(memory), ()):
            if k != number:
                more |= 1 << k | self.by_number[k].before
        if not more & ~self.by_number[number].before:
            return
        self.by_number[number].before |= more
        for c in self.by_number.values():
            if c.before >> number & 1:
                c.before |= more

    def copy(self, value: Value, memory: Value) -> None:
        """Add a cluster that copies a result into an input."""
        maker = self.by_number[self.maker[id(value)]]
        lies = maker.unit.strides[[id(v) for v in maker.unit.results].index(id(value))]
        unit = copy_of(value, lies, lies)
        cluster = Cluster(self.next, unit, "map", maker.before | 1 << maker.number)
        self.by_number[self.next] = cluster
        self.clusters.append(cluster)
        self.next += 1
        self.wait(cluster.number, memory)
        self.written[cluster.number] = {id(unit.results[0]): memory}

    def sorted(self) -> list[Cluster]:
        done, order, left = 0, [], self.clusters
        while left:
            waiting = []
            for c in left:
                if c.before & ~done:
                    waiting.append(c)
                else:
                    order.append(c)
                    done |= 1 << c.number
            assert len(waiting) < len(left), "clusters wait for each other"
            left = waiting
        return order

    def linked(self, cluster: Cluster) -> LinkedCluster:
        """A cluster's program; where results go into inputs, the kernel writes them there."""
        unit, written = cluster.unit, self.written.get(cluster.number, {})
        aliases: dict[int, int] = {}
        overlaps: dict[int, list[int]] = {}
        for result, strides in zip(unit.results, unit.strides, strict=True):
            memory = written.get(id(result))
            if memory is not None:
                unit, at = _with_operand(unit, memory, result, strides)
                if self.changes.get(id(result)) is not None and memory.shape == result.shape:
                    unit = _through_views(unit, memory, at)
        for j, (result, strides) in enumerate(zip(unit.results, unit.strides, strict=True)):
            memory = written.get(id(result))
            if memory is None:
                continue
            unit, aliases[j] = _with_operand(unit, memory, result, strides)  # which has it
            overlaps[j] = [
                k
                for k, o in enumerate(unit.operands)
                if isinstance(o, Operand) and o.base is memory and k != aliases[j]
            ]
        overlaps = {j: others for j, others in overlaps.items() if others}
        compiled = compiled_unit(unit, self.target, aliases, overlaps, self.known)
        assert compiled is not None
        return LinkedCluster(unit, compiled, aliases, cluster.parts)


def _through_views(unit: Unit, memory: Value, at: int) -> Unit:
    """The unit whose operands that are views of a memory become views of operand `at`, which is the whole of it.

    So a kernel that changes a part sees that it reads nothing else of the memory.
    """
    shown = {
        k: o.views
        for k, o in enumerate(unit.operands)
        if isinstance(o, Operand) and o.base is memory and o.views and k != at
    }
    if not shown:
        return unit
    builder = GraphBuilder()
    kept = [k for k in range(len(unit.operands)) if k not in shown]
    with builder:
        given = {k: builder.input(v.shape, v.dtype, v.weak) for k, v in enumerate(unit.graph.inputs) if k in kept}
        for k, views in shown.items():
            given[k] = given[at]
            for view, params in views:
                given[k] = view(given[k], **params)
        outputs = evaluate(unit.graph, [given[k] for k in range(len(unit.operands))])
    graph = builder.finish(outputs)
    return Unit(graph, [unit.operands[k] for k in kept], unit.results, unit.strides, unit.lanes)


def _with_operand(unit: Unit, memory: Value, result: Value, strides: Sequence[int]) -> tuple[Unit, int]:
    """The unit with an operand that is an input's memory, seen as a result lies there, and its number."""
    key = (id(memory), result.shape, tuple(strides), 0)
    for k, operand in enumerate(unit.operands):
        if operand.key == key and unit.graph.inputs[k].dtype is memory.dtype:
            return unit, k
    graph = unit.graph
    extra = Value(result.shape, memory.dtype)
    inputs, operands = list(graph.inputs), list(unit.operands)
    at = len(inputs)
    inputs.append(extra)
    operands.append(Operand(memory, (), result.shape, tuple(strides), 0))
    return Unit(Graph(inputs, graph.nodes, graph.outputs), operands, unit.results, unit.strides, unit.lanes), at
