"""Estimates of what a kernel moves and computes, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._codegen.loops import Kernel, Loop, Reduce, Scan, Tile
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Store
from rushlight._schedule.groups import Stage
from rushlight._schedule.indexing import Var
from rushlight._schedule.policy import Policy
from rushlight._types.layout import numel

__all__ = ["traffic", "work_of"]


def traffic(kernel: Kernel, cache: int = 0) -> tuple[int, int]:
    """Bytes moved if each array element touched is moved once per nest, and scalar operations done; rough.

    Within an iteration of outer loops an array is moved once, however often it is read, where its part in that is no
    larger than `cache` bytes.
    """
    moved, flops, around = 0, 0, 1
    rows: dict[Any, int] = {}

    def walk(body: Sequence[Any], count: int, outer: int = 1) -> None:
        nonlocal moved, flops, around
        for s in body:
            around = outer
            if isinstance(s, Loop):
                walk(s.body, count * s.var.size, outer if s.lanes else outer * s.var.size)
                continue
            if isinstance(s, Tile):
                walk(s.body, count * s.across.size * s.lane.size, outer)
                continue
            if isinstance(s, Reduce | Scan):
                inner = count * numel([v.size for v in (s.loops if isinstance(s, Reduce) else [s.var])])
                stage = Stage([])
                stage.items = s.items
                flops += inner * (facts_of([stage]).operations + len(s.items))
                note(facts_of([stage]), inner)
                walk(s.stores if isinstance(s, Reduce) else s.body, inner, outer)
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
            nbytes = min(reach, count) * buffer.dtype.itemsize
            if nbytes <= cache * around and around > 1:
                rows[buffer] = max(rows.get(buffer, 0), nbytes)
            else:
                moved += nbytes

    for section in kernel.sections:
        walk(section.body, 1)
        moved += sum(rows.values())
        rows.clear()
    return moved, flops


def work_of(kernel: Kernel, policy: Policy) -> float:
    """Arithmetic of a kernel, in units of moving one element; expressions shared by loops count once."""

    def walk(body: Sequence[Any], count: int) -> float:
        work, together = 0.0, Stage([])
        for s in body:
            if isinstance(s, Loop):
                work += walk(s.body, count * s.var.size)
            elif isinstance(s, Tile):
                work += walk(s.body, count * s.across.size * s.lane.size)
            elif isinstance(s, Reduce):
                inner = count * numel([v.size for v in s.loops])
                stage = Stage([])
                stage.items, stage.stores = s.items, [x for x in s.stores if isinstance(x, Store)]
                work += inner * facts_of([stage]).cost(policy)
                work += walk([x for x in s.stores if not isinstance(x, Store)], inner)
            elif isinstance(s, Scan):
                stage = Stage([])
                stage.items = s.items
                inner = count * s.var.size
                work += inner * facts_of([stage]).cost(policy) + walk(s.body, inner)
            else:
                together.stores.append(s)
        return work + (count * facts_of([together]).cost(policy) if together.stores else 0.0)

    return sum(walk(section.body, 1) for section in kernel.sections)
