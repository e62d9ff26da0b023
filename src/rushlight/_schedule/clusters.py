"""Fusion of a program's calls: neighbouring calls become one where that saves kernels and keeps every bit.

A cluster is some calls as one graph.  What may join is decided by what the calls are made of; whether it does, by
compiling the joined graph: it must take fewer kernels, move no more memory, and add up in the same orders as its calls
do by themselves.  Dtypes are rounded where they are in the calls: no rule of algebra looks across a border.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rushlight._graph.core import GraphBuilder, _freeze, evaluate
from rushlight._schedule.schedule import is_reduction
from rushlight._transforms.units import Key, Number, Operand, Unit, Units
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Value
    from rushlight._schedule.policy import Policy

__all__ = ["Cluster", "Costs", "Joiner", "clusters_of"]

_LOOPS = ("scan", "scatter", "index_write")
MORE_MEMORY = "they would move more memory"
MORE_COMPUTED = "they would compute more"
FIXED, HEAVY, ROWS, MAP = "fixed", "heavy", "rows", "map"


class Costs(Protocol):
    """Costs of a compiled graph: kernels, bytes that they move, and the orders in which they add."""

    @property
    def kernels(self) -> int: ...

    @property
    def moved(self) -> int: ...

    @property
    def work(self) -> float: ...

    @property
    def orders(self) -> tuple[Any, ...]: ...


Verdict = tuple[bool, str, tuple[int, int] | None]


class Known(NamedTuple):
    """Costs without compiling."""

    kernels: int
    moved: int
    work: float
    orders: tuple[Any, ...]


class Cluster:
    """Calls that are computed together.  `unit` is the joined graph; `parts` are the numbers of the calls.  `stored`
    are results that nobody else reads, kept because several loops of the cluster do.
    """

    __slots__ = ("before", "kind", "number", "parts", "stored", "unit")

    def __init__(self, number: int, unit: Unit, kind: str, before: int) -> None:
        self.number, self.unit, self.kind, self.parts = number, unit, kind, [number]
        self.stored: tuple[Value, ...] = ()
        self.before = before  # the clusters that must run before, as bits


def clusters_of(
    units: Units,
    costs: Callable[[Unit], Costs | None],
    policy: Policy,
    notes: list[str],
    fuse: bool = True,
    constants: bool = True,
    written: Mapping[int, Value | None] | None = None,
    late: Collection[int] = (),
) -> list[Cluster]:
    """The clusters of a program, in an order in which they can run.

    `costs` compiles a graph, None where that fails; `policy` limits what becomes one.  `notes` receives the reasons.
    `fuse` and `constants` are the switches of these passes.  `written` has the results, by id, that belong in the
    memory of inputs: a value of which such a result changes a part, None for those that are written whole.  `late` are
    the calls, by id, that compute something again: they join no call that was before it.
    """
    clustering = _Clustering(units, costs, policy, notes, written or {})
    clustering.late = {k for k, unit in enumerate(units.units) if id(unit) in late}
    return clustering.run(fuse, constants)


class _Clustering:
    def __init__(
        self,
        units: Units,
        costs: Callable[[Unit], Costs | None],
        policy: Policy,
        notes: list[str],
        written: Mapping[int, Value | None],
    ) -> None:
        self.written = written
        self.units, self.costs, self.policy, self.notes = units.units, costs, policy, notes
        self.kept = {id(v) for v in units.outputs}
        self.maker = {id(v): k for k, unit in enumerate(units.units) for v in unit.results}
        self.readers: dict[int, set[int]] = {}
        for k, unit in enumerate(units.units):
            for operand in unit.operands:
                if operand.base is not None:
                    self.readers.setdefault(id(operand.base), set()).add(k)
        # Calls that change a part of memory, in order, with the id of what lies there before.
        self.changes = sorted((self.maker[v], id(base)) for v, base in written.items() if base is not None)
        self.home: list[int] = []  # the cluster of each call
        self.clusters: dict[int, Cluster] = {}
        self._joins: dict[Any, Verdict] = {}
        self._joined = Joiner()
        self.late: set[int] = set()  # calls that compute something again
        self.spread: set[int] = set()  # calls that are computed where they are read
        self.backward = len(units.units)  # the first cluster that may wait for one with a higher number

    def run(self, fuse: bool, constants: bool) -> list[Cluster]:
        if constants:
            self.spread_constants()
        for number, unit in enumerate(self.units):
            if number in self.spread:
                self.home.append(-1)
                continue
            made = [self.home[self.maker[id(o.base)]] for o in unit.operands if id(o.base) in self.maker]
            before = 0
            for k in made:
                before |= 1 << k | self.clusters[k].before
            cluster = Cluster(number, unit, kind_of(unit.graph), before)
            self.home.append(number)
            self.clusters[number] = cluster
            if fuse and cluster.kind != FIXED:
                self.grow(cluster)
        return self.sorted()

    def spread_constants(self) -> None:
        """Let calls that make constants be computed by those who read them."""
        for number, unit in enumerate(self.units):
            if any(isinstance(o, Operand) for o in unit.operands) or kind_of(unit.graph) != MAP:
                continue
            readers = sorted({k for v in unit.results for k in self.readers.get(id(v), ())})
            if (
                any(id(v) in self.kept for v in unit.results)
                or not readers
                or len(unit.graph.nodes) > self.policy.joined_constant
            ):
                continue
            taken = {k: self._joined([unit, self.units[k]], self.units[k].results) for k in readers}
            if all(self.keeps(self.units[k], together) for k, together in taken.items()):
                self.spread.add(number)
                for k, together in taken.items():
                    self.units[k] = together

    def keeps(self, unit: Unit, together: Unit) -> bool:
        """Whether a call that computes a constant itself takes no more kernels, and adds in the same order."""
        if kind_of(unit.graph) in (FIXED, HEAVY):
            return False
        if kind_of(unit.graph) == MAP:
            return True
        a, b = self.costs(unit), self.costs(together)
        return a is not None and b is not None and b.kernels <= a.kernels and _same(a.orders, b.orders)

    def grow(self, cluster: Cluster) -> None:
        """Let a new cluster join those that make its operands, as long as one takes it."""
        refused: set[int] = set()
        while True:
            for number in self.makers(cluster):
                if number not in refused:
                    taken = self.join(self.clusters[number], cluster)
                    if taken is not None:
                        cluster = taken
                        break
                    refused.add(number)
            else:
                return

    def makers(self, cluster: Cluster) -> list[int]:
        """The clusters that make what a cluster reads, the latest first."""
        found = {self.home[self.maker[id(o.base)]] for o in cluster.unit.operands if id(o.base) in self.maker}
        return sorted(found - {cluster.number}, reverse=True)

    def join(self, first: Cluster, then: Cluster) -> Cluster | None:
        """Both as one, where they may and should be."""
        kind = joint_kind(first.kind, then.kind)
        if kind is None:
            return None
        if first.kind != MAP and any(id(v) in self.written for v in then.unit.results):
            return None  # its stores would be in turn: old contents would be copied first
        if self.changes_part(first, then) or self.reads_late(first, then):
            return None
        if self.late.issuperset(then.parts) and self.late.isdisjoint(first.parts):
            return None
        nodes = len(first.unit.graph.nodes) + len(then.unit.graph.nodes)
        if nodes > (self.policy.joined_views if kind == MAP else self.policy.joined_nodes):
            return None
        bit = 1 << first.number
        between = any(k != first.number and self.clusters[k].before & bit for k in self.makers(then))
        if between or first.before >> then.number & 1:
            return None  # something between them would wait for itself
        if first.kind == MAP and not self.same_size(first, then):
            return None
        parts = sorted({*first.parts, *then.parts})
        stored = [*first.stored, *then.stored]
        wanted = [v for k in parts for v in self.units[k].results if v in stored or self.is_wanted(v, parts)]
        if len(wanted) > self.policy.max_stores:
            return None
        unit = self._joined([self.units[k] for k in parts], wanted)
        if len(unit.operands) > self.policy.joined_operands:
            return None
        fits, why, lanes = (True, "", None) if kind == MAP else self.pays(first, then, unit, parts)
        if why in (MORE_MEMORY, MORE_COMPUTED):  # several loops read what lies between both: it may pay to store it
            between_them = [v for v in first.unit.results if v not in wanted and self.is_read(v, then)]
            largest = max((numel(v.shape) for v in between_them), default=0)
            between_them = [v for v in between_them if numel(v.shape) == largest]
            if 0 < len(between_them) <= self.policy.max_stores - len(wanted):
                other = self._joined([self.units[k] for k in parts], [*wanted, *between_them])
                fits, _, lanes = self.pays(first, then, other, parts)
                unit, stored = (other, [*stored, *between_them]) if fits else (unit, stored)
        if lanes is not None:
            unit = Unit(unit.graph, unit.operands, unit.results, unit.strides, lanes)
        if not fits:
            self.notes.append(f"{name_of(first)} and {name_of(then)} stay apart: {why}")
            return None
        made = self.merged(first, then, unit, kind, parts)
        made.stored = tuple(stored)
        return made

    def changes_part(self, first: Cluster, then: Cluster) -> bool:
        """Whether the first cluster, or the other of what the first makes, changes a part of memory, so that by itself
        it writes no more than that.
        """
        own = {id(v) for v in first.unit.results}
        if any(self.written.get(key) is not None for key in own):
            return True
        return any(id(self.written.get(id(v))) in own for v in then.unit.results)

    def reads_late(self, first: Cluster, then: Cluster) -> bool:
        """Whether one of two clusters reads memory before a part of it is changed, and the other waits for that change."""
        before, parts = first.before | then.before, {*first.parts, *then.parts}
        for maker, base in self.changes:
            home = self.home[maker] if maker < len(self.home) else -1
            waits = home >= 0 and maker not in parts and before >> home & 1
            if waits and not parts.isdisjoint(self.readers.get(base, ())):
                return True
        return False

    def is_read(self, value: Value, cluster: Cluster) -> bool:
        return any(k in cluster.parts for k in self.readers.get(id(value), ()))

    def is_wanted(self, value: Value, parts: Sequence[int]) -> bool:
        return id(value) in self.kept or any(k not in parts for k in self.readers.get(id(value), ()))

    def same_size(self, first: Cluster, then: Cluster) -> bool:
        """Whether what the first cluster computes is not computed more often in the other."""
        own = {id(v): v for v in first.unit.results}
        read = [o for o in then.unit.operands if isinstance(o, Operand) and id(o.base) in own]
        if then.kind == MAP:
            largest, size = max(numel(v.shape) for v in then.unit.results), max(numel(o.base.shape) for o in read)
            if all(self.written.get(id(v)) is not None for v in then.unit.results):
                return True  # what is written alone is computed
            alone = all(len(self.readers.get(key, ())) == 1 and key not in self.kept for key in own)
            return size == largest or size == 1 and alone
        return all(numel(o.shape) <= numel(o.base.shape) for o in read)

    def pays(self, first: Cluster, then: Cluster, unit: Unit, parts: Sequence[int]) -> Verdict:
        """Whether joining two clusters saves something and keeps the sums; else why not; and the lanes that sums must
        have.
        """
        found = self._joins.get(unit.key)
        if found is None:
            found = self._joins[unit.key] = self._pays(first, then, unit, parts)
        return found

    def _pays(self, first: Cluster, then: Cluster, unit: Unit, parts: Sequence[int]) -> Verdict:
        together, a, b = self.costs(unit), self.costs_of(first), self.costs_of(then)
        if together is None or a is None or b is None:
            return False, "the joined graph has no schedule", None
        if together.kernels >= a.kernels + b.kernels:
            return False, "they would take as many kernels", None
        if together.moved > a.moved + b.moved:
            return False, MORE_MEMORY, None
        if first.kind == then.kind == ROWS and together.work > self.policy.joined_work * (a.work + b.work):
            return False, MORE_COMPUTED, None
        wanted = [o for k in parts for o in self.orders(k)]
        if _same(together.orders, wanted):
            return True, "", None
        lanes = _lanes_of(wanted)
        if lanes is not None:
            other = self.costs(Unit(unit.graph, unit.operands, unit.results, unit.strides, lanes))
            if other is not None and other.kernels == together.kernels and _same(other.orders, wanted):
                return True, "", lanes
        return False, "sums would be added in another order", None

    def costs_of(self, cluster: Cluster) -> Costs | None:
        """Costs of one cluster alone; computed without compiling where it has no loops."""
        if cluster.kind != MAP:
            return self.costs(cluster.unit)
        arrays = [
            (o.shape, v.dtype)
            for o, v in zip(cluster.unit.operands, cluster.unit.graph.inputs, strict=True)
            if isinstance(o, Operand)
        ]
        arrays += [(v.shape, v.dtype) for v in cluster.unit.results]
        return Known(1, sum(numel(shape) * dtype.itemsize for shape, dtype in arrays), 0.0, ())

    def orders(self, number: int) -> tuple[Any, ...]:
        """The orders of the sums of a call by itself."""
        unit = self.units[number]
        if kind_of(unit.graph) == MAP:
            return ()
        found = self.costs(unit)
        return () if found is None else found.orders

    def merged(self, first: Cluster, then: Cluster, unit: Unit, kind: str, parts: list[int]) -> Cluster:
        """Put two clusters in the place of the later one."""
        made = Cluster(then.number, unit, kind, 0)
        made.parts = parts
        bit = 1 << first.number
        made.before = (first.before | then.before) & ~bit
        del self.clusters[first.number]
        self.clusters[then.number] = made
        for k in first.parts:
            self.home[k] = then.number
        more = 1 << made.number | made.before
        either = bit | 1 << made.number
        for k in range(min(parts[0] + 1, self.backward), len(self.home)):
            other = self.clusters.get(k)
            if other is not None and other is not made and other.before & either:
                other.before = other.before & ~bit | more
                if more >> k:
                    self.backward = min(self.backward, k)
        return made

    def sorted(self) -> list[Cluster]:
        """All clusters, each behind those that it needs, otherwise as late as its last call."""
        done, order = 0, []
        left = sorted(self.clusters.values(), key=lambda c: c.number)
        while left:
            waiting = []
            for cluster in left:
                if cluster.before & ~done:
                    waiting.append(cluster)
                else:
                    order.append(cluster)
                    done |= 1 << cluster.number
            assert len(waiting) < len(left)
            left = waiting
        return order


def _same(orders: Sequence[Any], others: Sequence[Any]) -> bool:
    return sorted(map(repr, orders)) == sorted(map(repr, others))


def _lanes_of(orders: Sequence[Any]) -> tuple[int, int] | None:
    """The lanes and vectors that all sums along rows have; None where there are none, or several."""
    found = {order[5] for order in orders if order[0] == "reduce" and order[5]}
    return found.pop() if len(found) == 1 else None


def kind_of(graph: Graph) -> str:
    """The class of a call: loops that must stay as they are, library routines, reductions, or pointwise work alone."""
    heavy = 0
    rows = False
    for node in graph.nodes:
        lower = node.prim.lower[0]
        if lower in _LOOPS or node.prim.effect is not None or node.prim.name in ("cat", "conditional", "loop"):
            return FIXED
        if node.prim.family == "collective":
            return FIXED
        heavy += lower == "extern"
        rows = rows or is_reduction(node)
    return HEAVY if heavy else ROWS if rows else MAP


def joint_kind(first: str, then: str) -> str | None:
    """The kind of both together; None where they stay apart."""
    if FIXED in (first, then) or then == HEAVY or (first == HEAVY and then != MAP):
        return None
    return HEAVY if first == HEAVY else ROWS if ROWS in (first, then) else MAP


def name_of(cluster: Cluster) -> str:
    """A cluster's name in notes."""
    names = [node.prim.name for node in cluster.unit.graph.nodes]
    return f"{cluster.number} ({', '.join(names[:4])}{'...' if len(names) > 4 else ''})"


