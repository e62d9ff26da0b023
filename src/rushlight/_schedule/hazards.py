"""Outputs that go into the memory of an input, while somebody still reads what was there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Group
from rushlight._schedule.placing import Copy, LibraryCall, Placement
from rushlight._types.layout import numel

if TYPE_CHECKING:
    pass

__all__ = ["mend_hazards"]


def mend_hazards(schedule: Placement) -> None:
    """Outputs that go into an input's memory must not disturb those who still read it."""
    copies: list[Copy] = []
    for i, k in schedule.aliases.items():
        target = schedule.targets[i]
        shared = {schedule.input_buffers[j] for j in schedule.overlaps.get(i, ()) if j in schedule.input_buffers}
        value = schedule.graph.outputs[i]
        if numel(value.shape) == 0:
            continue
        writer = next(
            (
                n
                for n, g in enumerate(schedule.groups)
                if isinstance(g, Group) and any(s.buffer is target.buffer for t in g.stages for s in t.stores)
            ),
            None,
        )
        if writer is None or not _in_the_way(schedule, writer, target.buffer, shared):
            continue
        temporary = schedule.new_buffer(value, f"temporary{len(schedule.sizes)}", "temporary", target.strides)
        group = schedule.groups[writer]
        assert isinstance(group, Group)
        for stage in group.stages:
            for store in stage.stores:
                if store.buffer is target.buffer:
                    store.buffer = temporary.buffer
        for key, (where, number) in list(schedule.placed.items()):
            if where is target and number == writer:
                schedule.placed[key] = (temporary, number)
        copies.append(Copy(temporary, target, value.shape))
        schedule.notes.append(f"output {i} goes through a temporary, because input {k} is still read")
    schedule.groups.extend(copies)


def _in_the_way(schedule: Placement, writer: int, buffer: Buffer, shared: set[Buffer]) -> bool:
    for number in range(writer, len(schedule.groups)):
        group = schedule.groups[number]
        if isinstance(group, LibraryCall):
            if any(s.buffer is buffer or s.buffer in shared for s in group.inputs):
                return True
            continue
        if isinstance(group, Copy):
            continue
        stages = group.stages if isinstance(group, Group) else group.group.stages
        for at, stage in enumerate(stages):
            facts = facts_of([stage])
            stores = {s.ix for s in stage.stores if s.buffer is buffer}
            stored_before = any(s.buffer is buffer for t in stages[:at] for s in t.stores)
            stored_later = any(s.buffer is buffer for t in stages[at + 1 :] for s in t.stores)
            for read, ix, weight in facts.accesses:
                if weight != 1.0:
                    continue
                if read in shared:
                    return True
                if read is not buffer:
                    continue
                if number > writer or stored_before or (stores and ix not in stores):
                    return True
                if stored_later and isinstance(group, Group) and not _same_row(group, stage, ix, buffer):
                    return True
    return False


def _same_row(group: Group, stage: Any, ix: Any, buffer: Buffer) -> bool:
    """Whether an early read of a buffer stays in the row that a later stage of the group writes."""
    row = group.row
    if row is None:
        return True
    stored = next(s.ix for t in group.stages for s in t.stores if s.buffer is buffer)

    def part(i: Any) -> Any:
        return [(a, c) for a, c in i.terms if row in a.vars], i.const

    def rest(i: Any) -> Any:
        return sorted((c, getattr(a, "size", 0)) for a, c in i.terms if row not in a.vars)

    return bool(part(ix) == part(stored) and rest(ix) == rest(stored))
