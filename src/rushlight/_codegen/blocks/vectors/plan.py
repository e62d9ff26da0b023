"""Which tiles of a block kernel are kept in memory, and which are computed where they are used.

A *sink* is an operation that wants all elements of a tile: a store, a reduction, a product.  Sinks that can share one
loop over the elements make a group.  A tile between them is computed in the loop, chunk by chunk, unless several groups
want it and it is expensive, or memory that it was loaded from may change before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rushlight._types.dtype import DType

from ..ir import Kernel, Op, Region, Value
from ..types import Pointer

__all__ = ["ELEMENTWISE", "LAZY", "Plan", "WRITES", "conflict", "plan_of", "written_pointers"]

# Operations whose tiles can be computed for any chunk of places.
LAZY = frozenset({
    "constant", "program_id", "num_programs", "arange", "splat", "expand_dims", "broadcast", "permute", "reshape", "join", "split",
    "pointwise", "multiply_high", "offset", "pointer_cast", "address", "load", "hint",
})  # fmt: skip
# Those among them that take their operands' elements of the same place.
ELEMENTWISE = frozenset({"pointwise", "multiply_high", "offset", "pointer_cast", "address", "load", "hint"})
WRITES = frozenset({"store", "atomic", "atomic_cas", "barrier", "print"})
_STORES = frozenset({"store", "store_tile", "atomic", "atomic_cas"})
_WHOLE = {"gather": (0,), "histogram": (0, 1)}  # operands that are wanted in memory
_COSTS = {
    "div": 4, "sqrt": 4, "rsqrt": 4, "div_trunc": 6, "rem_trunc": 6, "add": 1, "sub": 1, "mul": 1, "select": 1, "convert": 2, "neg": 1,
    "maximum": 2, "minimum": 2, "lt": 1, "le": 1, "eq": 1, "ne": 1, "abs": 1, "bitwise_and": 1, "bitwise_or": 1, "bitwise_xor": 1,
    "shift_left": 2, "shift_right": 2, "fma": 1, "bitcast": 0,
}  # fmt: skip
_EXPENSIVE, _FAR, _LOAD = 10, 7, 8


class _Use(NamedTuple):
    """A group that wants a tile: how many reductions it waits for, its shape, how often loops have ended before it, what
    else must be equal for two uses to share a loop (the axis of reductions, the product that packs the tile; None: nothing);
    and the place of the sink in its region.
    """

    stage: int
    shape: tuple[int, ...]
    loop: int
    own: tuple[str, int] | None
    place: int

    @property
    def group(self) -> tuple[int, tuple[int, ...], int]:
        return self.stage, self.shape, self.loop


class Plan(NamedTuple):
    """`kept`: tiles in memory.  `roots`: for pointers the parameter that they point into; None where it is unknown."""

    kept: frozenset[Value]
    roots: Mapping[Value, Value | None]


def plan_of(kernel: Kernel) -> tuple[Plan, Mapping[Value, int]]:
    """The plan of a kernel, and what an element of each tile costs."""
    roots: dict[Value, Value | None] = {p: p for p in kernel.params}
    _find_roots(kernel.body, roots)
    made = _Planner(roots)
    made.region(kernel.body, {})
    return Plan(frozenset(made.kept), roots), made.costs


def written_pointers(kernel: Kernel) -> set[Value]:
    """The parameters that a kernel may write through."""
    roots: dict[Value, Value | None] = {p: p for p in kernel.params}
    _find_roots(kernel.body, roots)
    found = {roots.get(op.operands[0]) for op in kernel.body.walk() if op.kind in _STORES}
    return {v for v in found if v is not None} if None not in found else set(kernel.params)


def _find_roots(region: Region, roots: dict[Value, Value | None]) -> None:
    for op in region.ops:
        if op.kind == "for":
            body = op.regions[0]
            for param, first in zip(body.params[1:], op.operands[3:], strict=True):
                roots[param] = roots.get(first)
            _find_roots(body, roots)
            for param, first, last in zip(body.params[1:], op.operands[3:], body.yielded, strict=True):
                if isinstance(param.type.element, Pointer) and roots.get(first) is not roots.get(last):
                    roots[param] = None
            _find_roots(body, roots)
            roots.update((r, roots.get(p)) for r, p in zip(op.results, body.params[1:], strict=True))
        elif op.kind in ("offset", "splat", "broadcast", "expand_dims", "reshape", "permute", "hint", "pointer_cast"):
            roots[op.result] = roots.get(op.operands[0])
        else:
            for inner in op.regions:
                _find_roots(inner, roots)


def conflict(access: Op, store: Op, roots: Mapping[Value, Value | None]) -> bool:
    """Whether a store may write, at another place of its tile, what a load reads or another store writes: both may point
    into one parameter, and not by the same tile of pointers.
    """
    a, b = access.operands[0], store.operands[0]
    if a is b:
        return False
    one, other = roots.get(a), roots.get(b)
    return one is None or other is None or one is other


class _Planner:
    def __init__(self, roots: Mapping[Value, Value | None]) -> None:
        self.roots = roots
        self.kept: set[Value] = set()
        self.costs: dict[Value, int] = {}
        self.stages: dict[Value, int] = {}
        self.loops: dict[Op, int] = {}

    def region(self, region: Region, outer: dict[Value, set[_Use]]) -> dict[Value, set[_Use]]:
        """Decide for the tiles that a region defines; the uses of those that it does not are added to `outer`."""
        self.forward(region)
        uses: dict[Value, set[_Use]] = {}
        writes = [k for k, op in enumerate(region.ops) if _writes(op)]
        for place in range(len(region.ops) - 1, -1, -1):
            op = region.ops[place]
            if op.kind not in LAZY:
                self.sink(op, place, uses)
                continue
            for value in op.results:
                if not value.shape:
                    continue
                wanted = uses.get(value, set())
                if self.decide(op, value, place, wanted, region, writes):
                    self.kept.add(value)
                    wanted = {_Use(self.stages.get(value, 0), value.shape, self.loops[op], None, place)}
                for operand in op.operands:
                    if operand.shape:
                        uses.setdefault(operand, set()).update(wanted)
        for value, found in uses.items():
            outer.setdefault(value, set()).update(found)
        return uses

    def forward(self, region: Region) -> None:
        """Costs, how many sinks each value waits for, and where loops must end."""
        ended, stores = 0, list[Op]()
        for op in region.ops:
            if op.kind == "store" and any(conflict(other, op, self.roots) for other in stores):
                ended, stores = ended + 1, []
            elif op.kind not in LAZY and op.kind not in ("store", "reduce", "yield"):
                ended, stores = ended + 1, []
            if op.kind == "store":
                stores.append(op)
            self.loops[op] = ended
            stage = max((self.stages.get(v, 0) for v in op.operands), default=0)
            cost = sum(self.costs.get(v, 1) for v in {v for v in op.operands if v.shape})
            if op.kind == "pointwise":
                prim = op.attributes["prim"]
                cost += _COSTS.get(prim, 12)
            elif op.kind == "load":
                cost += _LOAD
            elif op.kind not in LAZY:
                stage, cost = stage + 1, 1
            for value in op.results:
                self.stages[value], self.costs[value] = stage, cost

    def sink(self, op: Op, place: int, uses: dict[Value, set[_Use]]) -> None:
        shape = op.operands[0].shape if op.operands else ()
        own = {"reduce": ("axis", op.attributes.get("axis", 0)), "dot": ("product", place)}.get(op.kind)
        for k, value in enumerate(op.operands):
            if not value.shape:
                continue
            if k in _WHOLE.get(op.kind, ()):
                self.kept.add(value)
            shape = value.shape if op.kind in ("for", "while", "yield") else shape
            stage = max(self.stages.get(v, 0) for v in op.operands)
            uses.setdefault(value, set()).add(_Use(stage, shape, self.loops[op], own, place))
        if op.kind in ("for", "while", "if"):
            inner: dict[Value, set[_Use]] = {}
            for region in op.regions:
                self.region(region, inner)
            for value, found in inner.items():
                if found:
                    uses.setdefault(value, set()).add(_Use(-1, (), self.loops[op], ("loop", place), place))

    def decide(self, op: Op, value: Value, place: int, wanted: set[_Use], region: Region, writes: list[int]) -> bool:
        """Whether a tile is kept in memory."""
        if value in self.kept:
            return True
        cost = self.costs[value]
        far = any(use.stage < 0 for use in wanted)  # in a loop or a branch
        if far and cost >= _FAR and _arithmetic(op):
            return True
        if _groups(wanted) > 1 and cost >= _EXPENSIVE - 2 * (op.kind == "load") and _arithmetic(op):
            return True
        loads = [v.op for v in self.loads(value) if v.op is not None]
        if not loads or op.kind != "load":
            return False
        for use in wanted:
            for k in writes:
                if place < k < use.place and not self.joins(op, region.ops[k], use):
                    return True
                if k == use.place and region.ops[k].kind == "store" and conflict(op, region.ops[k], self.roots):
                    return True
        return False

    def joins(self, load: Op, write: Op, use: _Use) -> bool:
        """Whether a store between a load and its use shares the use's loop, and leaves alone what the load reads."""
        if write.kind != "store" or conflict(load, write, self.roots):
            return False
        stage = max(self.stages.get(v, 0) for v in write.operands)
        return (stage, write.operands[0].shape, self.loops[write]) == use.group

    def loads(self, value: Value) -> list[Value]:
        return [value] if value.op is not None and value.op.kind == "load" else []


def _arithmetic(op: Op) -> bool:
    """Whether a tile holds something that had to be computed: other forms of a tile cost what the tile itself costs."""
    if op.kind == "load":
        return True
    return op.kind in ("pointwise", "multiply_high") and isinstance(op.result.type.element, DType)


def _groups(wanted: set[_Use]) -> int:
    """How many loops the uses make: those that any loop may have join those that want one of their own."""
    special = {(use.group, use.own) for use in wanted if use.own is not None}
    joined = {group for group, own in special if own[0] == "axis"}
    return len(special) + len({use.group for use in wanted if use.own is None} - joined)


def _writes(op: Op) -> bool:
    return op.kind in WRITES or any(_writes(inner) for region in op.regions for inner in region.ops)