class Joiner:
    """Makes calls one call.  Those of repeated blocks, which are alike and read each other alike, share one graph."""

    def __init__(self) -> None:
        self._alike: dict[Any, tuple[Graph, Key]] = {}

    def __call__(self, units: Sequence[Unit], wanted: Sequence[Value]) -> Unit:
        """Calls as one, which gives `wanted` of their results."""
        if len(units) == 1 and tuple(wanted) == units[0].results:
            return units[0]
        wiring = _Wiring(units, wanted)
        key, strides = wiring.key, [wiring.strides[id(v)] for v in wanted]
        known = self._alike.get(key)
        if known is None:
            unit = Unit(wiring.graph(), wiring.operands, wanted, strides)
            known = self._alike[key] = unit.graph, unit.key
        return Unit(known[0], wiring.operands, wanted, strides, key=known[1])


class _Wiring:
    """How calls that become one are given what they read: `sources` says for each operand of each call the number of an
    input, or what another call made, and the views of it.
    """

    def __init__(self, units: Sequence[Unit], wanted: Sequence[Value]) -> None:
        self.units = units
        self.operands: list[Operand | Number] = []
        self.sources: list[list[tuple[int, Any]]] = []
        self.strides: dict[int, Any] = {}
        known: dict[Any, int] = {}
        made: dict[int, int] = {}  # results by id, numbered from -1 downwards
        for unit in units:
            row: list[tuple[int, Any]] = []
            for operand, value in zip(unit.operands, unit.graph.inputs, strict=True):
                found = made.get(id(operand.base)) if isinstance(operand, Operand) else None
                if found is not None:
                    assert isinstance(operand, Operand)
                    row.append((found, operand.views))
                    continue
                number = known.setdefault((operand.key, value.dtype), len(self.operands))
                if number == len(self.operands):
                    self.operands.append(operand)
                row.append((number, ()))
            self.sources.append(row)
            for result, lies in zip(unit.results, unit.strides, strict=True):
                made[id(result)] = -1 - len(made)
                self.strides[id(result)] = lies
        self.wanted = [made[id(v)] for v in wanted]

    @property
    def key(self) -> Any:
        """A key that is equal for wirings that lead to one graph."""
        rows = [
            tuple(
                [
                    (number, views and tuple([(p.name, _freeze([*v.items()])) for p, v in views]))
                    for number, views in row
                ]
            )
            for row in self.sources
        ]
        return tuple([unit.key for unit in self.units]), tuple(rows), tuple(self.wanted)

    def graph(self) -> Graph:
        """The graph of all calls."""
        builder = GraphBuilder()
        inputs: list[Any] = []
        made: list[Any] = []
        with builder:
            for unit, row in zip(self.units, self.sources, strict=True):
                given = []
                for (number, views), value in zip(row, unit.graph.inputs, strict=True):
                    if number == len(inputs):
                        inputs.append(builder.input(value.shape, value.dtype, value.weak))
                    found = inputs[number] if number >= 0 else made[-1 - number]
                    for view, params in views:
                        found = view(found, **params)
                    given.append(found)
                made += evaluate(unit.graph, given)
        return builder.finish([made[-1 - number] for number in self.wanted])
