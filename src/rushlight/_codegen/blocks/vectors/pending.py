"""Loads that are still to be used.

A tile that is not kept is loaded where its elements are used, which may be behind a store that overwrites them.  Where
the emitter writes stores, it asks here which tiles it has to keep before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import Kernel, Op, Value
from .memory import Buffer
from .plan import LAZY, Plan, conflict

__all__ = ["PendingLoads"]


class PendingLoads:
    """Loads of tiles that the emitter has passed, with the last operation that wants each."""

    def __init__(self, kernel: Kernel, plan: Plan, buffers: Mapping[Value, Buffer]) -> None:
        self.plan, self.buffers = plan, buffers
        self.places = {op: k for k, op in enumerate(kernel.body.walk())}
        self.here = 0
        self.loads: list[Op] = []
        self.last: dict[Op, int] = {}
        sources: dict[Value, frozenset[Op]] = {}  # the loads that a tile is computed from
        for op, place in self.places.items():
            read = frozenset[Op]().union(*(sources.get(v, ()) for v in op.operands))
            lazy = op.kind in LAZY and not any(v in plan.kept or not v.shape for v in op.results)
            if not lazy:
                self.last.update(dict.fromkeys(read, place))
            own = frozenset([op]) if op.kind == "load" and op.result.shape else frozenset[Op]()
            if lazy or own:
                sources.update(dict.fromkeys(op.results, own | (read if lazy else own)))

    def reach(self, op: Op) -> None:
        """The emitter is at an operation."""
        self.here = self.places[op]
        if op in self.last and op.result not in self.plan.kept:
            self.loads.append(op)

    def endangered(self, stores: Sequence[Op]) -> list[Op]:
        """Loads in front of some of the stores that may read what these write, and that are wanted from here on."""
        self.loads = [op for op in self.loads if self.last[op] >= self.here and op.result not in self.buffers]
        return [op for op in self.loads if any(self.overwrites(store, op) for store in stores)]

    def overwrites(self, store: Op, load: Op) -> bool:
        if self.places[store] < self.places[load]:
            return False
        return load.operands[0] is store.operands[0] or conflict(load, store, self.plan.roots)
