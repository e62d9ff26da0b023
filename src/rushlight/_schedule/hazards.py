"""Write-after-read hazards: outputs written into the memory of an input that is still read."""

from __future__ import annotations

from typing import Any

from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Group
from rushlight._schedule.placing import Copy, LibraryCall, Placement
from rushlight._types.layout import numel

__all__ = ["mend_hazards"]


def mend_hazards(schedule: Placement) -> None:
    """Write such outputs to temporaries, which are copied to the inputs at the end."""
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
        if writer is None or not _still_read(schedule, writer, target.buffer, shared):
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


def _still_read(schedule: Placement, writer: int, buffer: Buffer, shared: set[Buffer]) -> bool:
    """Whether `buffer`, or memory that it shares, is read in or after group `writer`, which writes it."""
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
    """Whether a stage reads only the row of a buffer that a later stage of the group writes."""
    row = group.row
    if row is None:
        return True
    stored = next(s.ix for t in group.stages for s in t.stores if s.buffer is buffer)

    def part(i: Any) -> Any:
        return [(a, c) for a, c in i.terms if row in a.vars], i.const

    def rest(i: Any) -> Any:
        return sorted((c, getattr(a, "size", 0)) for a, c in i.terms if row not in a.vars)

    return bool(part(ix) == part(stored) and rest(ix) == rest(stored))
