"""Estimates of what a kernel moves and computes, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._codegen.loops import Kernel, Loop, Reduce, Scan, Tile
from rushlight._schedule.costs import facts_of
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Var
from rushlight._types.layout import numel

__all__ = ["traffic"]


def traffic(kernel: Kernel) -> tuple[int, int]:
    """Bytes moved if each array element touched is moved once per nest, and scalar operations done; rough."""
    moved = flops = 0

    def walk(body: Sequence[Any], count: int) -> None:
        nonlocal moved, flops
        for s in body:
            if isinstance(s, Loop):
                walk(s.body, count * s.var.size)
                continue
            if isinstance(s, Tile):
                walk(s.body, count * s.across.size * s.lane.size)
                continue
            if isinstance(s, Reduce | Scan):
                inner = count * numel([v.size for v in (s.loops if isinstance(s, Reduce) else [s.var])])
                stage = Stage([])
                stage.items = s.items
                flops += inner * (facts_of([stage]).operations + len(s.items))
                note(facts_of([stage]), inner)
                walk(s.stores if isinstance(s, Reduce) else s.body, inner)
                continue
            stage = Stage([])
            stage.stores = [s]
            facts = facts_of([stage])
            flops += count * facts.operations
            note(facts, count)

    def note(facts: Any, count: int) -> None:
        nonlocal moved
        for buffer, ix, _ in facts.accesses:
            reach = numel([a.size for a in ix.vars if type(a) is Var]) if ix.vars else 1
            moved += min(reach, count) * buffer.dtype.itemsize

    for section in kernel.sections:
        walk(section.body, 1)
    return moved, flops
