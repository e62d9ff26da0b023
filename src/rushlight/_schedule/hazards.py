"""Write-after-read hazards: outputs written into the memory of an input that is still read.

Groups name memory, not values, so a later group that reads the memory may mean either value.  The graph is scheduled
once more with temporaries for such outputs, and these are copied at the end.
"""

from __future__ import annotations

from typing import Any

from rushlight._schedule.costs import Facts, facts_of
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Group, Stage
from rushlight._schedule.schedule import Copy, LibraryCall, Schedule
from rushlight._types.layout import numel

__all__ = ["copy_temporaries", "find_hazards"]


def find_hazards(schedule: Schedule) -> list[int]:
    """The outputs that are written into the memory of an input before that was read for the last time."""
    found: list[int] = []
    for i in schedule.aliases:
        target = schedule.targets[i]
        shared = {schedule.input_buffers[j] for j in schedule.overlaps.get(i, ()) if j in schedule.input_buffers}
        if i in schedule.temporaries or numel(schedule.graph.outputs[i].shape) == 0:
            continue
        writer = next(
            (
                n
                for n, g in enumerate(schedule.groups)
                if isinstance(g, Group) and any(s.buffer is target.buffer for t in g.stages for s in t.stores)
            ),
            None,
        )
        if writer is not None and _still_read(schedule, writer, target.buffer, shared):
            found.append(i)
    return found


def copy_temporaries(schedule: Schedule) -> None:
    """Copy the outputs that were written to temporaries to their inputs, at the end."""
    for i in schedule.temporaries:
        k = schedule.aliases[i]
        schedule.groups.append(Copy(schedule.targets[i], schedule.written(i), schedule.graph.outputs[i].shape))
        schedule.notes.append(f"output {i} goes through a temporary, because input {k} is still read")


def _still_read(schedule: Schedule, writer: int, buffer: Buffer, shared: set[Buffer]) -> bool:
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
            if stores and _loaded_behind_store(stage, {buffer, *shared}, buffer):
                return True
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


def _loaded_behind_store(stage: Stage, read: set[Buffer], written: Buffer) -> bool:
    """Whether a store of a stage loads from memory that an earlier one has written, other than what that has loaded
    already: an element that is read under a condition is a load of its own.
    """
    facts, stored = Facts(), False
    for item in stage.items:
        facts.add_item(item)
    for store in stage.stores:
        before = len(facts.loads)
        facts.add_store(store)
        if stored and any(load.value[0] in read for load in facts.loads[before:]):
            return True
        stored = stored or store.buffer is written
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
